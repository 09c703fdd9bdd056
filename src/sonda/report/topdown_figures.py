"""The figures of Top-Down: icicle of the levels, level 1 over steps, and a map of layers by category."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sonda.analysis import wording
from sonda.analysis.counted_summary import Slots, TopDown
from sonda.analysis.summary import LayerRow
from sonda.record.topdown import Category
from sonda.report import quantities
from sonda.report.figures import Figure
from sonda.report.labels import markup
from sonda.report.palette import GREY, HATCH, HEAT, SLOT_COLORS, SPARE_COLORS, ink_on

MOST_LAYERS = 60
MOST_BARS = 400


def topdown_icicle(topdown: TopDown) -> Figure | None:
    """Level 1 and below it level 2 of the whole step, as wide as their shares; None where level 1 is not known.

    What is below 0 has no width and is said in the hover box; a residual has a field of its own.
    """
    slots = topdown.step
    categories = [one for one in topdown.definition.categories if slots.shares[one.name].value.value is not None]
    if not any(not one.parent for one in categories):
        return None
    root = topdown.definition.name
    ids, parents, labels, values, colors, texts = [root], [""], [markup(root)], [0.0], [GREY], [markup(root)]
    for category in categories:
        share = slots.shares[category.name]
        ids.append(category.name)
        parents.append(category.parent or root)
        labels.append(markup(category.words))
        inside = [slots.shares[one.name].value.value or 0.0 for one in categories if one.parent == category.name]
        # A field is as wide as its children and what they leave of it.
        values.append(max((share.value.value or 0.0) - sum(max(part, 0.0) for part in inside), 0.0))
        colors.append(_color(category, topdown))
        texts.append(_words(topdown, category, slots))
    if slots.residual.value is not None and slots.residual.value > 0:
        ids.append("residual")
        parents.append(root)
        labels.append("residual")
        values.append(slots.residual.value)
        colors.append(GREY)
        texts.append(f"residual: {markup(quantities.provenance(slots.residual))}")
    trace = {
        "type": "icicle", "ids": ids, "parents": parents, "labels": labels, "values": values,
        "branchvalues": "remainder", "marker": {"colors": colors, "line": {"width": 1}}, "hovertext": texts,
        "hoverinfo": "text", "textinfo": "label+percent root", "tiling": {"orientation": "v"},
        "pathbar": {"visible": False}, "leaf": {"opacity": 1}, "sort": False,
        "textfont": {"color": [ink_on(color) for color in colors]},
    }  # fmt: skip
    return {"data": [trace], "layout": {"height": 250, "margin": {"l": 4, "r": 4, "t": 8, "b": 8}}}


def topdown_bars(topdown: TopDown) -> Figure | None:
    """Level 1 of every phase and of the step, one stacked bar each; None where level 1 is not known.

    What is below 0 has no width and is said in the hover box. A share made of scaled events is hatched.
    """
    rows = [*topdown.phases.items(), ("step", topdown.step)]
    first = [one for one in topdown.definition.categories if not one.parent]
    known = [one for one in first if any(slots.shares[one.name].value.value is not None for _, slots in rows)]
    if not known:
        return None
    places = list(range(len(rows)))
    data = []
    for category in known:
        values = [slots.shares[category.name].value for _, slots in rows]
        data.append({
            "type": "bar", "orientation": "h", "name": markup(category.words), "y": places,
            "x": [None if value.value is None else 100 * max(value.value, 0.0) for value in values],
            "marker": {"color": _color(category, topdown),
                       "pattern": {**HATCH, "shape": ["/" if value.source == "estimated" else "" for value in values]}},
            "hovertext": [f"<b>{markup(name)}</b><br>{_words(topdown, category, slots)}" for name, slots in rows],
            "hoverinfo": "text",
        })  # fmt: skip
    layout = {
        "barmode": "stack",
        "xaxis": {"title": {"text": f"% of {topdown.definition.of}"}, "range": [0, 100]},
        "yaxis": {"tickvals": places, "ticktext": [markup(name) for name, _ in rows], "autorange": "reversed",
                  "automargin": True},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "height": 140 + 34 * len(rows),
    }  # fmt: skip
    return {"data": data, "layout": layout}


def topdown_over_steps(topdown: TopDown) -> Figure | None:
    """Level 1 of every stretch of steps, stacked; None where no stretch knows any of it.

    A category that a stretch did not count leaves a gap, never a zero.
    """
    known = [name for name in topdown.level_one if any(math.isfinite(value) for value in topdown.over_steps[name])]
    if not known:
        return None
    middle = [(first + last) / 2 for first, last in topdown.stretches]
    labels = [f"step {first}" if first == last else f"steps {first} to {last}" for first, last in topdown.stretches]
    data: list[Figure] = []
    for category in topdown.definition.categories:
        if category.name not in known:
            continue
        values = topdown.over_steps[category.name]
        # Hundreds of bars are narrower than a pixel each; areas show the same.
        shape = (
            {"type": "bar", "marker": {"color": _color(category, topdown), "line": {"width": 0}},
             "width": [last - first + 0.92 for first, last in topdown.stretches]}
            if len(middle) <= MOST_BARS
            else {"type": "scatter", "mode": "none", "stackgroup": "slots", "fillcolor": _color(category, topdown)}
        )  # fmt: skip
        data.append({
            **shape, "name": markup(category.words), "x": middle,
            "y": [100 * max(value, 0.0) if math.isfinite(value) else None for value in values],
            "hovertext": [f"{markup(category.words)}: {quantities.percent(value, 1)} % of {topdown.definition.of}, "
                          f"derived, {label}" for value, label in zip(values, labels, strict=True)],
            "hoverinfo": "text",
        })  # fmt: skip
    last = topdown.stretches[-1][1]
    layout = {
        "barmode": "stack",
        "showlegend": True,
        "xaxis": {"title": {"text": "step"}, "range": [0.5, last + 0.5], "tickformat": "d"},
        "yaxis": {"title": {"text": f"% of {topdown.definition.of}"}, "rangemode": "tozero"},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "height": 320,
    }
    return {"data": data, "layout": layout}


def topdown_map(topdown: TopDown, layers: Sequence[LayerRow]) -> Figure | None:
    """Layers in the order given by category, light where much of the slots goes; None without layers.

    A field that is not known stays empty.
    """
    rows = [row for row in layers if row.path in topdown.layers][:MOST_LAYERS]
    categories = [
        one for one in topdown.definition.categories
        if any(topdown.layers[row.path].shares[one.name].value.value is not None for row in rows)
    ]  # fmt: skip
    if not rows or not categories:
        return None
    heights, texts = [], []
    for row in rows:
        slots = topdown.layers[row.path]
        found = [slots.shares[one.name].value.value for one in categories]
        heights.append([None if value is None else 100 * value for value in found])
        name = markup(wording.layer_label(row.path, row.name))
        texts.append([f"<b>{name}</b><br>{_words(topdown, one, slots)}" for one in categories])
    # Equal names would become one row, so layers stand at their positions and names label the ticks.
    places, across = list(range(len(rows))), list(range(len(categories)))
    layout = {
        "xaxis": {"tickvals": across, "ticktext": [markup(one.words) for one in categories], "side": "top",
                  "showgrid": False},
        "yaxis": {"tickvals": places, "ticktext": [markup(wording.layer_label(row.path, row.name)) for row in rows],
                  "autorange": "reversed", "automargin": True, "showgrid": False},
        "margin": {"t": 110},
        "height": 190 + 22 * len(rows),
    }  # fmt: skip
    trace = {
        "type": "heatmap", "x": across, "y": places, "z": heights, "hovertext": texts, "hoverinfo": "text",
        "zmin": 0, "zmax": 100, "colorscale": HEAT, "xgap": 1, "ygap": 1,
        "colorbar": {"title": {"text": f"% of {topdown.definition.of}"}, "thickness": 12},
    }  # fmt: skip
    return {"data": [trace], "layout": layout}


def _color(category: Category, topdown: TopDown) -> str:
    name = category.parent or category.name
    at = topdown.level_one.index(name) if name in topdown.level_one else 0
    return SLOT_COLORS.get(name, SPARE_COLORS[at % len(SPARE_COLORS)])


def _words(topdown: TopDown, category: Category, slots: Slots) -> str:
    share = slots.shares[category.name]
    if share.value.value is None:
        return f"{markup(category.words)}: {markup(quantities.provenance(share.value))}"
    counted = "" if share.counts else "<br>below its threshold, or its parent is"
    joined = "<br>from events counted in different steps" if share.across else ""
    bound = ", a lower bound" if category.bound == "lower" else ""
    shown = f"{quantities.percent(share.value.value, 1)} % of {topdown.definition.of}, {share.value.source}{bound}"
    return f"{markup(category.words)}: {shown}{counted}{joined}"
