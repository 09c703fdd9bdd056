"""The layer tree as an icicle, as wide as what the reader chooses: time, cycles, energy, operations or bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sonda.analysis.summary import Cost, LayerRow, PartSummary, Value
from sonda.report import quantities
from sonda.report.figures import Figure
from sonda.report.labels import markup
from sonda.report.palette import BOUND_COLORS, GREY, STACK_COLORS, ink_on
from sonda.report.summary_tables import layer_name
from sonda.report.tree import MAIN, Node, Weight, fold

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
            guess = quantities.is_guess(quantities.provenance(values[0]))
            found.append(Measure(name, values[0].unit, values[0].source, _weight(way), guess))
    return found


def layer_icicle(
    layers: Sequence[LayerRow], measures: Sequence[Measure], table: str, places: Mapping[int, int]
) -> Figure | None:
    """The tree by each of these measures, None without any; a folded node names the view that unfolds it.

    `table` is the element id of the table that tells more of a layer, `places` the row of each layer in it.
    """
    if not measures:
        return None
    colors = list(dict.fromkeys(limit_color(row) for row in layers))
    trees = [(measure, fold(layers, MOST, measure.weight)) for measure in measures]
    deepest = 1 + max(node.depth for _, views in trees for nodes in views.values() for node in nodes)
    return {
        "data": [],
        "table": table,
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


def measure_choice(measures: Sequence[Measure], place: str) -> str:
    """Buttons that choose the width, where there is a choice."""
    if len(measures) < 2:
        return ""
    buttons = "".join(
        f'<label><input type="radio" name="{place}" value="{index}"{" checked" if index == 0 else ""}> '
        f"{markup(one.name)}</label>"
        for index, one in enumerate(measures)
    )
    return f'<fieldset class="choice" data-measures="{place}"><legend>Width:</legend>{buttons}</fieldset>'


def legend(layers: Sequence[LayerRow]) -> str:
    """What the colours of these layers stand for."""
    found = dict.fromkeys((limit_of(row), limit_color(row)) for row in layers)
    nothing = "no cycles" if any(row.simulated is not None for row in layers) else "no clear limit"
    return "".join(
        f'<span><span class="swatch" style="background:{color}"></span> {markup(words or nothing)}</span>'
        for words, color in found
    )


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
