"""Energy: what a program cost per device, region, epoch, step and phase; terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from sonda.analysis.energy.findings import NoEnergy, UnreadCounter
from sonda.analysis.energy.summary import Beneath, Cost, Device, EnergySummary, Window
from sonda.analysis.summary import Summary, Value
from sonda.record.run import RunInfo
from sonda.report import quantities
from sonda.report.blocks import (
    FEW_ROWS,
    ROWS,
    Advice,
    Aside,
    Bar,
    Bars,
    Block,
    FigureBlock,
    Gap,
    Heading,
    Panel,
    Paragraph,
    Suggestion,
    TableBlock,
    View,
    answer,
    doubts,
    opening,
    paragraphs,
)
from sonda.report.charts.chart import Axis, BarPart, Chart, Mark, Plot, Points, Strip, grouped_bars, stacked_columns
from sonda.report.figures import MOST_STEPS
from sonda.report.palette import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, part_colors
from sonda.report.provenance import lacking_blocks, summary_words
from sonda.report.table import Cell, Column, Table, build, numbers, percents, words
from sonda.report.values import Document, value_document
from sonda.report.views.steps.figure_data import power_table
from sonda.report.words import describe

ALL, USED = "all devices", "devices in use"
MOST_EPOCHS = 12
"""Epochs that a screen lists; `--json` has all."""


def energy_blocks(found: EnergySummary) -> list[Block]:
    """The sentence, the table of devices, regions, what a reader must know."""
    blocks: list[Block] = [Gap(), Paragraph(describe(found.finding), "first")]
    if found.remedy:
        blocks.append(Paragraph(f"Try: {describe(found.remedy)}", hang=5))
    if found.devices:
        blocks += [Gap(), TableBlock(devices_table(found))]
    for rows in (found.regions, _listed_windows(found.windows)):
        if rows:
            blocks += [Gap(), TableBlock(windows_table(rows))]
            note = _spread_words(rows)
            if note:
                blocks.append(Paragraph(note, "quiet"))
    unread = [note for note in found.notes if isinstance(note, UnreadCounter)]
    notes = [note for note in found.notes if note not in unread]
    blocks += [Gap(), *paragraphs(map(describe, found.warnings), "warning"), *paragraphs(map(describe, notes))]
    return [*blocks, Aside(paragraphs(map(describe, unread)))]


def energy_glance(found: EnergySummary, rows: int) -> list[Block]:
    """What was spent, by device or by region."""
    if isinstance(found.finding, NoEnergy):
        # Which sensors there are is no news of this run.
        blocks: list[Block] = [Heading(found.title), Gap(), Paragraph("No energy was read on this machine.", "first")]
        return [*blocks, Advice([Suggestion("sonda doctor says what can be read here and what would help")])]
    spent = [(_device_name(device), device.cost.energy) for device in found.devices]
    spent += [(window.name, window.total) for window in found.regions]
    known = [(name, energy) for name, energy in spent if quantities.known(energy) and energy.value]
    most = max((energy.value or 0.0 for _, energy in known), default=0.0) or 1.0
    bars = [
        Bar(name, (energy.value or 0.0) / most, energy_text(energy), note=energy.source)
        for name, energy in known[:rows]
    ]
    shown: list[Block] = [Gap(), Bars(bars)] if bars else []
    return [*opening(found.title, found.finding, found.remedy), *shown, *doubts(found.warnings)]


def energy_text(value: Value) -> str:
    """`34.3 J`; a guess with its bounds: `34.3 J (19.4 to 50.5 J)`."""
    text = quantities.amount(value.value, "J")
    if not quantities.is_guess(value) or value.low is None or value.high is None:
        return text
    return f"{text} ({quantities.amount(value.low, 'J')} to {quantities.amount(value.high, 'J')})"


def _listed_windows(rows: Sequence[Window]) -> list[Window]:
    epochs = [row for row in rows if row.kind == "epoch"]
    return [*epochs[:MOST_EPOCHS], *(row for row in rows if row.kind != "epoch")]


def devices_table(energy: EnergySummary) -> Table:
    """A row for each device and for the sums; estimates carry `~` and their interval."""
    rows: list[tuple[str, str, Cost, Device | None]] = [
        (_device_name(device), _source_text(device.cost.energy), device.cost, device) for device in energy.devices
    ]
    if len(energy.devices) > 1:
        rows += [(ALL, source, cost, None) for source, cost in energy.all.items()]
        if any(not device.used for device in energy.devices):
            rows += [(USED, source, cost, None) for source, cost in energy.used.items()]
    costs = [cost for _, _, cost, _ in rows]
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("device", right=False), [Cell(name, name, tone="name") for name, _, _, _ in rows])
    ]
    unit, cells = numbers([cost.energy for cost in costs])
    columns.append(
        (
            Column(f"energy, {unit}"),
            [_with_bounds_text(cell, cost.energy) for cell, cost in zip(cells, costs, strict=True)],
        )
    )
    for title, values, keep in (
        ("mean", [cost.power for cost in costs], 8),
        ("idle", [cost.idle for cost in costs], 7),
        ("above idle", [cost.above for cost in costs], 6),
        ("EDP", [cost.product for cost in costs], 8),
    ):
        unit, cells = numbers(values)
        columns.append((Column(f"{title}, {unit}", keep=keep), cells))
    disagreements = [device.disagreement if device is not None else None for _, _, _, device in rows]
    if any(disagreement is not None for disagreement in disagreements):
        blank = Value(None, "1", "derived")
        cells = percents([disagreement or blank for disagreement in disagreements])
        columns.append((Column("power integral off", keep=4, hint="integral of power over the counter, less 1"), cells))
    columns.append((Column("source", right=False, keep=5), words([source for _, source, _, _ in rows])))
    return build(columns, "energy")


def windows_table(rows: Sequence[Window]) -> Table:
    """Regions, epochs, steps, phases: the mean of each, by device; where some stood idle, with and without these."""
    kind = rows[0].kind if len({row.kind for row in rows}) == 1 else "window"
    names = [row.name if kind != "window" else f"{row.kind} {row.name}" for row in rows]
    unit, times = numbers([row.time for row in rows])
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column(kind, right=False), [Cell(name, name, tone="name") for name in names]),
        (Column("times", keep=4), [Cell(f"{row.count:,}", row.count, "windows, counted") for row in rows]),
        (Column(f"each, {unit}", keep=7), times),
    ]
    devices = list(dict.fromkeys(name for row in rows for name in row.devices))
    for name in devices if len(devices) > 1 else ():
        values = [row.devices.get(name, Value(None, "J", "measured")) for row in rows]
        unit, cells = numbers(values)
        columns.append((Column(f"{name}, {unit}", keep=6), _with_bounds(cells, values)))
    totals = [("energy", [row.total for row in rows])]
    if any(row.used != row.total for row in rows):
        totals = [(ALL, [row.total for row in rows]), (USED, [row.used for row in rows])]
    for title, values in totals:
        unit, cells = numbers(values)
        columns.append((Column(f"{title}, {unit}"), _with_bounds(cells, values)))
    return build(columns, "energy by window")


def _spread_words(rows: Sequence[Window]) -> str:
    """What ± stands for in the table of these; '' where it does not occur."""
    values = [value for row in rows for value in (row.total, row.used, *row.devices.values())]
    meanings = dict.fromkeys(
        quantities.ends_words(value) for value in values if quantities.half_width(value) is not None
    )
    return f"± is half of an interval: {', or '.join(meanings)}" if meanings else ""


def _device_name(device: Device) -> str:
    name = f"{device.name} {device.model}".strip()
    return name if device.used else f"{name} (idle)"


def _source_text(value: Value) -> str:
    return value.source if quantities.known(value) else "missing"


def _with_bounds_text(cell: Cell, value: Value) -> Cell:
    """`~420 (252–588)` for an estimate, `≥420` where a counter is not in it; measured, its bounds are in the hint."""
    if value.value is not None and value.reason:
        return replace(cell, text=f"≥{cell.text}", hint=f"{cell.hint}; {value.reason}")
    if value.source != "estimated" or value.value is None or value.low is None or value.high is None:
        return cell
    scale = quantities.own_scale(value.value, "J")
    ends = f"{quantities.number(value.low / scale.factor)}–{quantities.number(value.high / scale.factor)} {scale.unit}"
    return replace(cell, text=f"~{cell.text} ({ends})")


def _with_bounds(cells: Sequence[Cell], values: Sequence[Value]) -> list[Cell]:
    """Half of the interval behind each number, so that nobody takes a short window's for exact."""
    bounded = []
    for cell, value in zip(cells, values, strict=True):
        spread = quantities.half_width(value)
        text = cell.text if spread is None else f"{cell.text} ±{quantities.percent(spread)} %"
        bounded.append(replace(cell, text=text))
    return bounded


# ---- Energy on a page: tables, energy per device, power over time with phases beneath; what is estimated is ---------

HEIGHT, BENEATH = 230, 76
"""px of height of the power, and of the phases beneath."""
LINES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)


def energy_panels(found: EnergySummary, place: str = "") -> list[Block]:
    """The panels of any run's energy; `place` goes before those of their figures."""
    blocks: list[Block] = [answer(found.finding, found.remedy, found.warnings)]
    if found.devices:
        figure = energy_bars(found)
        if figure is not None:
            picture = FigureBlock(figure, f"{place}bars", devices_table(found))
            blocks.append(Panel("Energy by device", [picture], _bars_caption(found), opened=True))
        else:
            blocks.append(Panel("Energy by device", [TableBlock(devices_table(found))]))
    power = power_figure(found)
    if power is not None:
        below = ", what the program did beneath" if found.beneath is not None else ""
        dotted = "; dotted lines are a model's" if any(name in found.estimated for name in found.power) else ""
        caption = f"Mean power between readings{below}{dotted}."
        blocks.append(Panel("Power over time", [FigureBlock(power, f"{place}power", power_table(found))], caption))
    if found.regions:
        blocks.append(Panel("Regions", [TableBlock(windows_table(found.regions))]))
    if found.windows:
        blocks.append(Panel("Energy of epochs, steps and phases", [TableBlock(windows_table(found.windows))]))
    if found.notes:
        blocks.append(Panel("How energy was read", paragraphs(map(describe, found.notes))))
    return blocks


def _bars_caption(energy: EnergySummary) -> str:
    """What the picture and the table show, of what there is."""
    values = [device.cost.energy for device in energy.devices if device.cost.energy.value is not None]
    sentences = (
        ["Hatched: estimated by a model, not measured."] if any(value.source == "estimated" for value in values) else []
    )
    sentences += ["Thin lines are bounds."] if any(_bounds(value) is not None for value in values) else []
    return " ".join([*sentences, "EDP is energy times time."])


def _bounds(value: Value) -> tuple[float, float] | None:
    """None where it has none."""
    return None if value.value is None or value.low is None or value.high is None else (value.low, value.high)


def energy_bars(energy: EnergySummary) -> Chart | None:
    """Energy by device with its bounds, where it has some; a model's is hatched."""
    known = [device for device in energy.devices if device.cost.energy.value is not None]
    if not known:
        return None
    values = [device.cost.energy for device in known]
    part = BarPart(
        "", BLUE, [value.value for value in values],
        [f"{device.name}: {quantities.provenance(device.cost.energy)}" for device in known],
        [value.source == "estimated" for value in values], [_bounds(value) for value in values],
    )  # fmt: skip
    return grouped_bars([device.name for device in known], [part], Axis("energy, J"))


def power_figure(energy: EnergySummary) -> Chart | None:
    """Mean power between readings, and beneath it the phases; time 0 is the program's beginning, before it is idling.

    Models are dotted.
    """
    lines = tuple(
        Points(name, LINES[index % len(LINES)], _thinned(points), "dot" if name in energy.estimated else "solid",
               stepped=True)
        for index, (name, points) in enumerate(energy.power.items()) if points
    )  # fmt: skip
    if not lines:
        return None
    power = Plot(Axis("power, W"), lines, share=HEIGHT)
    below = energy.beneath
    times = [point[0] for line in lines for point in line.points if point is not None]
    ends = [start + below.length for start in below.starts] if below is not None else []
    axis = Axis("s since the program began", ends=(min([0.0, *times]), max([*times, *ends])))
    strips = tuple(_power_strips(energy))
    if below is None:
        return Chart(axis, (power,), HEIGHT, strips, legend=True)
    phases = Plot(Axis(ends=(0, 100)), _phases(below), "% of the time", share=BENEATH)
    return Chart(axis, (power, phases), HEIGHT + BENEATH, strips, legend=True)


def _thinned(readings: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Readings (end, mean power since the one before), of very many the means of neighbours."""
    group = math.ceil(len(readings) / MOST_STEPS)
    if group <= 1:
        return tuple(readings)
    shown = []
    before = 0.0
    for start in range(0, len(readings), group):
        joules, begin = 0.0, before
        for end, watts in readings[start : start + group]:
            joules += watts * (end - before)
            before = end
        shown.append((before, joules / (before - begin) if before > begin else 0.0))
    return tuple(shown)


def _phases(below: Beneath) -> tuple[Mark, ...]:
    edges = [(start, start + below.length) for start in below.starts]
    columns = [
        (name, color, [100 * share for share in shares])
        for color, (name, shares) in zip(part_colors(below.shares), below.shares.items(), strict=True)
    ]
    return stacked_columns(edges, columns)


def _power_strips(energy: EnergySummary) -> Iterator[Strip]:
    """What was read of each device between two readings of any."""
    moments = sorted({time for points in energy.power.values() for time, _ in points})
    group = math.ceil(len(moments) / MOST_STEPS)
    chosen = moments[group - 1 :: group]
    places = dict.fromkeys(energy.power, 0)
    begin = min(0.0, *moments)
    for left, right in pairwise([begin, *(moment for moment in chosen if moment > begin)]):
        lines = [f"until {quantities.number(right)} s"]
        for name, points in energy.power.items():
            while places[name] < len(points) and points[places[name]][0] < right:
                places[name] += 1
            if places[name] < len(points):
                source = "estimated" if name in energy.estimated else "derived"
                lines.append(f"{name} {quantities.number(points[places[name]][1])} W, {source}")
        yield Strip(left, right, "\n".join(lines))


# ---- Energy as plain JSON values: every number with unit and source, a missing one with its reason ------------------


def energy_fields(found: EnergySummary) -> Document:
    """What a document of any run says of energy."""
    return {
        "sentence": describe(found.finding),
        "remedy": describe(found.remedy) if found.remedy else None,
        "duration": value_document(found.time),
        "covers": list(found.covers),
        "not_covered": list(found.not_covered),
        "devices": [_device(device) for device in found.devices],
        "all_devices": {source: _cost(cost) for source, cost in found.all.items()},
        "devices_in_use": {source: _cost(cost) for source, cost in found.used.items()},
        "regions": [_window(window) for window in found.regions],
        "windows": [_window(window) for window in found.windows],
        "warnings": list(map(describe, found.warnings)),
        "notes": list(map(describe, found.notes)),
    }


def _device(device: Device) -> Document:
    return {
        "device": device.name,
        "model": device.model or None,
        "used": device.used,
        **_cost(device.cost),
        "counters": {name: value_document(value) for name, value in device.counters.items()},
        "power_integral": value_document(device.integral) if device.integral is not None else None,
        "disagreement": value_document(device.disagreement) if device.disagreement is not None else None,
        "throttled": dict(device.throttled),
        "states": {name: value_document(value) for name, value in device.states.items()},
    }


def _cost(cost: Cost) -> Document:
    return {
        "energy": value_document(cost.energy),
        "mean_power": value_document(cost.power),
        "idle_power": value_document(cost.idle),
        "above_idle": value_document(cost.above),
        "energy_delay_product": value_document(cost.product),
    }


def _window(window: Window) -> Document:
    return {
        "kind": window.kind,
        "name": window.name,
        "count": window.count,
        "time": value_document(window.time),
        "devices": {name: value_document(value) for name, value in window.devices.items()},
        "energy": value_document(window.total),
        "energy_in_use": value_document(window.used),
    }


class EnergyView(View):
    """The energy of a command; all regions are listed."""

    kind = "energy"

    def __init__(self, found: EnergySummary, summary: Summary | None = None, info: RunInfo | None = None) -> None:
        self.found, self.summary, self.info = found, summary, info
        self.run, self.title = found.run, found.title

    def glance(self, rows: int = FEW_ROWS) -> list[Block]:
        return energy_glance(self.found, rows)

    def tables(self, rows: int = ROWS) -> list[Block]:
        return [Heading(self.title), *energy_blocks(self.found), Gap()]

    def full(self) -> list[Block]:
        lacking = lacking_blocks(self.summary, self.info) if self.summary is not None else []
        return [Heading(self.title, f"run {self.run}"), *energy_panels(self.found), *lacking]

    def words(self, text: str) -> tuple[tuple[str, str], ...]:
        return summary_words(self.summary) if self.summary is not None else ()

    def fields(self) -> Document:
        return energy_fields(self.found)
