"""The layer tree as an icicle, as wide as what the reader chooses: time, cycles, energy, operations or bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sonda.analysis.summary import Cost, LayerRow, PartSummary, Summary, Value
from sonda.report import figures, quantities
from sonda.report.blocks import FigureBlock, Panel, TableBlock, Tree, paragraphs
from sonda.report.figures import Figure
from sonda.report.labels import markup
from sonda.report.palette import BOUND_COLORS, GREY, STACK_COLORS, ink_on
from sonda.report.table import Table
from sonda.report.views.steps.figure_data import roofline_table
from sonda.report.views.steps.layer_tree import MAIN, Node, Weight, fold, whole
from sonda.report.views.steps.tables import layer_name, layer_table

Way = Callable[[LayerRow], Value | None]

MOST = 300
"""Nodes of one view: four pixels each on a wide screen, which a reader can see and hit, and drawn in half a second."""
DEEPEST = 6
"""Levels that a figure has room for; more are reached by a click."""


@dataclass(frozen=True)
class Measure:
    """Something that the layers of a run have: the width of a field may stand for it."""

    name: str
    unit: str
    source: str
    weight: Weight
    hatched: bool = False
    """Whether it is a guess with bounds."""


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
            guess = quantities.is_guess(values[0])
            found.append(Measure(name, values[0].unit, values[0].source, _weight(way), guess))
    return found


def layer_icicle(layers: Sequence[LayerRow], measures: Sequence[Measure], places: Mapping[int, int]) -> Figure | None:
    """The tree by each of these measures, None without any; a folded node names the view that unfolds it.

    `places` are the rows of the layers in the table that tells more of each.
    """
    if not measures:
        return None
    colors = list(dict.fromkeys(limit_color(row) for row in layers))
    trees = [(measure, fold(layers, MOST, measure.weight)) for measure in measures]
    deepest = 1 + max(node.depth for _, views in trees for nodes in views.values() for node in nodes)
    return {
        "data": [],
        "colors": [[color, ink_on(color)] for color in [*colors, GREY]],
        "measures": [
            {
                "name": measure.name, "unit": measure.unit, "source": measure.source, "hatched": measure.hatched,
                "scales": [[scale.unit, scale.factor] for scale in quantities.scales(measure.unit)],
                "views": {name: _view(nodes, name, colors, places) for name, nodes in views.items()},
            }
            for measure, views in trees
        ],
        "layout": {"height": 60 + 85 * min(deepest, DEEPEST), "margin": {"l": 4, "r": 4, "t": 8, "b": 8}},
    }  # fmt: skip


def meaning_of_colors(layers: Sequence[LayerRow]) -> list[tuple[str, str]]:
    """What the colours of these layers stand for, each with its colour."""
    nothing = "no cycles" if any(row.simulated is not None for row in layers) else "no clear limit"
    return list(dict.fromkeys((limit_of(row) or nothing, limit_color(row)) for row in layers))


def limit_of(row: LayerRow) -> str:
    """What limits a layer, or what its cycles are mostly spent on; '' where nothing does."""
    return row.simulated.bound if row.simulated is not None else row.cost.bound


def limit_color(row: LayerRow) -> str:
    """The colour of that."""
    return (STACK_COLORS if row.simulated is not None else BOUND_COLORS).get(limit_of(row), GREY)


def _view(nodes: Sequence[Node], name: str, colors: Sequence[str], places: Mapping[int, int]) -> Figure:
    count = sum(1 for node in nodes if node.row is not None)
    return {
        "ids": [node.id for node in nodes],
        "parents": [node.parent for node in nodes],
        "labels": [markup(_label(node)) for node in nodes],
        "names": [markup(layer_name(node.row) if node.row is not None else node.label) for node in nodes],
        "values": [float(f"{node.own:.7g}") for node in nodes],
        "colors": [colors.index(limit_color(node.row)) if node.row is not None else len(colors) for node in nodes],
        "rows": [places.get(node.index, -1) for node in nodes],
        "views": [node.view for node in nodes],
        "whole": "all layers" if name == MAIN else f"these {count:,} layers",
    }


def _label(node: Node) -> str:
    """A number, as modules of a sequence have, tells nothing without the type: `0 Linear`."""
    numbered = node.row is not None and node.label.rpartition(".")[2].isdigit()
    return f"{node.label} {node.row.name}" if numbered and node.row is not None else node.label


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
    "Every field is a layer, beneath the layer that holds it, and as wide as its part of the whole. "
    "Its colour says what limits it. Click a field to enlarge it; small layers are folded until they are clicked."
)
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


def layers_panel(part: PartSummary, place: str) -> Panel:
    """The tree and the table of all layers, which is a tree too; `place` goes before those of both."""
    if not part.layers:
        return Panel("Layers", [FigureBlock(None, f"{place}tree", absent="no layer was seen")])
    nodes = whole(part.layers)
    places = {node.index: row for row, node in enumerate(nodes)}
    table = TableBlock(_tree_table(nodes), look="layers sortable tree", tall=True, place=f"{place}layers")
    return Panel("Layers", [layer_tree(part, place, places, table, flat=True)], TREE)


def layer_tree(part: PartSummary, place: str, places: Mapping[int, int], table: TableBlock, flat: bool = False) -> Tree:
    """The icicle with its choice of widths, its colours explained."""
    measures = measures_of(part)
    return Tree(
        layer_icicle(part.layers, measures, places), f"{place}tree", table, [one.name for one in measures],
        meaning_of_colors(part.layers), flat, "nothing is known of the layers that could be a width",
    )  # fmt: skip


def roofline_panel(part: PartSummary, summary: Summary, place: str, ceilings: str = CEILINGS) -> Panel:
    """Layers against the ceilings, with the table behind; `ceilings` says what these are."""
    from sonda.analysis.roofline import lines

    roofs = lines(summary.ceilings)
    figure = figures.roofline(part.layers, roofs)
    table = roofline_table(figures.roofline_rows(part.layers)) if figure else None
    picture = FigureBlock(figure, f"{place}roof", table, "no layer has FLOPs, bytes and time")
    if table is None:
        return Panel("Roofline", [picture])
    reason = str(summary.ceilings.get("reason", "")) or "the ceilings of this machine were not measured"
    note = [] if roofs else [f"No ceilings are drawn: {reason}."]
    caption = f"{ROOFLINE} {ceilings}" if roofs else ROOFLINE
    caption += figures.largest_of(figures.MOST_POINTS, len(table.rows), "layers", "time")
    return Panel("Roofline", [picture, *paragraphs(note)], caption)


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
