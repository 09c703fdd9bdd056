"""What options bring, as a table, a figure of bars with intervals, and sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sonda.report import quantities
from sonda.report.figures import Figure
from sonda.report.labels import markup
from sonda.report.table import Cell, Column, Table, build, words

Document = Mapping[str, Any]
COLORS = {"faster": "#6b9e4f", "slower": "#c2554d", "nothing": "#8d949c", "unknown": "#8d949c"}
HEIGHT, OF_A_BAR = 150, 26
WIDEST = 100
"""An interval that reaches further says nothing."""


def options_title(place: Document) -> str:
    """`cnn, batch 32: what the options bring against base`."""
    where = f"{place['place']}: " if place["place"] else ""
    return f"{where}what options bring against {place['base']}"


def options_table(place: Document) -> Table:
    """A row for each option: how many times as fast, the interval, and the product of its parts."""
    rows = place["options"]
    columns = [
        (Column("option", right=False), words([str(row["name"]) for row in rows])),
        (Column("times as fast"), [_times(row["speedup"]) for row in rows]),
        (Column("95 % interval"), words([_interval(row["speedup"]) for row in rows])),
        (Column("which is", right=False, wrap=True), words([str(row["text"]) for row in rows])),
    ]
    if any(row["together"] for row in rows):
        texts = [str(row["together"]["text"]) if row["together"] else "" for row in rows]
        columns.append((Column("together", right=False, wrap=True), words(texts)))
    return build(columns)


def verdict_lines(place: Document) -> list[str]:
    """What limits each configuration, and what to try; one line for all that are limited alike."""
    said: dict[str, list[str]] = {}
    rows = [{"name": place["base"], "verdict": place["base_verdict"], "remedy": place["base_remedy"]}]
    for row in [*rows, *place["options"]]:
        if row["verdict"]:
            remedy = f" Try: {row['remedy']}." if row["remedy"] else ""
            said.setdefault(f"{row['verdict']}{remedy}", []).append(str(row["name"]))
    return [f"{', '.join(names)}: {text}" for text, names in said.items()]


def summary_lines(places: Sequence[Document]) -> list[str]:
    """The sentence of every place."""
    return [f"{place['place']}: {place['sentence']}" if place["place"] else str(place["sentence"])
            for place in places if place["sentence"]]  # fmt: skip


def options_figure(place: Document) -> Figure | None:
    """Bars from the base's speed to each option's, with intervals; None where nothing was measured."""
    rows = [row for row in place["options"] if row["speedup"]["value"] is not None][::-1]
    if not rows:
        return None
    values = [row["speedup"] for row in rows]
    data = [{
        "type": "bar", "orientation": "h", "y": [markup(str(row["name"])) for row in rows], "base": 1,
        "x": [value["value"] - 1 for value in values],
        "marker": {"color": [COLORS[row["effect"]] for row in rows]},
        "error_x": {
            "type": "data", "symmetric": False,
            "array": [0 if value["high"] is None else value["high"] - value["value"] for value in values],
            "arrayminus": [0 if value["low"] is None else value["value"] - value["low"] for value in values],
        },
        "hovertext": [f"{markup(str(row['name']))}: {value['value']:.3g}x ({_interval(value) or 'no interval'}), "
                      f"{markup(str(row['text']))}" for row, value in zip(rows, values, strict=True)],
        "hoverinfo": "text",
    }]  # fmt: skip
    line = {"type": "line", "x0": 1, "x1": 1, "y0": 0, "y1": 1, "yref": "paper", "line": {"width": 1}}
    layout = {
        "height": HEIGHT + OF_A_BAR * len(rows),
        "xaxis": {"title": {"text": f"times as fast as {markup(str(place['base']))}"}},
        "yaxis": {"automargin": True, "type": "category"},
        "shapes": [line],
        "showlegend": False,
    }
    return {"data": data, "layout": layout}


def _times(value: Document) -> Cell:
    if value["value"] is None:
        return Cell(quantities.MISSING)
    return Cell(f"{value['value']:.2f}x", value["value"])


def _interval(value: Document) -> str:
    if value["low"] is None:
        return ""
    if value["low"] < 1 / WIDEST or value["high"] > WIDEST:
        return f"wider than {1 / WIDEST:g} to {WIDEST}"
    return f"{value['low']:.2f} to {value['high']:.2f}"
