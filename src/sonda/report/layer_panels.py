"""Layers on a page: the tree by time, cycles or energy with the table of all layers, and the roofline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sonda.analysis.summary import LayerRow, PartSummary, Summary
from sonda.report import figures
from sonda.report.behind import roofline_table
from sonda.report.figures import Figure
from sonda.report.icicles import layer_icicle, legend, measure_choice, measures_of
from sonda.report.labels import markup
from sonda.report.markup import panel, place_figure, table_html
from sonda.report.summary_tables import layer_name, layer_table
from sonda.report.table import Table
from sonda.report.tree import Node, whole

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


def layers_panel(part: PartSummary, place: str, drawn: list[Figure]) -> str:
    """The tree and the table of all layers, which is a tree too."""
    if not part.layers:
        return panel("Layers", '<p class="soft">Nothing to draw: no layer was seen.</p>')
    nodes = whole(part.layers)
    table = f"{place}layers"
    places = {node.index: row for row, node in enumerate(nodes)}
    html = tree_figure(part, place, drawn, table, places)
    flat = f'<div class="tools"><label><input type="checkbox" data-flat="{table}"> innermost layers only</label></div>'
    listed = table_html(_tree_table(nodes), "layers sortable tree", tall=True)
    listed = listed.replace("<table ", f'<table id="{table}" ', 1)
    return panel("Layers", html + flat + listed, TREE)


def tree_figure(part: PartSummary, place: str, drawn: list[Figure], table: str, places: dict[int, int]) -> str:
    """The icicle with its choice of widths, its colours explained."""
    measures = measures_of(part)
    tree = f"{place}tree"
    figure = layer_icicle(part.layers, measures, table, places)
    back = f'<button class="plain" type="button" data-back="{tree}" hidden>back to the larger layers</button>'
    tools = f'<div class="tools">{measure_choice(measures, tree)}{legend(part.layers)}{back}</div>' if figure else ""
    return tools + place_figure(figure, tree, drawn, "nothing is known of the layers that could be a width")


def roofline_panel(
    part: PartSummary, summary: Summary, place: str, drawn: list[Figure], ceilings: str = CEILINGS
) -> str:  # fmt: skip
    """Layers against the ceilings, with the table behind; `ceilings` says what these are."""
    from sonda.analysis.roofline import lines

    roofs = lines(summary.ceilings)
    figure = figures.roofline(part.layers, roofs)
    reason = str(summary.ceilings.get("reason", "")) or "the ceilings of this machine were not measured"
    note = "" if roofs or figure is None else f'<p class="soft small">No ceilings are drawn: {markup(reason)}.</p>'
    table = roofline_table(figures.roofline_rows(part.layers)) if figure else None
    html = place_figure(figure, f"{place}roof", drawn, "no layer has FLOPs, bytes and time", table)
    if table is None:
        return panel("Roofline", html)
    said = f"{ROOFLINE} {ceilings}" if roofs else ROOFLINE
    said += figures.largest_of(figures.MOST_POINTS, len(table.rows), "layers", "time")
    return panel("Roofline", html + note, said)


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
