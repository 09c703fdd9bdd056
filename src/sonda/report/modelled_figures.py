"""The budget of a modelled step as bars: what its instructions take at least, and what each kind of stall may add."""

from __future__ import annotations

from sonda.analysis.modelled_summary import Budget, ModelledSummary
from sonda.report import quantities
from sonda.report.figures import Figure
from sonda.report.labels import markup
from sonda.report.palette import BLUE, DARK_INK, HATCH, ORANGE, PURPLE, VERMILION

PARTS = {
    "issue": BLUE, "mispredictions": VERMILION, "instruction_misses": PURPLE, "data_misses": ORANGE,
}  # fmt: skip
"""Of a budget, in the order in which they are stacked."""


def budget_caption(figure: Figure) -> str:
    """What the bars are, and the marks where there are some."""
    native = any(trace.get("meta") == "native" for trace in figure["data"])
    return (
        "Cycles that the step's instructions allow: the floor, where every stall is hidden, and what stalls add where "
        f"none is. Hatched, because a model says so{'; the line is what the same took natively' if native else ''}."
    )


def budget_figure(summary: ModelledSummary) -> Figure | None:
    """A stacked bar for every phase and the step, hatched because a model made it; None where no budget is known.

    A mark shows what the same took natively.
    """
    rows = [(phase.name, phase.modelled.budget) for phase in summary.phases] + [("step", summary.step.budget)]
    known: list[tuple[str, Budget]] = [(name, budget) for name, budget in rows if budget is not None]
    if not known:
        return None
    scale = quantities.common_scale([budget.high.value for _, budget in known], "cycle")
    places = list(range(len(known)))
    data: list[Figure] = []
    for part, color in PARTS.items():
        values = [getattr(budget, part) for _, budget in known]
        data.append({
            "type": "bar", "orientation": "h", "name": part.replace("_", " "), "y": places,
            "x": [(value.value or 0.0) / scale.factor for value in values],
            "marker": {"color": color, "pattern": {**HATCH, "shape": "/"}},
            "hovertext": [f"{markup(name)}, {part.replace('_', ' ')}: {markup(quantities.provenance(value))}"
                          for (name, _), value in zip(known, values, strict=True)],
            "hoverinfo": "text",
        })  # fmt: skip
    natives = [(at, name, budget.native) for at, (name, budget) in enumerate(known)]
    marks = [(at, name, value) for at, name, value in natives if quantities.known(value)]
    if marks:
        data.append({
            "type": "scatter", "mode": "markers", "name": "native run", "y": [at for at, _, _ in marks],
            "x": [(value.value or 0.0) / scale.factor for _, _, value in marks],
            "marker": {"symbol": "line-ns", "size": 26, "line": {"width": 3, "color": DARK_INK}}, "meta": "native",
            "hovertext": [f"{markup(name)}, native: {markup(quantities.provenance(one))}" for _, name, one in marks],
            "hoverinfo": "text",
        })  # fmt: skip
    layout = {
        "barmode": "stack",
        "xaxis": {"title": {"text": f"{scale.unit}s per step (modelled)"}, "rangemode": "tozero"},
        "yaxis": {"tickvals": places, "ticktext": [markup(name) for name, _ in known], "autorange": "reversed",
                  "automargin": True},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "height": 140 + 40 * len(known),
    }  # fmt: skip
    return {"data": data, "layout": layout}
