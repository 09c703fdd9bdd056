"""A command counted from outside: one line of totals, a table and a figure over time."""

from __future__ import annotations

from sonda.analysis.counters.summary import Outside
from sonda.analysis.summary import Value
from sonda.report import quantities
from sonda.report.blocks import Block, Gap, Paragraph, TableBlock, paragraphs
from sonda.report.charts.chart import Axis, Chart
from sonda.report.table import Cell, Column, Table, build, numbers, words
from sonda.report.views.steps.series import panels
from sonda.report.words import describe

CLOCK = "task_clock"


def outside_blocks(outside: Outside) -> list[Block]:
    """The totals in one line; the table and the changes where there is a series."""
    blocks: list[Block] = [Gap(), Paragraph(totals_words(outside))]
    if outside.stretches:
        blocks += [Gap(), TableBlock(outside_table(outside))]
    blocks += paragraphs(map(describe, outside.findings), "remark")
    return blocks


def totals_words(outside: Outside) -> str:
    """`Whole program: 2.00 s, 1.90 s of processor time (0.95 processors busy), 81 page faults (counted …)`."""
    items = [quantities.amount(outside.duration.value, "ns")]
    clock = outside.totals.get(CLOCK)
    if clock is not None and clock.value is not None:
        busy = f" ({quantities.fixed(outside.busy.value, 2)} processors busy)" if outside.busy.value is not None else ""
        items.append(f"{quantities.amount(clock.value, 'ns')} of processor time{busy}")
    items += [
        f"{_sign(value)}{quantities.amount(value.value, value.unit)} {_noun(name, value.value)}"
        for name, value in outside.totals.items()
        if name != CLOCK and value.value is not None
    ]
    if outside.ipc.value is not None:
        items.append(f"IPC {_sign(outside.ipc)}{quantities.number(outside.ipc.value)}")
    missing: dict[str, list[str]] = {}
    for name, value in outside.totals.items():
        if value.reason:
            missing.setdefault(value.reason, []).append(name.replace("_", " "))
    how = "counted from outside, child processes included" if len(items) > 1 else "measured"
    reasons = [f"{', '.join(names)} ({reason})" for reason, names in missing.items()]
    why = f"; not counted: {'; '.join(reasons)}" if reasons else ""
    return f"Whole program: {', '.join(items)} ({how}){why}"


def _noun(name: str, count: float) -> str:
    words = name.replace("_", " ")
    if count != 1:
        return words
    return words.removesuffix("es") if words.endswith("ches") else words.removesuffix("s")


def _sign(value: Value) -> str:
    return "~" if value.source == "estimated" else ""


def outside_table(outside: Outside) -> Table:
    """A row for each stretch of time: rates, and the phase that took most of it."""
    unit, starts = numbers([Value(stretch.start, "ns", "measured") for stretch in outside.stretches])
    columns: list[tuple[Column, list[Cell]]] = [(Column(f"from, {unit}"), starts)]
    for index, name in enumerate(outside.stretches[0].rates):
        unit, cells = numbers([stretch.rates[name] for stretch in outside.stretches])
        short = name.removesuffix(" per second")
        title = f"{short}, 1/s" if short != name else name
        columns.append((Column(title, keep=max(1, 8 - index), hint=f"{name}, derived"), cells))
    if outside.phases:
        phases = [f"{stretch.phase} {quantities.percent(stretch.share)} %" for stretch in outside.stretches]
        columns.append((Column("mostly", right=False, keep=8), words(phases)))
    return build(columns, "Over time")


def outside_figure(outside: Outside) -> Chart | None:
    """Rates over the time of the program, changes as upright lines, phases beneath; None without a series."""
    if not outside.series or not outside.starts:
        return None
    scale = quantities.common_scale([outside.ends[-1]], "ns")
    edges = [(start / scale.factor, end / scale.factor)
             for start, end in zip(outside.starts, outside.ends, strict=True)]  # fmt: skip
    shares = {name: [100 * share for share in values] for name, values in outside.phases.items()}
    axis = Axis(f"time since the program began, {scale.unit}", ends=(0, outside.ends[-1] / scale.factor))
    return panels(outside.series, shares, edges, axis, "interval")
