"""Published against ours: every printed figure with ours beside it, as a picture of ratios and as a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sonda.report import quantities
from sonda.report.charts.chart import Axis, Chart, Dots, Guide, Plot, Points
from sonda.report.palette import GREY
from sonda.report.table import Cell, Column, Table, build, words
from sonda.report.views.study.cells import printed_cell, study_cell
from sonda.report.views.study.dot_plot import COLORS, MARKS
from sonda.report.views.study.tables import Document, figure_name, row_names

MOST_MARKS = 400
"""Marks that say what they are; more are dots, and the table says it."""
OF_A_LINE = 30
"""px of height."""
REACHED = "the interval of ours reaches the printed figure"


@dataclass(frozen=True)
class Pair:
    """A printed figure and ours."""

    name: str
    """Name of the figure."""
    place: str
    ours: Document
    printed: Document

    @property
    def machine(self) -> str:
        return str(self.printed["hardware"]) or "published"

    @property
    def reached(self) -> bool:
        """Whether the interval of ours reaches the printed figure, or the range that was printed; not without one."""
        value = self.printed["value"]
        least, most = (value["low"] or 0.0, value["high"]) if value["value"] is None else (value["value"],) * 2
        low, high = self.ours.get("low"), self.ours.get("high")
        return low is not None and high is not None and bool(low <= most and least <= high)


def pairs(study: Document) -> list[Pair]:
    """Every printed figure of the study's configurations, with or without ours, figure by figure."""
    named = list(zip(row_names(study), study["rows"], strict=True))
    return [
        Pair(figure_name(column), name, figure, printed)
        for column in study["columns"]
        for name, row in named
        for figure in [row["figures"][column["figure"]]]
        for printed in figure.get("published", ())
    ]


def published_figure(printed_pairs: list[Pair]) -> Chart | None:
    """Ours over the published one: a line for each figure, a mark for each configuration; None without any of ours."""
    known = [pair for pair in printed_pairs if pair.printed["ratio"]]
    if not known:
        return None
    lines = list(dict.fromkeys(pair.name for pair in known))
    field = Plot(Axis(names=tuple(lines)), (Guide(1.0, color=GREY, line="solid"), *_marks(known, lines)))
    axis = Axis("ours over the published one", log=True)
    return Chart(axis, (field,), OF_A_LINE * len(lines), legend=True)


def _marks(known: list[Pair], lines: list[str]) -> Iterator[Points | Dots]:
    """A series for each machine, and a grey one of those that the intervals of ours reach."""
    for number, machine in enumerate(dict.fromkeys(pair.machine for pair in known)):
        reached = [pair for pair in known if pair.machine == machine and pair.reached]
        others = [pair for pair in known if pair.machine == machine and not pair.reached]
        for color, own in ((COLORS[number % len(COLORS)], others), (GREY, reached)):
            points = tuple((pair.printed["ratio"], float(lines.index(pair.name))) for pair in own)
            if len(known) > MOST_MARKS and own:
                yield Dots(machine, color, points, 6)
            elif own:
                yield Points(
                    machine, color, points,
                    symbols=(MARKS[number % len(MARKS)],), opacity=0.8,
                    hints=tuple(
                        f"{pair.place}\nours {study_cell(pair.ours).text}, published "
                        f"{printed_cell(pair.printed).text}: {_ratio(pair).hint}"
                        for pair in own
                    ),
                )  # fmt: skip


def published_table(printed_pairs: list[Pair]) -> Table:
    """A row for each printed figure: ours, the ratio, and what differs between the two measurements."""
    columns = [
        (Column("where", right=False), [Cell(pair.place, pair.place) for pair in printed_pairs]),
        (Column("figure", right=False), words([pair.name for pair in printed_pairs])),
        (Column("ours", hint="median of the repetitions"), [study_cell(pair.ours) for pair in printed_pairs]),
        (Column("published", hint="with the digits that were printed"),
         [printed_cell(pair.printed) for pair in printed_pairs]),
        (Column("ours over published", hint="of a printed range, or a bound, whether ours lies in it"),
         [_ratio(pair) for pair in printed_pairs]),
        (Column("published on", right=False), words([pair.machine for pair in printed_pairs])),
    ]  # fmt: skip
    if any(pair.printed["deviation"] for pair in printed_pairs):
        columns.append(
            (Column("what differs", right=False), words([str(pair.printed["deviation"]) for pair in printed_pairs]))
        )
    if any(pair.printed.get("note") for pair in printed_pairs):
        columns.append(
            (Column("note", right=False), words([str(pair.printed.get("note", "")) for pair in printed_pairs]))
        )
    return build(columns, "published against ours")


def _ratio(pair: Pair) -> Cell:
    ratio, in_range = pair.printed["ratio"], str(pair.printed["in_range"])
    if in_range:
        bound = not pair.printed["value"]["low"]
        return Cell(in_range, None, f"ours is {in_range} {'the bound' if bound else 'the range'} that was printed",
                    tone="quiet" if pair.reached else "")  # fmt: skip
    if ratio is None:
        return Cell(quantities.MISSING, None, str(pair.ours["reason"]), tone="quiet")
    hint, tone = f"{quantities.number(ratio)} times, derived", ""
    if pair.reached:
        hint, tone = f"{hint}; {REACHED}", "quiet"
    return Cell(quantities.number(ratio), ratio, hint, tone=tone, unit="1")
