"""Titles: what a run is called, and what it ran on, in a few words, alike in listings, pages and documents."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePath

from sonda.analysis import wording
from sonda.analysis.roofline import full_precision
from sonda.analysis.statistics import interval_words
from sonda.analysis.summary import PartSummary
from sonda.record.run import RunInfo
from sonda.record.simulated import DescribedAccelerator, DescribedEngine
from sonda.record.target import CorunFacts, SimulatedTarget

LONGEST_COMMAND = 60
"""Characters of a command that a title shows."""
NETWORKS = {
    "ops": "operations", "mlp": "MLP", "cnn": "CNN", "resnet18": "ResNet-18", "resnet34": "ResNet-34",
    "resnet50": "ResNet-50", "lstm": "LSTM", "transformer": "Transformer", "dlrm": "DLRM",
}  # fmt: skip
"""Built-in workloads as papers spell them."""


def title_run(info: RunInfo, summaries: Sequence[PartSummary] = ()) -> str:
    """`ResNet-50, training, batch 32`, or the command with the parts that were seen of it."""
    workload = info.workload
    if workload.command is not None:
        words = workload.command
        # The interpreter's directory tells nothing about the program.
        text = shlex.join([PurePath(words[0]).name, *words[1:]]) if words else "command"
        text = text if len(text) <= LONGEST_COMMAND else text[: LONGEST_COMMAND - 1] + "…"
        named = [summary.name for summary in summaries]
        named = ["inference"] if named == ["test"] else named  # nothing was trained
        return ", ".join([text, wording.join(named)] if named else [text])
    name = workload.name or "run"
    pieces = [NETWORKS.get(name, name)]
    if workload.train is not None:
        pieces.append("training" if workload.train else "inference")
    if workload.batch:
        pieces.append(f"batch {workload.batch}")
    precision = full_precision(workload.precision or "float32")
    if precision != "float32":
        pieces.append(precision)
    return ", ".join(pieces)


def describe_steps(info: RunInfo, summaries: Sequence[PartSummary]) -> str:
    """`Xeon, 8 cores · 20 steps after 3 warm-up, ±1.2 %`."""
    machine = info.machine
    gpus = [device.name or name for name, device in (info.target.devices or {}).items()]
    if gpus:
        return _with_steps([", ".join(gpus)], summaries)
    pieces = [machine.processor] if machine.processor else []
    cores = machine.cores
    if cores:
        pieces.append(wording.plural(cores, "core"))
    threads = info.target.threads
    if threads and threads != cores:
        pieces.append(wording.plural(threads, "thread"))
    return _with_steps([", ".join(pieces)] if pieces else [], summaries)


def _with_steps(sections: list[str], summaries: Sequence[PartSummary]) -> str:
    """What it ran on, and how many steps of the first part were measured, how well."""
    if not summaries:
        sections.append("no steps")
    else:
        part = summaries[0]
        steps = wording.plural(part.steps, "step") + (f" after {part.warmup} warm-up" if part.warmup else "")
        few = f" ({interval_words(part.step.few)})" if part.step.few else ""
        spread = f"±{100 * part.noise:.1f} %" if part.noise <= 1 else "±more than the median"
        sections.append(steps if part.noise != part.noise else f"{steps}, {spread}{few}")
    return " · ".join(sections)


def describe_traffic(info: RunInfo, count: int, samples: int) -> str:
    """`Xeon, 8 threads · 1,000 queries of 4 samples`."""
    pieces = [info.machine.processor] if info.machine.processor else []
    if info.target.device == "cuda":
        pieces = [info.target.spec]
    threads = info.target.threads
    pieces += [wording.plural(threads, "thread")] if threads else []
    each = "" if samples == 1 else f" of {samples} samples"
    return f"{', '.join(pieces)} · {count:,} quer{'y' if count == 1 else 'ies'}{each}"


def describe_experiment(info: RunInfo, facts: CorunFacts) -> str:
    """`Xeon · mlp on core 0, cnn on cores 1+2 · 2 s each, 3 times`."""
    cores = ", ".join(
        f"{participant.name} on {'cores' if len(participant.cores) > 1 else 'core'} "
        f"{'+'.join(map(str, participant.cores))}"
        for participant in facts.participants
    )
    seconds = f"{facts.seconds:g} s each, {wording.plural(facts.repeat, 'time')}"
    return " · ".join([*([info.machine.processor] if info.machine.processor else []), cores, seconds])


def describe_trace(info: RunInfo, steps: int) -> str:
    """`H100 · 8 ranks · 20 steps`."""
    ranks = info.workload.ranks or 1
    sections = [info.machine.processor] if info.machine.processor else []
    sections += [wording.plural(ranks, "rank")] if ranks > 1 else []
    sections += [wording.plural(steps, "step")] if steps else []
    return " · ".join(sections) or "imported"


def describe_engine(engine: DescribedEngine) -> str:
    """`flexible dense, 256 multipliers`, `mesh, 16x16`."""
    hardware = engine.hardware
    size = f"{hardware.rows}x{hardware.columns}" if hardware.rows else f"{hardware.multipliers} multipliers"
    return f"{engine.kind.replace('_', ' ')}, {size}"


def describe_simulated(target: SimulatedTarget, part: PartSummary) -> str:
    """`simulated maeri: flexible dense, 256 multipliers at 1 GHz · 1,204 cycles`."""
    sections = (
        _describe_accelerator(target.description) if target.description is not None else ["simulated accelerator"]
    )
    options = target.options
    if options is not None and options.set:
        sections.append(f"set {options.set}")
    if options is not None and options.mapping:
        sections.append(f"mapping {options.mapping}")
    if part.simulated is not None and part.simulated.cycles.value is not None:
        sections.append(wording.plural(part.simulated.cycles.value, "cycle"))
    return " · ".join(sections)


def _describe_accelerator(description: DescribedAccelerator) -> list[str]:
    engines = [describe_engine(engine) for engine in description.engines.values()]
    speed = f" at {description.clock_hz / 1e9:g} GHz" if description.clock_hz else ""
    sections = [f"simulated {description.name}: {'; '.join(engines)}{speed}"]
    memory = description.memory
    if memory is not None:
        buffer = memory.buffer_bytes / 1024
        sections.append(f"buffer of {buffer:g} KiB, memory of {memory.bytes_per_cycle:g} B/cycle")
    return sections
