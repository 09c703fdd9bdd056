"""What must be said below a study's table: ranges that were missed, changes over time, disturbances, waiting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sonda.analysis.comparison.findings import FoundInRun
from sonda.analysis.findings import Finding
from sonda.analysis.study_findings import (
    BeganWarm,
    DisturbedStudy,
    EnergyCovers,
    OutsidePublished,
    PointsWithoutRun,
    RestedUnseen,
    RunsWithoutEnergy,
    SeveralMachines,
    UnplacedRows,
    WaitedToCool,
)
from sonda.record.run import Run
from sonda.studies.engine.plan import ENERGY, NODE, configurations, is_simulated
from sonda.studies.engine.runner import StudyResult
from sonda.studies.figures.labels import name
from sonda.studies.figures.registry import parse_figure
from sonda.studies.figures.training import energy_value
from sonda.studies.file.study import VARIANT, Configuration, Published, Study, matches

if TYPE_CHECKING:
    from sonda.studies.results.table import Seen, StudyRow


def table_notes(result: StudyResult, rows: Sequence[StudyRow], seen: Mapping[str, list[Seen]]) -> Iterator[Finding]:
    """What must be said, the most important first."""
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


def _outside(rows: Sequence[StudyRow]) -> Iterator[Finding]:
    """One for each printed range that figures of ours lie outside of."""
    outside: dict[tuple[str, float, float, str, str], list[tuple[str, float]]] = {}
    for row in rows:
        where = " ".join(str(value) for key, value in row.configuration.items() if key != VARIANT)
        for cell in row.cells:
            for printed in cell.published:
                low, high, ours = printed.value.low, printed.value.high, cell.value.value
                if low is None or high is None or ours is None or low <= ours <= high:
                    continue
                key = (name(parse_figure(cell.figure)), low, high, printed.value.unit, printed.hardware)
                outside.setdefault(key, []).append((where or str(row.configuration[VARIANT]), ours))
    return (OutsidePublished(*key, tuple(cells)) for key, cells in outside.items())


def _over_time(study: Study, seen: Mapping[str, list[Seen]]) -> Iterator[Finding]:
    """What changed over the steps, of studies that ask for it; the first run of a configuration speaks."""
    if not any(parse_figure(key).metric == "changes" for key in study.metrics):
        return
    for seen_runs in seen.values():
        point, run, summary = seen_runs[0]
        where = " ".join(f"{point.configuration[key]}" for key in study.axes)
        findings = summary.parts[0].over_time.findings if summary.parts and summary.parts[0].over_time else ()
        yield from (FoundInRun(where, run.id, finding) for finding in findings)


def _energy(seen: Mapping[str, list[Seen]]) -> Iterator[Finding]:
    """What the joules cover, once for all runs that cover the same."""
    covered: dict[tuple[tuple[str, ...], bool], EnergyCovers] = {}
    for seen_runs in seen.values():
        for _, _, summary in seen_runs:
            energy = summary.energy
            if energy is not None and energy.covers:
                covered[energy.covers, False] = EnergyCovers(energy.covers, energy.not_covered)
            if energy is not None and energy.modelled:
                covered[(energy.modelled,), True] = EnergyCovers((energy.modelled,), estimated=True)
    yield from covered.values()
    joules = [
        energy_value(summary, "energy")
        for seen_runs in seen.values() for point, _, summary in seen_runs if point.measures == ENERGY
    ]  # fmt: skip
    without = [value.reason for value in joules if value.value is None]
    if len(without) < len(joules):
        yield from (RunsWithoutEnergy(count, len(joules), reason) for reason, count in Counter(without).items())


def _missing(result: StudyResult) -> Iterator[Finding]:
    study = result.study
    points = configurations(study)
    outside = sum(not has_place(row, points) and not _among_operations(row, points) for row in study.published)
    if outside:
        yield UnplacedRows(outside, len(study.published), study.scale)
    if result.failures:
        yield PointsWithoutRun(len(result.failures), len(result.failures) + len(result.runs))


def _machines(result: StudyResult) -> Iterator[Finding]:
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
    for where, kinds in (*by_node.items(), *by_target.items()):
        if len(kinds) > 1:
            yield SeveralMachines(where, tuple(kinds.most_common()))


def _cooling(runs: Sequence[Run]) -> Iterator[Finding]:
    """How long runs waited for the machine to cool, and how many began warm all the same."""
    waits = [run.info.cool_down for run in runs if run.info.cool_down is not None]
    by_sensor = [wait for wait in waits if wait.after]
    if by_sensor:
        yield WaitedToCool(len(by_sensor), sum(wait.waited_s for wait in by_sensor))
    hot = [wait for wait in by_sensor if wait.reason]
    if hot:
        yield BeganWarm(len(hot), len(runs), hot[0].reason)
    blind = [wait for wait in waits if not wait.after]
    if blind:
        yield RestedUnseen(blind[0].reason, max(wait.waited_s for wait in blind))


def _disturbed(runs: Sequence[Run]) -> Iterator[Finding]:
    """How many runs were disturbed, and by what."""
    disturbed = [run for run in runs if run.info.disturbed]
    if disturbed:
        conditions = [run.info.machine.conditions for run in disturbed]
        signs = Counter(sign for seen in conditions if seen is not None for sign in seen.signs or ())
        yield DisturbedStudy(len(disturbed), len(runs), tuple(signs.most_common()))
