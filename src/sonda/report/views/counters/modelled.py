"""The tables of a modelled step: instruction mix, misses, mispredictions, budget; and misses over cache sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from sonda.analysis.counters.callgrind import Budget, Modelled, ModelledLayer, ModelledSummary
from sonda.analysis.summary import Value
from sonda.report import quantities
from sonda.report.blocks import Block, Gap, Paragraph, TableBlock, paragraphs
from sonda.report.charts.chart import Axis, BarPart, Chart, Points, stacked_bars
from sonda.report.palette import BLUE, ORANGE, PURPLE, VERMILION
from sonda.report.table import Cell, Column, Table, build, numbers, quantity, shares, words
from sonda.report.values import Document, finite, metrics, value_document
from sonda.report.words import describe
from sonda.report.words.names import layer_label

_HINTS = {
    "instructions": "executed, modelled",
    "share": "share of the step's instructions",
    "mix": "per instruction, modelled",
    "L1": "data accesses that miss the first level, per 1,000 instructions; simulated",
    "LL": "accesses that miss the last level, per 1,000 instructions; simulated",
    "mispredicted": "mispredicted branches per 1,000 instructions; simulated predictor",
    "budget": "from the issue floor, every stall hidden, to all stalls one after the other; not Top-Down",
    "native": "time of the native run on a clock times the frequency; of a layer, without the layers inside",
}
MILLION = 1e6


def modelled_blocks(summary: ModelledSummary, limit: int) -> list[Block]:
    """The modelled step below the tables of what was timed; `limit` is how many layers are listed."""
    blocks: list[Block] = [Gap(), TableBlock(modelled_phase_table(summary))]
    choice = choose_modelled(summary, limit)
    if choice.shown:
        blocks.append(Gap())
        left_out = choice.total - len(choice.shown)
        title = f"modelled layer ({len(choice.shown)} of {choice.total})" if left_out else "modelled layer"
        blocks.append(TableBlock(modelled_layer_table(choice.shown, title)))
        if left_out:
            blocks.append(
                Paragraph(
                    f"not above: the other {left_out:,} layers {quantities.whole(choice.rest)} instructions", "quiet"
                )
            )
    if summary.curve:
        blocks += [Gap(), TableBlock(miss_curve_table(summary, limit))]
    blocks += paragraphs(map(describe, summary.findings))
    return blocks


def titled_tables(summary: ModelledSummary) -> list[tuple[str, Table]]:
    """All of it, for the page: every layer, and misses of all of them."""
    tables = [("Modelled step", modelled_phase_table(summary))]
    if summary.layers:
        shown = choose_modelled(summary, len(summary.layers)).shown
        tables.append(("Modelled layers", modelled_layer_table(shown, "layer")))
    if summary.curve:
        tables.append(("Misses over sizes of the last-level cache", miss_curve_table(summary, len(summary.layers))))
    return tables


def modelled_phase_table(summary: ModelledSummary) -> Table:
    """Phases of the modelled step in their order, what belongs to none of them, and the step; those of other ranks."""
    rows = [(phase.name, phase.modelled) for phase in summary.phases]
    rows += [("other", summary.outside), ("step", summary.step)]
    rows += [(f"step of rank {rank}", modelled) for rank, modelled in summary.ranks[1:]]
    names = [Cell(name, name, tone="quiet" if name.startswith("step") else "name") for name, _ in rows]
    return build(
        [(Column("modelled", right=False), names), *_columns([modelled for _, modelled in rows])],
        "modelled phases",
    )


@dataclass(frozen=True)
class ModelledChoice:
    """The layers that a short table shows, and the instructions of those it leaves out."""

    shown: tuple[ModelledLayer, ...]
    total: int
    rest: float


def choose_modelled(summary: ModelledSummary, limit: int) -> ModelledChoice:
    """The `limit` layers with the most instructions of their own, most first."""
    layers = sorted(summary.layers, key=lambda layer: -_instructions(layer.own))
    rest = sum(_instructions(layer.own) for layer in layers[limit:])
    return ModelledChoice(tuple(layers[:limit]), len(layers), rest)


def modelled_layer_table(layers: Sequence[ModelledLayer], title: str) -> Table:
    """One row for each of these layers, forward and backward together, without the layers inside."""
    names = [Cell(layer_label(layer.path, layer.name), layer.path, tone="name") for layer in layers]
    ways = [layer.forward for layer in layers] + [layer.backward for layer in layers]
    unit, cells = _millions(ways)
    inside = "layers inside included"
    return build(
        [
            (Column(title, right=False, path=True), names),
            (Column("type", right=False, keep=1), words([layer.name for layer in layers])),
            (Column(f"forward{unit}", keep=2, hint=f"instructions, {inside}"), cells[: len(layers)]),
            (Column(f"backward{unit}", keep=2, hint=f"instructions, {inside}"), cells[len(layers) :]),
            *_columns([layer.own for layer in layers]),
        ],
        "modelled layers",
    )


def miss_curve_table(summary: ModelledSummary, limit: int) -> Table:
    """Data misses of the last level over its size: a column per size, phases first, then the layers that miss most."""
    points = summary.curve
    phases = list(dict.fromkeys(name for point in points for name in point.phases))
    paths = list(dict.fromkeys(path for point in points for path in point.layers))
    paths.sort(key=lambda path: -max(point.layers.get(path, 0.0) for point in points))
    rows = [(name, [point.phases.get(name) for point in points]) for name in phases]
    rows += [(path or "(model)", [point.layers.get(path) for point in points]) for path in paths[:limit]]
    columns: list[tuple[Column, list[Cell]]] = [
        (Column("last-level misses", right=False, path=True), [Cell(name, name, tone="name") for name, _ in rows])
    ]
    for place, point in enumerate(points):
        values = [Value(misses[place], "1", "modelled", reason="not seen at this size") for _, misses in rows]
        columns.append((Column(point.geometry, hint="data misses, simulated"), numbers(values)[1]))
    return build(columns, "miss curve")


def _columns(rows: Sequence[Modelled]) -> list[tuple[Column, list[Cell]]]:
    unit, instructions = _millions([modelled.counters["instructions"] for modelled in rows])
    columns = [
        (Column(f"instructions{unit}", hint=_HINTS["instructions"]), instructions),
        (Column("%", keep=3, hint=_HINTS["share"]),
         shares([modelled.share for modelled in rows], "the step's instructions")),
        (Column("loads", keep=5, hint=_HINTS["mix"]), _ratios([modelled.loads for modelled in rows])),
        (Column("stores", keep=4, hint=_HINTS["mix"]), _ratios([modelled.stores for modelled in rows])),
        (Column("branches", keep=4, hint=_HINTS["mix"]), _ratios([modelled.branches for modelled in rows])),
        (Column("L1 MPKI", keep=6, hint=_HINTS["L1"]), numbers([modelled.l1_misses for modelled in rows])[1]),
        (Column("LL MPKI", keep=6, hint=_HINTS["LL"]), numbers([modelled.ll_misses for modelled in rows])[1]),
        (Column("mispred. /1k", keep=6, hint=_HINTS["mispredicted"]),
         numbers([modelled.mispredictions for modelled in rows])[1]),
    ]  # fmt: skip
    budgets = [modelled.budget for modelled in rows]
    if any(budgets):
        columns.append(
            (Column("budget Mcycles", keep=7, hint=_HINTS["budget"]), [_interval(budget) for budget in budgets])
        )
        absent = Value(None, "cycle", "derived")
        natives = [budget.native if budget else absent for budget in budgets]
        columns.append(
            (Column("native Mcycles (wall)", keep=5, hint=_HINTS["native"]), [_cycles(native) for native in natives])
        )
    return columns


def _millions(values: Sequence[Value]) -> tuple[str, list[Cell]]:
    """Instructions in millions where there are that many."""
    if max((value.value or 0.0 for value in values), default=0.0) < MILLION:
        return "", numbers(values)[1]
    return " M", [quantity(value, quantities.fixed((value.value or 0.0) / MILLION, 2)) for value in values]


def _ratios(values: Sequence[Value]) -> list[Cell]:
    return [quantity(value, quantities.ratio(value.value or 0.0)) for value in values]


def _interval(budget: Budget | None) -> Cell:
    if budget is None or budget.issue.value is None or budget.high.value is None:
        return Cell(quantities.MISSING, tone="quiet")
    parts = ", ".join(
        f"{name.replace('_', ' ')} {quantities.amount(getattr(budget, name).value, 'cycle')}"
        for name in ("issue", "mispredictions", "instruction_misses", "data_misses")
    )
    low, high = budget.issue.value / MILLION, budget.high.value / MILLION
    return Cell(f"{quantities.fixed(low, 2)} – {quantities.fixed(high, 2)}", budget.high.value, f"{parts}; modelled")


def _cycles(value: Value) -> Cell:
    return quantity(value, quantities.fixed((value.value or 0.0) / MILLION, 2))


def _instructions(modelled: Modelled) -> float:
    return modelled.counters["instructions"].value or 0.0


# ---- The budget of a modelled step as bars: what its instructions take at least, and what each kind of stall --------

PARTS = {
    "issue": BLUE, "mispredictions": VERMILION, "instruction_misses": PURPLE, "data_misses": ORANGE,
}  # fmt: skip
"""Parts of a budget with their colours, in the order in which they are stacked."""


NATIVE = "native run"


def budget_caption(figure: Chart) -> str:
    """What the bars are, and the marks where there are some."""
    native = any(isinstance(mark, Points) and mark.name == NATIVE for mark in figure.marks)
    return (
        "Cycles that the step's instructions allow: the floor, where every stall is hidden, and what stalls add where "
        f"none is. Hatched, because a model says so{'; the line is what the same took natively' if native else ''}."
    )


def budget_figure(summary: ModelledSummary) -> Chart | None:
    """A stacked bar for every phase and the step, hatched because a model made it; None where no budget is known.

    A mark shows what the same took natively.
    """
    rows = [(phase.name, phase.modelled.budget) for phase in summary.phases] + [("step", summary.step.budget)]
    known: list[tuple[str, Budget]] = [(name, budget) for name, budget in rows if budget is not None]
    if not known:
        return None
    scale = quantities.common_scale([budget.high.value for _, budget in known], "cycle")
    parts = []
    for part, color in PARTS.items():
        values = [getattr(budget, part) for _, budget in known]
        words = part.replace("_", " ")
        hints = [f"{name}, {words}: {quantities.provenance(value)}"
                 for (name, _), value in zip(known, values, strict=True)]  # fmt: skip
        parts.append(BarPart(words, color, [(value.value or 0.0) / scale.factor for value in values], hints,
                          [True] * len(known)))  # fmt: skip
    names = [name for name, _ in known]
    chart = stacked_bars(names, parts, Axis(f"{scale.unit}s per step (modelled)"), row=34)
    natives = [(at, name, budget.native) for at, (name, budget) in enumerate(known) if quantities.known(budget.native)]
    if not natives:
        return chart
    marks = Points(
        NATIVE, "", tuple(((value.value or 0.0) / scale.factor, float(at)) for at, _, value in natives),
        symbols=("line",), sizes=(28,),
        hints=tuple(f"{name}, native: {quantities.provenance(value)}" for _, name, value in natives),
    )  # fmt: skip
    (field,) = chart.fields
    return replace(chart, fields=(replace(field, marks=(*field.marks, marks)),))


# ---- A modelled step as plain JSON values: every number under its metric's name, with unit and source ---------------


def modelled_fields(summary: ModelledSummary | None) -> Document:
    """What a modelled step adds to a JSON document; nothing where there is none."""
    if summary is None:
        return {}
    return {
        "modelled": {
            "tool": summary.tool,
            "caches": dict(summary.caches),
            "isa": summary.isa,
            "native_isa": summary.native_isa,
            "threads": summary.threads,
            "part": summary.part,
            "complete": summary.complete,
            "step": _modelled_fields(summary.step),
            "other": _modelled_fields(summary.outside),
            "phases": [{"name": phase.name, **_modelled_fields(phase.modelled)} for phase in summary.phases],
            **(
                {"ranks": [{"rank": rank, **_modelled_fields(modelled)} for rank, modelled in summary.ranks]}
                if summary.ranks
                else {}
            ),
            "layers": [
                {
                    "path": layer.path,
                    "name": layer.name,
                    "leaf": layer.leaf,
                    "forward_instructions:modelled": value_document(layer.forward),
                    "backward_instructions:modelled": value_document(layer.backward),
                    **_modelled_fields(layer.own),
                }
                for layer in summary.layers
            ],
            "miss_curve": [
                {
                    "bytes": point.bytes,
                    "geometry": point.geometry,
                    "unit": "1",
                    "source": "modelled",
                    "phases": dict(point.phases),
                    "layers": dict(point.layers),
                    "instructions": point.instructions,
                }
                for point in summary.curve
            ],
            "notes": list(map(describe, summary.findings)),
        }
    }


def _modelled_fields(modelled: Modelled) -> Document:
    values = dict(modelled.counters)
    for field in fields(modelled):
        value = getattr(modelled, field.name)
        if isinstance(value, Value):
            values[f"{field.name}_ratio" if field.name in modelled.counters else field.name] = value
    if modelled.budget is not None:
        values |= {f"budget_{field.name}": getattr(modelled.budget, field.name) for field in fields(modelled.budget)}
    return {"share": finite(modelled.share), "metrics": metrics(values)}
