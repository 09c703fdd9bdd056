"""The table of a study: its configurations with their figures, and what was published beside them."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sonda.analysis.statistics import median
from sonda.analysis.summary import Summary, Value
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.studies.company import accompanied
from sonda.studies.engine import StudyResult
from sonda.studies.figure import USUAL, Figure, parse_figure
from sonda.studies.plan import Point, configurations, simulated
from sonda.studies.study import VARIANT, Configuration, Published, Study, matches

HOW_LONG = ("repeat", "steps", "warmup", "seconds")
"""Options that change how long something is measured, not what."""


@dataclass(frozen=True)
class PublishedCell:
    """A printed figure beside ours."""

    value: Value
    hardware: str
    ratio: float | None
    """Ours over the published one; over the nearer end of a range, 1 inside it; None where there is none of ours."""
    deviation: str
    """What differs between the two measurements; empty where nothing is known to."""
    origin: str
    """Where it was printed."""
    note: str


@dataclass(frozen=True)
class Cell:
    """One figure of one configuration."""

    figure: str
    value: Value
    """Median over the repetitions with its 95 % interval; missing with a reason. What is simulated has one value, with
    the bounds of the tables that it comes from where it has some; a single co-run has the interval of its rounds."""
    n: int
    """Repetitions that have it."""
    published: tuple[PublishedCell, ...] = ()


@dataclass(frozen=True)
class StudyRow:
    """One configuration."""

    configuration: Configuration
    """Its values on the axes."""
    runs: tuple[str, ...]
    """Ids of its runs, in the order of repetition."""
    cells: tuple[Cell, ...]
    """One for each column of the table."""
    failures: tuple[str, ...]
    """Why repetitions are missing."""


@dataclass(frozen=True)
class Compared:
    """One figure of a variant against the first variant."""

    figure: str
    variant: str
    ratio: float
    """Geometric mean of its ratios to the first variant."""
    n: int
    """Configurations that both have."""


@dataclass(frozen=True)
class StudyTable:
    """What a study found."""

    study: str
    question: str
    scale: str
    axes: tuple[str, ...]
    fixed: Configuration
    """Options that all configurations share."""
    columns: tuple[Figure, ...]
    """Measured figures first, then those that were only published."""
    compare: tuple[str, ...]
    """Keys of the figures by which variants stand side by side; empty where there are no variants."""
    compared: tuple[Compared, ...]
    rows: tuple[StudyRow, ...]
    deviations: tuple[str, ...]
    """What differs from the published experiment as a whole."""
    notes: tuple[str, ...]

    def to_rows(self) -> list[dict[str, Any]]:
        """Plain values, one dictionary for each configuration; units and sources with every number."""
        return [
            {
                "configuration": dict(row.configuration),
                "runs": list(row.runs),
                "figures": {cell.figure: _plain(cell) for cell in row.cells},
                "failures": list(row.failures),
            }
            for row in self.rows
        ]


def study_table(result: StudyResult, summarise: Callable[[Run], Summary]) -> StudyTable:
    """Put a study's runs and the published figures into one table.

    A run that cannot be read counts as a missing repetition, with its reason.
    """
    study = result.study
    columns = _columns(study)
    summaries: dict[str, list[tuple[Run, Summary]]] = {}
    failures: dict[str, list[str]] = {}
    for point, run in sorted(result.runs, key=lambda pair: pair[0].repetition):
        try:
            summaries.setdefault(_key(point.configuration), []).append((run, summarise(run)))
        except SondaError as error:
            failures.setdefault(_key(point.configuration), []).append(_failure(point, str(error)))
    for point, reason in sorted(result.failures, key=lambda pair: pair[0].repetition):
        failures.setdefault(_key(point.configuration), []).append(_failure(point, reason))
    rows = []
    names = (VARIANT, *study.axes) if study.variants else tuple(study.axes)
    for configuration in configurations(study):
        found = summaries.get(_key(configuration), [])
        missing = tuple(failures.get(_key(configuration), ()))
        cells = tuple(_cell(study, figure, configuration, found, missing) for figure in columns)
        axes = {key: configuration[key] for key in names}
        rows.append(StudyRow(axes, tuple(run.id for run, _ in found), cells, missing))
    fixed = {"seed": study.seed, **study.workload}
    deviations = study.deviations if study.published else ()
    compare = (study.compare or (columns[0].key,)) if study.variants else ()
    return StudyTable(
        study.name, study.question, study.scale, names, fixed, columns, compare, tuple(_compared(rows, compare)),
        tuple(rows), deviations,
        (*_outside(rows), *_over_time(study, summaries), *_notes(study, result)),
    )  # fmt: skip


def _compared(rows: list[StudyRow], figures: tuple[str, ...]) -> Iterator[Compared]:
    variants = list(dict.fromkeys(str(row.configuration.get(VARIANT, "")) for row in rows))
    for figure in figures:
        if parse_figure(figure).unit == "%":
            continue
        values: dict[str, dict[str, float]] = {name: {} for name in variants}
        for row in rows:
            axes = {key: value for key, value in row.configuration.items() if key != VARIANT}
            cell = next(cell for cell in row.cells if cell.figure == figure)
            if cell.value.value and cell.value.value > 0:
                values[str(row.configuration[VARIANT])][_key(axes)] = cell.value.value
        first = values[variants[0]]
        for name in variants[1:]:
            ratios = [value / first[key] for key, value in values[name].items() if key in first]
            if ratios:
                yield Compared(figure, name, statistics.geometric_mean(ratios), len(ratios))


def _columns(study: Study) -> tuple[Figure, ...]:
    """What the study asks for, then what was published in addition for its configurations."""
    points = configurations(study)
    printed = [key for row in study.published if _has_place(row, points) for key in row.figures]
    keys = dict.fromkeys((*(study.metrics or USUAL), *printed))
    return tuple(sorted(map(parse_figure, keys), key=lambda figure: not figure.measurable))


def _has_place(row: Published, points: list[Configuration]) -> bool:
    return any(matches(row.where, point) for point in points)


def _cell(
    study: Study,
    figure: Figure,
    configuration: Configuration,
    found: list[tuple[Run, Summary]],
    missing: tuple[str, ...],
) -> Cell:
    values = [figure.of(summary) for _, summary in found]
    known = [value for value in values if value.value is not None]
    if len(known) == 1 and (simulated(configuration) or accompanied(configuration)):
        value = known[0]
    elif known:
        estimate = median([value.value for value in known if value.value is not None])
        sources = {value.source for value in known}
        reason = "" if len(known) > 1 else "one repetition has no interval"
        source = sources.pop() if len(sources) == 1 else "derived"
        value = Value(estimate.value, figure.unit, source, estimate.low, estimate.high, reason)
    else:
        reasons = [one.reason for one in values] or list(missing) or ["not measured yet"]
        if not figure.measurable:
            reasons = [f"Sonda has no metric {figure.metric!r} of a run"]
        value = Value(None, figure.unit, "measured", reason=f"not measured: {reasons[0]}")
    published = tuple(
        _beside(study, row, figure, value, configuration)
        for row in study.published
        if figure.key in row.figures and matches(row.where, configuration)
    )
    return Cell(figure.key, value, len(known), published)


def _beside(study: Study, row: Published, figure: Figure, ours: Value, configuration: Configuration) -> PublishedCell:
    printed = row.figures[figure.key]
    low, high = printed if isinstance(printed, tuple) else (printed, printed)
    nearest = low if ours.value is None else min(max(ours.value, low), high)
    ratio = None if ours.value is None or not nearest else ours.value / nearest
    differs = []
    if row.hardware:
        differs.append(f"published on {row.hardware}, ours on {configuration.get('on', 'cpu')}")
    changed = {
        key: value
        for key, value in study.scales.get(study.scale, {}).items()
        if key not in study.axes and key not in HOW_LONG and key != VARIANT
    }
    if changed:
        differs.append(f"ours at scale {study.scale}: " + ", ".join(f"{key}={value}" for key, value in changed.items()))
    value = Value(low, figure.unit, "published") if low == high else _range(low, high, figure.unit)
    return PublishedCell(value, row.hardware, ratio, "; ".join(differs), row.source, row.note)


def _range(low: float, high: float, unit: str) -> Value:
    """A printed range, which has no middle that anybody printed."""
    return Value(None, unit, "published", low, high, "a range was printed")


def _outside(rows: list[StudyRow]) -> list[str]:
    """One sentence for each printed range that figures of ours lie outside of."""
    said: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        where = " ".join(str(value) for key, value in row.configuration.items() if key != VARIANT)
        for cell in row.cells:
            for one in cell.published:
                low, high, ours = one.value.low, one.value.high, cell.value.value
                if low is None or high is None or ours is None or low <= ours <= high:
                    continue
                printed = f"{low:g} to {high:g} {one.value.unit}".rstrip()
                key = (cell.figure, printed, f" ({one.hardware})" if one.hardware else "")
                said.setdefault(key, []).append(f"{where} {ours:.3g}")
    return [
        f"{figure} is outside the published {printed}{by}: {', '.join(found)}"
        for (figure, printed, by), found in said.items()
    ]


def _over_time(study: Study, summaries: dict[str, list[tuple[Run, Summary]]]) -> list[str]:
    """What changed over the steps, in words, of studies that ask for it; the first run of a configuration speaks."""
    if not any(parse_figure(key).metric == "changes" for key in study.metrics):
        return []
    said = []
    for configuration in configurations(study):
        for run, summary in summaries.get(_key(configuration), [])[:1]:
            where = " ".join(f"{configuration[key]}" for key in study.axes)
            sentences = summary.parts[0].over_time.sentences if summary.parts and summary.parts[0].over_time else ()
            said += [f"{where} ({run.id}): {sentence}" for sentence in sentences]
    return said


def _notes(study: Study, result: StudyResult) -> tuple[str, ...]:
    notes = []
    points = configurations(study)
    outside = sum(not _has_place(row, points) for row in study.published)
    if outside:
        notes.append(f"{outside} of {len(study.published)} published rows have no configuration at scale {study.scale}")
    if result.failures:
        total = len(result.failures) + len(result.runs)
        notes.append(
            f"{len(result.failures)} of {total} points have no run; start the study again to try them once more"
        )
    disturbed = sum(bool(run.info.disturbed) for _, run in result.runs)
    if disturbed:
        notes.append(
            f"{disturbed} of {len(result.runs)} runs were disturbed by other programs; stop them, then measure anew "
            "with --again"
        )
    return tuple(notes)


def _failure(point: Point, reason: str) -> str:
    return f"repetition {point.repetition}: {reason}"


def _key(configuration: Configuration) -> str:
    return repr(sorted(configuration.items()))


def _plain(cell: Cell) -> dict[str, Any]:
    plain: dict[str, Any] = {**dataclasses.asdict(cell.value), "n": cell.n}
    if cell.published:
        plain["published"] = [dataclasses.asdict(one) for one in cell.published]
    return plain
