"""Energy and area of what a simulation counted, with the uncertainty of the table they come from.

Energy is the sum over operations of count x energy, plus, for every instance of a component, its static energy in every
cycle. What a table has no entry for is listed as missing and counted nowhere: it is not 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sonda.accelerators.energy_table import AREA, POWER, STATIC, EnergyTable, Entry, dram_presets, load_energy_table
from sonda.accelerators.mistake import nearest
from sonda.accelerators.result import Counters
from sonda.record.errors import SondaError

INSTANCES = "entries"
JOULES = {"fJ": 1e-15, "pJ": 1e-12, "nJ": 1e-9, "uJ": 1e-6, "µJ": 1e-6, "mJ": 1e-3, "J": 1.0}
"""Units of energy that a table may state, in joules."""
PATTERNS = ("-random", "-stream")
"""Ends of the names of energies that depend on where accesses go."""
SQUARE_MILLIMETRES = {"um2": 1e-6, "µm2": 1e-6, "mm2": 1.0}
"""Units of area."""


class Figure(NamedTuple):
    """An amount and the bounds within which it is thought to lie."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Part:
    """Of one section of the machine; nothing where the table has no entry for any of it."""

    static: Figure | None
    dynamic: Figure | None
    area: Figure | None


@dataclass(frozen=True)
class Energy:
    """Of one result. Bounds suppose that all entries err together, so they are the widest."""

    table: str
    unit: str
    """Of every energy; `not stated` for STONNE's table."""
    area_unit: str
    sections: dict[str, Part]
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
        sections[section] = Part(*(_sum(bill.items[section, kind]) for kind in KINDS))
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
        missing=tuple(bill.missing),
        recalled=tuple(bill.recalled),
        implausible=table.implausible,
    )


def dram_energy(preset: str, bits: int, row_hits: float | None = None) -> Figure:
    """Energy in pJ of moving so many bits to or from this memory.

    `row_hits` is the part of the accesses, 0 to 1, that finds its row open. Where it is known, a memory that has an
    energy for random accesses (none does) and one for streams (all do) takes its share of both.
    """
    if bits < 0:
        raise SondaError(f"{bits} bits cannot be moved", "give 0 or more")
    found = [_figure(entry, bits) for entry in dram_entries(preset, row_hits is not None)]
    if len(found) == 1 or row_hits is None:
        return found[0]
    random, stream = found
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


KINDS = ("static", "dynamic", "area")


class _Bill:
    """What is charged, item by item, so that sums are rounded once."""

    def __init__(self, table: EnergyTable, cycles: int, clock_hz: float | None, buffer_bytes: int | None) -> None:
        self._table = table
        self._cycles = cycles
        self._clock_hz = clock_hz
        self._buffer_bytes = buffer_bytes
        self.items: dict[tuple[str, str], list[Figure]] = {}
        self.missing: dict[str, None] = {}
        self.recalled: dict[str, None] = {}

    def charge(self, section: str, component: str, operations: dict[str, int]) -> None:
        lists = [self.items.setdefault((section, kind), []) for kind in KINDS]
        static, dynamic, area = lists
        instances = operations.get(INSTANCES, 0)
        for kind, operation in ((static, STATIC), (area, AREA)):
            entry = self._entry(component, operation) if instances else None
            amount = None if entry is None else self._per_instance(entry)
            if entry is not None and amount is not None:
                kind.append(_figure(entry, instances * amount))
        for operation, count in operations.items():
            entry = self._entry(component, operation) if count and operation != INSTANCES else None
            if entry is not None:
                dynamic.append(_figure(entry, count))

    def all_of(self, kind: str) -> list[Figure]:
        return [item for (_, other), items in self.items.items() if other == kind for item in items]

    def _entry(self, component: str, operation: str) -> Entry | None:
        entry = self._table.find(component, operation, self._buffer_bytes)
        if entry is None:
            self.missing[f"{component} {operation}"] = None
        elif entry.status == "recalled":
            self.recalled[f"{component} {operation}"] = None
        return entry

    def _per_instance(self, entry: Entry) -> float | None:
        """By what the value is multiplied for one instance; nothing where that needs a clock."""
        if entry.operation == AREA:
            return 1
        if entry.unit != POWER:
            return self._cycles
        if self._clock_hz is None or self._table.unit not in JOULES:
            lacking = "a clock" if self._clock_hz is None else "the unit of the table's energies"
            self.missing[f"{entry.component} {STATIC} (needs {lacking})"] = None
            return None
        # 1 mW is 1e-3 J in a second.
        return self._cycles / self._clock_hz * 1e-3 / JOULES[self._table.unit]


def _figure(entry: Entry, amount: float) -> Figure:
    value = entry.value * amount
    return Figure(value, value / entry.uncertainty, value * entry.uncertainty)


def _sum(items: Iterable[Figure]) -> Figure | None:
    kept = list(items)
    if not kept:
        return None
    return Figure(*map(math.fsum, zip(*kept, strict=True)))
