"""What must be said below a study's table: ranges that were missed, changes over time, disturbances, waiting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sonda.analysis.comparison.findings import FoundInRun
from sonda.analysis.findings import Finding
from sonda.record.run import Run
from sonda.studies.engine.plan import ENERGY, NODE, configurations, is_simulated
from sonda.studies.engine.runner import StudyResult
from sonda.studies.figures.labels import name
from sonda.studies.figures.registry import parse_figure
from sonda.studies.figures.training import energy_value
from sonda.studies.file.study import VARIANT, Configuration, Published, Study, matches

if TYPE_CHECKING:
    from sonda.studies.results.table import Seen, StudyRow

SIGNS = {"others": "they used cores", "runnable": "more was ready to run than there are cores",
         "use": "the program lacked cores", "steal": "the hypervisor took time",
         "throttled": "its limit of CPU time held it up"}  # fmt: skip
"""What tells of a disturbance, in words."""
"""Under which a run's `point` has what was waited before it."""


def table_notes(
    result: StudyResult, rows: Sequence[StudyRow], seen: Mapping[str, list[Seen]]
) -> Iterator[Finding | str]:
    """Sentences and findings, the most important first."""
    yield from _outside(rows)
    yield from _over_time(result.study, seen)
    yield from _energy(seen)
    yield from _missing(result)
    yield from _machines(result)
    yield from _cooling([run for _, run in result.runs])
    yield from _disturbed([run for _, run in result.runs])


def has_place(row: Published, points: list[Configuration]) -> bool:
    """Whether a published row stands beside any of these."""
    return any(matches(row.where, point) for point in points)


def _among_operations(row: Published, points: list[Configuration]) -> bool:
    """Whether it stands beside one of several operations that take turns in a point, in the table of operations."""
    where = {key: value for key, value in row.where.items() if key != "op"}
    return "op" in row.where and any(
        row.where["op"] in str(point.get("op", "")).split(",") and matches(where, point) for point in points
    )


def _outside(rows: Sequence[StudyRow]) -> list[str]:
    """One sentence for each printed range that figures of ours lie outside of."""
    outside: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        where = " ".join(str(value) for key, value in row.configuration.items() if key != VARIANT)
        for cell in row.cells:
            for printed_cell in cell.published:
                low, high, ours = printed_cell.value.low, printed_cell.value.high, cell.value.value
                if low is None or high is None or ours is None or low <= ours <= high:
                    continue
                printed = f"{low:g} to {high:g} {printed_cell.value.unit}".rstrip()
                key = (
                    name(parse_figure(cell.figure)),
                    printed,
                    f" ({printed_cell.hardware})" if printed_cell.hardware else "",
                )
                outside.setdefault(key, []).append(f"{where or row.configuration[VARIANT]} {ours:.3g}")
    return [
        f"{figure} is outside the published {printed}{by}: {', '.join(cells)}"
        for (figure, printed, by), cells in outside.items()
    ]


def _over_time(study: Study, seen: Mapping[str, list[Seen]]) -> Iterator[Finding]:
    """What changed over the steps, of studies that ask for it; the first run of a configuration speaks."""
    if not any(parse_figure(key).metric == "changes" for key in study.metrics):
        return
    for seen_runs in seen.values():
        point, run, summary = seen_runs[0]
        where = " ".join(f"{point.configuration[key]}" for key in study.axes)
        findings = summary.parts[0].over_time.findings if summary.parts and summary.parts[0].over_time else ()
        yield from (FoundInRun(where, run.id, finding) for finding in findings)


def _energy(seen: Mapping[str, list[Seen]]) -> Iterator[str]:
    """What the joules cover, once for all runs that cover the same."""
    covered: dict[tuple[str, ...], tuple[str, ...]] = {}
    for seen_runs in seen.values():
        for _, _, summary in seen_runs:
            if summary.energy is not None and summary.energy.covers:
                covered[summary.energy.covers] = summary.energy.not_covered
            if summary.energy is not None and summary.energy.modelled:
                covered[(f"{summary.energy.modelled}, estimated by a power model",)] = ()
    for covers, lacks in covered.items():
        yield f"energy covers {', '.join(covers)}" + (f"; not {', '.join(lacks)}" if lacks else "")
    joules = [
        energy_value(summary, "energy")
        for found in seen.values() for point, _, summary in found if point.measures == ENERGY
    ]  # fmt: skip
    without = [energy.reason for energy in joules if energy.value is None]
    if len(without) < len(joules):
        yield from (f"{count} of {len(joules)} energy runs tell no energy: {reason}"
                    for reason, count in Counter(without).items())  # fmt: skip


def _missing(result: StudyResult) -> Iterator[str]:
    study = result.study
    points = configurations(study)
    outside = sum(not has_place(row, points) and not _among_operations(row, points) for row in study.published)
    if outside:
        yield f"{outside} of {len(study.published)} published rows have no configuration at scale {study.scale}"
    if result.failures:
        total = len(result.failures) + len(result.runs)
        yield f"{len(result.failures)} of {total} points have no run; start the study again to try them once more"


def _machines(result: StudyResult) -> Iterator[str]:
    """Where what was measured under one name comes from several kinds of machine, or of GPU at one target."""
    by_node: dict[str, Counter[str]] = {}
    by_target: dict[str, Counter[str]] = {}
    for point, run in result.runs:
        machine = run.info.machine
        if is_simulated(point.configuration) or not machine.processor:
            continue
        kind = f"{machine.processor}, {machine.logical_cores or '?'} cores"
        node = str(point.configuration.get(NODE, ""))
        by_node.setdefault(node, Counter())[kind] += 1
        gpus = sorted({device.name or "GPU" for device in (run.info.target.devices or {}).values()})
        if gpus:
            target = str(point.configuration.get("on", "")) + (f" on {node}" if node else "")
            by_target.setdefault(target, Counter())[" and ".join(gpus)] += 1
    for node, kinds in (*by_node.items(), *by_target.items()):
        if len(kinds) > 1:
            where = f" of {node}" if node else ""
            named = "; ".join(f"{kind}: {count}" for kind, count in kinds.most_common())
            yield (
                f"runs{where} come from {len(kinds)} kinds of machine ({named}), whose times cannot be compared; "
                "measure anew with --again on one of them"
            )


def _cooling(runs: Sequence[Run]) -> Iterator[str]:
    """How long runs waited for the machine to cool, and how many began warm all the same."""
    waits = [run.info.cool_down for run in runs if run.info.cool_down is not None]
    by_sensor = [wait for wait in waits if wait.after]
    if by_sensor:
        waited = sum(wait.waited_s for wait in by_sensor)
        yield f"before {len(by_sensor)} runs {waited:.0f} s were waited in all until the machine was cool again"
    hot = [wait for wait in by_sensor if wait.reason]
    if hot:
        yield f"{len(hot)} of {len(runs)} runs began warmer than the first: {hot[0].reason}"
    blind = [wait for wait in waits if not wait.after]
    if blind:
        rest = max(wait.waited_s for wait in blind)
        yield f"{blind[0].reason}: runs had {rest:.0f} s of rest between them at most"


def _disturbed(runs: Sequence[Run]) -> Iterator[str]:
    """How many runs were disturbed, and by what."""
    disturbed = [run for run in runs if run.info.disturbed]
    if not disturbed:
        return
    conditions = [run.info.machine.conditions for run in disturbed]
    signs = Counter(sign for seen in conditions if seen is not None for sign in seen.signs or ())
    by = (
        f" ({', '.join(f'{SIGNS.get(sign, sign)} in {count}' for sign, count in signs.most_common())})" if signs else ""
    )
    yield (
        f"{len(disturbed)} of {len(runs)} runs were disturbed by other programs{by}; stop them, then measure anew "
        "with --again"
    )
