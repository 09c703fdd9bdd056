"""Energy on a page: tables, energy per device, power over time with phases beneath; what is estimated is hatched."""

from __future__ import annotations

from sonda.analysis.energy_summary import Beneath, EnergySummary
from sonda.analysis.summary import Value
from sonda.report import quantities
from sonda.report.behind import power_table
from sonda.report.energy import devices_table, windows_table
from sonda.report.figures import Figure, phase_color
from sonda.report.labels import markup
from sonda.report.markup import answer_panel, panel, place_figure, table_html
from sonda.report.palette import BLUE, GREEN, HATCH, ORANGE, PURPLE, SKY, VERMILION

HEIGHT = 320
BENEATH = 0.24
"""Of the figure of power, for the phases."""
LINES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)


def energy_panels(found: EnergySummary, place: str) -> tuple[str, tuple[Figure, ...]]:
    """The panels of any run's energy, and their figures."""
    notes = "".join(f'<p class="soft small">{markup(one)}</p>' for one in found.notes)
    pieces = [answer_panel(found.sentence, found.remedy, found.warnings)]
    drawn: list[Figure] = []
    if found.devices:
        figure = bars(found)
        html = place_figure(figure, f"{place}bars", drawn, "") if figure is not None else ""
        pieces.append(
            panel("Energy by device", html + table_html(devices_table(found), "sortable"), _bars_caption(found))
        )
    power = power_figure(found)
    if power is not None:
        below = ", what the program did beneath" if found.beneath is not None else ""
        dotted = "; dotted lines are a model's" if any(name in found.estimated for name in found.power) else ""
        html = place_figure(power, f"{place}power", drawn, "", power_table(found))
        pieces.append(panel("Power over time", html, f"Mean power between readings{below}{dotted}."))
    if found.regions:
        pieces.append(panel("Regions", table_html(windows_table(found.regions), "sortable")))
    if found.windows:
        pieces.append(panel("Energy of epochs, steps and phases", table_html(windows_table(found.windows), "sortable")))
    if found.notes:
        pieces.append(panel("How energy was read", notes))
    return "\n".join(pieces), tuple(drawn)


def _bars_caption(found: EnergySummary) -> str:
    """What the picture and the table show, of what there is."""
    values = [one.cost.energy for one in found.devices if one.cost.energy.value is not None]
    said = ["Hatched: estimated by a model, not measured."] if any(one.source == "estimated" for one in values) else []
    said += ["Thin lines are bounds."] if any(_reach(one) != (None, None) for one in values) else []
    return " ".join([*said, "EDP is energy times time."])


def _reach(value: Value) -> tuple[float | None, float | None]:
    """How far its bounds lie below and above it; None where it has none."""
    if value.value is None or value.low is None or value.high is None:
        return None, None
    return value.value - value.low, value.high - value.value


def bars(found: EnergySummary) -> Figure | None:
    """Energy by device with its bounds, where it has some; a model's is hatched."""
    known = [one for one in found.devices if one.cost.energy.value is not None]
    if not known:
        return None
    values = [one.cost.energy for one in known]
    places = list(range(len(known)))
    below, above = zip(*(_reach(value) for value in values), strict=True)
    trace = {
        "type": "bar", "orientation": "h", "y": places,
        "x": [value.value for value in values],
        "error_x": {"type": "data", "symmetric": False, "array": list(above), "arrayminus": list(below)},
        "marker": {"color": BLUE,
                   "pattern": {**HATCH, "shape": ["/" if value.source == "estimated" else "" for value in values]}},
        "hovertext": [f"{markup(one.name)}: {markup(quantities.provenance(one.cost.energy))}" for one in known],
        "hoverinfo": "text",
    }  # fmt: skip
    layout = {
        "height": 90 + 46 * len(known),
        "xaxis": {"title": {"text": "energy, J"}, "rangemode": "tozero"},
        "yaxis": {"tickvals": places, "ticktext": [markup(one.name) for one in known], "autorange": "reversed",
                  "automargin": True},
    }  # fmt: skip
    return {"data": [trace], "layout": layout}


def power_figure(found: EnergySummary) -> Figure | None:
    """Mean power between readings, and beneath it the phases; time 0 is the program's beginning, before it is idling.

    Models are dotted.
    """
    lines: list[Figure] = [
        {
            "type": "scatter", "mode": "lines", "name": markup(name), "x": [time for time, _ in points],
            "y": [watts for _, watts in points],
            "line": {"shape": "vh", "dash": "dot" if name in found.estimated else "solid",
                     "color": LINES[index % len(LINES)]},
            "hovertemplate": f"{markup(name)} %{{y:.4~g}} W ({'estimated' if name in found.estimated else 'derived'})"
                             "<extra>until %{x:.4~g} s</extra>",
        }
        for index, (name, points) in enumerate(found.power.items()) if points
    ]  # fmt: skip
    if not lines:
        return None
    below = found.beneath
    layout: Figure = {
        "height": HEIGHT + (110 if below is not None else 0),
        "xaxis": {"title": {"text": "s since the program began"}},
        "yaxis": {"title": {"text": "power, W"}, "rangemode": "tozero"},
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
    }
    if below is None:
        return {"data": lines, "layout": layout}
    layout["yaxis"]["domain"] = [BENEATH + 0.06, 1]
    layout["yaxis2"] = {"domain": [0, BENEATH], "title": {"text": "% of time"}, "range": [0, 100]}
    layout["xaxis"]["anchor"] = "y2"
    layout |= {"barmode": "stack", "bargap": 0}
    return {"data": [*lines, *_phases(below)], "layout": layout}


def _phases(below: Beneath) -> list[Figure]:
    middles = [start + below.length / 2 for start in below.starts]
    return [
        {
            "type": "bar", "name": markup(name), "x": middles, "y": [100 * share for share in shares], "yaxis": "y2",
            "width": below.length, "marker": {"color": phase_color(name, index), "line": {"width": 0}},
            "hovertemplate": f"{markup(name)} %{{y:.3~g}} % of the time (derived)<extra>%{{x:.4~g}} s</extra>",
        }
        for index, (name, shares) in enumerate(below.shares.items())
    ]  # fmt: skip
