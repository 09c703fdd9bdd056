"""How long an engine waits for memories that differ in their times only: many operations, many memories, all at once.

The same formula as `behind.stalls_of`, which says what it means, with the same steps in the same order, so that no
cycle is rounded differently.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.behind import Movement
from sonda.accelerators.engine_description import EngineDescription
from sonda.accelerators.memory import Memory

Whole = NDArray[np.int64]
Numbers = NDArray[np.float64]


def stalls_of_many(
    engine: EngineDescription, movements: Sequence[Movement], cycles: Whole, memories: Sequence[Memory]
) -> Whole:
    """Operations x memories, in cycles. The memories must agree in buffer, element, burst, row and double buffering."""
    like = memories[0]
    times = _Times(memories)
    reads, accesses, misses = _column(
        [(one.moved.reads, one.moved.accesses, one.moved.row_misses) for one in movements]
    )
    first, last, starts = _column([(one.first, one.last, one.starts) for one in movements])
    fillings = -(-reads // like.resident_bytes)
    busy = fillings * times.latency + times.transfer(accesses, misses)
    stalls = busy
    if like.double_buffering:
        ports = engine.hardware.read_ports
        around = np.minimum(fillings, 1) * times.latency + times.waited(first, ports)
        around = around + times.waited(last, engine.hardware.write_ports)
        again = (starts > 1) & (first > like.resident_bytes)
        beyond = np.maximum(first - like.resident_bytes, 0)
        around = np.where(again, around + (starts - 1) * times.waited(beyond, ports), around)
        stalls = np.maximum(np.minimum(around, busy), busy - cycles[:, None])
    return np.ceil(stalls).astype(np.int64)


class _Times:
    """Of memories with the same sizes, as a row each."""

    def __init__(self, memories: Sequence[Memory]) -> None:
        self._like = memories[0]
        self._bytes_per_cycle = np.array([one.bytes_per_cycle for one in memories], np.float64)
        self._row_miss = np.array([one.row_miss_cycles for one in memories], np.int64)
        self._banks = np.array([one.banks for one in memories], np.int64)
        self.latency = np.array([one.latency_cycles for one in memories], np.int64)

    def transfer(self, accesses: Whole, row_misses: Whole) -> Numbers:
        moving = accesses * self._like.burst_bytes / self._bytes_per_cycle
        found: Numbers = moving + row_misses * self._row_miss / self._banks
        return found

    def waited(self, size: Whole, ports: int) -> Numbers:
        moving = np.maximum(0.0, size / self._bytes_per_cycle - size / (self._like.element_bytes * ports))
        found: Numbers = moving + -(-size // self._like.row_bytes) * self._row_miss / self._banks
        return found


def _column(rows: list[tuple[int, int, int]]) -> tuple[Whole, Whole, Whole]:
    first, second, third = np.array(rows, np.int64).reshape(-1, 3).T[:, :, None]
    return first, second, third
