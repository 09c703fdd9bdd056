"""Variants of a simulated study as a trade: cycles against energy, with those marked that no other beats in both."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sonda.report import quantities
from sonda.report.charts.chart import Axis, Chart, Plot, Points, Side
from sonda.report.palette import GREY, VERMILION
from sonda.report.table import Cell, Column, Table, build, words
from sonda.report.views.study.tables import Document, variants_of

CYCLES, ENERGY = "cycles", "energy_uJ"
HEIGHT = 360


@dataclass(frozen=True)
class Trade:
    """A variant against the first one."""

    name: str
    cycles: float
    """Geometric mean over the configurations that both have; the first variant is 1."""
    energy: float
    n: int
    front: bool
    """No other needs fewer cycles and less energy."""


def trades(study: Document) -> list[Trade]:
    """Variants that are compared by cycles and by energy; none where a study does not compare them by both."""
    ratios: dict[str, dict[str, float]] = {key: {} for key in (CYCLES, ENERGY)}
    counts: dict[str, int] = {}
    for compared in study.get("compared", ()):
        if compared["figure"] in ratios:
            ratios[compared["figure"]][compared["variant"]] = compared["ratio"]
            counts[compared["variant"]] = compared["n"]
    both = [name for name in ratios[CYCLES] if name in ratios[ENERGY]]
    if not both:
        return []
    first = variants_of(study)[0]
    points = {first: (1.0, 1.0), **{name: (ratios[CYCLES][name], ratios[ENERGY][name]) for name in both}}
    counts[first] = max(counts.values())
    return [Trade(name, *point, counts[name], not any(_beats(other, point) for other in points.values()))
            for name, point in points.items()]  # fmt: skip


def _beats(point: tuple[float, float], other: tuple[float, float]) -> bool:
    return point != other and point[0] <= other[0] and point[1] <= other[1]


def trade_figure(compared: list[Trade]) -> Chart:
    """Cycles to the right, energy upwards, both logarithmic and over those of the first variant; named points."""
    marks = []
    for front, name, color, mark in ((True, "Pareto front", VERMILION, "diamond"), (False, "others", GREY, "circle")):
        own = sorted((trade for trade in compared if trade.front is front), key=lambda trade: trade.cycles)
        if not own:
            continue
        sides: tuple[Side, ...] = ("right below",) if front else tuple(_side(trade, compared) for trade in own)
        marks.append(Points(
            name, color, tuple((trade.cycles, trade.energy) for trade in own), symbols=(mark,),
            sizes=(12 if front else 9,), labels=tuple(trade.name for trade in own), sides=sides,
            hints=tuple(f"{trade.name}\n{quantities.significant(trade.cycles)} times the cycles, "
                        f"{quantities.significant(trade.energy)} times the energy, derived (geometric mean of "
                        f"{trade.n})" for trade in own),
        ))  # fmt: skip
    first = compared[0].name
    across = Axis(f"cycles over those of {first} (simulated)", log=True)
    upright = Axis(f"energy over that of {first} (simulated)", log=True)
    return Chart(across, (Plot(upright, tuple(marks)),), HEIGHT, legend=True)


def _side(trade: Trade, compared: list[Trade]) -> Side:
    """Where the name of a point does not run into that of its nearest neighbour."""

    def way(other: Trade) -> tuple[float, float]:
        return math.log(other.cycles / trade.cycles), math.log(other.energy / trade.energy)

    others = [way(other) for other in compared if other is not trade]
    return "below" if others and min(others, key=lambda pair: math.hypot(*pair))[1] > 0 else "above"


def trade_table(compared: list[Trade]) -> Table:
    """The points of the picture."""

    def times(values: list[float]) -> list[Cell]:
        return [
            Cell(quantities.number(ratio), ratio, f"{quantities.significant(ratio, 4)} times, derived", unit="1")
            for ratio in values
        ]

    return build(
        [
            (Column("variant", right=False), words([trade.name for trade in compared])),
            (Column("times the cycles"), times([trade.cycles for trade in compared])),
            (Column("times the energy"), times([trade.energy for trade in compared])),
            (
                Column("configurations"),
                [Cell(f"{trade.n:,}", trade.n, "configurations, counted", unit="1") for trade in compared],
            ),
            (Column("on the front", right=False), words(["yes" if trade.front else "no" for trade in compared])),
        ],
        "trade",
    )
