"""Pictures of an exploration: every point as a dot, the Pareto front as larger ones."""

from __future__ import annotations

from typing import Any

from sonda.analysis.exploration import Exploration, Point, amount, times
from sonda.analysis.summary import Value
from sonda.report import quantities
from sonda.report.figures import Figure
from sonda.report.labels import markup
from sonda.report.palette import GREY, HEAT, VERMILION

MOST_DOTS = 4000
"""Of points that are not on the front; more are drawn as an even sample of rows."""
FEW_DOTS = 300
"""So few are drawn larger."""


def trade_figure(found: Exploration, points: Any, name: str, shade: str = "") -> Figure:
    """Cycles to the right, or time where clocks differ, energy or area upwards, both logarithmic; the shade of the
    front, which is never empty, is a third objective."""
    scale = _scale(found, name)
    unit = scale.unit
    cloud = _cloud(points, name, found.by_time)
    speed, per = ("time, ns", "time %{x:,.4~g} ns") if found.by_time else ("cycles", "cycles %{x:,}")
    other = f"not on the front<br>{per}, simulated<br>{markup(f'{name} %{{y:.4~g}} {unit}')}, simulated<extra></extra>"
    data = [
        {
            "type": "scatter", "mode": "markers", "name": "other points", "x": cloud[0],
            "y": [one / scale.factor for one in cloud[1]],
            "marker": {"size": 4 if len(cloud[0]) > FEW_DOTS else 7, "color": GREY, "opacity": 0.6},
            "hovertemplate": other,
        },
        {
            "type": "scatter", "mode": "markers", "name": "Pareto front",
            "x": [found.value(point, "cycles").value for point in found.front],
            "y": [(point.values[name].value or 0.0) / scale.factor for point in found.front],
            "marker": {"size": 12, "symbol": "diamond", "line": {"width": 1, "color": "rgba(255,255,255,.6)"},
                       **_shading(found, shade)},
            "text": [_hover(found, point) for point in found.front],
            "hovertemplate": "%{text}<extra></extra>",
        },
    ]  # fmt: skip
    layout = {
        "xaxis": {"type": "log", "title": {"text": f"{speed} (simulated)"}},
        "yaxis": {"type": "log", "title": {"text": markup(f"{name}, {unit} (simulated)")}},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        "height": 440,
    }
    return {"data": data, "layout": layout}


def _cloud(points: Any, name: str, by_time: bool) -> tuple[list[float], list[float]]:
    """Cycles, or times, and figures of the points that are not on the front and have both."""
    import numpy as np

    front = points["front"].to_numpy()
    figures = points[f"{name}:simulated"].to_numpy(zero_copy_only=False).astype(np.float64)
    rows = np.flatnonzero(~front & ~np.isnan(figures))
    rows = rows[:: max(1, -(-len(rows) // MOST_DOTS))]
    cycles = points["cycles:simulated"].to_numpy(zero_copy_only=False).astype(np.float64)
    speed = times(points) if by_time else cycles
    return speed[rows].tolist(), figures[rows].tolist()


def _shading(found: Exploration, shade: str) -> dict[str, Any]:
    values = [point.values[shade].value or 0.0 for point in found.front] if shade else []
    if len(set(values)) < 2:  # one shade tells nothing
        return {"color": VERMILION}
    scale = _scale(found, shade)
    bar = {"title": {"text": markup(f"{shade}, {scale.unit}")}, "thickness": 14}
    return {"color": [one / scale.factor for one in values], "colorscale": HEAT, "colorbar": bar}


def _scale(found: Exploration, name: str) -> quantities.Scale:
    """In which an objective of the front is shown."""
    return quantities.common_scale((one.values[name].value for one in found.front), found.front[0].values[name].unit)


def _hover(found: Exploration, point: Point) -> str:
    lines = [f"<b>{markup(point.words)}</b>"]
    for name in ("time", *found.objectives) if found.by_time else found.objectives:
        value = point.values[name]
        bounds = ""
        if value.low is not None and value.high is not None:
            low, high = (amount(Value(one, value.unit, value.source)) for one in (value.low, value.high))
            bounds = f" ({low} to {high})"
        lines.append(markup(f"{name} {amount(value)}{bounds}, {value.source}"))
    return "<br>".join(lines)
