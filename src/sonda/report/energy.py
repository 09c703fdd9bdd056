"""Energy: what a program cost per device, region, epoch, step and phase; terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sonda.analysis.energy_summary import Cost, Device, EnergySummary, Window
from sonda.analysis.summary import Value
from sonda.report import quantities
from sonda.report.screen import Screen
from sonda.report.table import Cell, Column, Table, build, numbers, percents, words

ALL, USED = "all devices", "devices in use"
MOST_EPOCHS = 12
"""Epochs that a screen lists; `--json` has all."""


def render_energy(
    found: EnergySummary, width: int | None = None, *, short: str = "", color: bool | None = None
) -> str:  # fmt: skip
    """One screen; `short` is the id to type."""
    screen = Screen(width, color)
    screen.line(found.title, "bold")
    show_energy(screen, found)
    screen.line()
    screen.saved(short or found.run)
    return screen.text()


def show_energy(screen: Screen, found: EnergySummary) -> None:
    """The sentence, the table of devices, regions, what a reader must know."""
    screen.line()
    screen.line(found.sentence, "bold", 2, 2)
    if found.remedy:
        screen.line(f"Try: {found.remedy}", "", 2, 5)
    if found.devices:
        screen.line()
        screen.table(devices_table(found))
    for rows in (found.regions, _shown(found.windows)):
        if rows:
            screen.line()
            screen.table(windows_table(rows))
            note = _spread_words(rows)
            if note:
                screen.line(note, "dim", 2, 2)
    screen.line()
    for warning in found.warnings:
        screen.line(f"! {warning}", "yellow", 2, 2)
    for note in found.notes:
        screen.line(note, "dim", 2, 2)


def _shown(rows: Sequence[Window]) -> list[Window]:
    epochs = [row for row in rows if row.kind == "epoch"]
    return [*epochs[:MOST_EPOCHS], *(row for row in rows if row.kind != "epoch")]


def devices_table(found: EnergySummary) -> Table:
    """A row for each device and for the sums; estimates carry `~` and their interval."""
    rows: list[tuple[str, str, Cost, Device | None]] = [
        (_device_name(one), _source(one.cost.energy), one.cost, one) for one in found.devices
    ]
    if len(found.devices) > 1:
        rows += [(ALL, source, cost, None) for source, cost in found.all.items()]
        if any(not one.used for one in found.devices):
            rows += [(USED, source, cost, None) for source, cost in found.used.items()]
    costs = [cost for _, _, cost, _ in rows]
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("device", right=False), [Cell(name, name, tone="name") for name, _, _, _ in rows])
    ]
    unit, cells = numbers([one.energy for one in costs])
    columns.append(
        (Column(f"energy, {unit}"), [_bounded(cell, one.energy) for cell, one in zip(cells, costs, strict=True)])
    )
    for title, values, keep in (
        ("mean", [one.power for one in costs], 8),
        ("idle", [one.idle for one in costs], 7),
        ("above idle", [one.above for one in costs], 6),
        ("EDP", [one.product for one in costs], 8),
    ):
        unit, cells = numbers(values)
        columns.append((Column(f"{title}, {unit}", keep=keep), cells))
    integrals = [one.disagreement if one is not None else None for _, _, _, one in rows]
    if any(one is not None for one in integrals):
        blank = Value(None, "1", "derived")
        cells = percents([one or blank for one in integrals])
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
    found = dict.fromkeys(quantities.ends_words(value) for value in values if quantities.half_width(value) is not None)
    return f"± is half of an interval: {', or '.join(found)}" if found else ""


def _device_name(one: Device) -> str:
    name = f"{one.name} {one.model}".strip()
    return name if one.used else f"{name} (idle)"


def _source(value: Value) -> str:
    return value.source if quantities.known(value) else "missing"


def _bounded(cell: Cell, value: Value) -> Cell:
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
    found = []
    for cell, value in zip(cells, values, strict=True):
        spread = quantities.half_width(value)
        text = cell.text if spread is None else f"{cell.text} ±{quantities.percent(spread)} %"
        found.append(replace(cell, text=text))
    return found
