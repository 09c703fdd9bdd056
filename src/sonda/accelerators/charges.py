"""What an energy table charges, as columns that the counts of many designs are multiplied by at once.

The same numbers as `energy_of` gives for one design; there, what is charged can be looked at part by part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.energy import JOULES, SQUARE_MILLIMETRES, dram_energy, dram_entries
from sonda.accelerators.energy_table import AREA, POWER, STATIC, EnergyTable, Entry
from sonda.accelerators.memory import Memory

Numbers = NDArray[np.float64]
FIGURES = 3
"""Value, low and high: the columns of every charge."""


class Charges:
    """Of one table at one clock. What the table has no entry for is charged 0 and named in `missing`."""

    def __init__(self, table: EnergyTable, clock_hz: float | None) -> None:
        self._table = table
        self._clock_hz = clock_hz
        self._joules = JOULES.get(table.unit)
        self._area = SQUARE_MILLIMETRES.get(table.area_unit)
        self.unit = "J" if self._joules is not None else table.unit
        self.area_unit = "mm2" if self._area is not None else table.area_unit
        self._accesses: dict[tuple[str, int], tuple[Numbers, Numbers]] = {}
        self.missing: dict[str, None] = {}
        self.recalled: dict[str, None] = {}

    def dynamic(self, keys: Sequence[tuple[str, str]], buffer_bytes: int | None) -> Numbers:
        """Energy of each (component, operation), once."""
        scale = 1.0 if self._joules is None else self._joules
        return _rows([self._priced(key, buffer_bytes, lambda entry: scale) for key in keys])

    def static(self, components: Sequence[str], buffer_bytes: int | None) -> Numbers:
        """Energy of an instance of each component in one cycle."""
        return _rows([self._priced((one, STATIC), buffer_bytes, self._in_a_cycle) for one in components])

    def area(self, components: Sequence[str], buffer_bytes: int | None) -> Numbers:
        """Area of an instance of each component."""
        scale = 1.0 if self._area is None else self._area
        return _rows([self._priced((one, AREA), buffer_bytes, lambda entry: scale) for one in components])

    def memory(self, memory: Memory) -> tuple[Numbers, Numbers] | None:
        """Energy of an access that finds its row open and of one that does not; nothing where it is not known."""
        if not memory.dram or self._joules is None:
            why = "the description names no dram" if not memory.dram else "needs the unit of the table's energies"
            self.missing[f"DRAM ({why})"] = None
            return None
        key = (memory.dram, memory.burst_bytes)
        if key not in self._accesses:
            # An access moves a whole burst, also where less of it is wanted.
            open_row, closed_row = (
                np.array(dram_energy(memory.dram, 8 * memory.burst_bytes, hits)) * JOULES["pJ"] for hits in (1.0, 0.0)
            )
            if any(entry.status == "recalled" for entry in dram_entries(memory.dram)):
                self.recalled[f"DRAM {memory.dram}"] = None
            self._accesses[key] = open_row, closed_row
        return self._accesses[key]

    def _priced(
        self, key: tuple[str, str], buffer_bytes: int | None, scale: Callable[[Entry], float | None]
    ) -> list[float] | None:
        component, operation = key
        entry = self._table.find(component, operation, buffer_bytes)
        if entry is None:
            self.missing[f"{component} {operation}"] = None
            return None
        factor = scale(entry)
        if factor is None:
            return None
        if entry.status == "recalled":
            self.recalled[f"{component} {operation}"] = None
        value = entry.value * factor
        return [value, value / entry.uncertainty, value * entry.uncertainty]

    def _in_a_cycle(self, entry: Entry) -> float | None:
        """By what a static entry is multiplied for one cycle; powers need a clock."""
        scale = 1.0 if self._joules is None else self._joules
        if entry.unit != POWER:
            return scale
        if self._clock_hz is None or self._joules is None:
            lacking = "a clock" if self._clock_hz is None else "the unit of the table's energies"
            self.missing[f"{entry.component} {STATIC} (needs {lacking})"] = None
            return None
        return 1e-3 / self._clock_hz


def charged(counts: Numbers, charges: Numbers) -> Numbers:
    """Designs x figures: the counts (designs x keys) by their charges; NaN for a design with nothing that is known."""
    known = ~np.isnan(charges[:, 0])
    sums: Numbers = counts[:, known] @ charges[known]
    sums[~(counts[:, known] != 0).any(axis=1)] = np.nan
    return sums


def added(some: Numbers, more: Numbers) -> Numbers:
    """The sum of what is known; NaN where neither is."""
    return np.where(np.isnan(some), more, np.where(np.isnan(more), some, some + more))


def _rows(charges: list[list[float] | None]) -> Numbers:
    """A row for each; NaN marks none, so that a sum over nothing known can be told from 0."""
    return np.array([[np.nan] * FIGURES if one is None else one for one in charges]).reshape(-1, FIGURES)
