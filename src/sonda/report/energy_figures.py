"""Energy on a page: panels with tables, power over time, energy per device; what is estimated is hatched."""

from __future__ import annotations

from sonda.analysis.energy_summary import EnergySummary
from sonda.report.energy import devices_table, windows_table
from sonda.report.figures import Figure
from sonda.report.labels import markup
from sonda.report.markup import panel, table_html

HEIGHT = 320


def energy_panels(found: EnergySummary, place: str) -> tuple[str, tuple[Figure, ...]]:
    """The panels of any run's energy, and their figures."""
    warnings = "".join(f'<p class="warning">{markup(one)}</p>' for one in found.warnings)
    notes = "".join(f'<p class="soft small">{markup(one)}</p>' for one in found.notes)
    pieces = [f'<div class="panel verdict"><p class="first">{markup(found.sentence)}</p>{warnings}</div>']
    drawn: list[Figure] = []
    for name, figure in (("bars", bars(found)), ("power", power_figure(found))):
        if figure is not None:
            drawn.append({"place": f"{place}{name}", **figure})
            title = "Energy by device" if name == "bars" else "Power over time"
            pieces.append(panel(title, f'<div class="figure" id="{place}{name}" style="min-height:{HEIGHT}px"></div>'))
    if found.devices:
        pieces.append(panel("Devices", table_html(devices_table(found), "sortable")))
    if found.regions:
        pieces.append(panel("Regions", table_html(windows_table(found.regions), "sortable")))
    if found.windows:
        pieces.append(panel("Epochs, steps and phases", table_html(windows_table(found.windows), "sortable")))
    pieces.append(panel("Notes", notes))
    return "\n".join(pieces), tuple(drawn)


def bars(found: EnergySummary) -> Figure | None:
    """Energy by device with its bounds; a model's is hatched."""
    known = [one for one in found.devices if one.cost.energy.value is not None]
    if not known:
        return None
    values = [one.cost.energy for one in known]
    trace = {
        "type": "bar",
        "x": [markup(one.name) for one in known],
        "y": [value.value for value in values],
        "error_y": {
            "type": "data", "symmetric": False,
            "array": [(value.high or value.value or 0.0) - (value.value or 0.0) for value in values],
            "arrayminus": [(value.value or 0.0) - (value.low or 0.0) for value in values],
        },
        "marker": {"pattern": {"shape": ["/" if value.source == "estimated" else "" for value in values]}},
        "hovertext": [f"{markup(one.name)}: {one.cost.energy.value:,.3g} J, {one.cost.energy.source}" for one in known],
        "hoverinfo": "text",
    }  # fmt: skip
    return {"data": [trace], "layout": {"height": HEIGHT, "yaxis": {"title": {"text": "J"}, "rangemode": "tozero"}}}


def power_figure(found: EnergySummary) -> Figure | None:
    """Mean power between readings; time 0 is the program's beginning, before it is idling. Models are dotted."""
    lines = [
        {
            "type": "scatter", "mode": "lines", "name": markup(name), "x": [time for time, _ in points],
            "y": [watts for _, watts in points],
            "line": {"shape": "vh", "dash": "dot" if name in found.estimated else "solid"},
        }
        for name, points in found.power.items() if points
    ]  # fmt: skip
    if not lines:
        return None
    layout = {
        "height": HEIGHT, "xaxis": {"title": {"text": "s since the program began"}},
        "yaxis": {"title": {"text": "W"}, "rangemode": "tozero"},
    }  # fmt: skip
    return {"data": lines, "layout": layout}
