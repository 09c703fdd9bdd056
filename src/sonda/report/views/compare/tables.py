"""The tables of a comparison: step, phases and layers of B against A."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sonda.analysis import wording
from sonda.analysis.comparison.limit import SLOWER, WITHIN, LimitCheck
from sonda.analysis.comparison.summary import (
    ComparedRow,
    Comparison,
    PartComparison,
    factor_digits,
    factor_range,
    is_vague,
)
from sonda.analysis.statistics import MOST_REPETITIONS
from sonda.analysis.summary import Value
from sonda.report import quantities
from sonda.report.blocks import Bar, Bars
from sonda.report.table import Cell, Column, Table, build, numbers, quantity
from sonda.report.words.names import layer_label

CYCLE, EXACT = "cycle", "exact, simulated"
VAST = 10.0
"""An interval that reaches so many times to both sides says no more than that."""
WIDEST = 10.0
"""Times as long, from which nobody needs the percent."""
MOST_NAMES = 5
"""Of what only one side has that are listed."""


def verdict_words(comparison: Comparison) -> str:
    """One sentence: how the step of B compares with that of A, and its interval in the same words."""
    if not comparison.parts:
        return "Nothing to compare: the two sides have no part in common."
    step = comparison.parts[0].step
    a, b = _amount(step.a), _amount(step.b)
    if comparison.exact:
        exact = f"({step.ratio.reason})"
        return f"B is {step.text} than A: {b} per step instead of {a} {exact}." if step.significant else (
            f"No difference: {a} per step {exact}."
        )  # fmt: skip
    low, high, phases = step.ratio.low, step.ratio.high, _sure_phases(comparison.parts[0])
    if phases and not step.significant and low is not None and high is not None:
        possible = f"B {possible_words(low, high)} (95 %), {b} instead of {a}"
        return f"The step cannot be told: {possible}; {phases}."
    return f"{change_words(step.ratio, step.significant, step.text)}: {b} per step instead of {a}."


def _sure_phases(part: PartComparison) -> str:
    """`data is surely faster`: the phases that differ significantly; '' without any."""
    words = []
    for direction, slower in (("faster", False), ("slower", True)):
        names = [row.name for row in part.phases if row.significant and ((row.ratio.value or 0.0) > 1) == slower]
        if names:
            words.append(f"{wording.join(names)} {'is' if len(names) == 1 else 'are'} surely {direction}")
    return " and ".join(words)


def change_words(ratio: Value, significant: bool, text: str) -> str:
    """`B is 1.30x slower than A (95 %: 1.25 to 1.35x)`, `B is 1.21 to 1.60x slower than A (95 %)`, or what B may be."""
    low, high = ratio.low, ratio.high
    if low is None or high is None:
        return f"No significant difference{f' ({ratio.reason})' if ratio.reason else ''}"
    if not significant:
        return f"No significant difference: B {possible_words(low, high)} (95 %)"
    ends = factor_range(low, high)
    known = is_vague(low, high) or len(set(ends.removesuffix("x").split(" to "))) == 1
    interval = "95 %" if known else f"95 %: {ends}"
    return f"B is {text} than A ({interval})"


def possible_words(low: float, high: float) -> str:
    """What an interval of a ratio leaves open: `is 1.42x faster to 1.15x slower`, `is 1.02 to 1.11x slower`; of one
    that says nothing `may be more than 10x faster or slower`."""
    if low < 1 / VAST and high > VAST:
        return f"may be more than {VAST:g}x faster or slower"
    if low > 1 or high < 1:
        return f"is {factor_range(low, high)} {'slower' if low > 1 else 'faster'}"
    return f"is {factor_digits(1 / low if low > 0 else math.inf)}x faster to {factor_digits(high)}x slower"


def sides_words(comparison: Comparison, names: Sequence[str] = ()) -> str:
    """Which runs are A and which are B, with the names of both sides where they have two."""
    a, b = (f"{name} (" for name in names) if len(names) == 2 else ("", "")
    end = ")" if a else ""
    return f"A: {a}{listed(comparison.a)}{end} · B: {b}{listed(comparison.b)}{end}"


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


def repetitions_of(comparison: Comparison) -> str:
    """What is repeated to know more, as `limit_words` takes it."""
    return "runs" if comparison.of_programs else "processes"


def limit_words(check: LimitCheck, exact: bool = False, repetitions: str = "processes") -> str:
    """Whether B is slower than A by more than a limit, or that it cannot be told and what would tell.

    `repetitions` are processes, which `--repeat` asks for, runs of a program, or steps of a trace.
    """
    slowdown, limit = check.slowdown, f"{100 * check.limit:g} %"
    takes = f"B takes {_takes(slowdown, exact)}" if slowdown.value is not None else slowdown.reason
    if check.outcome == SLOWER:
        return f"Above the limit of {limit}: {takes}."
    if check.outcome == WITHIN:
        return f"Within the limit of {limit}: {takes}."
    return f"Cannot tell whether B is above the limit of {limit}: {takes}. {_more_words(check, repetitions)}"


def _more_words(check: LimitCheck, repetitions: str) -> str:
    """What would tell."""
    if check.repetitions is not None:
        hints = {
            "processes": f" (--repeat {check.repetitions})",
            "runs": f": run each program {check.repetitions} times with one tag (sonda run --tag A train.py)",
        }
        option = hints.get(repetitions, "")
        about = "At least" if check.at_least else "About"
        return f"{about} {check.repetitions} {repetitions} on each side would tell{option}."
    if check.slowdown.low is None:
        return f"Measure several {repetitions} on each side."
    return f"More than {MOST_REPETITIONS} {repetitions} on each side would be needed: choose a larger limit."


def _takes(slowdown: Value, exact: bool) -> str:
    """`6.1 to 30 % more time (95 %)`, `3.1 % less to 9.2 % more time (95 %)`, `16 % more cycles (exact, simulated)`."""
    low, high, value = slowdown.low, slowdown.high, slowdown.value or 0.0
    if exact or low is None or high is None:
        why = EXACT if exact else slowdown.reason
        changed = f"{'more' if value >= 0 else 'fewer'} cycles" if exact else f"{_direction(value)} time"
        return f"{_percent(value)} {changed}{f' ({why})' if why else ''}"
    if (low < 0) == (high < 0):
        near, far = (_percent(share) for share in sorted((low, high), key=abs))
        ends = far if near == far else f"{near.removesuffix(' %')} to {far}"
        return f"{ends} {_direction(high)} time (95 %)"
    return f"{_percent(low)} less to {_percent(high)} more time (95 %)"


def _percent(share: float) -> str:
    """Without its sign; beyond ten times nobody needs the digits, and what takes some time is not 100 % less."""
    if abs(share) > WIDEST:
        return f">{100 * WIDEST:,.0f} %"
    text = wording.percent(abs(share))
    return ">99 %" if text == "100 %" and -1 < share < 0 else text


def _direction(share: float) -> str:
    return "more" if share >= 0 else "less"


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


def _times(ratio: float) -> str:
    """`1.024`; two runs that differ wildly give intervals of which nobody needs the digits: `<0.001`, `>1,000`."""
    return quantities.fixed(ratio, 3) if ratio <= 1000 else ">1,000"


def listed(runs: Sequence[str]) -> str:
    """The first runs of a side, and how many more there are."""
    return ", ".join(runs[:3]) + (f" and {len(runs) - 3:,} more" if len(runs) > 3 else "")


def _amount(value: Value) -> str:
    if value.unit == CYCLE and value.value is not None:
        return f"{quantities.whole(value.value)} cycles"
    return quantities.amount(value.value, value.unit)
