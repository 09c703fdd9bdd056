"""The tables of hardware counters: cycles, instructions and misses per step, and Top-Down by phase and layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sonda.analysis import wording
from sonda.analysis.counted_summary import Counted, CounterSummary, Share, Slots, TopDown
from sonda.analysis.summary import LayerRow, PartSummary, Value
from sonda.record.topdown import Category
from sonda.report import quantities
from sonda.report.screen import Screen
from sonda.report.table import Cell, Column, Table, build, numbers, words

ESTIMATED = "~"
"""Before a number that was scaled."""
MOST_RATES = 4
"""Columns of misses that a table has room for; all are in `sonda show --json`."""

LATE = "instructions came late: they were in no near cache, or had to be fetched elsewhere after a jump"
MEANINGS = {
    "retiring": "useful work: operations that were carried out to their end",
    "frontend_bound": "no operation arrived from the part that fetches and decodes instructions",
    "backend_bound": "operations waited for data or for an arithmetic unit",
    "bad_speculation": "work that was thrown away, because a branch went another way than was guessed",
    "memory_bound": "waiting for caches or memory",
    "core_bound": "waiting for arithmetic units, or for results of operations before",
    "fetch_latency": LATE,
    "frontend_latency": LATE,
    "fetch_bandwidth": "instructions came, but fewer in a cycle than there was room for",
    "branch_mispredicts": "after a wrong guess of a branch",
    "machine_clears": "after the pipeline was emptied for another reason, such as a clash of memory accesses",
    "pipeline_restarts": "after the pipeline was emptied for another reason, such as a clash of memory accesses",
    "light_operations": "instructions that are one operation or few",
    "fastpath": "instructions that are one operation or two",
    "heavy_operations": "instructions that are many operations, or microcode",
    "microcode": "instructions that are small programs inside of the processor",
    "smt_contention": "the core's other thread had the slots",
}
"""Categories by name, whatever processor they are of."""

Row = tuple[str, Slots]


def show_counters(screen: Screen, part: PartSummary, limit: int) -> None:
    """Counters and Top-Down of a part below its phases; `limit` is how many layers are listed."""
    if part.counted is not None:
        screen.line()
        screen.table(counter_table(part.counted))
    if part.topdown is not None:
        for table in topdown_tables(part.topdown):
            screen.line()
            screen.table(table)
        chosen = choose_counted(part, limit)
        if chosen:
            screen.line()
            total = len(part.topdown.layers)
            title = f"layer ({len(chosen)} of {total})" if total > len(chosen) else "layer"
            screen.table(topdown_layer_table(part, chosen, title))
    for sentence in counter_sentences(part):
        screen.line(sentence, "dim", 2, 2)


def counter_sentences(part: PartSummary) -> list[str]:
    """What a reader of the tables must know."""
    said = [*(part.topdown.sentences if part.topdown else ()), *(part.counted.sentences if part.counted else ())]
    if part.topdown is not None and any(
        share.value.source == "estimated" for one in _rows(part.topdown) for share in one[1].shares.values()
    ):
        said.append(f"{ESTIMATED} marks estimated values")
    return list(dict.fromkeys(said))


def counter_table(summary: CounterSummary) -> Table:
    """Phases and the step: cycles, instructions, instructions per cycle, misses per 1,000 instructions."""
    rows = [*summary.phases.items(), ("step", summary.step)]
    rates = [name for name in summary.step.per_thousand if "miss" in name][:MOST_RATES]
    absent = Value(None, "1", "counted", reason="not counted")
    columns = [(Column("counters", right=False), _names([name for name, _ in rows]))]
    for name in ("cycles", "instructions"):
        values = [one.counters.get(name, absent) for _, one in rows]
        unit, cells = numbers(values)
        shown = unit.removesuffix("cycle").strip()
        columns.append((Column(f"{name} {shown}".strip(), keep=4), _marked(values, cells)))
    ipc = [one.ipc for _, one in rows]
    columns.append((Column("IPC", hint="instructions per cycle, derived"), _marked(ipc, numbers(ipc)[1])))
    for name in rates:
        values = [_rate(one, name) for _, one in rows]
        hint = f"{name} per 1,000 instructions (MPKI), derived"
        columns.append(
            (Column(f"{name.replace('_', ' ')} /1k", keep=2, hint=hint), _marked(values, numbers(values)[1]))
        )
    return build(columns, "counters")


def topdown_tables(topdown: TopDown) -> list[Table]:
    """Level 1 with its residual and what leads; level 2 where it was counted, children of small parents quiet."""
    rows = _rows(topdown)
    definition = topdown.definition
    names = _names([name for name, _ in rows])
    first = [category for category in definition.categories if not category.parent]
    second = [category for category in definition.categories if category.parent]
    head = "approximate" if definition.approximate else "Top-Down"
    columns = [(Column(f"{head}, % of {definition.of}", right=False), names)]
    columns += [_category(category, rows) for category in first]
    residuals = [slots.residual for _, slots in rows]
    hint = "what level 1 lacks of 1, derived"
    columns.append((Column("residual", keep=7, hint=hint), [_percent(value) for value in residuals]))
    columns.append((Column("mostly", right=False, keep=3), words([_leading(topdown, slots) for _, slots in rows])))
    tables = [build(columns, "Top-Down")]
    known = [one for one in second if any(slots.shares[one.name].value.value is not None for _, slots in rows)]
    if known:
        columns = [(Column("level 2", right=False), names), *(_category(category, rows) for category in known)]
        tables.append(build(columns, "Top-Down, level 2"))
    return tables


def choose_counted(part: PartSummary, limit: int) -> list[LayerRow]:
    """The `limit` layers with the most own time of which Top-Down is known, most first."""
    known = part.topdown.layers if part.topdown is not None else {}
    rows = [row for row in part.layers if row.path in known]
    return sorted(rows, key=lambda row: -(row.own.value or 0.0))[:limit]


def topdown_layer_table(part: PartSummary, layers: Sequence[LayerRow], title: str) -> Table:
    """One row for each of these layers, forward and backward together, without the layers inside."""
    assert part.topdown is not None
    topdown = part.topdown
    rows = [(row.path, topdown.layers[row.path]) for row in layers]
    names = [Cell(wording.layer_label(row.path, row.name), row.path, tone="name") for row in layers]
    columns = [(Column(title, right=False, path=True), names),
               (Column("type", right=False, keep=1), words([row.name for row in layers]))]  # fmt: skip
    if part.counted is not None:
        ipc = [_of_layer(part.counted, row.path) for row in layers]
        columns.append((Column("IPC", keep=4, hint="instructions per cycle, derived"), _marked(ipc, numbers(ipc)[1])))
    columns += [_category(one, rows) for one in topdown.definition.categories if not one.parent]
    columns.append((Column("mostly", right=False, keep=3), words([_leading(topdown, slots) for _, slots in rows])))
    return build(columns, "Top-Down of layers")


def categories_meant(topdown: TopDown) -> dict[str, str]:
    """What every category is, with what it is a part of and what its definition adds."""
    titles = {one.name: one.words for one in topdown.definition.categories}
    found = {}
    for one in topdown.definition.categories:
        said = [text for text in (MEANINGS.get(one.name, ""), one.meaning) if text]
        part_of = f"part of {titles[one.parent]}: " if one.parent else ""
        if said:
            found[one.words] = part_of + "; ".join(said)
    return found


def _rows(topdown: TopDown) -> list[Row]:
    return [*topdown.phases.items(), ("step", topdown.step)]


def _names(names: Sequence[str]) -> list[Cell]:
    return [Cell(name, name, tone="quiet" if name == "step" else "name") for name in names]


def _category(category: Category, rows: Sequence[Row]) -> tuple[Column, list[Cell]]:
    bound = "; a lower bound" if category.bound == "lower" else ""
    threshold = f"; counts above {quantities.percent(category.threshold)} %" if category.threshold else ""
    hint = f"{category.meaning or MEANINGS.get(category.name) or category.words}{bound}{threshold}"
    cells = [_share(slots.shares[category.name], bool(category.parent), slots, category.name) for _, slots in rows]
    keep = 6 if not category.parent else 2
    return Column(category.words, keep=keep, hint=hint), cells


def _share(share: Share, child: bool, slots: Slots, name: str) -> Cell:
    cell = _percent(share.value)
    tone = "strong" if name in slots.leading and name != "retiring" else "quiet" if child and not share.counts else ""
    quiet = "; its parent is below its threshold, or it is" if child and not share.counts else ""
    joined = "; from events counted in different steps" if share.across else ""
    return replace(cell, hint=cell.hint + joined + quiet, tone=tone or cell.tone)


def _percent(value: Value) -> Cell:
    if value.value is None:
        return Cell(quantities.MISSING, None, quantities.provenance(value), value.reason, "quiet")
    mark = ESTIMATED if value.source == "estimated" else ""
    text = mark + quantities.percent(value.value, 1)
    return Cell(text, 100 * value.value, quantities.provenance(value), unit="%")


def _marked(values: Sequence[Value], cells: Sequence[Cell]) -> list[Cell]:
    return [
        replace(cell, text=ESTIMATED + cell.text) if value.source == "estimated" and value.value is not None else cell
        for value, cell in zip(values, cells, strict=True)
    ]


def _leading(topdown: TopDown, slots: Slots) -> str:
    """`backend bound › memory bound`."""
    titles = {category.name: category.words for category in topdown.definition.categories}
    return " › ".join(titles[name].lower() for name in slots.leading)


def _rate(counted: Counted, name: str) -> Value:
    return counted.per_thousand.get(name, Value(None, "1", "derived", reason="not counted"))


def _of_layer(summary: CounterSummary, path: str) -> Value:
    found = summary.layers.get(path)
    return found.ipc if found is not None else Value(None, "1", "derived", reason="not counted")
