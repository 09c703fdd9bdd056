"""A figure as plain data: fields above each other with one axis below, and in them boxes, series, areas and lines.

Bars, stacked columns and heat maps are boxes; lines, dots and rooflines are series. `svg.py` draws any of them.
All texts are plain: the renderer escapes them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

THICK = 0.76
"""Part of its place that a bar fills."""

Dash = Literal["", "solid", "dash", "dot", "dashdot"]
Side = Literal["above", "below", "right above", "right below", "left above", "left below"]
Place = tuple[float, float]
Rectangle = tuple[float, float, float, float]
"""Left, right, low, high."""


@dataclass(frozen=True)
class Axis:
    """What a direction of a figure stands for."""

    title: str = ""
    log: bool = False
    ends: Place | None = None
    """None are those of the data, and 0 where the axis is linear."""
    ticks: tuple[tuple[float, str], ...] = ()
    """Values with their texts; none are chosen by the renderer."""
    whole: bool = False
    """Whether only whole numbers make sense, as for counts and steps."""
    names: tuple[str, ...] = ()
    """Of places 0, 1, 2, … where the axis has names and no numbers; the first is on the left or on top."""


@dataclass(frozen=True)
class Boxes:
    """Rectangles of one colour, or each of its own."""

    name: str
    """In the legend; '' is not there."""
    color: str
    places: tuple[Rectangle, ...]
    hints: tuple[str, ...] = ()
    """What a reader is told who points at a box; '' of one is nothing."""
    hatched: tuple[bool, ...] = ()
    """Those that a model or a guess made."""
    colors: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    """Written inside."""


@dataclass(frozen=True)
class Points:
    """Points as marks, joined by a line, or both. `None` among the points is a gap."""

    name: str
    color: str
    """'' is the ink of the page."""
    points: tuple[Place | None, ...]
    line: Dash = ""
    """'' draws none."""
    width: float = 2
    stepped: bool = False
    """Whether a value holds from the point before on."""
    symbols: tuple[str, ...] = ()
    """Of each point, or one of all; none draws no mark. `circle-open` is a circle that is not filled."""
    sizes: tuple[float, ...] = (9,)
    colors: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    """Written at the points."""
    sides: tuple[Side, ...] = ("above",)
    intervals: tuple[Place | None, ...] = ()
    """Low and high end of each point's value, drawn as a thin line."""
    upright: bool = False
    """Whether the intervals are of the heights."""
    opacity: float = 1.0


@dataclass(frozen=True)
class Area:
    """What lies between two curves over the same x."""

    name: str
    color: str
    across: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    opacity: float = 1.0


@dataclass(frozen=True)
class Dots:
    """Very many small dots that say nothing one by one."""

    name: str
    color: str
    points: tuple[Place, ...]
    size: float = 4


@dataclass(frozen=True)
class Guide:
    """An upright line at a value, with a word at its top."""

    at: float
    text: str = ""
    color: str = ""
    line: Dash = "dot"
    side: Literal["left", "right", "middle"] = "middle"


@dataclass(frozen=True)
class Shade:
    """A stretch that is set apart, with a word at its top."""

    first: float
    last: float
    text: str = ""


Mark = Boxes | Points | Area | Dots | Guide | Shade


@dataclass(frozen=True)
class Strip:
    """A part of the horizontal axis that a reader may point at, whatever is drawn there, and what is said of it."""

    left: float
    right: float
    hint: str


@dataclass(frozen=True)
class Plot:
    """An area with an upright axis."""

    y: Axis
    marks: tuple[Mark, ...]
    title: str = ""
    share: float = 1.0
    """Of the height, among the fields of a figure."""


@dataclass(frozen=True)
class ColorScale:
    """What the colours of a map stand for."""

    title: str
    colors: tuple[str, ...]
    """From the low end to the high end, at equal distances."""
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...] = ()

    def color(self, value: float) -> str:
        """The colour of a value, mixed of the two nearest."""
        span = self.high - self.low
        part = min(max((value - self.low) / span if span else 0.0, 0.0), 1.0) * (len(self.colors) - 1)
        at = min(int(part), len(self.colors) - 2)
        low, high = (_channels(color) for color in self.colors[at : at + 2])
        mixed = (round(a + (b - a) * (part - at)) for a, b in zip(low, high, strict=True))
        return "#" + "".join(f"{channel:02x}" for channel in mixed)


@dataclass(frozen=True)
class Chart:
    """A figure: fields above each other that share the axis below."""

    x: Axis
    fields: tuple[Plot, ...]
    height: int
    """px of all fields together, without legend, titles and what is written at the axes."""
    strips: tuple[Strip, ...] = ()
    scale: ColorScale | None = None
    legend: bool | None = None
    """None shows one where there are several names."""

    @property
    def marks(self) -> list[Mark]:
        """Of all fields."""
        return [mark for field in self.fields for mark in field.marks]


# ---- Figures of one kind --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BarPart:
    """What bars have in common: a number for each of them, None where there is none."""

    name: str
    color: str
    values: Sequence[float | None]
    hints: Sequence[str]
    hatched: Sequence[bool] = ()
    intervals: Sequence[Place | None] = ()


def stacked_bars(
    names: Sequence[str], parts: Sequence[BarPart], axis: Axis, row: int = 28, norm: bool = False
) -> Chart:
    """A bar for each name, made of parts, from the top downwards. `norm` makes all of them 100 long."""
    sums = [sum(part.values[at] or 0.0 for part in parts) for at in range(len(names))]
    factors = [100 / whole if norm and whole else 1.0 for whole in sums]
    reached = [0.0] * len(names)
    marks: list[Mark] = []
    for part in parts:
        places, kept = [], []
        for at, value in enumerate(part.values):
            if value is not None and value > 0:
                right = reached[at] + value * factors[at]
                places.append((reached[at], right, at - THICK / 2, at + THICK / 2))
                kept.append(at)
                reached[at] = right
        if places:
            hints, hatched = [part.hints[at] for at in kept], [bool(part.hatched[at]) for at in kept if part.hatched]
            marks.append(Boxes(part.name, part.color, tuple(places), tuple(hints), tuple(hatched)))
    axis = replace(axis, ends=(0, 100)) if norm else axis
    return Chart(axis, (Plot(Axis(names=tuple(names)), tuple(marks)),), row * max(1, len(names)))


def grouped_bars(names: Sequence[str], parts: Sequence[BarPart], axis: Axis, row: int = 18) -> Chart:
    """For each name a bar of every part, below each other, with their intervals."""
    marks: list[Mark] = []
    thick = THICK / max(1, len(parts))
    for number, part in enumerate(parts):
        known = [at for at, value in enumerate(part.values) if value is not None]
        tops = [at - THICK / 2 + number * thick for at in known]
        places = tuple((0.0, part.values[at] or 0.0, top, top + thick) for at, top in zip(known, tops, strict=True))
        hatched = tuple(bool(part.hatched[at]) for at in known if part.hatched)
        marks.append(Boxes(part.name, part.color, places, tuple(part.hints[at] for at in known), hatched))
        if part.intervals:
            ends = tuple(part.intervals[at] for at in known)
            points = tuple((right, (low + high) / 2) for _, right, low, high in places)
            marks.append(Points("", "", points, intervals=ends))
    return Chart(axis, (Plot(Axis(names=tuple(names)), tuple(marks)),), row * max(2, len(parts) + 1) * len(names))


def stacked_columns(
    edges: Sequence[Place], parts: Sequence[tuple[str, str, Sequence[float | None]]], areas: bool = False
) -> tuple[Mark, ...]:
    """Parts (name, colour, heights) upon each other over stretches of the axis, as columns or as areas; a height of
    None leaves a gap."""
    reached = [0.0] * len(edges)
    marks: list[Mark] = []
    for name, color, heights in parts:
        tops = [low + (value or 0.0) for low, value in zip(reached, heights, strict=True)]
        if areas:
            middles = tuple((left + right) / 2 for left, right in edges)
            marks.append(Area(name, color, middles, tuple(reached), tuple(tops)))
        else:
            places = tuple((left, right, low, top) for (left, right), low, top in zip(edges, reached, tops, strict=True)
                           if top > low)  # fmt: skip
            marks.append(Boxes(name, color, places))
        reached = tops
    return tuple(marks)


def heat_map(
    rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float | None]], scale: ColorScale,
    hints: Sequence[Sequence[str]], texts: Sequence[Sequence[str]] = (), axis: str = "", row: int = 24,
) -> Chart:  # fmt: skip
    """A field for each row and column, coloured by its value; one without a value stays empty."""
    places, colors, told, written = [], [], [], []
    for at, line in enumerate(values):
        for across, value in enumerate(line):
            if value is not None and math.isfinite(value):
                places.append((across - 0.5, across + 0.5, at - 0.5, at + 0.5))
                colors.append(scale.color(value))
                told.append(hints[at][across] if hints else "")
                written.append(texts[at][across] if texts else "")
    boxes = Boxes("", "", tuple(places), tuple(told), (), tuple(colors), tuple(written) if texts else ())
    field = Plot(Axis(names=tuple(rows)), (boxes,))
    return Chart(Axis(axis, names=tuple(columns)), (field,), row * max(1, len(rows)), scale=scale)


def _channels(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)
