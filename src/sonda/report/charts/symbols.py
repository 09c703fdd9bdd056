"""Symbols of points: what they look like, and their SVG."""

from __future__ import annotations

import itertools
import math

from sonda.report.charts.hints import Hints

GREY = "#6b7480"
"""Ink, grid and what has no colour: seen on white and on black alike."""


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
    "triangle-right": _corners_around(3, 1.1, turn=0.25),
    "triangle-left": _corners_around(3, 1.1, turn=0.75),
    "diamond": _corners_around(4, 1.2),
    "pentagon": _corners_around(5, 1.1),
    "hexagon": _corners_around(6, 1.1),
    "star": _corners_around(10, 1.3, 0.5),
    "cross": _CROSS,
    "x": tuple(((x - y) / math.sqrt(2), (x + y) / math.sqrt(2)) for x, y in _CROSS),
    "hourglass": ((-0.9, -1), (0.9, -1), (-0.9, 1), (0.9, 1)),
    "line": ((-0.12, -1), (0.12, -1), (0.12, 1), (-0.12, 1)),
}
"""Corners of every symbol, in parts of half its size; a circle has none."""


def px(value: float) -> str:
    """A coordinate: a tenth of a px is enough."""
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text != "-0.0" else "0"


def look_of(symbol: str, color: str, opacity: float = 1.0) -> str:
    """Attributes of marks of this symbol and colour."""
    ink = color or GREY
    clear = f' opacity="{opacity:g}"' if opacity < 1 else ""
    if symbol.endswith("-open"):
        return f'fill="#fff" fill-opacity="0" stroke="{ink}" stroke-width="2"{clear}'
    return f'fill="{ink}" class="mark{"" if color else " line"}" stroke="#fff" stroke-opacity=".6"{clear}'


def shape_svg(symbol: str, x: float, y: float, half: float, hints: Hints, hint: str = "") -> str:
    """What the symbol names, around its middle: colours are never alone."""
    told, inside = hints.attribute(hint), hints.inside(hint)
    corners = CORNERS.get(symbol.removesuffix("-open"), ())
    if not corners:
        return f'<circle cx="{px(x)}" cy="{px(y)}" r="{px(half)}"{told}>{inside}</circle>'
    points = " ".join(f"{px(x + half * dx)},{px(y + half * dy)}" for dx, dy in corners)
    return f'<polygon points="{points}"{told}>{inside}</polygon>'
