"""Pictures of programs side by side, for a run and for a study alike: the slowdown matrix, misses by size of cache."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sonda.report import quantities
from sonda.report.charts.chart import Axis, Chart, ColorScale, Plot, Points, heat_map
from sonda.report.palette import SKY, VERMILION
from sonda.report.table import Cell, Column, Table, build
from sonda.report.views.study.dot_plot import COLORS, MARKS

SCALE = SKY, "#d0d3d7", VERMILION
"""Faster than alone, as fast, slower: safe for colour-blind readers, and dark ink is read on all of them."""
LEAST = 1.1
"""Slowdowns below 10 % are not made to look large."""
TICKS, FINE = (0.125, 0.25, 0.5, 1, 2, 4, 8, 16), (0.6, 0.8, 0.9, 1, 1.1, 1.25, 1.6)
"""Of the scale of shades, and where all are below 2."""
HEIGHT = 280


def slowdown_map(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float | None]],
    texts: Sequence[Sequence[str]],
    hints: Sequence[Sequence[str]],
) -> Chart:
    """Who suffers from whom; `texts` stand in the fields, `hints` in their hover boxes.

    Shades go by the logarithm, so that twice as fast is as far from grey as twice as slow.
    """
    shades = [[None if value is None else math.log2(value) for value in line] for line in values]
    reach = max([math.log2(LEAST), *(abs(shade) for line in shades for shade in line if shade is not None)])
    ticks = tuple((math.log2(tick), f"{tick:g}") for tick in (TICKS if reach > 1 else FINE)
                  if abs(math.log2(tick)) <= reach)  # fmt: skip
    cell_hints = [[f"{row} by {column}: {hint}" for column, hint in zip(columns, line, strict=True)]
            for row, line in zip(rows, hints, strict=True)]  # fmt: skip
    scale = ColorScale("slowdown", SCALE, -reach, reach, ticks)
    return heat_map(rows, [f"by {name}" for name in columns], shades, scale, cell_hints, texts, row=46)


def miss_curve(misses: Mapping[str, Mapping[float, float]]) -> Chart | None:
    """Modelled misses by the size of the last cache in bytes, a line for each program; None without two sizes."""
    sizes = sorted({size for by in misses.values() for size in by})
    if len(sizes) < 2:
        return None
    marks = tuple(
        Points(
            name, COLORS[at % len(COLORS)], tuple((size, by[size]) for size in sorted(by)), "solid",
            symbols=(MARKS[at % len(MARKS)],),
            hints=tuple(f"{name}: {by[size]:,g} misses a step with {_size(size)}, modelled" for size in sorted(by)),
        )
        for at, (name, by) in enumerate(misses.items())
    )  # fmt: skip
    across = Axis("size of the last cache", log=True, ticks=tuple((size, _size(size)) for size in sizes))
    return Chart(across, (Plot(Axis("misses a step (modelled)", log=True), marks),), HEIGHT, legend=True)


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
