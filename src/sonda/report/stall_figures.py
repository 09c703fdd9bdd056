"""What kernels of a GPU wait for, as a picture: a bar for each kernel, divided by the reasons of its stalls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sonda.analysis.stalls import REASONS, StallRow, kernel_label
from sonda.report import quantities
from sonda.report.figures import Figure
from sonda.report.labels import markup
from sonda.report.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, YELLOW

MOST_KERNELS = 20
COLORS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, YELLOW)
"""Of the reasons that cost most; all others are one grey field."""
OTHERS = "other reasons"


def stall_figure(rows: Sequence[StallRow]) -> Figure | None:
    """The kernels with the most time, most first: shares of the cycles of their warps by reason; None without any."""
    shown = [row for row in sorted(rows, key=lambda row: -row.share) if row.shares][:MOST_KERNELS]
    if not shown:
        return None
    weight: dict[str, float] = defaultdict(float)
    for row in shown:
        for reason, share in row.shares.items():
            weight[reason] += share * row.share
    named = [reason for reason, _ in sorted(weight.items(), key=lambda one: (-one[1], one[0]))[: len(COLORS)]]
    places = list(range(len(shown)))
    labels = [kernel_label(row.name) or "(no name)" for row in shown]
    data = []
    for reason, color in [*zip(named, COLORS, strict=False), (OTHERS, GREY)]:
        parts = [_part(row, reason, named) for row in shown]
        if not any(parts):
            continue
        data.append({
            "type": "bar", "orientation": "h", "name": markup(reason), "y": places, "x": [100 * one for one in parts],
            "marker": {"color": color},
            "hovertext": [f"<b>{markup(label)}</b><br>{markup(reason)}: {quantities.percent(one, 1)} % of the cycles "
                          f"of its warps, counted{_meant(reason)}" for label, one in zip(labels, parts, strict=True)],
            "hoverinfo": "text",
        })  # fmt: skip
    layout = {
        "barmode": "stack",
        "xaxis": {"title": {"text": "% of the cycles of its warps"}, "rangemode": "tozero"},
        "yaxis": {"tickvals": places, "ticktext": [markup(one) for one in labels], "autorange": "reversed",
                  "automargin": True},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "showlegend": True,
        "height": 130 + 24 * max(3, len(shown)),
    }  # fmt: skip
    return {"data": data, "layout": layout}


def reasons_meant(rows: Sequence[StallRow]) -> dict[str, str]:
    """What warps wait for, of every reason that a row has, in words."""
    names = dict.fromkeys(reason for row in rows for reason in row.shares)
    return {name: f"warps wait {REASONS[name].meaning}" for name in names if name in REASONS}


def _meant(reason: str) -> str:
    """What the warps do in these cycles, in a line below."""
    return f"<br>they wait {markup(REASONS[reason].meaning)}" if reason in REASONS else ""


def _part(row: StallRow, reason: str, named: Sequence[str]) -> float:
    """The share of one reason, or of all that are not named."""
    if reason != OTHERS:
        return row.shares.get(reason, 0.0)
    return sum(share for one, share in row.shares.items() if one not in named)
