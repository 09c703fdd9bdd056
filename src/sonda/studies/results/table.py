"""The table of a study: its configurations with their figures, and what was published beside them."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sonda.analysis import reasons
from sonda.analysis.comparison.repetitions import CurvePoint, Spread, accuracy_curve, spread
from sonda.analysis.comparison.scaling import ScalingCurve, ScalingPoint, scaling_curve
from sonda.analysis.findings import Finding
from sonda.analysis.statistics import median
from sonda.analysis.steps.training import devices_of
from sonda.analysis.study_findings import PublishedElsewhere
from sonda.analysis.summary import SAMPLES, Summary, Value
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.record.target import SimulatedTarget
from sonda.studies.engine.corun_point import has_company
from sonda.studies.engine.plan import ENERGY, TIME, StudyPoint, configurations, is_simulated
from sonda.studies.engine.runner import StudyResult
from sonda.studies.figures.registry import USUAL, USUAL_SIMULATED, TableFigure, parse_figure
from sonda.studies.figures.speedup import different_work, relative_value
from sonda.studies.file.study import SETTINGS, VARIANT, Configuration, Published, Study, key_of, matches
from sonda.studies.results.notes import has_place, table_notes

HOW_LONG = (*SETTINGS, "steps", "warmup", "seconds")
"""Options that change how long something is measured, not what."""

Seen = tuple[StudyPoint, Run, Summary]
"""A point that was measured, its run, and what that means."""


@dataclass(frozen=True)
class PublishedCell:
    """A printed figure beside ours."""

    value: Value
    hardware: str
    ratio: float | None
    """Ours over the published one; None where there is none of ours, and of a range."""
    in_range: str
    """Of a printed range, or a bound, where ours lies: `inside`, `below` or `above`; '' where one value was printed, or
    there is none of ours."""
    deviation: PublishedElsewhere
    origin: str
    """Where it was printed."""
    note: str


@dataclass(frozen=True)
class MissingRun:
    """Why a configuration has no run, or lacks a repetition."""

    reason: str
    of_energy: bool = False
    applies: bool = True
    """Whether the configuration has a meaning where it would run."""


@dataclass(frozen=True)
class StudyCell:
    """One figure of one configuration."""

    figure: str
    value: Value
    """Median over the repetitions with its interval (`Value.few`); missing with a reason. What is simulated has one
    value, with the bounds of the tables that it comes from where it has some; a single co-run has the interval of its
    rounds."""
    n: int
    """Repetitions that have it."""
    published: tuple[PublishedCell, ...] = ()
    values: tuple[float, ...] = ()
    """Of every repetition, in order; none of a figure of two configurations."""
    spread: Spread | None = None
    """Mean with its interval, least and most of the values."""


@dataclass(frozen=True)
class StudyRow:
    """One configuration."""

    configuration: Configuration
    """Its values on the axes."""
    runs: tuple[str, ...]
    """Ids of its runs, in the order of repetition."""
    cells: tuple[StudyCell, ...]
    """One for each column of the table."""
    failures: tuple[str, ...]
    """Why repetitions are missing."""
    disturbed: int = 0
    """Runs that other programs disturbed."""
    curve: tuple[CurvePoint, ...] = ()
    """Accuracy by epoch, of trainings."""
    on_host: str = ""
    """What a simulated machine leaves to the host: rows that differ in it do not do the same work."""


@dataclass(frozen=True)
class ComparedFigure:
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
    columns: tuple[TableFigure, ...]
    """Measured figures first, then those that were only published."""
    compare: tuple[str, ...]
    """Keys of the figures by which variants stand side by side; empty where there are no variants."""
    compared: tuple[ComparedFigure, ...]
    rows: tuple[StudyRow, ...]
    fitted: str
    """What was chosen to come close to the published figures; '' where nothing was."""
    deviations: tuple[str, ...]
    """What differs from the published experiment as a whole."""
    notes: tuple[Finding, ...]
    base: str = ""
    """The variant that all others are held against."""
    statistics: tuple[str, ...] = ()
    """What is shown beside the median: mean, minimum, maximum."""
    scaling: ScalingCurve | None = None
    """Speed-ups by number of devices, where they differ."""

    def to_rows(self) -> list[dict[str, Any]]:
        """Plain values and findings, one dictionary for each configuration; units and sources with every number."""
        return [
            {
                "configuration": dict(row.configuration),
                "runs": list(row.runs),
                "figures": {cell.figure: _plain_values(cell) for cell in row.cells},
                "failures": list(row.failures),
                "disturbed": row.disturbed,
                "curve": [dataclasses.asdict(point) for point in row.curve],
            }
            for row in self.rows
        ]


def study_table(result: StudyResult, summarise: Callable[[Run], Summary]) -> StudyTable:
    """Put a study's runs and the published figures into one table.

    A run that cannot be read counts as a missing repetition, with its reason.
    """
    study = result.study
    columns = _columns(study)
    seen: dict[str, list[Seen]] = {}
    failures: dict[str, list[MissingRun]] = {}
    for point, run in sorted(result.runs, key=lambda pair: pair[0].repetition):
        try:
            seen.setdefault(key_of(point.configuration), []).append((point, run, summarise(run)))
        except SondaError as error:
            failures.setdefault(key_of(point.configuration), []).append(_failure(point, str(error)))
    for point, reason in sorted(result.failures, key=lambda pair: pair[0].repetition):
        failures.setdefault(key_of(point.configuration), []).append(_failure(point, reason))
    without = {key_of(point.configuration): (MissingRun(why, applies=False),) for point, why in result.inapplicable}
    rows = []
    names = (VARIANT, *study.axes) if study.variants else tuple(study.axes)
    wanted = configurations(study)
    for configuration in wanted:
        seen_runs = seen.get(key_of(configuration), [])
        missing = tuple(failures.get(key_of(configuration), ()))
        lacking = tuple(run.reason for run in missing)
        why = without.get(key_of(configuration), missing)
        cells = tuple(_cell(study, figure, configuration, wanted, seen, why) for figure in columns)
        axes = {key: configuration[key] for key in names}
        trained = [summary.training for summary in _telling_summaries(seen_runs, TIME) if summary.training is not None]
        disturbed = sum(bool(run.info.disturbed) for _, run, _ in seen_runs)
        ids = tuple(run.id for _, run, _ in seen_runs)
        rows.append(StudyRow(axes, ids, cells, lacking, disturbed, accuracy_curve(trained), _on_host(seen_runs)))
    fixed = {"seed": study.seed, **study.workload}
    deviations = study.deviations if study.published else ()
    compare = (study.compare or (columns[0].key,)) if study.variants else ()
    return StudyTable(
        study.name, study.question, study.scale, names, fixed, columns, compare,
        tuple(_compared_figures(rows, compare)), tuple(rows), study.fitted if study.published else "", deviations,
        tuple(table_notes(result, rows, seen)),
        study.base, study.statistics, _scaling(study, wanted, seen),
    )  # fmt: skip


def _telling_summaries(seen_runs: Sequence[Seen], measures: str) -> list[Summary]:
    """The runs that tell of time, or of energy; all of them where they are not kept apart."""
    return [summary for point, _, summary in seen_runs if point.measures in ("", measures)]


def _on_host(seen_runs: Sequence[Seen]) -> str:
    left = next(
        (target.host for *_, summary in seen_runs if isinstance(target := summary.target, SimulatedTarget)), None
    )
    return key_of(left) if left else ""


def _base_of(study: Study, name: str, configuration: Configuration, wanted: list[Configuration]) -> str | None:
    """The key of the variant's configuration that stands where this one does; its only one where none does."""
    of_base = [configuration for configuration in wanted if configuration.get(VARIANT) == name]
    alike = [
        candidate for candidate in of_base if all(candidate.get(axis) == configuration.get(axis) for axis in study.axes)
    ]
    if alike:
        return key_of(alike[0])
    return key_of(of_base[0]) if len(of_base) == 1 else None


def _scaling(study: Study, wanted: list[Configuration], seen: Mapping[str, list[Seen]]) -> ScalingCurve | None:
    """Of trainings; the first configuration of each variant and number of devices speaks."""
    base_key = _base_of(study, study.base, {}, wanted) if study.base else None
    if base_key is None:
        return None
    base = _telling_summaries(seen.get(base_key, []), TIME)
    points = []
    for configuration in wanted:
        own = _telling_summaries(seen.get(key_of(configuration), []), TIME)
        if own and own[0].training is not None:
            name = str(configuration[VARIANT])
            axes = [str(configuration[axis]) for axis in study.axes if len(study.axes[axis]) > 1]
            values = [relative_value(metric, base, own) for metric in ("speedup", "training_speedup")]
            points.append(ScalingPoint(", ".join([name, *axes]), devices_of(own[0].target), values[0], values[1]))
    return scaling_curve(study.base, [summary.training for summary in base if summary.training is not None], points)


def _compared_figures(rows: list[StudyRow], figures: tuple[str, ...]) -> Iterator[ComparedFigure]:
    variants = list(dict.fromkeys(str(row.configuration.get(VARIANT, "")) for row in rows))
    for figure in figures:
        if parse_figure(figure).unit == "%":
            continue
        values: dict[str, dict[str, float]] = {name: {} for name in variants}
        for row in rows:
            axes = {key: value for key, value in row.configuration.items() if key != VARIANT}
            cell = next(cell for cell in row.cells if cell.figure == figure)
            if cell.value.value and cell.value.value > 0:
                values[str(row.configuration[VARIANT])][key_of(axes)] = cell.value.value
        first = values[variants[0]]
        for name in variants[1:]:
            ratios = [value / first[key] for key, value in values[name].items() if key in first]
            if ratios:
                yield ComparedFigure(figure, name, statistics.geometric_mean(ratios), len(ratios))


def _columns(study: Study) -> tuple[TableFigure, ...]:
    """What the study asks for, then what was published in addition for its configurations."""
    points = configurations(study)
    printed = [key for row in study.published if has_place(row, points) for key in row.figures]
    usual = USUAL_SIMULATED if points and all(map(is_simulated, points)) else USUAL
    keys = dict.fromkeys((*(study.metrics or usual), *printed))
    return tuple(sorted(map(parse_figure, keys), key=lambda figure: not figure.measurable))


def _cell(
    study: Study,
    figure: TableFigure,
    configuration: Configuration,
    wanted: list[Configuration],
    seen: Mapping[str, list[Seen]],
    missing: tuple[MissingRun, ...],
) -> StudyCell:
    measures = ENERGY if figure.of_energy else TIME
    own = _telling_summaries(seen.get(key_of(configuration), []), measures)
    values = [] if figure.relative else [figure.value_of(summary) for summary in own]
    known = [value for value in values if value.value is not None]
    numbers = tuple(value.value for value in known if value.value is not None)
    if figure.relative:
        value = _relative(study, figure, configuration, wanted, seen, own, missing)
    elif len(known) == 1 and (is_simulated(configuration) or has_company(configuration)):
        value = known[0]
    elif known:
        estimate = median(list(numbers))
        sources = {value.source for value in known}
        reason = "" if len(known) > 1 else reasons.ONE_REPETITION
        source = sources.pop() if len(sources) == 1 else "derived"
        value = Value(estimate.value, figure.unit, source, estimate.low, estimate.high, reason, estimate.few)
        if source == "estimated" or (figure.of_energy and len(known) == 1):
            value = _with_bounds(value, known)
        if all(one.bounds == SAMPLES for one in known):
            value = _with_samples(value, known)
    else:
        if not figure.measurable:
            lack = MissingRun(figure.unmeasurable)
        elif values:
            lack = MissingRun(values[0].reason)
        else:
            lack = _why_unseen(figure, missing, bool(seen.get(key_of(configuration))))
        reason = reasons.NOT_MEASURED.format(lack.reason) if lack.applies else lack.reason
        value = Value(None, figure.unit, "measured", reason=reason)
    published = tuple(
        _published_beside(study, row, figure, value, configuration)
        for row in study.published
        if figure.key in row.figures and matches(row.where, configuration)
    )
    count = len(own) if figure.relative and value.value is not None else len(known)
    return StudyCell(figure.key, value, count, published, numbers, spread(numbers, figure.most) if numbers else None)


def _with_bounds(value: Value, known: list[Value]) -> Value:
    """A model's bounds, wider than what its repetitions differ by; of a single run, those of its readings."""
    bounded = [(value.low, value.high) for value in known if value.low is not None and value.high is not None]
    if not bounded:
        return value
    low, high = (statistics.median(ends) for ends in zip(*bounded, strict=True))
    return Value(value.value, value.unit, value.source, low, high, bounds=known[0].bounds)


def _with_samples(value: Value, known: list[Value]) -> Value:
    """What its samples leave open, which repetitions on the same samples do not tell, and what these differ by."""
    bounded = _with_bounds(value, known)
    middle = [one.value for one in known if one.value is not None]
    low, high = min(bounded.low or 0.0, *middle), max(bounded.high or 0.0, *middle)
    return dataclasses.replace(bounded, low=low, high=high)


def _relative(
    study: Study,
    figure: TableFigure,
    configuration: Configuration,
    wanted: list[Configuration],
    seen: Mapping[str, list[Seen]],
    own: list[Summary],
    missing: tuple[MissingRun, ...],
) -> Value:
    """The figure of one configuration against the base, or against the variant that it names."""
    name = figure.path or study.base
    key = _base_of(study, name, configuration, wanted) if name else None
    if key is None:
        reason = reasons.NO_BASE if not name else reasons.NO_SUCH_CONFIGURATION.format(name)
        return Value(None, figure.unit, "derived", reason=reasons.NOT_MEASURED.format(reason))
    difference = different_work(
        configuration, next(configuration for configuration in wanted if key_of(configuration) == key)
    )
    if difference:
        return Value(None, figure.unit, "derived", reason=reasons.NOT_MEASURED.format(difference))
    base = _telling_summaries(seen.get(key, []), ENERGY if figure.of_energy else TIME)
    if figure.of_energy and not own and seen.get(key_of(configuration)):
        reason = reasons.NOT_MEASURED.format(_why_unseen(figure, missing, True).reason)
        return Value(None, figure.unit, "derived", reason=reason)
    value = figure.to_unit(relative_value(figure.metric, base, own))
    if key == key_of(configuration):  # the base against itself is that by definition, whatever its repetitions
        value = dataclasses.replace(value, low=None, high=None)
    if value.value is not None:
        return value
    return dataclasses.replace(value, reason=reasons.NOT_MEASURED.format(value.reason))


def _published_beside(
    study: Study, row: Published, figure: TableFigure, ours: Value, configuration: Configuration
) -> PublishedCell:
    printed = row.figures[figure.key]
    low, high = printed if isinstance(printed, tuple) else (printed, printed)
    single = low == high
    ratio = ours.value / low if single and ours.value is not None and low else None
    changed = tuple(
        (key, str(value))
        for key, value in study.scales.get(study.scale, {}).items()
        if key not in study.axes and key not in HOW_LONG and key != VARIANT
    )
    deviation = PublishedElsewhere(row.hardware, str(configuration.get("on", "cpu")), study.scale, changed)
    value = Value(low, figure.unit, "published") if single else _range(low, high, figure.unit)
    in_range = "" if single or ours.value is None else _place_in_range(ours.value, low, high)
    return PublishedCell(value, row.hardware, ratio, in_range, deviation, row.source, row.note)


def _place_in_range(value: float, low: float, high: float) -> str:
    return "below" if value < low else "above" if value > high else "inside"


def _range(low: float, high: float, unit: str) -> Value:
    """A printed range, which has no middle that anybody printed."""
    return Value(None, unit, "published", low, high, reasons.RANGE_PRINTED)


def _why_unseen(figure: TableFigure, missing: tuple[MissingRun, ...], measured: bool) -> MissingRun:
    """Why no run tells a figure: what became of the runs of its kind; `measured`: there are runs of the other kind."""
    own = [run for run in missing if run.of_energy == figure.of_energy]
    if figure.of_energy and measured and not own:
        return MissingRun(reasons.NO_ENERGY_RUNS)
    return next(iter(own or missing), MissingRun(reasons.NOT_MEASURED_YET))


def _failure(point: StudyPoint, reason: str) -> MissingRun:
    of_energy = point.measures == ENERGY
    text = reasons.ENERGY_RUN_FAILED if of_energy else reasons.REPETITION_FAILED
    return MissingRun(text.format(point.repetition, reason), of_energy)


def _plain_values(cell: StudyCell) -> dict[str, Any]:
    plain: dict[str, Any] = {**dataclasses.asdict(cell.value), "n": cell.n, "values": list(cell.values)}
    if cell.spread is not None:
        plain["spread"] = dataclasses.asdict(cell.spread)
    if cell.published:
        plain["published"] = [
            {**dataclasses.asdict(published), "deviation": published.deviation} for published in cell.published
        ]
    return plain
