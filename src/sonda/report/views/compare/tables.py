"""The tables of a comparison: step, phases and layers of B against A."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sonda.analysis.comparison.summary import ComparedRow, Comparison, PartComparison
from sonda.analysis.summary import Value
from sonda.report import quantities
from sonda.report.blocks import Bar, Bars
from sonda.report.table import Cell, Column, Table, build, numbers, quantity
from sonda.report.words.names import layer_label

CYCLE, EXACT, ALONE = "cycle", "exact, simulated", "one number on each side, without an interval"
MOST_NAMES = 5
"""Of what only one side has that are listed."""


def verdict_words(comparison: Comparison) -> str:
    """One sentence: how the step of B compares with that of A."""
    if not comparison.parts:
        return "Nothing to compare: the two sides have no part in common."
    step = comparison.parts[0].step
    times = f"{_amount(step.a)} to {_amount(step.b)} per step"
    if comparison.exact and not step.significant:
        return f"No difference: {_amount(step.a)} per step{_bounds(step.ratio)}."
    if not step.significant:
        return f"No significant difference: {times}{_bounds(step.ratio)}."
    return f"B is {step.text} than A: {times}{_bounds(step.ratio)}."


def sides_words(comparison: Comparison, names: Sequence[str] = ()) -> str:
    """Which runs are A and which are B, with the names of both sides where they have two."""
    a, b = (f"{name} (" for name in names) if len(names) == 2 else ("", "")
    end = ")" if a else ""
    return f"A: {a}{_listed(comparison.a)}{end} · B: {b}{_listed(comparison.b)}{end}"


def step_and_phases_table(part: PartComparison) -> Table:
    """The whole step and its phases."""
    return _table([part.step, *part.phases], "", [row.name for row in [part.step, *part.phases]])


def layers_table(rows: Sequence[ComparedRow], title: str) -> Table:
    """These layers, in the order given."""
    return _table(rows, title, [layer_label(row.path, row.name) for row in rows])


def rows_table(rows: Sequence[ComparedRow]) -> Table:
    """Steps, phases and layers together, in the order given."""
    return _table(rows, "", [layer_label(row.path, row.name) if row.path else row.name for row in rows])


def changed_layers(part: PartComparison, limit: int) -> tuple[ComparedRow, ...]:
    """The layers that changed significantly, those with the largest difference first."""
    changed = [row for row in part.layers if row.significant]
    return tuple(sorted(changed, key=lambda row: -abs((row.b.value or 0.0) - (row.a.value or 0.0)))[:limit])


def change_bars(rows: Sequence[ComparedRow]) -> Bars:
    """How much each of these changed, as bars of the difference."""
    changes = [abs((row.b.value or 0.0) - (row.a.value or 0.0)) for row in rows]
    most = max(changes, default=0.0) or 1.0
    return Bars([
        Bar(layer_label(row.path, row.name) if row.path else row.name, change / most, row.text,
            note=f"{_amount(row.a)} to {_amount(row.b)}")
        for row, change in zip(rows, changes, strict=True)
    ])  # fmt: skip


def one_sided_phrases(part: PartComparison) -> list[str]:
    """`only in A: phase data`, for what cannot be compared."""
    phrases = []
    for side, names in (("A", part.only_a), ("B", part.only_b)):
        if names:
            more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
            phrases.append(f"only in {side}: {', '.join(names[:MOST_NAMES])}{more}")
    return phrases


def unchanged_words(part: PartComparison, exact: bool) -> str:
    """How many layers are not among those that changed."""
    left = sum(not row.significant for row in part.layers)
    return f"{left:,} of {len(part.layers):,} layers: {'equal' if exact else 'not significant'}"


def limit_words(slowdown: Value, fails: bool, limit: float, exact: bool = False) -> str:
    """Whether B is slower than A by more than a limit (0.05 for 5 %), which `fails` says, or that nothing tells."""
    shown = f"{100 * limit:g} %"
    alone = slowdown.low is None or slowdown.high is None
    if fails:
        how = EXACT if exact else ALONE if alone else "lower end of the 95 % interval"
        return f"Slower by more than {shown} ({how})."
    if alone and slowdown.value is not None and slowdown.value <= limit:
        return f"Within the limit of {shown} ({ALONE})."
    if alone:
        why = f": {slowdown.reason}" if slowdown.reason else ""
        return f"Nothing tells whether it is slower by more than {shown}{why}."
    if slowdown.high is not None and slowdown.high <= limit:
        return f"Within the limit of {shown}."
    return f"Too noisy to tell whether it is slower by more than {shown}."


def _exact_table(rows: Sequence[ComparedRow], title: str, names: list[str]) -> Table:
    """Cycles of both sides with all their digits; nothing varies, so there are no intervals."""
    return build(
        [
            (Column(title, right=False, path=True), [Cell(name, name, tone="name") for name in names]),
            (Column("A cycles", hint=EXACT), [_cycles(row.a) for row in rows]),
            (Column("B cycles", hint=EXACT), [_cycles(row.b) for row in rows]),
            (Column("B/A", keep=4, hint="cycles of B over cycles of A"), [_ratio(row) for row in rows]),
            (Column("B against A", right=False), [_judged(row) for row in rows]),
        ],
        "comparison",
    )


def _cycles(value: Value) -> Cell:
    return quantity(value, quantities.whole(value.value or 0.0))


def _table(rows: Sequence[ComparedRow], title: str, names: list[str]) -> Table:
    if any(row.a.unit == CYCLE for row in rows):
        return _exact_table(rows, title, names)
    unit, times = numbers([row.a for row in rows] + [row.b for row in rows])
    return build(
        [
            (Column(title, right=False, path=True), [Cell(name, name, tone="name") for name in names]),
            (Column(f"A {unit}", hint="time per step, median over runs"), times[: len(rows)]),
            (Column(f"B {unit}", hint="time per step, median over runs"), times[len(rows) :]),
            (
                Column("B/A", keep=4, hint="time of B over time of A; above 1 B is slower"),
                [_ratio(row) for row in rows],
            ),
            (Column("95 % interval", keep=3, hint="of B/A"), [_interval(row) for row in rows]),
            (Column("B against A", right=False), [_judged(row) for row in rows]),
        ],
        "comparison",
    )


def _ratio(row: ComparedRow) -> Cell:
    value = row.ratio.value
    if value is None or not math.isfinite(value):
        return Cell(quantities.MISSING, None, quantities.provenance(row.ratio), row.ratio.reason, "quiet")
    return quantity(row.ratio, _times(value), _grey(row))


def _grey(row: ComparedRow) -> str:
    """The tone of numbers that say nothing for sure."""
    return "" if row.significant else "quiet"


def _interval(row: ComparedRow) -> Cell:
    ratio = row.ratio
    if ratio.low is None or ratio.high is None:
        return Cell(quantities.MISSING, None, ratio.reason, ratio.reason, "quiet")
    text = f"{_times(ratio.low)}–{_times(ratio.high)}"
    return Cell(text, ratio.high - ratio.low, quantities.provenance(ratio), tone=_grey(row))


def _judged(row: ComparedRow) -> Cell:
    if not row.significant:
        return Cell(row.text, 0.0, tone="quiet")
    change = (row.ratio.value or 1.0) - 1
    return Cell(row.text, change, tone="bad" if change > 0 else "good")


def _bounds(ratio: Value) -> str:
    if ratio.low is None or ratio.high is None:
        return f" ({ratio.reason})" if ratio.reason else ""
    ends = f"95 %: {_times(ratio.low)}–{_times(ratio.high)}"
    share = ratio.value or 0.0
    return f", {_times(share)} {'of' if share < 1 else 'times'} the time ({ends})"


def _times(ratio: float) -> str:
    """`1.024`; two runs that differ wildly give intervals of which nobody needs the digits: `<0.001`, `>1,000`."""
    return quantities.fixed(ratio, 3) if ratio <= 1000 else ">1,000"


def _listed(runs: Sequence[str]) -> str:
    return ", ".join(runs[:3]) + (f" and {len(runs) - 3:,} more" if len(runs) > 3 else "")


def _amount(value: Value) -> str:
    if value.unit == CYCLE and value.value is not None:
        return f"{quantities.whole(value.value)} cycles"
    return quantities.amount(value.value, value.unit)
