"""Top-Down of one part: the share of the pipeline's slots that every category takes, by place and over steps.

The formulas are those of the definition that the run was counted with. A category whose events were counted in the same
steps is computed for each of them, and its share is the median. Where rotation never counted them together, every
event's rate per cycle (median over the steps that counted it) takes its place, and the shares of other categories are
those found before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from sonda.analysis import reasons
from sonda.analysis.bounds import BoundedRatio
from sonda.analysis.counters.findings import JoinedEvents, NoLevelTwo, SlotsDefined
from sonda.analysis.counters.hardware import CYCLES, PartReadings, PlaceReadings, best, groups_of, middle, typical
from sonda.analysis.counters.summary import Share, Slots, TopDown
from sonda.analysis.findings import Finding, Remark
from sonda.analysis.steps.parts import Part
from sonda.analysis.summary import Value
from sonda.record.conventions.expression import Expression, divide
from sonda.record.conventions.topdown import Category, TopDownDefinition

EXACT = 1e-9
"""Below this a difference is rounding."""


def summarise_topdown(definition: TopDownDefinition, part: Part, places: PartReadings) -> TopDown | None:
    """The categories of all places; None where nothing of them was counted."""
    if not places.hardware and not _needed_events(definition) & set(places.quantities):
        return None
    formulas = definition.parsed()
    measured, effective = part.measured, part.effective
    if not measured.any():
        return None

    def slots(readings: PlaceReadings, independent: int = effective) -> Slots:
        return _slots(definition, formulas, readings.chosen(measured), independent)

    step = slots(places.step)
    phases = {name: slots(readings) for name, readings in places.phases.items()}
    if not any(
        share.value.value is not None for shares_of in (step, *phases.values()) for share in shares_of.shares.values()
    ):
        return None
    stretches, over_steps = _over_steps(definition, formulas, places)
    layers = {path: slots(readings, 0) for path, readings in places.layers.items()}
    return TopDown(
        definition=definition,
        step=step,
        phases=phases,
        layers={path: row for path, row in layers.items() if _is_known(row)},
        over_steps=over_steps,
        stretches=stretches,
        findings=_findings(definition, part.name, step),
    )


def _needed_events(definition: TopDownDefinition) -> set[str]:
    return {name for formula in definition.parsed().values() for name in formula.names}


def _is_known(slots: Slots) -> bool:
    return any(share.value.value is not None for share in slots.shares.values())


def step_shares(
    definition: TopDownDefinition, formulas: Mapping[str, Expression], readings: PlaceReadings
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Every formula step by step, NaN where an event was not counted; and whether an event of it was scaled."""
    steps = len(next(iter(readings.values.values()), ()))
    unknown = np.full(steps, np.nan)
    values: dict[str, np.ndarray] = {**readings.values, "width": np.full(steps, float(definition.width))}
    marks: dict[str, np.ndarray] = {**readings.estimated, "width": np.zeros(steps, dtype=bool)}
    for name, formula in formulas.items():
        known_values = {word: values.get(word, unknown) for word in formula.names}
        values[name] = np.broadcast_to(np.asarray(formula.value(known_values), dtype=np.float64), steps)
        marks[name] = np.zeros(steps, dtype=bool)
        for word in formula.names:
            marks[name] = marks[name] | marks.get(word, np.zeros(steps, dtype=bool))
    return values, marks


def _slots(
    definition: TopDownDefinition, formulas: Mapping[str, Expression], readings: PlaceReadings, effective: int
) -> Slots:
    values, marks = step_shares(definition, formulas, readings)
    joint = _Joint(definition, readings)
    slots: dict[str, Value] = {}
    across: dict[str, bool] = {}
    for name, formula in formulas.items():
        lacking = [word for word in formula.names if not joint.has(word) and word not in slots]
        reason = reasons.EVENT_NOT_COUNTED.format(lacking[0]) if lacking else reasons.NOTHING_COUNTED_HERE
        slots[name] = typical(values[name], marks[name], "1", "derived", effective, reason)
        across[name] = slots[name].value is None and not lacking
        if across[name]:
            slots[name] = joint.value(formula, slots, reason)
            across[name] = slots[name].value is not None
    counts: dict[str, bool] = {}
    for category in definition.categories:
        share = BoundedRatio(slots[category.name]).value(reasons.NO_SHARE_OF_SLOTS).value
        over = share is not None and share > category.threshold + EXACT
        counts[category.name] = over and (not category.parent or counts.get(category.parent, False))
    shares = {
        category.name: Share(
            BoundedRatio(slots[category.name]).value(reasons.NO_SHARE_OF_SLOTS),
            counts[category.name],
            across[category.name],
        )
        for category in definition.categories
    }
    top = [category for category in definition.categories if not category.parent]
    return Slots(
        shares=shares,
        residual=_residual(Value(1.0, "1", "derived"), [slots[category.name] for category in top]),
        residuals={
            parent.name: _residual(slots[parent.name], [slots[child.name] for child in children])
            for parent in definition.categories
            if (children := _children(definition, parent.name))
        },
        leading=_leading(definition, shares),
    )


class _Joint:
    """Events that no step counted together: rates per cycle, each of its own steps, times the cycles of all."""

    def __init__(self, definition: TopDownDefinition, readings: PlaceReadings) -> None:
        self.known: dict[str, float] = {"width": float(definition.width)}
        self.scaled: dict[str, bool] = {"width": False}
        cycles = readings.values.get(CYCLES)
        marks = readings.estimated
        whole = best(cycles, marks[CYCLES])[0] if cycles is not None else np.zeros(0)
        usual = middle(whole) if len(whole) else math.nan
        for name, values in readings.values.items():
            if cycles is not None and len(whole):
                rates, scaled = best(divide(values, cycles), marks[name] | marks[CYCLES])
                factor = usual
            else:
                rates, scaled = best(values, marks[name])
                factor = 1.0
            if len(rates):
                self.known[name] = factor * middle(rates)
                self.scaled[name] = scaled

    def has(self, name: str) -> bool:
        return name in self.known

    def value(self, formula: Expression, slots: Mapping[str, Value], reason: str) -> Value:
        """Formulas found before come first: a child is then a part of the very share that is shown."""
        inputs = dict(self.known)
        scaled = False
        for name in formula.names:
            before = slots.get(name)
            if before is not None:
                if before.value is None:
                    return Value(None, "1", "derived", reason=before.reason)
                inputs[name] = before.value
                scaled |= before.source == "estimated"
            else:
                scaled |= self.scaled[name]
        share = float(formula.value(inputs))
        if not math.isfinite(share):
            return Value(None, "1", "derived", reason=reason)
        return Value(share, "1", "estimated" if scaled else "derived")


def _children(definition: TopDownDefinition, parent: str) -> list[Category]:
    return [category for category in definition.categories if category.parent == parent]


def _residual(whole: Value, parts: list[Value]) -> Value:
    lacking = [part for part in parts if part.value is None]
    if whole.value is None or lacking:
        return Value(None, "1", "derived", reason=(lacking[0].reason if lacking else whole.reason))
    rest = whole.value - sum(part.value or 0.0 for part in parts)
    scaled = any(part.source == "estimated" for part in (whole, *parts))
    return Value(0.0 if abs(rest) < EXACT else rest, "1", "estimated" if scaled else "derived")


def _leading(definition: TopDownDefinition, shares: Mapping[str, Share]) -> tuple[str, ...]:
    path: list[str] = []
    while True:
        inside = [
            category.name
            for category in _children(definition, path[-1] if path else "")
            if shares[category.name].counts
        ]
        if not inside:
            return tuple(path)
        path.append(max(inside, key=lambda name: shares[name].value.value or 0.0))


def _over_steps(
    definition: TopDownDefinition, formulas: Mapping[str, Expression], places: PartReadings
) -> tuple[tuple[tuple[int, int], ...], dict[str, tuple[float, ...]]]:
    """Level 1 of every stretch of steps in which each group had its turn, warm-up included.

    As in a summary, events that no step of a stretch counted together are joined by their rates per cycle.
    """
    readings = places.step
    values, marks = step_shares(definition, formulas, readings)
    _, groups = groups_of(places)
    names = [category.name for category in definition.categories if not category.parent]
    count = len(values["width"])
    length = max(1, len(groups))
    stretches = [(start, min(start + length, count)) for start in range(0, count, length)]
    nowhere = np.zeros(count, dtype=bool)

    def typical_of(column: np.ndarray, estimated: np.ndarray) -> np.ndarray:
        return _medians(column, estimated, length)

    inputs = {"width": np.full(len(stretches), float(definition.width))}
    cycles = readings.values.get(CYCLES, np.full(count, np.nan))
    scaled = readings.estimated.get(CYCLES, nowhere)
    usual = typical_of(cycles, scaled)
    for name, column in readings.values.items():
        rates = typical_of(divide(column, cycles), readings.estimated[name] | scaled)
        inputs[name] = np.where(np.isnan(usual), typical_of(column, readings.estimated[name]), usual * rates)
    unknown = np.full(len(stretches), np.nan)
    for name, formula in formulas.items():
        together = typical_of(values[name], marks[name])
        joined = formula.value({word: inputs.get(word, unknown) for word in formula.names})
        inputs[name] = np.where(np.isnan(together), joined, together)
    over = {name: tuple(np.where(np.isfinite(inputs[name]), inputs[name], np.nan).tolist()) for name in names}
    return tuple((start + 1, end) for start, end in stretches), over


def _medians(column: np.ndarray, estimated: np.ndarray, length: int) -> np.ndarray:
    """The median of every so many steps, of those that were counted all the time where there are some; NaN for none."""
    rows = -(-len(column) // length)

    def folded(values: np.ndarray) -> np.ndarray:
        padded = np.full(rows * length, np.nan)
        padded[: len(values)] = np.where(np.isfinite(values), values, np.nan)
        return padded.reshape(rows, length)

    counted = folded(np.where(estimated, np.nan, column))
    none = np.isnan(counted).all(axis=1, keepdims=True)
    # NaN sorts to the end of a row.
    ordered = np.sort(np.where(none, folded(column), counted), axis=1)
    known = (~np.isnan(ordered)).sum(axis=1)
    row = np.arange(rows)
    medians: np.ndarray = (
        ordered[row, np.maximum(known - 1, 0) // 2] + ordered[row, np.minimum(known // 2, length - 1)]
    ) / 2
    return medians


def _findings(definition: TopDownDefinition, part: str, step: Slots) -> tuple[Finding, ...]:
    findings: list[Finding] = [SlotsDefined(definition.name, definition.of, definition.approximate)]
    findings += map(Remark, definition.notes)
    below = [step.shares[category.name].value for category in definition.categories if category.parent]
    if below and all(value.value is None for value in below):
        findings.append(NoLevelTwo(part, below[0].reason))
    if any(share.across for share in step.shares.values()):
        findings.append(JoinedEvents(part))
    return tuple(dict.fromkeys(findings))
