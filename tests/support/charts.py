"""Figures of blocks and their marks, for tests that look at what is drawn."""

from __future__ import annotations

from collections.abc import Iterable

from sonda.report.blocks import Aside, Block, FigureBlock, Fold, Panel, VerdictBlock
from sonda.report.charts.chart import Boxes, Chart, Points


def charts_of(blocks: Iterable[Block]) -> dict[str, Chart]:
    """Figures by their places."""
    found: dict[str, Chart] = {}
    for block in blocks:
        match block:
            case FigureBlock(figure, place) if figure is not None:
                found[place] = figure
            case Panel(blocks=inside) | Fold(blocks=inside) | VerdictBlock(blocks=inside) | Aside(blocks=inside):
                found |= charts_of(inside)
    return found


def series_of(chart: Chart) -> list[Points]:
    """Those with a name or a mark."""
    return [mark for mark in chart.marks if isinstance(mark, Points)]


def across(series: Points) -> list[float | None]:
    """Values along the horizontal axis; None are gaps."""
    return [None if point is None else point[0] for point in series.points]


def upright(series: Points) -> list[float | None]:
    """Values along the upright axis; None are gaps."""
    return [None if point is None else point[1] for point in series.points]


def name_of(roof: Points) -> str:
    """What is written at a line without a name in the legend."""
    return next(label for label in roof.labels if label)


def boxes_of(chart: Chart) -> dict[str, Boxes]:
    """Boxes by their names."""
    return {mark.name: mark for mark in chart.marks if isinstance(mark, Boxes)}


def lengths(boxes: Boxes) -> dict[int, float]:
    """How long each bar is, by the number of its row."""
    return {round((low + high) / 2): right - left for left, right, low, high in boxes.places}


def heights(boxes: Boxes) -> list[float]:
    """How high each column is, from left to right."""
    return [high - low for _, _, low, high in boxes.places]
