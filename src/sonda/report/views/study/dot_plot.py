"""One figure of a study as a picture: a line for each configuration, a mark for each variant, published ones beside."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sonda.report import quantities
from sonda.report.charts.axes import log_ticks
from sonda.report.charts.chart import Axis, Chart, ColorScale, Guide, Mark, Place, Plot, Points, heat_map
from sonda.report.palette import BLUE, GREEN, GREY, HEAT, ORANGE, PURPLE, SKY, VERMILION, YELLOW
from sonda.report.table import Cell, Column, Table, build
from sonda.report.views.study.cells import column_cell, interval_holds, is_guessed, is_ratio, printed_cell
from sonda.report.views.study.tables import VARIANT, Document, figure_name, row_names, variants_of

COLORS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, YELLOW, GREY)
MARKS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon", "pentagon", "triangle-down")
"""Marks of variants, so that these are told apart without their colours too."""
MOST_VARIANTS = 6
"""Variants that a reader tells apart by their marks."""
WIDE = 30
"""Values that differ by more than this are drawn on a logarithmic axis."""
OF_A_PLACE, OF_A_MARK = 20, 9
"""px of height."""
BESIDE = 0.5
"""Part of the height of a place that published figures are spread over."""
NEAR = 0.02
"""Part of the width of the axis: marks that are nearer hide each other."""


@dataclass(frozen=True)
class DotMark:
    """A figure of one configuration."""

    place: str
    variant: str
    """'' where variants are rows like any other."""
    figure: Document


def dots_of(study: Document, key: str) -> list[DotMark]:
    """Every configuration that has this figure, of ours or published, in the order of the table."""
    apart = not study.get("base") and len(variants_of(study)) > 1
    # One name for a place in all variants, whatever axes one of them alone walks along.
    named = {**study, "axes": [axis for axis in study["axes"] if axis != VARIANT]} if apart else study
    dots = []
    for name, row in zip(row_names(named), study["rows"], strict=True):
        figure = row["figures"][key]
        if figure["value"] is not None or figure.get("published"):
            dots.append(DotMark(name, str(row["configuration"][VARIANT]) if apart else "", figure))
    return dots


def dots_figure(study: Document, column: Document) -> Chart | None:
    """A figure of every configuration with its interval; hatched marks do not exist, so guesses are open ones.

    None where fewer than two places have one.
    """
    key = str(column["figure"])
    dots = dots_of(study, key)
    places = list(dict.fromkeys(dot.place for dot in dots))
    known = [dot for dot in dots if dot.figure["value"] is not None]
    if len(known) < 2:
        return None
    values = [abs(dot.figure["value"]) for dot in known] + [abs(end) for dot in dots for end in _printed_ends(dot)]
    log = min(values) > 0 and max(values) / min(values) > WIDE
    crowds = _crowds(known, max(values), min(values) if log else None)
    of_a_place = max(OF_A_PLACE, OF_A_MARK * (max(map(len, crowds)) + 1))
    heights = {(dot.place, dot.variant): places.index(dot.place) + (at - (len(crowd) - 1) / 2) * OF_A_MARK / of_a_place
               for crowd in crowds for at, dot in enumerate(crowd)}  # fmt: skip
    marks: list[Mark] = [Guide(1.0, color=GREY)] if is_ratio(key) else []
    marks += [*_published(dots, places), *_ours(known, heights, column)]
    field = Plot(Axis(names=tuple(places)), tuple(marks))
    return Chart(Axis(figure_name(column), log=log), (field,), of_a_place * max(3, len(places)))


def map_figure(study: Document, column: Document) -> Chart | None:
    """The same as a map of places and variants, where these are too many to be told apart by their marks; else None."""
    key = str(column["figure"])
    dots = [dot for dot in dots_of(study, key) if dot.figure["value"] is not None]
    places = list(dict.fromkeys(dot.place for dot in dots))
    variants = list(dict.fromkeys(dot.variant for dot in dots))
    if len(variants) <= MOST_VARIANTS:
        return None
    values = {(dot.place, dot.variant): dot for dot in dots}
    sizes = [abs(dot.figure["value"]) for dot in dots]
    log = min(sizes) > 0 and max(sizes) / min(sizes) > WIDE
    shades: list[list[float | None]] = []
    texts, hints = [], []
    for place in places:
        line = [values.get((place, variant)) for variant in variants]
        known = [None if dot is None else float(dot.figure["value"]) for dot in line]
        shades.append([None if value is None else math.log10(value) if log else value for value in known])
        cells = [None if dot is None else column_cell(key, dot.figure) for dot in line]
        texts.append([cell.text.partition(" ±")[0] if cell else "" for cell in cells])
        hints.append([f"{variant}, {place}\n{figure_name(column)}: {cell.hint}" if cell else ""
                      for variant, cell in zip(variants, cells, strict=True)])  # fmt: skip
    ends = [shade for line in shades for shade in line if shade is not None]
    ticks: tuple[tuple[float, str], ...] = ()
    if log:
        ticks = tuple((math.log10(value), text) for value, text in log_ticks((min(sizes), max(sizes))))
    scale = ColorScale(figure_name(column), HEAT, min(ends), max(ends), ticks)
    return heat_map(places, variants, shades, scale, hints, texts, row=26)


def dots_table(study: Document, column: Document) -> Table:
    """What the picture shows, a row for each mark of ours."""
    dots = dots_of(study, str(column["figure"]))
    columns = [(Column("where", right=False), [Cell(dot.place, dot.place) for dot in dots])]
    if any(dot.variant for dot in dots):
        columns.append((Column(VARIANT, right=False), [Cell(dot.variant, dot.variant) for dot in dots]))
    columns.append((Column(figure_name(column)), [column_cell(str(column["figure"]), dot.figure) for dot in dots]))
    for machine in dict.fromkeys(published["hardware"] for dot in dots for published in _printed(dot)):
        by_machine = [[printed_cell(published) for published in _printed(dot) if published["hardware"] == machine]
                      for dot in dots]  # fmt: skip
        cells = [printed[0] if printed else Cell(quantities.MISSING) for printed in by_machine]
        columns.append((Column(machine or "published"), cells))
    return build(columns, figure_name(column))


def _crowds(dots: Sequence[DotMark], most: float, least: float | None) -> list[list[DotMark]]:
    """Marks of a place that would hide each other, or whose intervals would, in the order of their variants; they are
    drawn one below the other. A mark that stands alone is a crowd too. `least` and `most` are the ends of the axis;
    without a least it is linear.
    """

    def at(value: float) -> float:
        return value / (most or 1.0) if least is None else math.log(max(value, least) / least) / math.log(most / least)

    def ends(dot: DotMark) -> tuple[float, float]:
        low, value, high = (dot.figure[end] for end in ("low", "value", "high"))
        return at(value if low is None else low), at(value if high is None else high)

    crowds: list[list[DotMark]] = []
    for place in dict.fromkeys(dot.place for dot in dots):
        reached = -math.inf
        for dot in sorted((mark for mark in dots if mark.place == place), key=ends):
            begin, end = ends(dot)
            if begin - reached > NEAR:
                crowds.append([])
            crowds[-1].append(dot)
            reached = max(reached, end)
    order = list(dict.fromkeys(dot.variant for dot in dots))
    return [sorted(crowd, key=lambda dot: order.index(dot.variant)) for crowd in crowds]


def _ours(dots: Sequence[DotMark], heights: Mapping[tuple[str, str], float], column: Document) -> Iterator[Points]:
    """A series for each variant, and a grey one of its ratios that may as well be 1."""
    name, ratio = figure_name(column), is_ratio(str(column["figure"]))
    variants = list(dict.fromkeys(dot.variant for dot in dots))
    for number, variant in enumerate(variants):
        mark = MARKS[number % len(MARKS)]
        unsure = [dot for dot in dots if dot.variant == variant and ratio and interval_holds(dot.figure, 1.0)]
        sure = [dot for dot in dots if dot.variant == variant and dot not in unsure]
        for color, own in ((COLORS[number % len(COLORS)], sure), (GREY, unsure)):
            opened = ["-open" if is_guessed(dot.figure) else "" for dot in own]
            if own:
                yield Points(
                    variant or "ours", color,
                    tuple((dot.figure["value"], heights[dot.place, dot.variant]) for dot in own),
                    symbols=tuple(f"{mark}{suffix}" for suffix in opened),
                    intervals=tuple(interval_of(dot.figure) for dot in own),
                    hints=tuple(
                        f"{', '.join(word for word in (dot.variant, dot.place) if word)}\n"
                        f"{name}: {column_cell(str(column['figure']), dot.figure).hint}" for dot in own
                    ),
                )  # fmt: skip


def _published(dots: Sequence[DotMark], places: Sequence[str]) -> Iterator[Points]:
    """Printed values as open marks around ours, printed ranges as lines from mark to mark; those of several machines at
    a place lie at heights of their own, so that two ranges do not look like one."""
    occupied = {(dot.place, _machine(published)) for dot in dots for published in _printed(dot)}
    machines = list(dict.fromkeys(_machine(published) for dot in dots for published in _printed(dot)))
    for number, machine in enumerate(machines):
        printed = [
            (dot.place, published) for dot in dots for published in _printed(dot) if _machine(published) == machine
        ]
        points: list[Place | None] = []
        hints: list[str] = []
        for place, published in printed:
            here = [name for name in machines if (place, name) in occupied]
            height = places.index(place) + BESIDE * ((here.index(machine) + 0.5) / len(here) - 0.5)
            ends = list(dict.fromkeys(_ends(published)))
            hint = f"{place}\npublished: {printed_cell(published).text}, {machine}\n{published['deviation']}".rstrip()
            points += [*((end, height) for end in ends), None]
            hints += [*(hint for _ in ends), ""]
        symbol = f"{MARKS[::-1][number % len(MARKS)]}-open"
        yield Points(machine, GREY, tuple(points), "solid", 3, symbols=(symbol,), sizes=(12,), hints=tuple(hints))


def _printed(dot: DotMark) -> Sequence[Document]:
    published: Sequence[Document] = dot.figure.get("published", ())
    return published


def _machine(published: Document) -> str:
    return str(published["hardware"]) or "published"


def _ends(published: Document) -> tuple[float, float]:
    value = published["value"]["value"]
    return (value, value) if value is not None else (published["value"]["low"] or 0.0, published["value"]["high"])


def _printed_ends(dot: DotMark) -> list[float]:
    return [end for published in _printed(dot) for end in _ends(published) if end]


def interval_of(figure: Document) -> Place | None:
    """Both ends of the interval; None where there is none."""
    low, value, high = (figure.get(end) for end in ("low", "value", "high"))
    if value is None or (low is None and high is None):
        return None
    return (value if low is None else low, value if high is None else high)
