"""What many designs of one engine cost, each with many memories behind it: arrays of designs x memories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.description.accelerator import Accelerator
from sonda.accelerators.description.engine import EngineDescription
from sonda.accelerators.designs.work import DesignWork, EngineWork, WorkTraffic
from sonda.accelerators.energy.area import engine_areas
from sonda.accelerators.energy.charges import FIGURES, Charges, add_known, charge_counts
from sonda.accelerators.mapping.placement import SEARCHED
from sonda.accelerators.memory.hierarchy import Memory
from sonda.record.errors import SondaError

Numbers = NDArray[np.float64]
Whole = NDArray[np.int64]
NOTHING = DesignWork(None, lambda: (), 0, {}, {})


@dataclass(frozen=True)
class Costs:
    """Designs x memories; 1 instead of the number of memories where they do not matter."""

    cycles: Whole
    """Cycles of the engine, without waiting for memory."""
    stalls: Whole
    dram_bytes: Whole
    energy: Numbers
    """Figures x designs x memories, stalls and memory included; NaN where it is not known."""
    area: Numbers
    """Figures x designs x 1, without the buffer."""
    errors: list[list[SondaError | None]]
    """Why a design cannot run the program."""


def costs_of(
    work: EngineWork,
    accelerator: Accelerator,
    engines: Sequence[EngineDescription | SondaError],
    memories: Sequence[Memory | SondaError | None],
    mapping: str,
    charges: Charges,
) -> Costs:
    """All designs of an engine with all memories. Where a design or a memory is an error itself, its costs are 0."""
    buffers = [memory if isinstance(memory, Memory) else None for memory in memories]
    searched = buffers if mapping == SEARCHED else buffers[:1]
    outcomes = [
        [NOTHING if isinstance(engine, SondaError) else work.work_on(accelerator, engine, mapping, memory)
         for memory in searched]
        for engine in engines
    ]  # fmt: skip
    errors = [[outcome if isinstance(outcome, SondaError) else None for outcome in row] for row in outcomes]
    works = [[NOTHING if isinstance(outcome, SondaError) else outcome for outcome in row] for row in outcomes]
    cycles = np.array([[design_work.cycles for design_work in row] for row in works], np.int64)
    moved = _works_traffic(work, works, buffers)
    area = engine_areas([row[0].instances for row in works], charges)
    energy = _energy(works, buffers, cycles + moved.stall_cycles, charges) + _memory_energy(buffers, moved, charges)
    return Costs(cycles, moved.stall_cycles, moved.bytes, energy, area.T[:, :, None], errors)


def _works_traffic(work: EngineWork, works: list[list[DesignWork]], memories: Sequence[Memory | None]) -> WorkTraffic:
    """Designs x memories; nothing moves where the buffer is unlimited."""
    totals = WorkTraffic(*np.zeros((4, len(works), len(memories)), np.int64))
    finite = [(place, memory) for place, memory in enumerate(memories) if memory is not None]
    for design, row in enumerate(works):
        # A searched mapping is one for each memory, any other the same for all.
        batches = [finite] if len(row) == 1 else [[pair] for pair in finite]
        for batch in batches:
            if not batch:
                continue
            places = [place for place, _ in batch]
            moved = work.work_traffic(row[min(places[0], len(row) - 1)], [memory for _, memory in batch])
            for name in ("bytes", "row_hits", "row_misses", "stall_cycles"):
                getattr(totals, name)[design, places] = getattr(moved, name)
    return totals


def _memory_energy(memories: Sequence[Memory | None], moved: WorkTraffic, charges: Charges) -> Numbers:
    """Figures x designs x memories: of the memory behind the buffer, 0 where that is not known."""
    accesses = np.zeros((2, FIGURES, len(memories)))
    for place, memory in enumerate(memories):
        known = None if memory is None else charges.memory(memory)
        if known is not None:
            accesses[0, :, place], accesses[1, :, place] = known
    spent: Numbers = accesses[0, :, None] * moved.row_hits + accesses[1, :, None] * moved.row_misses
    return spent


def _energy(
    works: list[list[DesignWork]], memories: Sequence[Memory | None], cycles: Whole, charges: Charges
) -> Numbers:
    """Figures x designs x memories, without the memory. NaN for a buffer that the table does not know."""
    energy = np.full((FIGURES, *cycles.shape), np.nan)
    keys = list(dict.fromkeys(key for row in works for design_work in row for key in design_work.counts))
    components = list(dict.fromkeys(key for row in works for design_work in row for key in design_work.instances))
    counts = _table([[design_work.counts for design_work in row] for row in works], keys)
    instances = _table([[design_work.instances for design_work in row] for row in works], components)
    known: dict[Any, tuple[Numbers, Numbers] | None] = {}
    for place, memory in enumerate(memories):
        column = min(place, counts.shape[1] - 1)
        size = memory.buffer_bytes if memory else None
        if (size, column) not in known:
            try:
                known[size, column] = (
                    charge_counts(counts[:, column], charges.dynamic(keys, size)),
                    charge_counts(instances[:, column], charges.static(components, size)),
                )
            except SondaError:
                known[size, column] = None
        priced = known[size, column]
        if priced is None:
            continue
        dynamic, static = priced
        energy[:, :, place] = add_known(dynamic, static * cycles[:, place, None]).T
    return energy


def _table(rows: list[list[dict[Any, int]]], keys: list[Any]) -> Numbers:
    """Counts as designs x memories x keys."""
    place = {key: index for index, key in enumerate(keys)}
    table = np.zeros((len(rows), len(rows[0]), len(keys)))
    for design, row in enumerate(rows):
        for memory, counts in enumerate(row):
            for key, count in counts.items():
                table[design, memory, place[key]] = count
    return table
