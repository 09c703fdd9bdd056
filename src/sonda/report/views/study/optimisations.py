"""What options bring, as a table, a figure of bars with intervals, and sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sonda.report import quantities
from sonda.report.charts.chart import Axis, Chart, Guide, Plot, Points
from sonda.report.palette import BLUE, GREY, VERMILION
from sonda.report.table import LAST, Cell, Column, Table, build, shares, tone_of, words
from sonda.report.words.comparison import WIDEST, ends

Document = Mapping[str, Any]
EFFECTS = (
    ("faster", BLUE, "triangle-right", ("faster",)),
    ("slower", VERMILION, "triangle-left", ("slower",)),
    ("not significant", GREY, "circle-open", ("nothing", "little", "unknown")),
)
"""What options do: in words, colour and mark."""
OF_A_BAR = 26


def options_title(place: Document) -> str:
    """`cnn, batch 32: what the options bring against base`."""
    return f"{_place_prefix(place)}what options bring against {place['base']}"


def _place_prefix(place: Document) -> str:
    return f"{place['place']}: " if place["place"] else ""


def options_table(place: Document) -> Table:
    """A row for each option: how many times as fast, the interval, and the product of its parts."""
    rows = place["options"]
    columns = [
        (Column("option", right=False), words([str(row["name"]) for row in rows])),
        (Column("times as fast"), [_speedup_cell(row["speedup"]) for row in rows]),
        (Column("95 % interval", hint="of all options of this table at once"),
         [_interval_cell(row["speedup"]) for row in rows]),
        (Column("which is", right=False, wrap=True), [_effect_cell(row) for row in rows]),
    ]  # fmt: skip
    if any(row["together"] for row in rows):
        texts = [str(row["together"]["text"]) if row["together"] else "" for row in rows]
        columns.append((Column("together", right=False, wrap=True, keep=LAST - 1), words(texts)))
    return build(columns)


def limits_title(place: Document) -> str:
    """`cnn, batch 32: what limits each`."""
    return f"{_place_prefix(place)}what limits each"


def limits_table(place: Document) -> Table | None:
    """A line for each configuration, the base first: what limits it, how much of its step, what to try; whole
    sentences are tooltips. None where nothing was measured."""
    rows = _limits(place)
    if not rows:
        return None
    limits = [limit for _, limit in rows]
    part_of_step = [math.nan if limit["share"] is None else limit["share"] for limit in limits]
    columns = [
        (Column("variant", right=False), words([name for name, _ in rows])),
        (Column("limited by", right=False, hint="the first verdict of the run in the middle"),
         [Cell(limit["kind"], limit["kind"], limit["sentence"], tone=tone_of(limit["kind"])) for limit in limits]),
        (Column("% of step"), shares(part_of_step, "the step")),
        (Column("try", right=False, wrap=True, hint="options of sonda run, or words where it is none of them"),
         [Cell(limit["flags"] or limit["remedy"] or quantities.MISSING, None, limit["remedy"]) for limit in limits]),
    ]  # fmt: skip
    return build(columns, "what limits each")


def limit_sentences(place: Document) -> list[str]:
    """The same in whole sentences; one for all that are limited alike."""
    names_by_text: dict[str, list[str]] = {}
    for name, limit in _limits(place):
        remedy = f" Try: {limit['remedy']}." if limit["remedy"] else ""
        names_by_text.setdefault(f"{limit['sentence']}{remedy}", []).append(name)
    return [f"{', '.join(names)}: {text}" for text, names in names_by_text.items()]


def _limits(place: Document) -> list[tuple[str, Document]]:
    rows = [(str(place["base"]), place["base_limit"]), *((str(row["name"]), row["limit"]) for row in place["options"])]
    return [(name, limit) for name, limit in rows if limit["kind"]]


def summary_lines(places: Sequence[Document]) -> list[str]:
    """The sentence of every place."""
    return [f"{_place_prefix(place)}{place['sentence']}" for place in places if place["sentence"]]


def options_figure(place: Document) -> Chart | None:
    """A mark for the speed of each option over the base's, with its interval; None where nothing was measured.

    An interval that leaves the picture goes on; grey is not significant.
    """
    rows = [row for row in place["options"] if row["speedup"]["value"] is not None]
    if not rows:
        return None
    marks: list[Points] = []
    for effect, color, mark, effects in EFFECTS:
        own = [(at, row) for at, row in enumerate(rows) if row["effect"] in effects]
        if own:
            values = [row["speedup"] for _, row in own]
            marks.append(Points(
                effect, color, tuple((value["value"], float(at)) for (at, _), value in zip(own, values, strict=True)),
                symbols=(mark,), sizes=(11,), intervals=tuple(_drawn_interval(value) for value in values),
                hints=tuple(f"{row['name']}\n{quantities.significant(value['value'])} times as fast, derived; 95 % "
                            f"interval {_interval(value) or 'not known'}\n{row['text']}"
                            for (_, row), value in zip(own, values, strict=True)),
            ))  # fmt: skip
    speeds = [row["speedup"]["value"] for row in rows]
    axis = Axis(f"times as fast as {place['base']}", log=True, ends=(min(0.5, *speeds) / 1.5, max(2.0, *speeds) * 1.5))
    names = tuple(str(row["name"]) for row in rows)
    field = Plot(Axis(names=names), (Guide(1.0, color=GREY, line="solid"), *marks))
    return Chart(axis, (field,), OF_A_BAR * len(rows), legend=True)


def _drawn_interval(value: Document) -> tuple[float, float] | None:
    """An interval without an end does not squeeze the picture."""
    if value["low"] is None and value["high"] is None:
        return None
    low = value["value"] if value["low"] is None else max(value["low"], 1 / WIDEST)
    high = value["value"] if value["high"] is None else min(value["high"], WIDEST)
    return low, high


def _speedup_cell(value: Document) -> Cell:
    if value["value"] is None:
        return Cell(quantities.MISSING, None, str(value["reason"]), tone="quiet")
    hint, low, high = f"{quantities.significant(value['value'])} times as fast, derived", value["low"], value["high"]
    return Cell(quantities.times(value["value"]), value["value"], hint, unit="1", low=low, high=high)


def _interval_cell(value: Document) -> Cell:
    text = _interval(value)
    if not text:
        return Cell(quantities.MISSING, None, str(value["reason"]))
    hint = f"{text} times as fast, derived; of all options of this table at once"
    return Cell(text, value["high"] - value["low"], hint)


def _effect_cell(row: Document) -> Cell:
    """In words; what is not significant is greyed."""
    tone = {"faster": "good", "slower": "bad"}.get(row["effect"], "quiet")
    return Cell(str(row["text"]), row["speedup"]["value"], tone=tone)


def _interval(value: Document) -> str:
    return ends(value["low"], value["high"])
