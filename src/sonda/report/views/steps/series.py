"""Over time: quantities step by step with their changes marked and the phases beneath, as text, figure and values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sonda.analysis.change_points import Change
from sonda.analysis.counters.summary import OverTime, Series, is_share
from sonda.analysis.summary import PartSummary
from sonda.report import quantities
from sonda.report.blocks import Block, paragraphs
from sonda.report.charts.chart import Axis, Chart, Guide, Mark, Place, Plot, Strip, stacked_columns
from sonda.report.charts.chart import Points as Curve
from sonda.report.figures import MOST_BARS, MOST_STEPS, group_steps, means, step_words
from sonda.report.palette import BLUE, VERMILION, part_colors
from sonda.report.values import Document, finite, number_document, plain_data
from sonda.report.words import describe

MOST_PANELS = 6
"""Quantities that one figure has room for; all are in `sonda show --json`."""
PANEL = 76
"""px of height of each quantity, and of the phases beneath."""
FEW_MARKS = 60
"""Up to so many points are marked."""
LINE_COLOR, CHANGE_COLOR = BLUE, VERMILION


def over_time_blocks(part: PartSummary) -> list[Block]:
    """The changes of a part, a line each; nothing where nothing changes."""
    findings = part.over_time.findings if part.over_time is not None else ()
    return [*paragraphs(map(describe, findings), "remark")]


def over_time_figure(part: PartSummary) -> Chart | None:
    """A field for each quantity over the same steps, changes as upright lines, phases beneath; None without steps.

    Quantities that change come first. Beyond 800 steps means of neighbouring steps are drawn, said in the axis title.
    """
    if part.over_time is None or not part.over_time.series:
        return None
    count = len(part.durations)
    shares = {
        name: [100 * value / (whole or 1) for value, whole in zip(values, part.durations, strict=True)]
        for name, values in part.phase_steps.items()
    }
    axis = Axis("step", ends=(0.5, count + 0.5), whole=True)
    edges = [(step - 0.5, step + 0.5) for step in range(1, count + 1)]
    return panels(part.over_time.series, shares, edges, axis, "step")


def panels(
    series: Sequence[Series], shares: Mapping[str, Sequence[float]], edges: Sequence[Place], axis: Axis, noun: str,
) -> Chart:  # fmt: skip
    """A field for each of some series over the same steps or intervals, `shares` of phases in % beneath.

    `edges` are where each of them begins and ends on the axis, `noun` what it is.
    """
    chosen = _chosen(series)
    group = math.ceil(len(edges) / MOST_STEPS)
    stretches = group_steps(len(edges), group)
    places = [(edges[first - 1][0], edges[last - 1][1]) for first, last in stretches]
    lines: list[list[str]] = [[step_words(stretch, noun)] for stretch in stretches]
    fields = [_field(quantity, edges, stretches, places, lines) for quantity in chosen]
    columns = [
        (name, color, means(values, group))
        for color, (name, values) in zip(part_colors(shares), shares.items(), strict=True)
    ]
    for name, _, heights in columns:
        for told, height in zip(lines, heights, strict=True):
            told += [f"{name} {quantities.rounded(height, 1)} % of the {noun}, derived"] if height else []
    if columns:
        phases = stacked_columns(places, columns, len(places) > MOST_BARS)
        fields.append(Plot(Axis(ends=(0, 100)), phases, f"phases, % of the {noun}"))
    title = axis.title if group == 1 else f"{axis.title} (means of {group} neighbours)"
    strips = [Strip(*place, "\n".join(told)) for place, told in zip(places, lines, strict=True)]
    return Chart(replace(axis, title=title), tuple(fields), PANEL * len(fields), tuple(strips), legend=bool(shares))


def _field(
    quantity: Series, edges: Sequence[Place], stretches: Sequence[tuple[int, int]], places: Sequence[Place],
    lines: Sequence[list[str]],
) -> Plot:  # fmt: skip
    """A quantity over steps; what it was is added to the `lines` of each stretch."""
    unit, scaled = _scaled(quantity)
    values = dict(zip(quantity.steps, scaled, strict=True))
    points: list[Place] = []
    for (first, last), (left, right), told in zip(stretches, places, lines, strict=True):
        known = [values[step] for step in range(first, last + 1) if step in values]
        if known:
            mean = sum(known) / len(known)
            points.append(((left + right) / 2, mean))
            told.append(f"{quantity.name} {quantities.number(mean)} {unit}".rstrip() + f", {quantity.source}")
    curve = Curve(
        "", LINE_COLOR, tuple(points), "dot" if quantity.source == "estimated" else "solid", 1.6,
        symbols=("circle",) if len(points) <= FEW_MARKS else (), sizes=(4,),
    )  # fmt: skip
    rules: list[Mark] = [
        Guide(edges[quantity.step_of(change) - 1][0], "", CHANGE_COLOR, "dash") for change in quantity.changes
    ]
    whole = all(value == int(value) for value in scaled if math.isfinite(value))
    return Plot(Axis(whole=whole), (*rules, curve), f"{quantity.name}{f', {unit}' if unit else ''}")


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


def _scaled(series: Series) -> tuple[str, list[float]]:
    if is_share(series.unit):
        return f"% {series.unit}", [100 * value for value in series.values]
    scale = quantities.common_scale(series.values, series.unit)
    return scale.unit, [value / scale.factor for value in series.values]


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
