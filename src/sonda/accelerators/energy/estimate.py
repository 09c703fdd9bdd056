"""Energy and area of what a simulation counted, with the uncertainty of the table they come from.

Energy is the sum over operations of count x energy, plus, for every instance of a component, its static energy in every
cycle. What a table has no entry for is listed as missing and counted nowhere: it is not 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sonda.accelerators.energy.table import (
    AREA,
    PATTERNS,
    STATIC,
    EnergyTable,
    Entry,
    Prices,
    dram_presets,
    load_energy_table,
)
from sonda.accelerators.engines.result import INSTANCES, Counters
from sonda.record.errors import SondaError, nearest

KINDS = ("static", "dynamic", "area")


class Figure(NamedTuple):
    """An amount and the bounds within which it is thought to lie."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class SectionEnergy:
    """Energy and area of one section of the machine; None where the table has no entry for any of it."""

    static: Figure | None
    dynamic: Figure | None
    area: Figure | None


@dataclass(frozen=True)
class Energy:
    """Energy and area of one result. Bounds suppose that all entries err together, so they are the widest."""

    table: str
    unit: str
    """Of every energy; `not stated` for STONNE's table."""
    area_unit: str
    sections: dict[str, SectionEnergy]
    static: Figure | None
    dynamic: Figure | None
    area: Figure | None
    total: Figure | None
    """Static and dynamic."""
    missing: tuple[str, ...]
    """What was counted or is there, but has no entry: `COMPONENT OPERATION`, sometimes with a reason."""
    recalled: tuple[str, ...]
    """Entries used that nobody has verified."""
    implausible: str
    """Why the table is not to be believed, where it is not."""


def energy_of(
    counters: Counters,
    cycles: int,
    table: EnergyTable | str,
    *,
    clock_hz: float | None = None,
    buffer_bytes: int | None = None,
) -> Energy:
    """Energy and area of the counters of a result that took so many cycles.

    `clock_hz` is needed for static energy where the table gives powers; without it that energy is missing.
    `buffer_bytes` is the size of the global buffer, else the table's own.
    """
    if isinstance(table, str):
        table = load_energy_table(table)
    bill = _Bill(table, cycles, clock_hz, buffer_bytes)
    sections = {}
    for section, components in counters.items():
        for component, operations in components.items():
            bill.charge(section, component, operations)
        sections[section] = SectionEnergy(*(_sum(bill.items[section, kind]) for kind in KINDS))
    static, dynamic, area = (_sum(bill.all_of(kind)) for kind in KINDS)
    return Energy(
        table=table.name,
        unit=table.unit,
        area_unit=table.area_unit,
        sections=sections,
        static=static,
        dynamic=dynamic,
        area=area,
        total=_sum([*bill.all_of("static"), *bill.all_of("dynamic")]),
        missing=tuple(bill.prices.missing),
        recalled=tuple(bill.prices.recalled),
        implausible=table.implausible,
    )


def dram_energy(preset: str, bits: int, row_hits: float | None = None) -> Figure:
    """Energy in pJ of moving so many bits to or from this memory.

    `row_hits` is the part of the accesses, 0 to 1, that finds its row open. Where it is known, a memory that has an
    energy for random accesses (none does) and one for streams (all do) takes its share of both.
    """
    if bits < 0:
        raise SondaError(f"{bits} bits cannot be moved", "give 0 or more")
    figures = [_figure(entry, bits) for entry in dram_entries(preset, row_hits is not None)]
    if len(figures) == 1 or row_hits is None:
        return figures[0]
    random, stream = figures
    return Figure(*(row_hits * hit + (1 - row_hits) * miss for hit, miss in zip(stream, random, strict=True)))


def dram_entries(preset: str, rows: bool = True) -> list[Entry]:
    """Energies per bit of a memory: for random accesses and for streams where it has both and `rows` are told apart."""
    presets = dram_presets()
    patterned = [f"{preset}{pattern}" for pattern in PATTERNS]
    if rows and all(name in presets for name in patterned):
        return [presets[name] for name in patterned]
    if preset not in presets:
        raise SondaError(f"memory {preset!r} is unknown", nearest(preset, presets))
    return [presets[preset]]


class _Bill:
    """What is charged, item by item, so that sums are rounded once."""

    def __init__(self, table: EnergyTable, cycles: int, clock_hz: float | None, buffer_bytes: int | None) -> None:
        self._cycles = cycles
        self._buffer_bytes = buffer_bytes
        self.prices = Prices(table, clock_hz)
        self.items: dict[tuple[str, str], list[Figure]] = {}

    def charge(self, section: str, component: str, operations: dict[str, int]) -> None:
        static, dynamic, area = (self.items.setdefault((section, kind), []) for kind in KINDS)
        instances = operations.get(INSTANCES, 0)
        if instances:
            self._add(static, component, STATIC, instances * self._cycles)
            self._add(area, component, AREA, instances)
        for operation, count in operations.items():
            if count and operation != INSTANCES:
                self._add(dynamic, component, operation, count)

    def all_of(self, kind: str) -> list[Figure]:
        return [item for (_, item_kind), items in self.items.items() if item_kind == kind for item in items]

    def _add(self, items: list[Figure], component: str, operation: str, count: int) -> None:
        price = self.prices.find(component, operation, self._buffer_bytes)
        if price is not None:
            entry, factor = price
            items.append(_figure(entry, count * factor))


def _figure(entry: Entry, amount: float) -> Figure:
    value = entry.value * amount
    return Figure(value, value / entry.uncertainty, value * entry.uncertainty)


def _sum(items: Iterable[Figure]) -> Figure | None:
    figures = list(items)
    if not figures:
        return None
    return Figure(*map(math.fsum, zip(*figures, strict=True)))
