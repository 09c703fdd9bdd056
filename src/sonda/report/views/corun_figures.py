"""Pictures of programs side by side, for a run and for a study alike: the slowdown matrix, misses by size of cache."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sonda.report import quantities
from sonda.report.figures import Figure
from sonda.report.labels import markup
from sonda.report.palette import DARK_INK, SKY, VERMILION
from sonda.report.table import Cell, Column, Table, build
from sonda.report.views.study.dot_plot import COLORS, MARKS

SCALE = SKY, "#d0d3d7", VERMILION
"""Faster than alone, as fast, slower: safe for colour-blind readers, and dark ink is read on all of them."""
LEAST = 1.1
"""Slowdowns below 10 % are not made to look large."""
TICKS, FINE = (0.125, 0.25, 0.5, 1, 2, 4, 8, 16), (0.6, 0.8, 0.9, 1, 1.1, 1.25, 1.6)
"""Of the scale of shades, and where all are below 2."""
HEIGHT = 360


def slowdown_map(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float | None]],
    texts: Sequence[Sequence[str]],
    hints: Sequence[Sequence[str]],
) -> Figure:
    """Who suffers from whom; `texts` stand in the fields, `hints` in their hover boxes.

    Shades go by the logarithm, so that twice as fast is as far from grey as twice as slow.
    """
    shades = [[None if value is None else math.log2(value) for value in line] for line in values]
    reach = max([math.log2(LEAST), *(abs(shade) for line in shades for shade in line if shade is not None)])
    ticks = [tick for tick in (TICKS if reach > 1 else FINE) if abs(math.log2(tick)) <= reach]
    trace = {
        "type": "heatmap", "x": [f"by {markup(name)}" for name in columns], "y": [markup(name) for name in rows],
        "z": shades, "text": [[markup(text) for text in line] for line in texts], "texttemplate": "%{text}",
        "hovertext": [[f"{markup(row)} by {markup(column)}: {markup(hint)}" for column, hint in
                       zip(columns, line, strict=True)] for row, line in zip(rows, hints, strict=True)],
        "hoverinfo": "text", "hoverongaps": False, "xgap": 2, "ygap": 2, "zmin": -reach, "zmax": reach,
        "textfont": {"color": DARK_INK},
        "colorscale": [[at / 2, shade] for at, shade in enumerate(SCALE)],
        "colorbar": {"title": {"text": "slowdown"}, "tickvals": [math.log2(tick) for tick in ticks],
                     "ticktext": [f"{tick:g}" for tick in ticks]},
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
            "text": [_size(size) for size in sorted(by)],
            "hovertemplate": f"{markup(name)}: %{{y:,}} misses a step with %{{text}}, modelled<extra></extra>",
        }
        for at, (name, by) in enumerate(misses.items())
    ]  # fmt: skip
    ticks = [_size(size) for size in sizes]
    layout = {
        "height": HEIGHT,
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        "xaxis": {"type": "log", "title": {"text": "size of the last cache"}, "tickvals": sizes, "ticktext": ticks},
        "yaxis": {"type": "log", "title": {"text": "misses a step (modelled)"}},
    }
    return {"data": data, "layout": layout}


def misses_table(misses: Mapping[str, Mapping[float, float]]) -> Table:
    """The table behind the curve."""
    sizes = sorted({size for by in misses.values() for size in by})
    columns = [(Column("program", right=False), [Cell(name, name, tone="name") for name in misses])]
    for size in sizes:
        cells = [
            Cell(quantities.whole(by[size]), by[size], "misses a step, modelled", unit="1")
            if size in by
            else Cell(quantities.MISSING)
            for by in misses.values()
        ]
        columns.append((Column(_size(size)), cells))
    return build(columns, "misses")


def _size(size: float) -> str:
    return f"{size / 2**20:g} MiB" if size >= 2**20 else f"{size / 2**10:g} KiB"
