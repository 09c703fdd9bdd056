"""A figure as a drawing of lines and points: SVG that needs no script and nothing from elsewhere, for notebooks.

It draws what `figures.roofline` describes: scattered points and lines on logarithmic axes with their own labels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

from sonda.report.labels import markup

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 108, 16, 40, 48
"""Room around the field, px."""
INK = "#6b7480"
"""Axes, labels and roofs: seen on white and on black alike."""
LETTER, LINE = 6.6, 20
"""Width of a letter of the legend and height of a line of it, px."""


def _corners_around(count: int, *reach: float, turn: float = 0.0) -> tuple[tuple[float, float], ...]:
    """Corners around the middle, the first on top or a `turn` of the circle after it, each as far out as told."""
    turns = (turn + at / count for at in range(count))
    return tuple(
        (out * math.sin(math.tau * angle), -out * math.cos(math.tau * angle))
        for angle, out in zip(turns, itertools.cycle(reach), strict=False)
    )


_CROSS = (
    (-0.4, -1), (0.4, -1), (0.4, -0.4), (1, -0.4), (1, 0.4), (0.4, 0.4), (0.4, 1), (-0.4, 1), (-0.4, 0.4), (-1, 0.4),
    (-1, -0.4), (-0.4, -0.4),
)  # fmt: skip
CORNERS: dict[str, tuple[tuple[float, float], ...]] = {
    "circle": (),
    "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "triangle-up": _corners_around(3, 1.1),
    "triangle-down": _corners_around(3, 1.1, turn=0.5),
    "diamond": _corners_around(4, 1.2),
    "pentagon": _corners_around(5, 1.1),
    "hexagon": _corners_around(6, 1.1),
    "star": _corners_around(10, 1.3, 0.5),
    "cross": _CROSS,
    "x": tuple(((x - y) / math.sqrt(2), (x + y) / math.sqrt(2)) for x, y in _CROSS),
    "hourglass": ((-0.9, -1), (0.9, -1), (-0.9, 1), (0.9, 1)),
}
"""Corners of every symbol of `palette.SYMBOLS`, in parts of half its size; a circle has none."""

Figure = dict[str, Any]


def svg(figure: Figure) -> str:
    """The figure as one `<svg>` element. Texts of a figure are escaped already, as Plotly needs them."""
    across = _Axis(figure["layout"]["xaxis"], LEFT, WIDTH - RIGHT)
    upright = _Axis(figure["layout"]["yaxis"], HEIGHT - BOTTOM, TOP)
    pieces = [*_grid(across, upright)]
    for trace in figure["data"]:
        places = [(across.place(x), upright.place(y)) for x, y in zip(trace["x"], trace["y"], strict=True)]
        pieces += _line(trace, places) if "lines" in trace["mode"] else _points(trace, places)
    legend = _lines(trace for trace in figure["data"] if "marker" in trace)
    pieces += _legend(legend)
    above = LINE * (len(legend) - 1)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 {-above} {WIDTH} {HEIGHT + above}" width="{WIDTH}" '
        f'height="{HEIGHT + above}" style="max-width: 100%; height: auto; font: 12px system-ui, sans-serif" role="img">'
        f"{''.join(pieces)}</svg>"
    )


class _Axis:
    """From values to px, both ends included."""

    def __init__(self, axis: Figure, first: float, last: float) -> None:
        self.low, self.high = axis["range"]
        self.first, self.last = first, last
        self.title = str(axis["title"]["text"])
        self.ticks = list(zip(axis["tickvals"], axis["ticktext"], strict=True))

    def place(self, value: float) -> float:
        place: float = self.first + (math.log10(value) - self.low) / (self.high - self.low) * (self.last - self.first)
        return place


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
    """The shape that the symbol names, around its middle: colours are never alone."""
    color = markup(str(marker["color"]))
    style = f'fill="{color}" fill-opacity=".75" stroke="{INK}"'  # yellow is hardly seen on white
    corners = CORNERS[str(marker["symbol"])]
    if not corners:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{half:.1f}" {style}>{hint}</circle>'
    points = " ".join(f"{x + half * dx:.1f},{y + half * dy:.1f}" for dx, dy in corners)
    return f'<polygon points="{points}" {style}>{hint}</polygon>'


def _lines(traces: Iterable[Figure]) -> list[list[tuple[float, Figure]]]:
    """The lines of the legend: each mark with its place, as many in a line as there is room for."""
    lines: list[list[tuple[float, Figure]]] = [[]]
    x = float(LEFT)
    for trace in traces:
        wide = 34 + LETTER * len(trace["name"])
        if lines[-1] and x + wide > WIDTH:
            lines.append([])
            x = float(LEFT)
        lines[-1].append((x, trace))
        x += wide
    return lines


def _legend(lines: list[list[tuple[float, Figure]]]) -> Iterable[str]:
    """The last line stands above the field, the others above it."""
    for above, line in enumerate(reversed(lines)):
        y = 18 - LINE * above
        for x, trace in line:
            yield _mark(trace["marker"], x + 6, y, 6)
            yield _text(x + 18, y + 4, trace["name"], "start")


def _text(x: float, y: float, text: str, anchor: str, extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{INK}" text-anchor="{anchor}"{extra}>{text}</text>'


def _hint(text: str) -> str:
    return f"<title>{text.replace('<br>', chr(10)).replace('<b>', '').replace('</b>', '')}</title>"
