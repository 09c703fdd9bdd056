"""The layer tree as an icicle, as wide as what the reader chooses: time, cycles, energy, operations or bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sonda.analysis.summary import Cost, LayerRow, PartSummary, Summary, Value
from sonda.report import figures, quantities
from sonda.report.blocks import FigureBlock, Panel, TableBlock, Tree, paragraphs
from sonda.report.charts.chart import ColorScale
from sonda.report.charts.icicle import Icicle, Slab, Span
from sonda.report.palette import OUTSIDE, TIME
from sonda.report.table import Table
from sonda.report.views.steps.figure_data import roofline_table
from sonda.report.views.steps.layer_tree import Node, Weight, fold, whole
from sonda.report.views.steps.tables import layer_hint, layer_name, layer_table

Way = Callable[[LayerRow], Value | None]

MOST_FIELDS = 1000
"""Fields of all views together."""
LEAST_OUTSIDE = 0.02
"""Part of the step that is shown where no layer takes it."""
MOST = 300
"""Fields of one view: four pixels each on a wide screen, which a reader can see and hit."""


@dataclass(frozen=True)
class Measure:
    """Something that the layers of a run have: the width of a field may stand for it."""

    name: str
    unit: str
    source: str
    weight: Weight
    """What a layer has without those inside."""
    guess: bool = False
    """Whether it is an estimate with bounds."""
    shares: tuple[float, ...] = ()
    """Parts of the step, layers inside included, where the table of layers has them too: the picture must not say
    something else. Medians of the layers inside do not add up where steps differ."""


def measures_of(part: PartSummary) -> list[Measure]:
    """What is known of this part's layers, time first."""
    counted = part.counted.layers if part.counted is not None else {}
    cycles = {path: found.counters["cycles"] for path, found in counted.items() if "cycles" in found.counters}

    def cycles_of(row: LayerRow) -> Value | None:
        return row.own_simulated.cycles if row.own_simulated is not None else cycles.get(row.path)

    ways: dict[str, Way] = {
        "time": lambda row: row.own,
        "cycles": cycles_of,
        "energy": lambda row: row.own_simulated.energy if row.own_simulated is not None else None,
        "FLOPs": lambda row: cost.flops if (cost := _own(row)) is not None else None,
        "bytes": lambda row: cost.bytes if (cost := _own(row)) is not None else None,
    }
    found = []
    for name, way in ways.items():
        values = [value for row in part.layers if (value := way(row)) is not None and quantities.known(value)]
        if any((value.value or 0.0) > 0 for value in values):
            shares = tuple(row.cost.share for row in part.layers) if name == "time" else ()
            known = shares if all(share == share for share in shares) else ()
            guess = quantities.is_guess(values[0])
            found.append(Measure(name, values[0].unit, values[0].source, _weight(way), guess, known))
    return found


def layer_icicle(layers: Sequence[LayerRow], measures: Sequence[Measure]) -> Icicle | None:
    """The tree by each of these measures, None without any; a folded field names the view that unfolds it."""
    if not measures:
        return None
    views = _first_views(fold(layers, MOST, measures[0].weight))
    amounts = [_amounts(layers, measure) for measure in measures]
    totals = [_total(layers, measure) for measure in measures]
    own = [measures[0].weight(row) for row in layers]
    scale = ColorScale("", TIME, 0.0, max(own, default=1.0) or 1.0)
    shown = {}
    for name, nodes in views.items():
        widths = [[sum(amount[at] for at in node.members) for node in nodes] for amount in amounts]
        places = [_spans(nodes, of, measure, top=not name)
                  for of, measure in zip(widths, measures, strict=True)]  # fmt: skip
        shown[name] = [
            Slab(
                _label(node), tuple(f"{quantities.percent(of[at] / total, 1)} %"
                                    for of, total in zip(widths, totals, strict=True)),
                _hint(node, node.view in views), scale.color(own[node.index] if node.row is not None else 0.0),
                node.depth, tuple(place[at] for place in places), node.view if node.view in views else "",
            )
            for at, node in enumerate(nodes)
        ]  # fmt: skip
        if not name:
            shown[name] += _outside(places)
    names = tuple(f"{measure.name}, a guess" if measure.guess else measure.name for measure in measures)
    return Icicle(shown, names, scale)


def _first_views(views: Mapping[str, Sequence[Node]]) -> dict[str, Sequence[Node]]:
    """The whole and as many others as a page has room for; the table has all layers."""
    kept: dict[str, Sequence[Node]] = {}
    for name, nodes in views.items():
        if kept and sum(map(len, kept.values())) + len(nodes) > MOST_FIELDS:
            break
        kept[name] = nodes
    return kept


def _outside(places: Sequence[Sequence[Span]]) -> list[Slab]:
    """What the step has beside all layers, where that can be seen."""
    ends = [max((left + width for left, width in place), default=0.0) for place in places]
    spans = tuple((end, max(0.0, 1 - end)) for end in ends)
    if spans[0][1] < LEAST_OUTSIDE:
        return []
    texts = tuple(f"{quantities.percent(width, 1)} %" for _, width in spans)
    return [Slab("in no layer", texts, "part of the step that no layer takes", OUTSIDE, 0, spans)]


def _amounts(layers: Sequence[LayerRow], measure: Measure) -> list[float]:
    """What each layer has of it, layers inside included."""
    if measure.shares:
        return [max(0.0, share) for share in measure.shares]
    nodes = whole(layers)
    place = {node.id: node.index for node in nodes}
    amounts = [max(0.0, measure.weight(row)) for row in layers]
    for node in reversed(nodes):
        if node.parent:
            amounts[place[node.parent]] += amounts[node.index]
    return amounts


def _total(layers: Sequence[LayerRow], measure: Measure) -> float:
    """The whole that widths are parts of: the step, or what all layers have."""
    return 1.0 if measure.shares else sum(max(0.0, measure.weight(row)) for row in layers) or 1.0


def _spans(nodes: Sequence[Node], widths: Sequence[float], measure: Measure, top: bool) -> list[Span]:
    """The place of each field. Fields that have more together than the one that holds them share its width."""
    inside: dict[str, float] = {}
    for node, width in zip(nodes, widths, strict=True):
        inside[node.parent] = inside.get(node.parent, 0.0) + width
    all_of_it = max(1.0, inside.get("", 0.0)) if measure.shares and top else inside.get("", 0.0) or 1.0
    left, factor = {"": 0.0}, {"": 1 / all_of_it}
    spans = []
    for node, width in zip(nodes, widths, strict=True):
        span = left[node.parent], width * factor[node.parent]
        left[node.parent] += span[1]
        left[node.id] = span[0]
        factor[node.id] = min(factor[node.parent], span[1] / inside[node.id]) if inside.get(node.id) else 0.0
        spans.append(span)
    return spans


def _hint(node: Node, unfolds: bool) -> str:
    """What a field stands for: its layer and the numbers that the table has of it."""
    row = node.row
    if row is None:
        return f"{node.label}\n{'click to unfold' if unfolds else 'the table has them'}" if node.folded else node.label
    simulated = row.own_simulated or row.simulated
    if simulated is not None:
        return f"{layer_name(row)}\n{layer_hint(row)}\n{quantities.provenance(simulated.cycles)}, its own"
    lines = [
        layer_name(row), layer_hint(row),
        f"{quantities.percent(row.cost.share, 1)} % of the step, {quantities.provenance(row.cost.time)}",
        f"its own {quantities.amount(row.own.value, 'ns')}" if quantities.known(row.own) else "",
        f"{quantities.percent(row.cost.roof.value)} % of roof" if quantities.known(row.cost.roof) else "",
        f"{row.cost.bound}-bound" if row.cost.bound else "",
    ]  # fmt: skip
    return "\n".join(line for line in lines if line)


def _label(node: Node) -> str:
    """The end of the path, and the type: `conv1 Conv2d`."""
    if node.row is None:
        return node.label
    return node.row.name if node.label == f"({node.row.name})" else f"{node.label} {node.row.name}"


def _own(row: LayerRow) -> Cost | None:
    """Without the layers inside; None where that is not known, for theirs would count twice."""
    return row.own_cost if row.own_cost is not None else row.cost if row.leaf else None


def _weight(way: Way) -> Weight:
    def weight(row: LayerRow) -> float:
        value = way(row)
        return (value.value or 0.0) if value is not None else 0.0

    return weight


# ---- Layers on a page: the tree by time, cycles or energy with the table of all layers, and the roofline ------------

TREE = (
    "Every field is a layer beneath the layer that holds it, and as wide as its part of the step; the darker, the more "
    "time of its own. Click a field to enlarge it."
)
CYCLES_TREE = TREE.replace("time of its own", "cycles of its own")
ROOFLINE = (
    "Each mark is a layer: the further right, the more it computes for every byte it moves; the higher, the faster. "
    "The area of a mark is its time."
)
CEILINGS = (
    "Lines are the ceilings of this machine (solid: measured, dashed: theoretical). A layer on a line cannot go faster "
    "on this machine; one far below has room."
)
SIMULATED = (
    "Lines are what the accelerator's description allows: its multipliers and its memory, at its clock. A layer on a "
    "line cannot go faster there; one far below has room."
)


def layers_panel(part: PartSummary, place: str) -> list[Panel]:
    """The tree and the table of all layers, which is a tree too; `place` goes before those of both."""
    if not part.layers:
        return []
    table = TableBlock(_tree_table(whole(part.layers)), look="layers sortable tree", tall=True, place=f"{place}layers")
    return [Panel("Layers", [layer_tree(part, place, table, flat=True)], TREE)]


def layer_tree(part: PartSummary, place: str, table: TableBlock, flat: bool = False) -> Tree:
    """The icicle with its choice of widths, and its table."""
    figure = layer_icicle(part.layers, measures_of(part))
    return Tree(figure, f"{place}tree", table, flat, "nothing is known of the layers that could be a width")


def roofline_panel(part: PartSummary, summary: Summary, place: str, ceilings: str = CEILINGS) -> list[Panel]:
    """Layers against the ceilings, with the table behind; `ceilings` says what these are. None without layers that have
    FLOPs, bytes and time."""
    from sonda.analysis.roofline import lines

    roofs = lines(summary.ceilings)
    figure = figures.roofline(part.layers, roofs)
    if figure is None:
        return []
    table = roofline_table(figures.roofline_rows(part.layers))
    reason = str(summary.ceilings.get("reason", "")) or "the ceilings of this machine were not measured"
    note = [] if roofs else [f"No ceilings are drawn: {reason}."]
    caption = f"{ROOFLINE} {ceilings}" if roofs else ROOFLINE
    caption += figures.largest_of(figures.MOST_POINTS, len(table.rows), "layers", "time")
    return [Panel("Roofline", [FigureBlock(figure, f"{place}roof", table), *paragraphs(note)], caption)]


def _tree_table(nodes: Sequence[Node]) -> Table:
    """All layers, parents before children; in a tree the path above is already told by the rows above."""
    rows: list[LayerRow] = [node.row for node in nodes if node.row is not None]
    table = layer_table(rows, "layer", own=True)
    body = [
        (replace(cells[0], text=node.label, hint=f"{row.path} {cells[0].hint}".strip()), *cells[1:])
        for node, row, cells in zip(nodes, rows, table.rows, strict=True)
    ]
    attributes = [
        {
            "id": node.id,
            "parent": node.parent,
            "leaf": "1" if row.leaf else "0",
            "path": layer_name(row),
        }
        for node, row in zip(nodes, rows, strict=True)
    ]
    return replace(table, rows=tuple(body), attributes=tuple(attributes))
