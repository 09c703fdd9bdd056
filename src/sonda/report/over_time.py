"""Over time: quantities step by step with their changes marked and the phases beneath, as text, figure and values."""

from __future__ import annotations

import math
from typing import Any

from sonda.analysis.change_points import Change
from sonda.analysis.counted_summary import OverTime, Series
from sonda.analysis.summary import PartSummary
from sonda.report import quantities
from sonda.report.figures import MOST_BARS, MOST_STEPS, Figure, phase_color
from sonda.report.labels import markup, plain
from sonda.report.screen import Screen

MOST_PANELS = 6
"""Quantities that one figure has room for; all are in `sonda show --json`."""
PANEL = 120
"""Pixels of height."""
GAP = 0.045
"""Of the figure, above each panel, for its name."""
PHASES = 0.2
"""Of the figure, for the phases beneath."""
LINE_COLOR = "#3f7fbf"
CHANGE_COLOR = "#c2554d"


def show_over_time(screen: Screen, part: PartSummary) -> None:
    """The changes of a part, a line each; nothing where nothing changes."""
    for sentence in part.over_time.sentences if part.over_time is not None else ():
        screen.line(plain(sentence), "yellow", 2, 2)


def over_time_figure(part: PartSummary) -> Figure | None:
    """A panel for each quantity over the same steps, changes as vertical lines, phases beneath; None without steps.

    Quantities that change come first. Beyond 4,000 steps means of neighbouring steps are drawn, said in the axis title.
    """
    if part.over_time is None or not part.over_time.series:
        return None
    chosen = _chosen(part.over_time)
    count = len(part.durations)
    group = math.ceil(count / MOST_STEPS)
    height = (1 - PHASES - GAP * (len(chosen) + 1)) / len(chosen)
    title = "step" if group == 1 else f"step (means of {group} neighbours)"
    layout: Figure = {
        "xaxis": {"title": {"text": title}, "range": [0.5, count + 0.5], "tickformat": "d", "anchor": "y"},
        "yaxis": {"domain": [0, PHASES], "title": {"text": "phases, %"}, "range": [0, 100]},
        "barmode": "stack",
        "bargap": 0,
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "height": 160 + PANEL * len(chosen),
        "shapes": [],
        "annotations": [],
    }
    data = _phase_bars(part, group)
    for index, series in enumerate(chosen):
        axis = f"y{index + 2}"
        top = 1 - GAP - index * (height + GAP)
        unit, scaled = _scaled(series)
        layout[f"yaxis{index + 2}"] = {
            "domain": [top - height, top], "anchor": "x", "rangemode": "tozero", "nticks": 4,
        }  # fmt: skip
        # Names are longer than a panel is high, so they stand above it.
        layout["annotations"].append(
            {"x": 0, "y": top, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom",
             "text": f"{markup(series.name)}{f', {unit}' if unit else ''}", "showarrow": False, "font": {"size": 11}}
        )  # fmt: skip
        steps, values = _thinned(list(series.steps), scaled, group)
        hover = f"{markup(series.name)} %{{y:.4~g}} {unit} ({series.source})<extra>step %{{x:.0f}}</extra>"
        data.append({
            "type": "scatter", "mode": "lines+markers" if len(steps) <= MOST_BARS else "lines", "x": steps, "y": values,
            "yaxis": axis, "name": markup(series.name), "showlegend": False, "hovertemplate": hover,
            "line": {"color": LINE_COLOR, "width": 1.4}, "marker": {"size": 4},
        })  # fmt: skip
        layout["shapes"] += [_mark(series.step_of(change), axis) for change in series.changes]
    return {"data": data, "layout": layout}


def over_time_document(over_time: OverTime | None) -> dict[str, Any]:
    """What changes over time adds to a JSON document; nothing where there is none."""
    if over_time is None:
        return {}
    return {
        "over_time": {
            "series": [_series(series) for series in over_time.series],
            "sentences": list(over_time.sentences),
            **_intervals(over_time),
        }
    }


def _chosen(over_time: OverTime) -> list[Series]:
    moving = [one for one in over_time.series if one.changes or one.drift]
    still = [one for one in over_time.series if one not in moving]
    kept = {id(one) for one in (moving + still)[:MOST_PANELS]}
    return [one for one in over_time.series if id(one) in kept]


def _phase_bars(part: PartSummary, group: int) -> list[Figure]:
    """Every phase's part of its step, so that long and short steps show the same phases."""
    found: list[Figure] = []
    steps = list(range(1, len(part.durations) + 1))
    for index, (name, values) in enumerate(part.phase_steps.items()):
        shares = [100 * value / (whole or 1) for value, whole in zip(values, part.durations, strict=True)]
        places, heights = _thinned(steps, shares, group)
        color = phase_color(name, index)
        shape = (
            {"type": "bar", "marker": {"color": color, "line": {"width": 0}}}
            if len(places) <= MOST_BARS
            else {"type": "scatter", "mode": "none", "stackgroup": "phases", "fillcolor": color}
        )
        hover = f"{markup(name)} %{{y:.3~g}} % of the step (measured)<extra>step %{{x:.0f}}</extra>"
        found.append({**shape, "name": markup(name), "x": places, "y": heights, "hovertemplate": hover})
    return found


def _mark(step: int, axis: str) -> Figure:
    """A line before the first step of the new level, in this quantity's panel."""
    return {"type": "line", "xref": "x", "yref": f"{axis} domain", "x0": step - 0.5, "x1": step - 0.5, "y0": 0, "y1": 1,
            "line": {"color": CHANGE_COLOR, "width": 1.5, "dash": "dash"}}  # fmt: skip


def _scaled(series: Series) -> tuple[str, list[float]]:
    if series.unit.startswith("of "):
        return f"% {series.unit}", [100 * value for value in series.values]
    scale = quantities.common_scale(series.values, series.unit)
    return scale.unit, [value / scale.factor for value in series.values]


def _thinned(places: list[int], values: list[float], group: int) -> tuple[list[float], list[float]]:
    if group == 1:
        return [float(place) for place in places], values
    chunks = [(places[at : at + group], values[at : at + group]) for at in range(0, len(places), group)]
    return [sum(at) / len(at) for at, _ in chunks], [sum(value) / len(value) for _, value in chunks]


def _series(series: Series) -> dict[str, Any]:
    return {
        "name": series.name,
        "unit": series.unit,
        "source": series.source,
        "steps": list(series.steps),
        "values": list(series.values),
        "changes": [_change(series, change) for change in series.changes],
        "drift": None if series.drift is None else {"first": series.drift.first, "last": series.drift.last},
    }


def _change(series: Series, change: Change) -> dict[str, Any]:
    relative = change.relative if math.isfinite(change.relative) else None
    return {"step": series.step_of(change), "before": change.before, "after": change.after, "relative": relative}


def _intervals(over_time: OverTime) -> dict[str, Any]:
    found = over_time.intervals
    if found is None:
        return {}
    return {
        "intervals": {
            "length": {"value": found.length, "unit": "ns", "source": "measured"},
            "starts": list(found.starts),
            "rates": {
                name: {
                    "unit": found.units[name],
                    "source": "derived",
                    "values": [value if math.isfinite(value) else None for value in values],
                }
                for name, values in found.rates.items()
            },
        }
    }
