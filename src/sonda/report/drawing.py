"""A figure as a drawing of lines and points: SVG that needs no script and nothing from elsewhere, for notebooks.

It draws what `figures.roofline` describes: scattered points and lines on logarithmic axes with their own labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from sonda.report.labels import markup

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 108, 16, 40, 48
"""Room around the field, px."""
INK = "#6b7480"
"""Axes, labels and roofs: seen on white and on black alike."""
LETTER = 6.6
"""Width of a letter of the legend, px."""

Figure = dict[str, Any]


def svg(figure: Figure) -> str:
    """The figure as one `<svg>` element. Texts of a figure are escaped already, as Plotly needs them."""
    across = _Axis(figure["layout"]["xaxis"], LEFT, WIDTH - RIGHT)
    upright = _Axis(figure["layout"]["yaxis"], HEIGHT - BOTTOM, TOP)
    pieces = [*_grid(across, upright)]
    for trace in figure["data"]:
        places = [(across.place(x), upright.place(y)) for x, y in zip(trace["x"], trace["y"], strict=True)]
        pieces += _line(trace, places) if "lines" in trace["mode"] else _points(trace, places)
    pieces += _legend(figure["data"])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'style="max-width: 100%; height: auto; font: 12px system-ui, sans-serif" role="img">{"".join(pieces)}</svg>'
    )


class _Axis:
    """From values to px, both ends included."""

    def __init__(self, axis: Figure, first: float, last: float) -> None:
        self.low, self.high = axis["range"]
        self.first, self.last = first, last
        self.title = str(axis["title"]["text"])
        self.ticks = list(zip(axis["tickvals"], axis["ticktext"], strict=True))

    def place(self, value: float) -> float:
        return self.first + (math.log10(value) - self.low) / (self.high - self.low) * (self.last - self.first)


def _grid(across: _Axis, upright: _Axis) -> Iterable[str]:
    for value, text in across.ticks:
        x = across.place(value)
        yield f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="{INK}" stroke-opacity=".2"/>'
        yield _text(x, HEIGHT - BOTTOM + 16, text, "middle")
    for value, text in upright.ticks:
        y = upright.place(value)
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{INK}" stroke-opacity=".2"/>'
        yield _text(LEFT - 6, y + 4, text, "end")
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, across.title, "middle")
    turned = f"rotate(-90 14 {(TOP + HEIGHT - BOTTOM) / 2:.0f})"
    yield _text(14, (TOP + HEIGHT - BOTTOM) / 2, upright.title, "middle", f' transform="{turned}"')


def _line(trace: Figure, places: list[tuple[float, float]]) -> Iterable[str]:
    path = " ".join(f"{'L' if index else 'M'}{x:.1f} {y:.1f}" for index, (x, y) in enumerate(places))
    dash = ' stroke-dasharray="6 4"' if trace["line"]["dash"] != "solid" else ""
    yield f'<path d="{path}" fill="none" stroke="{INK}" stroke-width="2"{dash}>{_hint(trace["name"])}</path>'
    upright, _, side = trace["textposition"].partition(" ")
    for (x, y), text in zip(places, trace["text"], strict=True):
        if text:
            away = 8 if side == "right" else 0
            yield _text(x + away, y + (14 if upright == "bottom" else -6), text, "start" if away else "end")


def _points(trace: Figure, places: list[tuple[float, float]]) -> Iterable[str]:
    marker = trace["marker"]
    for (x, y), size, text in zip(places, marker["size"], trace["text"], strict=True):
        yield _mark(marker, x, y, size / 2, _hint(text))


def _mark(marker: Figure, x: float, y: float, half: float, hint: str = "") -> str:
    """A circle, a square or a triangle, as the symbol asks: colours are never alone."""
    color, symbol = markup(str(marker["color"])), str(marker["symbol"])
    fill = "none" if symbol.endswith("-open") else color
    style = f'fill="{fill}" fill-opacity=".75" stroke="{color}"'
    if symbol.startswith("square"):
        where = f'x="{x - half:.1f}" y="{y - half:.1f}" width="{2 * half:.1f}" height="{2 * half:.1f}"'
        return f"<rect {where} {style}>{hint}</rect>"
    corners = {"triangle": ((0, -1), (0.87, 0.5), (-0.87, 0.5)), "diamond": ((0, -1), (1, 0), (0, 1), (-1, 0))}
    shape = corners.get(symbol.partition("-")[0])
    if shape is None:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{half:.1f}" {style}>{hint}</circle>'
    points = " ".join(f"{x + half * dx:.1f},{y + half * dy:.1f}" for dx, dy in shape)
    return f'<polygon points="{points}" {style}>{hint}</polygon>'


def _legend(traces: Iterable[Figure]) -> Iterable[str]:
    x = float(LEFT)
    for trace in traces:
        if "marker" in trace:
            yield _mark(trace["marker"], x + 6, 18, 6)
            yield _text(x + 18, 22, trace["name"], "start")
            x += 34 + LETTER * len(trace["name"])


def _text(x: float, y: float, text: str, anchor: str, extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{INK}" text-anchor="{anchor}"{extra}>{text}</text>'


def _hint(text: str) -> str:
    return f"<title>{text.replace('<br>', chr(10)).replace('<b>', '').replace('</b>', '')}</title>"
