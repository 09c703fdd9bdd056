"""Over time: quantities step by step with their changes marked and the phases beneath, as text, figure and values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from sonda.analysis.change_points import Change
from sonda.analysis.counters.summary import OverTime, Series, is_share
from sonda.analysis.summary import PartSummary
from sonda.report import quantities
from sonda.report.blocks import Block, paragraphs
from sonda.report.figures import MOST_BARS, MOST_STEPS, Figure, phase_color
from sonda.report.labels import markup
from sonda.report.palette import BLUE, VERMILION
from sonda.report.values import Document, finite, number_document, plain_data
from sonda.report.words import describe

MOST_PANELS = 6
"""Quantities that one figure has room for; all are in `sonda show --json`."""
PANEL = 120
"""Pixels of height."""
GAP = 0.045
"""Of the figure, above each panel, for its name."""
PHASES = 0.2
"""Of the figure, for the phases beneath."""
LINE_COLOR, CHANGE_COLOR = BLUE, VERMILION


def over_time_blocks(part: PartSummary) -> list[Block]:
    """The changes of a part, a line each; nothing where nothing changes."""
    findings = part.over_time.findings if part.over_time is not None else ()
    return [*paragraphs(map(describe, findings), "remark")]


def over_time_figure(part: PartSummary) -> Figure | None:
    """A panel for each quantity over the same steps, changes as vertical lines, phases beneath; None without steps.

    Quantities that change come first. Beyond 4,000 steps means of neighbouring steps are drawn, said in the axis title.
    """
    if part.over_time is None or not part.over_time.series:
        return None
    count = len(part.durations)
    shares = {
        name: [100 * value / (whole or 1) for value, whole in zip(values, part.durations, strict=True)]
        for name, values in part.phase_steps.items()
    }
    axis = {"range": [0.5, count + 0.5], "tickformat": "d"}
    return panels(part.over_time.series, shares, count, "step", axis, lambda step: step, lambda step: step - 0.5,
                  "step %{x:.0f}")  # fmt: skip


def panels(
    series: Sequence[Series], shares: Mapping[str, Sequence[float]], count: int, noun: str, axis: Figure,
    place: Callable[[int], float], edge: Callable[[int], float], hover: str,
) -> Figure:  # fmt: skip
    """A panel for each of some series over the same `count` steps or intervals, `shares` of phases in % beneath.

    `place` says where the n-th stands on the axis, `edge` where it begins, `hover` what its tooltip calls it.
    """
    chosen = _chosen(series)
    group = math.ceil(count / MOST_STEPS)
    beneath = PHASES if shares else 0.0
    height = (1 - beneath - GAP * (len(chosen) + 1)) / len(chosen)
    title = noun if group == 1 else f"{noun} (means of {group} neighbours)"
    layout: Figure = {
        "xaxis": {"title": {"text": title}, **axis, "anchor": "y" if shares else f"y{len(chosen) + 1}"},
        "barmode": "stack",
        "bargap": 0,
        "showlegend": bool(shares),
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "height": 160 + PANEL * len(chosen),
        "shapes": [],
        "annotations": [],
    }
    if shares:
        layout["yaxis"] = {"domain": [0, PHASES], "title": {"text": "phases, %"}, "range": [0, 100]}
    data = _phase_bars(shares, [place(at) for at in range(1, count + 1)], group, noun, hover)
    for index, quantity in enumerate(chosen):
        name = f"y{index + 2}"
        top = 1 - GAP - index * (height + GAP)
        unit, scaled = _scaled(quantity)
        layout[f"yaxis{index + 2}"] = {
            "domain": [max(0.0, top - height), top], "anchor": "x", "rangemode": "tozero", "nticks": 4,
        }  # fmt: skip
        # Names are longer than a panel is high, so they stand above it.
        layout["annotations"].append(
            {"x": 0, "y": top, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom",
             "text": f"{markup(quantity.name)}{f', {unit}' if unit else ''}", "showarrow": False, "font": {"size": 11}}
        )  # fmt: skip
        places, values = _thinned([place(step) for step in quantity.steps], scaled, group)
        template = f"{markup(quantity.name)} %{{y:.4~g}} {unit} ({quantity.source})<extra>{hover}</extra>"
        data.append({
            "type": "scatter", "mode": "lines+markers" if len(places) <= MOST_BARS else "lines", "x": places,
            "y": values, "yaxis": name, "name": markup(quantity.name), "showlegend": False, "hovertemplate": template,
            "line": {"color": LINE_COLOR, "width": 1.4, "dash": "dot" if quantity.source == "estimated" else "solid"},
            "marker": {"size": 4},
        })  # fmt: skip
        layout["shapes"] += [_mark(edge(quantity.step_of(change)), name) for change in quantity.changes]
    return {"data": data, "layout": layout}


def over_time_caption(series: Sequence[Series], phases: Mapping[str, object], of: str) -> str:
    """What a reader sees in the picture of these series: `of` tells whose phases are beneath."""
    drawn = _chosen(series)
    sentences = ["Dashed lines are changes of level."] if any(quantity.changes for quantity in drawn) else []
    sentences += ["Dotted curves are estimated."] if any(quantity.source == "estimated" for quantity in drawn) else []
    sentences += [f"Beneath are the phases {of}."] if phases else []
    if len(drawn) < len(series):
        sentences.append(f"{len(drawn)} of {len(series)} quantities are drawn, those that change before others.")
    return " ".join(sentences)


def over_time_fields(over_time: OverTime | None) -> Document:
    """What changes over time adds to a JSON document; nothing where there is none."""
    if over_time is None:
        return {}
    return {
        "over_time": {
            "series": [series_fields(series) for series in over_time.series],
            "sentences": list(map(describe, over_time.findings)),
            **_intervals(over_time),
        }
    }


def _chosen(series: Sequence[Series]) -> list[Series]:
    moving = [quantity for quantity in series if quantity.changes or quantity.drift]
    still = [quantity for quantity in series if quantity not in moving]
    kept = {id(quantity) for quantity in (moving + still)[:MOST_PANELS]}
    return [quantity for quantity in series if id(quantity) in kept]


def _phase_bars(
    shares: Mapping[str, Sequence[float]], places: list[float], group: int, noun: str, hover: str
) -> list[Figure]:
    """Every phase's part of its step or interval, so that long and short ones show the same phases."""
    figures: list[Figure] = []
    for index, (name, values) in enumerate(shares.items()):
        middles, heights = _thinned(places, list(values), group)
        color = phase_color(name, index)
        shape = (
            {"type": "bar", "marker": {"color": color, "line": {"width": 0}}}
            if len(middles) <= MOST_BARS
            else {"type": "scatter", "mode": "none", "stackgroup": "phases", "fillcolor": color}
        )
        template = f"{markup(name)} %{{y:.3~g}} % of the {noun} (derived)<extra>{hover}</extra>"
        figures.append({**shape, "name": markup(name), "x": middles, "y": heights, "hovertemplate": template})
    return figures


def _mark(edge: float, axis: str) -> Figure:
    """A line where the new level begins, in this quantity's panel."""
    return {"type": "line", "xref": "x", "yref": f"{axis} domain", "x0": edge, "x1": edge, "y0": 0, "y1": 1,
            "line": {"color": CHANGE_COLOR, "width": 1.5, "dash": "dash"}}  # fmt: skip


def _scaled(series: Series) -> tuple[str, list[float]]:
    if is_share(series.unit):
        return f"% {series.unit}", [100 * value for value in series.values]
    scale = quantities.common_scale(series.values, series.unit)
    return scale.unit, [value / scale.factor for value in series.values]


def _thinned(places: list[float], values: list[float], group: int) -> tuple[list[float], list[float]]:
    if group == 1:
        return [float(place) for place in places], values
    chunks = [(places[at : at + group], values[at : at + group]) for at in range(0, len(places), group)]
    return [sum(at) / len(at) for at, _ in chunks], [sum(value) / len(value) for _, value in chunks]


def series_fields(series: Series, noun: str = "step") -> Document:
    """A series as a JSON object; `noun` is what it is a series of."""
    return {
        "name": series.name,
        "unit": series.unit,
        "source": series.source,
        f"{noun}s": list(series.steps),
        "values": plain_data(series.values),
        "changes": [_change(series, change, noun) for change in series.changes],
        "drift": None if series.drift is None else {"first": series.drift.first, "last": series.drift.last},
    }


def _change(series: Series, change: Change, noun: str) -> Document:
    relative = finite(change.relative)
    return {noun: series.step_of(change), "before": change.before, "after": change.after, "relative": relative}


def _intervals(over_time: OverTime) -> Document:
    intervals = over_time.intervals
    if intervals is None:
        return {}
    return {
        "intervals": {
            "length": number_document(intervals.length, "ns", "derived"),
            "starts": list(intervals.starts),
            "rates": {
                name: {
                    "unit": intervals.units[name],
                    "source": "derived",
                    "values": plain_data(values),
                }
                for name, values in intervals.rates.items()
            },
        }
    }
