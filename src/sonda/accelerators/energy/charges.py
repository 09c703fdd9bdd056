"""What an energy table charges, as columns that the counts of many designs are multiplied by at once.

The same numbers as `energy_of` gives for one design; there, what is charged can be looked at part by part.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.energy.estimate import dram_energy, dram_entries
from sonda.accelerators.energy.table import AREA, JOULES, SQUARE_MILLIMETRES, STATIC, EnergyTable, Prices
from sonda.accelerators.memory.hierarchy import Memory

Numbers = NDArray[np.float64]
FIGURES = 3
"""Value, low and high: the columns of every charge."""


class Charges:
    """Charges of one table at one clock. What the table has no entry for is charged 0 and named in `missing`."""

    def __init__(self, table: EnergyTable, clock_hz: float | None) -> None:
        self._prices = Prices(table, clock_hz)
        self.missing, self.recalled = self._prices.missing, self._prices.recalled
        self._joules = JOULES.get(table.unit)
        self._area = SQUARE_MILLIMETRES.get(table.area_unit)
        self.unit = "J" if self._joules is not None else table.unit
        self.area_unit = "mm2" if self._area is not None else table.area_unit
        self._accesses: dict[tuple[str, int], tuple[Numbers, Numbers]] = {}

    def dynamic(self, keys: Sequence[tuple[str, str]], buffer_bytes: int | None) -> Numbers:
        """Energy of each (component, operation), once."""
        return self._price_rows(keys, buffer_bytes, self._joules)

    def static(self, components: Sequence[str], buffer_bytes: int | None) -> Numbers:
        """Energy of an instance of each component in one cycle."""
        return self._price_rows([(component, STATIC) for component in components], buffer_bytes, self._joules)

    def area(self, components: Sequence[str], buffer_bytes: int | None) -> Numbers:
        """Area of an instance of each component."""
        return self._price_rows([(component, AREA) for component in components], buffer_bytes, self._area)

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

    def _price_rows(self, keys: Sequence[tuple[str, str]], buffer_bytes: int | None, unit: float | None) -> Numbers:
        """Figures of each key, a row each. NaN marks a key without an entry, so that an unknown sum differs from 0."""
        rows = []
        for component, operation in keys:
            price = self._prices.find(component, operation, buffer_bytes)
            if price is None:
                rows.append([np.nan] * FIGURES)
                continue
            entry, factor = price
            value = entry.value * factor * (1.0 if unit is None else unit)
            rows.append([value, value / entry.uncertainty, value * entry.uncertainty])
        return np.array(rows).reshape(-1, FIGURES)


def charge_counts(counts: Numbers, charges: Numbers) -> Numbers:
    """Counts (designs x keys) times charges, as designs x figures; NaN for a design of which nothing is known."""
    known = ~np.isnan(charges[:, 0])
    # Key by key: a product of matrices adds up in another order for few designs than for many, on some processors.
    sums: Numbers = np.zeros((len(counts), charges.shape[1]))
    for key in np.flatnonzero(known):
        sums += counts[:, key, None] * charges[key]
    sums[~(counts[:, known] != 0).any(axis=1)] = np.nan
    return sums


def add_known(some: Numbers, more: Numbers) -> Numbers:
    """The sum where both are known, the known one where only one is; NaN where neither is."""
    return np.where(np.isnan(some), more, np.where(np.isnan(more), some, some + more))
