"""What an energy table charges at one clock, entry by entry, in the table's own units."""

from __future__ import annotations

from sonda.accelerators.energy_table import JOULES, POWER, STATIC, EnergyTable, Entry


class Prices:
    """Looks entries up and notes what the table lacks, and which of the entries used nobody has verified."""

    def __init__(self, table: EnergyTable, clock_hz: float | None) -> None:
        self._table = table
        self._clock_hz = clock_hz
        self.missing: dict[str, None] = {}
        """`COMPONENT OPERATION`, sometimes with a reason, in the order met; so the next."""
        self.recalled: dict[str, None] = {}

    def find(self, component: str, operation: str, buffer_bytes: int | None) -> tuple[Entry, float] | None:
        """An entry, and by what its value is multiplied to be charged once: per operation, per instance for AREA, per
        instance and cycle for STATIC. Nothing where the table has none, or where a power needs a clock."""
        entry = self._table.find(component, operation, buffer_bytes)
        if entry is None:
            self.missing[f"{component} {operation}"] = None
            return None
        factor = self._in_a_cycle(entry) if operation == STATIC else 1.0
        if factor is None:
            return None
        if entry.status == "recalled":
            self.recalled[f"{component} {operation}"] = None
        return entry, factor

    def _in_a_cycle(self, entry: Entry) -> float | None:
        if entry.unit != POWER:
            return 1.0
        joules = JOULES.get(self._table.unit)
        if self._clock_hz is None or joules is None:
            lacking = "a clock" if self._clock_hz is None else "the unit of the table's energies"
            self.missing[f"{entry.component} {STATIC} (needs {lacking})"] = None
            return None
        # 1 mW is 1e-3 J in a second.
        return 1e-3 / self._clock_hz / joules
