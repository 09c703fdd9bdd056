"""What the operations of a program spend: energy in joules, and the area of the machine they ran on.

Everything keeps the bounds of the table that it comes from, and what the table has no entry for is said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.description.accelerator import Accelerator
from sonda.accelerators.energy.area import buffer_area, engine_areas, instances_of
from sonda.accelerators.energy.charges import Charges
from sonda.accelerators.energy.estimate import Energy, Figure, dram_energy, dram_entries, energy_of
from sonda.accelerators.energy.table import AREA, JOULES, SQUARE_MILLIMETRES, load_energy_table
from sonda.accelerators.engines.result import Result
from sonda.accelerators.mapping.placement import Placed
from sonda.accelerators.memory.hierarchy import MemoryTraffic
from sonda.record.errors import SondaError

DRAM = "DRAM"
BYTE = 8
"""Bits."""
PICOJOULE = JOULES["pJ"]
MM2 = "mm2"
NOTHING_RAN = "nothing ran on an engine"


class Spending:
    """Charges placed operations, one after the other, by the energy table of their accelerator."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._table = load_energy_table(accelerator.energy_table)
        self._joules = JOULES.get(self._table.unit)
        self.reason = ""
        """Why there is no energy in joules; '' where there is."""
        if self._joules is None:
            self.reason = f"the energy table {self._table.name} has no unit of energy ({self._table.unit})"
        self._known: dict[tuple[int, MemoryTraffic | None], tuple[Result, Energy, Figure | None]] = {}
        self._parts: dict[str, list[Figure]] = {}
        self._missing: dict[str, None] = {}
        self._recalled: dict[str, None] = {}
        self._engines: dict[str, dict[str, int]] = {}
        """Instances of components of the engines that worked."""
        self._uncounted: dict[str, str] = {}
        """Engines that worked without counters, and their kinds."""

    def charge(self, placed: Placed) -> Figure | None:
        """The energy of this operation in J, stalls and memory included.

        Nothing where `reason` or `record` says why.
        """
        key = (id(placed.result), placed.traffic)
        if key not in self._known:
            energy = self._energy(placed)
            if energy is None:
                return None
            # The result is kept too, so that its identity is not given to another.
            self._known[key] = (placed.result, energy, self._memory(placed.traffic))
        _, energy, memory = self._known[key]
        engine = placed.engine
        if not placed.result.counters:
            self._uncounted[engine.name] = engine.kind
        elif engine.name not in self._engines:
            self._engines[engine.name] = instances_of(placed.result.counters)
        self._missing |= dict.fromkeys(energy.missing)
        self._recalled |= dict.fromkeys(energy.recalled)
        for section, part in energy.sections.items():
            self._parts.setdefault(section, []).extend(
                figure for figure in (part.static, part.dynamic) if figure is not None
            )
        if memory is not None:
            self._parts.setdefault(DRAM, []).append(memory)
        if self._joules is None or energy.total is None:
            return None
        spent = _scale_figure(energy.total, self._joules)
        return spent if memory is None else _sum_figures([spent, _scale_figure(memory, self._joules)])

    def record(self) -> dict[str, Any]:
        """What all operations so far spent, by section of the machine, for `run.json`."""
        table, memory = self._table, self._accelerator.memory
        unit, factor = ("J", self._joules) if self._joules is not None else (table.unit, 1.0)
        parts = {name: _scale_figure(_sum_figures(figures), factor) for name, figures in self._parts.items() if figures}
        buffer = memory.buffer_bytes if memory else table.buffer_bytes
        return {
            "table": table.name,
            "nodes": list(dict.fromkeys(entry.node for entry in table.entries)),
            "notes": list(table.notes),
            "implausible": table.implausible,
            "reason": self.reason or ("" if parts else self._explain_no_energy()),
            "unit": unit,
            "parts": {name: figure._asdict() for name, figure in parts.items()},
            "total": _sum_figures(list(parts.values()))._asdict() if parts else None,
            "missing": [
                *(name for name in self._missing if not name.endswith(AREA)),
                *(f"{name} (kind {kind} gives no counters)" for name, kind in self._uncounted.items()),
            ],
            "recalled": [name for name in self._recalled if not name.endswith(AREA)],
            "buffer_bytes": buffer,
            "buffer_assumed": memory is None and buffer is not None,
            "dram": memory.dram if memory else "",
        }

    def areas(self) -> dict[str, Any]:
        """Areas in mm2 for `run.json`: every engine without a buffer, the shared global buffer, and all together.

        An area that is not known has its reason.
        """
        memory = self._accelerator.memory
        size = memory.buffer_bytes if memory else None
        engines = {name: self._engine_area(name) for name in self._accelerator.engines}
        unknown = self._no_area(_explain_no_counters(self._uncounted.values()) if self._uncounted else "")
        buffer = self._area(lambda charges: buffer_area(size, charges)) if self._engines else unknown
        known = [area for area in (*engines.values(), buffer) if area["value"] is not None]
        together = unknown
        if known and self._engines:
            total = _sum_figures([Figure(area["value"], area["low"], area["high"]) for area in known])
            together = {**total._asdict(), "unit": MM2}
        return {"engines": engines, "global_buffer": buffer, "together": together}

    def _explain_no_energy(self) -> str:
        if self._uncounted:
            return _explain_no_counters(self._uncounted.values())
        if self._engines:
            return f"the energy table {self._table.name} has no entry for anything that the engines count"
        return NOTHING_RAN

    def _engine_area(self, name: str) -> dict[str, Any]:
        if name in self._uncounted:
            return self._no_area(_explain_no_counters([self._uncounted[name]]))
        instances = self._engines.get(name)
        if instances is None:
            return self._no_area("")
        return self._area(lambda charges: engine_areas([instances], charges)[0])

    def _area(self, compute_figures: Callable[[Charges], NDArray[np.float64]]) -> dict[str, Any]:
        charges = Charges(self._table, self._accelerator.clock_hz)
        figure = Figure(*compute_figures(charges).tolist())
        if charges.area_unit != MM2 or math.isnan(figure.value):
            return self._no_area(f"the energy table {self._table.name} has no area for it")
        lacking, recalled = (
            [name.removesuffix(f" {AREA}") for name in names] for names in (charges.missing, charges.recalled)
        )
        return {**figure._asdict(), "unit": MM2, "missing": lacking, "recalled": recalled}

    def _no_area(self, reason: str) -> dict[str, Any]:
        if self._table.area_unit not in SQUARE_MILLIMETRES:
            reason = f"the energy table {self._table.name} has no unit of area ({self._table.area_unit})"
        return {"value": None, "unit": MM2, "reason": reason or self.reason or "nothing ran on it"}

    def _energy(self, placed: Placed) -> Energy | None:
        memory = self._accelerator.memory
        try:
            return energy_of(
                placed.result.counters,
                placed.cycles,
                self._table,
                clock_hz=self._accelerator.clock_hz,
                buffer_bytes=memory.buffer_bytes if memory else None,
            )
        except SondaError as error:
            self.reason = error.cause
            return None

    def _memory(self, traffic: MemoryTraffic | None) -> Figure | None:
        """Energy of the memory in the table's unit; nothing where its energy per bit is not known."""
        memory = self._accelerator.memory
        if memory is None or traffic is None:
            return None
        if not memory.dram or self._joules is None:
            why = "the description names no dram" if not memory.dram else "needs the unit of the table's energies"
            self._missing[f"{DRAM} ({why})"] = None
            return None
        if any(entry.status == "recalled" for entry in dram_entries(memory.dram)):
            self._recalled[f"{DRAM} {memory.dram}"] = None
        # An access moves a whole burst, also where less of it is wanted.
        accesses = traffic.row_hits + traffic.row_misses
        bits = BYTE * memory.burst_bytes * accesses
        spent = dram_energy(memory.dram, bits, traffic.row_hits / accesses if accesses else 1.0)
        return _scale_figure(spent, PICOJOULE / self._joules)


def _explain_no_counters(kinds: Iterable[str]) -> str:
    names = ", ".join(dict.fromkeys(kinds))
    return f"engines of kind {names} give no counters; their author must fill in Result.counters"


def _scale_figure(figure: Figure, factor: float) -> Figure:
    return Figure(*(factor * value for value in figure))


def _sum_figures(figures: list[Figure]) -> Figure:
    return Figure(*map(math.fsum, zip(*figures, strict=True)))
