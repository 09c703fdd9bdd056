"""The table of a study: its configurations with their figures, and what was published beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sonda.analysis.statistics import median
from sonda.analysis.summary import Summary, Value
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.studies.engine import StudyResult
from sonda.studies.figure import USUAL, Figure, parse_figure
from sonda.studies.plan import Point, configurations
from sonda.studies.study import Configuration, Published, Study, matches

HOW_LONG = ("repeat", "steps", "warmup", "seconds")
"""Options that change how long something is measured, not what."""


@dataclass(frozen=True)
class PublishedCell:
    """A printed figure beside ours."""

    value: Value
    hardware: str
    ratio: float | None
    """Ours over the published one; None where there is none of ours."""
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
    """Median over the repetitions with its 95 % interval; missing with a reason."""
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
    for configuration in configurations(study):
        found = summaries.get(_key(configuration), [])
        missing = tuple(failures.get(_key(configuration), ()))
        cells = tuple(_cell(study, figure, configuration, found, missing) for figure in columns)
        axes = {key: configuration[key] for key in study.axes}
        rows.append(StudyRow(axes, tuple(run.id for run, _ in found), cells, missing))
    fixed = {"seed": study.seed, **study.workload}
    deviations = study.deviations if study.published else ()
    return StudyTable(
        study.name, study.question, study.scale, tuple(study.axes), fixed, columns, tuple(rows), deviations,
        _notes(study, result),
    )  # fmt: skip


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
    if known:
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
    ratio = None if ours.value is None or not printed else ours.value / printed
    differs = []
    if row.hardware:
        differs.append(f"published on {row.hardware}, ours on {configuration.get('on', 'cpu')}")
    changed = {
        key: value
        for key, value in study.scales.get(study.scale, {}).items()
        if key not in study.axes and key not in HOW_LONG
    }
    if changed:
        differs.append(f"ours at scale {study.scale}: " + ", ".join(f"{key}={value}" for key, value in changed.items()))
    value = Value(printed, figure.unit, "published")
    return PublishedCell(value, row.hardware, ratio, "; ".join(differs), row.source, row.note)


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
