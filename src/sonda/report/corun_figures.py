"""Pictures of programs side by side, for a run and for a study alike: the slowdown matrix, misses by size of cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sonda.report.figures import Figure
from sonda.report.labels import markup
from sonda.report.palette import BLUE, VERMILION
from sonda.report.study_dots import COLORS, MARKS

SCALE = BLUE, "#f7f7f7", VERMILION
"""Blue, white, vermilion: faster than alone, as fast, slower; safe for colour-blind readers."""
HEIGHT = 360


def slowdown_map(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float | None]],
    texts: Sequence[Sequence[str]],
    hints: Sequence[Sequence[str]],
) -> Figure:
    """Who suffers from whom; `texts` stand in the fields, `hints` in their hover boxes."""
    largest = max([1.1, *(value for line in values for value in line if value is not None)])
    trace = {
        "type": "heatmap", "x": [f"by {markup(name)}" for name in columns], "y": [markup(name) for name in rows],
        "z": [list(line) for line in values], "text": [[markup(one) for one in line] for line in texts],
        "texttemplate": "%{text}", "hoverongaps": False, "xgap": 2, "ygap": 2,
        "hovertext": [[f"{markup(row)} by {markup(column)}: {markup(one)}" for column, one in
                       zip(columns, line, strict=True)] for row, line in zip(rows, hints, strict=True)],
        "hoverinfo": "text", "zmid": 1.0, "zmin": 2 - largest, "zmax": largest,
        "textfont": {"color": "#101418"},
        "colorscale": [[at / 2, shade] for at, shade in enumerate(SCALE)], "colorbar": {"title": {"text": "slowdown"}},
    }  # fmt: skip
    layout = {
        "height": 140 + 60 * len(rows), "yaxis": {"autorange": "reversed", "automargin": True, "type": "category"},
        "xaxis": {"automargin": True, "type": "category"}, "margin": {"l": 120, "r": 20, "t": 20, "b": 60},
    }  # fmt: skip
    return {"data": [trace], "layout": layout}


def miss_curve(misses: Mapping[str, Mapping[float, float]]) -> Figure | None:
    """Modelled misses by the size of the last cache in bytes, a line for each program; None without two sizes."""
    sizes = sorted({size for by in misses.values() for size in by})
    if len(sizes) < 2:
        return None
    data = [
        {
            "type": "scatter", "mode": "lines+markers", "name": markup(name), "x": sorted(by),
            "y": [by[size] for size in sorted(by)],
            "line": {"color": COLORS[at % len(COLORS)]}, "marker": {"symbol": MARKS[at % len(MARKS)], "size": 9},
            "hovertemplate": f"{markup(name)}: %{{y:,}} misses a step with %{{x:.3s}}B, modelled<extra></extra>",
        }
        for at, (name, by) in enumerate(misses.items())
    ]  # fmt: skip
    ticks = [f"{size / 2**20:g} MiB" if size >= 2**20 else f"{size / 2**10:g} KiB" for size in sizes]
    layout = {
        "height": HEIGHT,
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        "xaxis": {"type": "log", "title": {"text": "size of the last cache"}, "tickvals": sizes, "ticktext": ticks},
        "yaxis": {"type": "log", "title": {"text": "misses a step (modelled)"}},
    }
    return {"data": data, "layout": layout}
