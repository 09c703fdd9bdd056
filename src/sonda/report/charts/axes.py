"""Axes of figures: their ends, where their ticks stand, and what these say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from sonda.report import quantities
from sonda.report.charts.chart import Area, Axis, Boxes, Dots, Guide, Mark, Place, Points, Shade

MARGIN = 1.04
"""Room beyond the largest value of a linear axis that has no ends of its own."""


def across_of(marks: Iterable[Mark]) -> Iterator[float]:
    """All values that these marks have along the horizontal axis."""
    for mark in marks:
        match mark:
            case Boxes(_, _, places):
                yield from (value for left, right, _, _ in places for value in (left, right))
            case Points(points=points, intervals=intervals, upright=upright):
                yield from (point[0] for point in points if point is not None)
                yield from () if upright else (end for ends in intervals if ends is not None for end in ends)
            case Area(_, _, across):
                yield from across
            case Dots(_, _, points):
                yield from (x for x, _ in points)
            case Guide(at):
                yield at
            case Shade(first, last):
                yield from (first, last)


def upright_of(marks: Iterable[Mark]) -> Iterator[float]:
    """All values that these marks have along the upright axis."""
    for mark in marks:
        match mark:
            case Boxes(_, _, places):
                yield from (value for _, _, low, high in places for value in (low, high))
            case Points(points=points, intervals=intervals, upright=upright):
                yield from (point[1] for point in points if point is not None)
                yield from (end for ends in intervals if ends is not None for end in ends) if upright else ()
            case Area(_, _, _, low, high):
                yield from (*low, *high)
            case Dots(_, _, points):
                yield from (y for _, y in points)


def ends_of(axis: Axis, values: Iterable[float]) -> Place:
    """The ends of an axis: its own, or those that hold these values."""
    if axis.ends is not None:
        return axis.ends
    if axis.names:
        return -0.5, len(axis.names) - 0.5
    known = [value for value in values if math.isfinite(value) and (value > 0 or not axis.log)]
    if axis.log:
        return log_ends(known or [1.0])
    low, high = min([0.0, *known]), max([0.0, *known])
    return low * MARGIN, (high * MARGIN) or 1.0


def log_ends(values: Sequence[float]) -> Place:
    """The ends of a logarithmic axis that holds these values with some room, at least one decade long."""
    low, high = min(values) / 1.6, max(values) * 1.9
    short = math.sqrt(max(1.0, 10 / (high / low)))
    return low / short, high * short


def part(value: float, ends: Place, log: bool) -> float:
    """How far along the axis a value lies, 0 to 1; what lies beyond its ends is at them."""
    low, high = ends
    if log:
        value, low, high = math.log(max(value, low)), math.log(low), math.log(high)
    return min(max((value - low) / (high - low or 1.0), 0.0), 1.0)


def ticks_of(axis: Axis, ends: Place, most: int) -> Sequence[tuple[float, str]]:
    """Values of an axis with their texts, about as many as asked for."""
    if axis.ticks:
        return [(value, text) for value, text in axis.ticks if ends[0] <= value <= ends[1]]
    return list(log_ticks(ends)) if axis.log else list(linear_ticks(ends, most, axis.whole))


def linear_ticks(ends: Place, most: int, whole: bool = False) -> Iterator[tuple[float, str]]:
    """At 1, 2 or 5 times a power of ten, or at whole numbers only."""
    low, high = ends
    rough = (high - low) / max(1, most)
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    step = next(digit * power for digit in (1, 2, 5, 10) if digit * power >= rough * 0.999)
    if whole:
        step = max(1.0, step)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1):
        value = number * step
        yield value, f"{value:,.{decimals}f}"


def log_ticks(ends: Place, unit: str = "1") -> Iterator[tuple[float, str]]:
    """At 1, 2, 5 of each decade, or only at 1 where there are many decades."""
    low, high = math.log10(ends[0]), math.log10(ends[1])
    digits = (1, 2, 5) if high - low < 3 else (1,)
    for decade in range(math.floor(low), math.ceil(high) + 1):
        for digit in digits:
            value = digit * 10.0**decade
            if ends[0] <= value <= ends[1]:
                scale = quantities.own_scale(value, unit)
                yield value, f"{value / scale.factor:,g} {scale.unit}".strip()


def log_axis(title: str, values: Sequence[float], unit: str) -> Axis:
    """A logarithmic axis that holds these values, with ticks in their unit."""
    ends = log_ends(values)
    return Axis(title, log=True, ends=ends, ticks=tuple(log_ticks(ends, unit)))
