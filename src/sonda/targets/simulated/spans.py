"""Spans of a simulated step: the same shape as a measured one, with cycles in place of a clock's time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sonda.accelerators.energy.estimate import Figure
from sonda.accelerators.mapping.placement import OnHost, Placed
from sonda.accelerators.operations.program import ModelProgram
from sonda.record.quantities import CYCLE_STACK
from sonda.record.spans import Spans, Words


def spans_of(
    program: ModelProgram,
    placed: Sequence[Placed | OnHost],
    clock_hz: float | None,
    energies: Sequence[Figure | None] = (),
) -> Spans:
    """Spans of a simulated step: run, part, step, phases, calls of modules, and operations one after the other.

    Metrics of a span are sums over the operations inside it; they are missing where none of these ran on an engine.
    Times are cycles divided by the clock; without a clock all times are 0. `energies` are in J, one for each operation.
    A span has no energy where any operation inside has none.
    """
    return _Writer(program, placed, clock_hz, energies or [None] * len(placed)).spans()


class _Writer:
    def __init__(
        self,
        program: ModelProgram,
        placed: Sequence[Placed | OnHost],
        clock_hz: float | None,
        energies: Sequence[Figure | None],
    ) -> None:
        self.program = program
        self.placed = placed
        self.energies = energies
        self.ns = 1e9 / clock_hz if clock_hz else 0.0
        self.rows: list[dict[str, Any]] = []
        self.metrics: dict[str, dict[int, float]] = {}
        self.begins: dict[int, int] = {}
        """First cycle of a row."""
        self.ends: dict[int, int] = {}

    def spans(self) -> Spans:
        run = self._add("run", "run", -1)
        part = self._add("part", "test", run)
        self.step = self._add("step", "test", part)
        self.phases: dict[str, int] = {}
        self.call_rows: list[int] = []
        calls, cycle = self.program.calls, 0
        work = zip(self.placed, self.program.phases, self.energies, strict=True)
        for index, (where, phase, energy) in enumerate(work):
            self._add_calls_until(index, cycle)
            cycle = self._add_operation(where, phase, energy, cycle)
        self._add_calls_until(len(self.placed), cycle)
        for (caller, name), count in self.program.others.items():
            around = self.call_rows[caller] if caller >= 0 else self._phase("forward")
            row = self._add("op", name, around, path=calls[caller].path if caller >= 0 else "", clock="host")
            self._add_to_metric("operations:counted", row, count)
        return self._table()

    def _add_calls_until(self, operations: int, cycle: int) -> None:
        """Add the calls that began before the operation with this number."""
        calls = self.program.calls
        while len(self.call_rows) < len(calls) and calls[len(self.call_rows)].first <= operations:
            call = calls[len(self.call_rows)]
            around = self.call_rows[call.caller] if call.caller >= 0 else self._phase(call.phase)
            row = self._add("layer", call.name, around, path=call.path, call=call.number, direction="forward")
            self.begins[row] = self.ends[row] = cycle
            self.call_rows.append(row)

    def _phase(self, name: str) -> int:
        if name not in self.phases:
            self.phases[name] = self._add("phase", name, self.step)
        return self.phases[name]

    def _add_operation(self, where: Placed | OnHost, phase: str, energy: Figure | None, cycle: int) -> int:
        """Add an operation that begins in this cycle; returns the cycle after its last."""
        operation = where.operation
        caller = operation.caller
        around = self.call_rows[caller] if caller >= 0 else self._phase(phase)
        path = self.program.path(operation)
        if isinstance(where, OnHost):
            row = self._add("op", operation.name, around, path=path, clock="host")
            self._add_to_metric("operations:counted", row, 1)
            self._add_to_metric("flops:nominal", row, operation.shape.flops)
            return cycle
        row = self._add("op", operation.name, around, path=path, device=f"sim/{where.engine.name}")
        values = _operation_metrics(where, energy)
        inside = row
        while inside >= 0:
            for quantity, value in values.items():
                self._add_to_metric(f"{quantity}:simulated", inside, value)
            self._add_to_metric("flops:nominal", inside, operation.shape.flops)
            self.begins[inside] = min(self.begins.get(inside, cycle), cycle)
            self.ends[inside] = cycle + where.cycles
            inside = self.rows[inside]["parent"]
        return cycle + where.cycles

    def _add_to_metric(self, column: str, row: int, value: float) -> None:
        values = self.metrics.setdefault(column, {})
        values[row] = values.get(row, 0.0) + value

    def _add(self, kind: str, name: str, parent: int, **words: Any) -> int:
        self.rows.append({"kind": kind, "name": name, "parent": parent, **words})
        return len(self.rows) - 1

    def _table(self) -> Spans:
        rows = self.rows
        starts = np.array([self.begins.get(row, 0) for row in range(len(rows))], dtype=np.float64)
        ends = np.array([self.ends.get(row, 0) for row in range(len(rows))], dtype=np.float64)
        metrics = {}
        for column, values in self.metrics.items():
            metrics[column] = np.full(len(rows), np.nan)
            metrics[column][list(values)] = list(values.values())
        start = np.round(starts * self.ns).astype(np.int64)
        return Spans(
            {
                "start": start,
                "duration": np.round(ends * self.ns).astype(np.int64) - start,
                "parent": np.array([row["parent"] for row in rows]),
                "call": np.array([row.get("call", 0) for row in rows]),
            },
            {
                "kind": Words.of(row["kind"] for row in rows),
                "name": Words.of(row["name"] for row in rows),
                "path": Words.of(row.get("path", "") for row in rows),
                "direction": Words.of(row.get("direction", "") for row in rows),
                "device": Words.of(row.get("device", "cpu" if row.get("clock") == "host" else "sim") for row in rows),
                "clock": Words.of(row.get("clock", "simulated") for row in rows),
            },
            metrics,
        )


def _operation_metrics(placed: Placed, energy: Figure | None) -> dict[str, float]:
    """Metrics that an operation on an engine adds to every span around it; NaN makes a sum missing."""
    result, traffic = placed.result, placed.traffic
    values: dict[str, float] = {
        "cycles": placed.cycles,
        **{f"{part}_cycles": result.stack.get(part, 0) for part in CYCLE_STACK},
        "buffer_reads": result.reads,
        "buffer_writes": result.writes,
        "multiplications": placed.products,
        "multiplier_cycles": placed.cycles * placed.engine.elements,
        "energy": energy.value if energy else math.nan,
        "energy_low": energy.low if energy else math.nan,
        "energy_high": energy.high if energy else math.nan,
    }
    if traffic is not None:
        values |= {
            "memory_cycles": traffic.stall_cycles,
            "dram_read_bytes": traffic.moved_read_bytes,
            "dram_write_bytes": traffic.moved_write_bytes,
            "dram_wanted_bytes": traffic.read_bytes + traffic.write_bytes,
            "row_hits": traffic.row_hits,
            "row_misses": traffic.row_misses,
            "cold_misses": traffic.cold_misses,
            "capacity_misses": traffic.capacity_misses,
        }
    return values
