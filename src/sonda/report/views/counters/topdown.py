"""The tables of hardware counters: cycles, instructions and misses per step, and Top-Down by phase and layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from sonda.analysis.counters.summary import Counted, CounterSummary, Share, Slots, TopDown
from sonda.analysis.summary import LayerRow, PartSummary, Value
from sonda.record.conventions.topdown import Category
from sonda.report import quantities
from sonda.report.blocks import Block, Gap, TableBlock, paragraphs
from sonda.report.charts.chart import (
    Axis,
    BarPart,
    Boxes,
    Chart,
    ColorScale,
    Plot,
    Strip,
    heat_map,
    stacked_bars,
    stacked_columns,
)
from sonda.report.palette import GREY, HEAT, SLOT_COLORS, SPARE_COLORS
from sonda.report.table import Cell, Column, Table, build, numbers, words
from sonda.report.values import Document, finite, metrics, value_document
from sonda.report.words import describe
from sonda.report.words.names import layer_label

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


def counter_blocks(part: PartSummary, limit: int) -> list[Block]:
    """Counters and Top-Down of a part below its phases; `limit` is how many layers are listed."""
    blocks: list[Block] = []
    if part.counted is not None:
        blocks += [Gap(), TableBlock(counter_table(part.counted))]
    if part.topdown is not None:
        for table in topdown_tables(part.topdown):
            blocks += [Gap(), TableBlock(table)]
        chosen = choose_counted(part, limit)
        if chosen:
            blocks.append(Gap())
            total = len(part.topdown.layers)
            title = f"layer ({len(chosen)} of {total})" if total > len(chosen) else "layer"
            blocks.append(TableBlock(topdown_layer_table(part, chosen, title)))
    blocks += paragraphs(counter_sentences(part))
    return blocks


def counter_sentences(part: PartSummary) -> list[str]:
    """What a reader of the tables must know."""
    found = [*(part.topdown.findings if part.topdown else ()), *(part.counted.findings if part.counted else ())]
    said = list(map(describe, found))
    if part.topdown is not None and any(
        share.value.source == "estimated" for row in _rows(part.topdown) for share in row[1].shares.values()
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
        values = [counted.counters.get(name, absent) for _, counted in rows]
        unit, cells = numbers(values)
        shown = unit.removesuffix("cycle").strip()
        columns.append((Column(f"{name} {shown}".strip(), keep=4), _mark_estimates(values, cells)))
    ipc = [counted.ipc for _, counted in rows]
    columns.append((Column("IPC", hint="instructions per cycle, derived"), _mark_estimates(ipc, numbers(ipc)[1])))
    for name in rates:
        values = [_rate(counted, name) for _, counted in rows]
        hint = f"{name} per 1,000 instructions (MPKI), derived"
        columns.append(
            (Column(f"{name.replace('_', ' ')} /1k", keep=2, hint=hint), _mark_estimates(values, numbers(values)[1]))
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
    known = [
        category for category in second if any(slots.shares[category.name].value.value is not None for _, slots in rows)
    ]
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
    names = [Cell(layer_label(row.path, row.name), row.path, tone="name") for row in layers]
    columns = [(Column(title, right=False, path=True), names),
               (Column("type", right=False, keep=1), words([row.name for row in layers]))]  # fmt: skip
    if part.counted is not None:
        ipc = [_layer_ipc(part.counted, row.path) for row in layers]
        columns.append(
            (Column("IPC", keep=4, hint="instructions per cycle, derived"), _mark_estimates(ipc, numbers(ipc)[1]))
        )
    columns += [_category(category, rows) for category in topdown.definition.categories if not category.parent]
    columns.append((Column("mostly", right=False, keep=3), words([_leading(topdown, slots) for _, slots in rows])))
    return build(columns, "Top-Down of layers")


def category_meanings(topdown: TopDown) -> dict[str, str]:
    """What every category is, with what it is a part of and what its definition adds."""
    titles = {category.name: category.words for category in topdown.definition.categories}
    meanings = {}
    for category in topdown.definition.categories:
        texts = [text for text in (MEANINGS.get(category.name, ""), category.meaning) if text]
        part_of = f"part of {titles[category.parent]}: " if category.parent else ""
        if texts:
            meanings[category.words] = part_of + "; ".join(texts)
    return meanings


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
    guess = quantities.is_guess(value)
    return Cell(text, 100 * value.value, quantities.provenance(value), unit="%", estimated=guess)


def _mark_estimates(values: Sequence[Value], cells: Sequence[Cell]) -> list[Cell]:
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


def _layer_ipc(summary: CounterSummary, path: str) -> Value:
    counted = summary.layers.get(path)
    return counted.ipc if counted is not None else Value(None, "1", "derived", reason="not counted")


# ---- The figures of Top-Down: icicle of the levels, level 1 over steps, and a map of layers by category -------------

MOST_LAYERS = 60
MOST_BARS, MOST_STEPS = 400, 800


def topdown_icicle(topdown: TopDown) -> Chart | None:
    """Level 1 and below it level 2 of the whole step, as wide as their shares; None where level 1 is not known.

    What is below 0 has no width and is said in the hover box; a residual has a field of its own.
    """
    slots = topdown.step
    shares = {
        category.name: slots.shares[category.name].value.value for category in topdown.definition.categories
        if slots.shares[category.name].value.value is not None
    }  # fmt: skip
    categories = [category for category in topdown.definition.categories if category.name in shares]
    if not any(not category.parent for category in categories):
        return None
    inside = {category.name: sum(max(shares[child.name] or 0.0, 0.0) for child in categories
                                 if child.parent == category.name) for category in categories}  # fmt: skip
    # A field is at least as wide as its children.
    widths = {name: 100 * max(share or 0.0, inside[name]) for name, share in shares.items()}
    marks: list[Boxes] = []
    reached: dict[str, float] = {"": 0.0}
    for category in categories:
        left, level = reached[category.parent], 1 if category.parent else 0
        right = left + widths[category.name]
        reached[category.parent] = right
        reached[category.name] = left
        text = f"{category.words} {quantities.percent(shares[category.name])} %"
        marks.append(Boxes(
            "", _color(category, topdown), ((left, right, level - 0.48, level + 0.48),),
            (_words(topdown, category, slots),), colors=(_color(category, topdown),), texts=(text,),
        ))  # fmt: skip
    if slots.residual.value is not None and slots.residual.value > 0:
        left = reached[""]
        place = (left, left + 100 * slots.residual.value, -0.48, 0.48)
        hint = f"residual: {quantities.provenance(slots.residual)}"
        marks.append(Boxes("", GREY, (place,), (hint,), colors=(GREY,), texts=("residual",)))
        reached[""] = place[1]
    names = ("level 1", "level 2") if any(category.parent for category in categories) else ("level 1",)
    axis = Axis(f"% of {topdown.definition.of}, {topdown.definition.name}", ends=(0, max(100.0, reached[""])))
    return Chart(axis, (Plot(Axis(names=names), tuple(marks)),), 44 * len(names), legend=False)


def topdown_bars(topdown: TopDown) -> Chart | None:
    """Level 1 of every phase and of the step, one stacked bar each; None where level 1 is not known.

    What is below 0 has no width and is said in the hover box. A share made of scaled events is hatched.
    """
    rows = [*topdown.phases.items(), ("step", topdown.step)]
    first = [category for category in topdown.definition.categories if not category.parent]
    known = [
        category for category in first if any(slots.shares[category.name].value.value is not None for _, slots in rows)
    ]
    if not known:
        return None
    parts = []
    for category in known:
        values = [slots.shares[category.name].value for _, slots in rows]
        parts.append(BarPart(
            category.words, _color(category, topdown),
            [None if value.value is None else 100 * max(value.value, 0.0) for value in values],
            [f"{name}\n{_words(topdown, category, slots)}" for name, slots in rows],
            [value.source == "estimated" for value in values],
        ))  # fmt: skip
    axis = Axis(f"% of {topdown.definition.of}", ends=(0, 100))
    return stacked_bars([name for name, _ in rows], parts, axis, row=30)


def topdown_over_steps(topdown: TopDown) -> Chart | None:
    """Level 1 of every stretch of steps, stacked; None where no stretch knows any of it.

    A category that a stretch did not count leaves a gap, never a zero.
    """
    known = [category for category in topdown.definition.categories if category.name in topdown.level_one
             and any(math.isfinite(value) for value in topdown.over_steps[category.name])]  # fmt: skip
    if not known:
        return None
    group = math.ceil(len(topdown.stretches) / MOST_STEPS)
    chosen = range(0, len(topdown.stretches), group)
    stretches = [(topdown.stretches[at][0], topdown.stretches[min(at + group, len(topdown.stretches)) - 1][1])
                 for at in chosen]  # fmt: skip
    shares = {category.name: [_mean(topdown.over_steps[category.name][at : at + group]) for at in chosen]
              for category in known}  # fmt: skip
    columns = [
        (category.words, _color(category, topdown),
         [100 * max(value, 0.0) if math.isfinite(value) else None for value in shares[category.name]])
        for category in known
    ]  # fmt: skip
    edges = [(first - 0.48, last + 0.48) for first, last in stretches]
    strips = []
    for at, (first, last) in enumerate(stretches):
        lines = [f"{category.words}: {quantities.percent(shares[category.name][at], 1)} % of {topdown.definition.of}, "
                 "derived" for category in known if math.isfinite(shares[category.name][at])]  # fmt: skip
        label = f"step {first}" if first == last else f"steps {first} to {last}"
        strips.append(Strip(first - 0.5, last + 0.5, "\n".join([label, *lines])))
    last = topdown.stretches[-1][1]
    # Hundreds of columns are narrower than a pixel each; areas show the same.
    marks = stacked_columns(edges, columns, len(stretches) > MOST_BARS)
    field = Plot(Axis(f"% of {topdown.definition.of}"), marks)
    return Chart(Axis("step", ends=(0.5, last + 0.5), whole=True), (field,), 220, tuple(strips), legend=True)


def _mean(values: Sequence[float]) -> float:
    """Of those that are known; NaN without any."""
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan


def topdown_map(topdown: TopDown, layers: Sequence[LayerRow]) -> Chart | None:
    """Layers in the order given by category, light where much of the slots goes; None without layers.

    A field that is not known stays empty.
    """
    rows = [row for row in layers if row.path in topdown.layers][:MOST_LAYERS]
    categories = [
        category for category in topdown.definition.categories
        if any(topdown.layers[row.path].shares[category.name].value.value is not None for row in rows)
    ]  # fmt: skip
    if not rows or not categories:
        return None
    values, hints = [], []
    names = [layer_label(row.path, row.name) for row in rows]
    for row, name in zip(rows, names, strict=True):
        slots = topdown.layers[row.path]
        shares = [slots.shares[category.name].value.value for category in categories]
        values.append([None if value is None else 100 * value for value in shares])
        hints.append([f"{name}\n{_words(topdown, category, slots)}" for category in categories])
    scale = ColorScale(f"% of {topdown.definition.of}", HEAT, 0, 100)
    return heat_map(names, [category.words for category in categories], values, scale, hints, row=22)


def _color(category: Category, topdown: TopDown) -> str:
    name = category.parent or category.name
    at = topdown.level_one.index(name) if name in topdown.level_one else 0
    return SLOT_COLORS.get(name, SPARE_COLORS[at % len(SPARE_COLORS)])


def _words(topdown: TopDown, category: Category, slots: Slots) -> str:
    share = slots.shares[category.name]
    if share.value.value is None:
        return f"{category.words}: {quantities.provenance(share.value)}"
    counted = "" if share.counts else "\nbelow its threshold, or its parent is"
    joined = "\nfrom events counted in different steps" if share.across else ""
    bound = ", a lower bound" if category.bound == "lower" else ""
    shown = f"{quantities.percent(share.value.value, 1)} % of {topdown.definition.of}, {share.value.source}{bound}"
    return f"{category.words}: {shown}{counted}{joined}"


# ---- Counters and Top-Down of a part as plain JSON values: every number with its unit and source --------------------


def counters_fields(summary: CounterSummary | None) -> Document:
    """What hardware counters add to a JSON document; nothing where there are none."""
    if summary is None:
        return {}
    return {
        "counters": {
            "step": _counted(summary.step),
            "phases": {name: _counted(counted) for name, counted in summary.phases.items()},
            "layers": {path: _counted(counted) for path, counted in summary.layers.items()},
            "groups": [list(group) for group in summary.groups],
            "stationary": summary.stationary,
            "notes": list(map(describe, summary.findings)),
        }
    }


def topdown_fields(topdown: TopDown | None) -> Document:
    """What Top-Down adds to a JSON document; nothing where it was not counted."""
    if topdown is None:
        return {}
    definition = topdown.definition
    return {
        "topdown": {
            "name": definition.name,
            "of": definition.of,
            "approximate": definition.approximate,
            "categories": [
                {"name": category.name, "title": category.words, "parent": category.parent or None,
                 "threshold": category.threshold, "bound": category.bound or None}
                for category in definition.categories
            ],
            "step": _slots(topdown.step),
            "phases": {name: _slots(slots) for name, slots in topdown.phases.items()},
            "layers": {path: _slots(slots) for path, slots in topdown.layers.items()},
            "over_steps": {
                "stretches": [list(ends) for ends in topdown.stretches],
                "unit": "1",
                "source": "derived",
                "shares": {name: [finite(share) for share in values] for name, values in topdown.over_steps.items()},
            },
            "notes": list(map(describe, topdown.findings)),
        }
    }  # fmt: skip


def _counted(counted: Counted) -> Document:
    thousand = {f"{name}_per_thousand_instructions": value for name, value in counted.per_thousand.items()}
    return {"metrics": metrics({**counted.counters, "ipc": counted.ipc, **thousand})}


def _slots(slots: Slots) -> Document:
    return {
        "shares": {
            name: {**value_document(share.value), "counts": share.counts, "across_groups": share.across}
            for name, share in slots.shares.items()
        },
        "residual": value_document(slots.residual),
        "residuals": {name: value_document(value) for name, value in slots.residuals.items()},
        "leading": list(slots.leading),
    }
