"""Comparing two groups of runs: the whole step, its phases, its layers, each with an interval.

The intervals of the phases of a part, and those of its layers, are widened so that all of them hold at once with 95 %
(Bonferroni): with a hundred unchanged layers, five would seem changed otherwise. What is shown and what is called
significant therefore agree: a row is significant when its interval leaves out 1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import stdev
from typing import Any

import numpy as np

from sonda.analysis import reasons, wording
from sonda.analysis.comparison.findings import (
    ComparedSetting,
    ComparedSettings,
    DifferentMachines,
    DifferingLibrary,
    DifferingSetting,
    DifferingThreads,
    DifferingWork,
    DisturbedRuns,
    NoInterval,
    NoisyPart,
    OneProcess,
    UnfinishedRuns,
    UntimedParts,
    WidenedIntervals,
)
from sonda.analysis.comparison.limit import Variation
from sonda.analysis.comparison.simulated import compare_simulated, cycles_of
from sonda.analysis.comparison.summary import ComparedRow, Comparison, PartComparison, describe, lonely
from sonda.analysis.findings import Finding
from sonda.analysis.simulated.run import summarise_simulated
from sonda.analysis.statistics import NOISY, effective_size, ratio, side
from sonda.analysis.steps.parts import Part, parts
from sonda.analysis.summary import Summary, Value
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.record.target import SimulatedTarget

IDENTITY = ("command", "name", "framework", "train", "precision", "batch", "compile", "channels_last", "workers")
"""What a workload is mentioned by first when two differ."""
WAYS = ("framework", "precision", "matmul_precision", "autocast", "compile", "compile_part", "channels_last",
        "cuda_graphs", "cores", "loader", "workers", "prefetch", "pin", "persistent_workers", "cache")  # fmt: skip
"""Settings of how work is done: where the sides differ in them, that is what is compared."""
COMMAND, THREADS = "command", "threads"
MEASURED = frozenset({"traced", "waits"})
"""What is kept with a workload and was measured: it differs from run to run of the same work."""


def parse_percent(text: str) -> float:
    """`5%`, `5 %` or `5` -> 0.05. Raises SondaError for anything else, and for negative numbers."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*%?\s*", text)
    if match is None:
        raise SondaError(f"{text!r} is not a percentage", "write it like 5% or 2.5%")
    return float(match.group(1)) / 100


def refuse_same_run(a: Sequence[Run], b: Sequence[Run]) -> None:
    """Raises SondaError where a run stands on both sides: compared with itself it shows no difference."""
    both = {run.directory.absolute() for run in a} & {run.directory.absolute() for run in b}
    if not both:
        return
    ids = [run.id for run in a if run.directory.absolute() in both]
    if len(ids) == len(a) == len(b):
        raise SondaError(f"A and B are the same: {wording.join(ids)}", "name another run; sonda ls lists them")
    raise SondaError(
        f"{wording.join(ids)} {'is' if len(ids) == 1 else 'are'} on both sides", "take one of its tags off: sonda tag"
    )


def compare(a: list[Run], b: list[Run]) -> Comparison:
    """B against A: every run of a side is one more process of the same configuration.

    Raises SondaError when a side has no runs, no part was timed on both sides, or only one side is simulated.
    """
    if not a or not b:
        raise SondaError("there is nothing to compare", "name at least one run on each side")
    kinds = {run.info.kind: run for run in reversed([*a, *b])}
    if "corun" in kinds:
        raise SondaError("a co-run holds several programs, alone and together", "look at it with: sonda show")
    if "exploration" in kinds:
        raise SondaError(
            f"{kinds['exploration'].id} is an exploration, which has points and no step",
            "look at it with: sonda show; compare runs of two of its points",
        )
    if "imported" in kinds:
        raise SondaError("imported runs are compared kernel by kernel", "compare them with: sonda compare A B")
    simulated = [run.info.kind == "simulated" for run in [*a, *b]]
    if any(simulated):
        return _compare_exact(a, b, simulated)
    timed_a, timed_b = [_timed(run) for run in a], [_timed(run) for run in b]
    names = [name for name in timed_a[0] if all(name in run for run in [*timed_a, *timed_b])]
    if not names:
        raise SondaError(
            "the two sides have no part with timed steps in common",
            f"A has {_listed(timed_a)}, B has {_listed(timed_b)}; compare runs of the same workload",
        )
    compared = tuple(_part(name, [run[name] for run in timed_a], [run[name] for run in timed_b]) for name in names)
    step = compared[0].step
    low, high = step.ratio.low, step.ratio.high
    slowdown = Value(
        (step.ratio.value or math.nan) - 1, "1", "derived",
        None if low is None else low - 1, None if high is None else high - 1, step.ratio.reason,
    )  # fmt: skip
    ways, differences = _differences(a, b)
    warnings = [*_disturbed([*a, *b]), *differences, *_unlike_parts(timed_a, timed_b, names), *_noise(compared)]
    first = names[0]
    return Comparison(
        a=tuple(run.id for run in a),
        b=tuple(run.id for run in b),
        parts=compared,
        slowdown=slowdown,
        warnings=tuple(warnings),
        notes=(*ways, *_notes(a, b, compared)),
        variations=tuple(_variation([run[first] for run in of_side]) for of_side in (timed_a, timed_b)),
        of_programs=any(kind in kinds for kind in ("program", "block")),
    )


def compare_steps(a: Sequence[float], b: Sequence[float]) -> ComparedRow:
    """Steps of one process, ns, against those of another: warm-up is set apart already, and nothing else is known."""
    left, right = (np.asarray(times, dtype=np.float64) for times in (a, b))
    sizes = [effective_size(left)], [effective_size(right)]
    return _rows([("step", "")], [left[:, None]], sizes[0], [right[:, None]], sizes[1])[0]


def _compare_exact(a: list[Run], b: list[Run], simulated: list[bool]) -> Comparison:
    """Simulated runs by their cycles: those of a side must be the same, and one stands for all."""
    if not all(simulated):
        lone = next(run for run, is_simulated in zip([*a, *b], simulated, strict=True) if is_simulated)
        raise SondaError(
            f"{lone.id} is simulated, others are measured: cycles and times have no ratio",
            "look at them side by side: sonda report A B",
        )
    compared = compare_simulated(_one_of("A", a), _one_of("B", b))
    return replace(
        compared,
        a=tuple(run.id for run in a),
        b=tuple(run.id for run in b),
        warnings=(*_other_work(_differing_settings([*a, *b])), *_unfinished([*a, *b])),
    )


def _one_of(side: str, runs: list[Run]) -> Summary:
    summaries = [
        summarise_simulated(run, target, run.id)
        for run in runs
        if isinstance(target := run.info.target, SimulatedTarget)
    ]
    if len({cycles_of(summary) for summary in summaries}) > 1:
        raise SondaError(f"the {len(runs)} runs of side {side} differ in their cycles", "name one of them")
    return summaries[0]


def _timed(run: Run) -> dict[str, Part]:
    return {part.name: part for part in parts(run) if part.measured.any()}


def _listed(runs: list[dict[str, Part]]) -> str:
    return wording.join(list(dict.fromkeys(name for run in runs for name in run))) or "none"


def _part(name: str, a: list[Part], b: list[Part]) -> PartComparison:
    sizes_a, sizes_b = [part.effective for part in a], [part.effective for part in b]

    def rows(names: list[tuple[str, str]], left: list[np.ndarray], right: list[np.ndarray]) -> tuple[ComparedRow, ...]:
        return _rows(names, left, sizes_a, right, sizes_b) if names else ()

    step = rows([("step", "")], [_steps(part) for part in a], [_steps(part) for part in b])[0]
    phases_a, phases_b = _common([_phases(part) for part in a]), _common([_phases(part) for part in b])
    phases = [phase for phase in phases_a if phase in phases_b]
    layers_a, layers_b = _common([_layers(part) for part in a]), _common([_layers(part) for part in b])
    layers = [layer for layer in layers_a if layer in layers_b]

    def phase_table(part: Part) -> np.ndarray:
        phase_times = _phases(part)
        return np.column_stack([phase_times[phase] for phase in phases]) if phases else np.zeros((0, 0))

    def layer_table(part: Part) -> np.ndarray:
        phase_times = _layers(part)
        return np.column_stack([phase_times[layer] for layer in layers]) if layers else np.zeros((0, 0))

    return PartComparison(
        name=name,
        step=step,
        phases=rows([(phase, "") for phase in phases], [phase_table(p) for p in a], [phase_table(p) for p in b]),
        layers=rows([(kind, path) for path, kind in layers], [layer_table(p) for p in a], [layer_table(p) for p in b]),
        only_a=lonely(phases_a, phases_b, layers_a, layers_b),
        only_b=lonely(phases_b, phases_a, layers_b, layers_a),
    )


def _variation(processes: list[Part]) -> Variation:
    """How much the medians of processes differ; of one, how far its steps leave its median open."""
    medians = [float(np.median(_steps(part))) for part in processes]
    if len(medians) > 1 and min(medians) > 0:
        return Variation(stdev(map(math.log, medians)), len(medians))
    return Variation(float(side([_steps(processes[0])], [processes[0].effective]).error[0]), 1)


def _steps(part: Part) -> np.ndarray:
    column: np.ndarray = part.durations[part.measured][:, None]
    return column


def _phases(part: Part) -> dict[str, np.ndarray]:
    times = {name: values[part.measured] for name, values in part.phases.items()}
    return {name: values for name, values in times.items() if np.median(values) > 0}


def _layers(part: Part) -> dict[tuple[str, str], np.ndarray]:
    """ns per step, forward and backward, modules inside included, by path and class."""
    spans, both = part.layers.spans, part.layers.forward + part.layers.backward
    times = {(path, spans.names[i]): both[i] for i, path in enumerate(spans.paths)}
    return {layer: values for layer, values in times.items() if np.median(values) > 0}


def _common(runs: Sequence[dict[Any, np.ndarray]]) -> list[Any]:
    """What every run of a side has, in the order of the first."""
    return [key for key in runs[0] if all(key in run for run in runs)]


def _rows(
    names: list[tuple[str, str]],
    left: list[np.ndarray],
    left_sizes: list[int],
    right: list[np.ndarray],
    right_sizes: list[int],
) -> tuple[ComparedRow, ...]:
    a, b = side(left, left_sizes), side(right, right_sizes)
    middle, low, high = ratio(a, b, comparisons=len(names))
    # One step on each side shows no variation at all, which must not be taken for certainty.
    unknown = reasons.ONE_STEP if min(map(len, left + right)) < 2 else ""
    rows = []
    for i, (name, path) in enumerate(names):
        value = float(middle[i])
        known = Value(value, "1", "derived", float(low[i]), float(high[i]))
        significant = not unknown and not low[i] <= 1 <= high[i]
        rows.append(
            ComparedRow(
                name=name,
                path=path,
                a=Value(float(a.middle[i]), "ns", "measured"),
                b=Value(float(b.middle[i]), "ns", "measured"),
                ratio=Value(value, "1", "derived", reason=unknown) if unknown else known,
                significant=significant,
                text=describe(value, known.low, known.high) if significant else "not significant",
            )
        )
    return tuple(rows)


def _noise(compared: tuple[PartComparison, ...]) -> list[Finding]:
    doubts: list[Finding] = []
    for part in compared:
        low, high = part.step.ratio.low, part.step.ratio.high
        if low is None or high is None:
            doubts.append(NoInterval(part.name, part.step.ratio.reason))
        elif math.sqrt(high / low) - 1 > NOISY:
            doubts.append(NoisyPart(part.name, math.sqrt(high / low) - 1))
    return doubts


def _notes(a: list[Run], b: list[Run], compared: tuple[PartComparison, ...]) -> list[Finding]:
    notes: list[Finding] = [OneProcess(len(a) == len(b))] if min(len(a), len(b)) == 1 else []
    phases, layers = max(len(part.phases) for part in compared), max(len(part.layers) for part in compared)
    if phases > 1 or layers > 1:
        notes.append(WidenedIntervals(phases > 1, layers if layers > 1 else 0))
    return notes


def _unlike_parts(a: list[dict[str, Part]], b: list[dict[str, Part]], names: list[str]) -> list[Finding]:
    everything = dict.fromkeys(name for run in [*a, *b] for name in run)
    apart = tuple(name for name in everything if name not in names)
    return [UntimedParts(apart)] if apart else []


def _disturbed(runs: list[Run]) -> list[Finding]:
    count = sum(bool(run.info.disturbed) for run in runs)
    return [DisturbedRuns(count, len(runs))] if count else []


def _differences(a: list[Run], b: list[Run]) -> tuple[list[Finding], list[Finding]]:
    """What is compared, where the sides differ in how they do the same work; and what differs between (or within) the
    sides though a fair comparison keeps it equal."""
    runs = [*a, *b]
    settings = _differing_settings(runs)
    threads = [run.info.target.threads for run in runs]
    known = {**settings, THREADS: threads} if _differing_values(threads) else settings
    ways = _ways(known, len(a))
    differences: list[Finding] = []
    if ways is None:
        differences += _other_work(settings)
        if THREADS in known:
            differences.append(DifferingThreads(_setting(THREADS, threads)))
    machines = [run.info.machine.fingerprint or run.info.machine.processor for run in runs]
    if _differing_values(machines):
        names = dict.fromkeys(run.info.machine.processor or "unknown" for run in runs)
        differences.append(DifferentMachines(tuple(names)))
    frameworks = ways is not None and "framework" in known
    for library in dict.fromkeys(name for run in runs for name in run.info.versions):
        versions = [run.info.versions.get(library) for run in runs]
        if frameworks and None in versions:  # each framework has libraries of its own
            continue
        if _differing_values(versions) and library != "sonda":
            differences.append(DifferingLibrary(_setting(library, versions)))
    return [ways] if ways is not None else [], differences + _unfinished(runs)


def _ways(settings: Mapping[str, list[Any]], of_a: int) -> ComparedSettings | None:
    """These settings, of the runs of A and then of B, as what is compared: all of them are of how the work is done, and
    a side has one value of each. None where they are more than that, or none."""
    for name, values in settings.items():
        a, b = values[:of_a], values[of_a:]
        alike = name in WAYS or name == THREADS or (name == COMMAND and _same_script(a[0], b[0]))
        if not alike or _differing_values(a) or _differing_values(b):
            return None
    compared = tuple(ComparedSetting(name, *map(_text, (values[0], values[-1]))) for name, values in settings.items())
    return ComparedSettings(compared) if compared else None


def _same_script(a: list[str] | None, b: list[str] | None) -> bool:
    """Whether two commands run the same program with other arguments."""
    return a is not None and b is not None and _script(a) == _script(b)


def _script(command: list[str]) -> list[str]:
    """A command up to what it runs: `python train.py`, `python -m train`, `python -c CODE`, `./train`."""
    for place, word in enumerate(command):
        if word in ("-m", "-c"):
            return command[: place + 2]
        if word.endswith((".py", ".sh")):
            return command[: place + 1]
    return command[:1]


def _differing_settings(runs: list[Run]) -> dict[str, list[Any]]:
    """Settings of the workload in which runs differ, with the value of every run."""
    workloads = [run.info.workload.plain() for run in runs]
    every = dict.fromkeys([*IDENTITY, *(key for workload in workloads for key in sorted(workload))])
    values = {key: [workload.get(key) for workload in workloads] for key in every if key not in MEASURED}
    return {key: of_runs for key, of_runs in values.items() if _differing_values(of_runs)}


def _other_work(settings: Mapping[str, list[Any]]) -> list[Finding]:
    differing = tuple(_setting(key, values) for key, values in settings.items())
    return [DifferingWork(differing)] if differing else []


def _unfinished(runs: list[Run]) -> list[Finding]:
    unfinished = tuple(run.id for run in runs if run.info.status != "complete")
    return [UnfinishedRuns(unfinished)] if unfinished else []


def _differing_values(values: list[Any]) -> bool:
    return any(value != values[0] for value in values[1:])


def _setting(name: str, values: list[Any]) -> DifferingSetting:
    return DifferingSetting(name, tuple(dict.fromkeys(map(_text, values))))


def _text(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return " ".join(map(str, value))
    return "none" if value is None else str(value)
