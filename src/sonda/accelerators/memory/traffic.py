"""What crosses between the global buffer and the memory behind it, and how long an engine waits for that.

Every operation begins with an empty buffer and leaves its results in memory: what lies between two operations
(activation functions, the interaction of DLRM) runs on the host, which needs them there. With an unlimited buffer, as
without a `[memory]`, nothing crosses and nothing waits.

Traffic. Each operand crosses as often as the engine reads it from the buffer, less what the buffer saves by keeping
(`reuse`); results cross once. It stays: half of the buffer with double buffering, all of it without. So no operand
crosses less than once or more often than the engine reads it. Of an embedding table the rows that bags name cross,
through a buffer that keeps those used last (`lookups`); of a compressed operand its elements, one word each, and of
bags one word for every index. Bitmaps and pointers are not counted, as engines do not count them.

Accesses. The memory moves bursts. A stream of a dense operand lies in it in the order in which it is read and misses
once for every row; a row of a table misses where the access before was to another row of the memory.

Time. The memory is busy for accesses x burst_bytes / bytes_per_cycle + row misses x row_miss_cycles / banks, and once
more latency_cycles whenever the resident part has been filled anew, ceil(read bytes / resident bytes) times. Without
double buffering the engine stands still all that time. With it, the longer of two counts: the memory's time; or the
engine's with the latency, its first operands before it and its last results after it, as far as the memory needs longer
for them than the engine itself. Where an engine starts anew with other weights, these have come meanwhile, but for
what the resident part cannot hold. A stall is what all this takes beyond the engine's own cycles.

All of this is computed for many mappings of an operation, or for many memories, at once: counts may be arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from sonda.accelerators.description.engine import EngineDescription
from sonda.accelerators.engines.registry import blame_package
from sonda.accelerators.engines.result import Count, Result
from sonda.accelerators.memory.hierarchy import Memory, MemoryTraffic, Sizes
from sonda.accelerators.memory.lookups import Fetches
from sonda.accelerators.memory.reuse import Accesses, Crossing, Reuse, crossings
from sonda.accelerators.operations.program import Bags, ConvolutionShape, MatrixProduct, Operation

if TYPE_CHECKING:
    from sonda.accelerators.description.accelerator import Accelerator
    from sonda.accelerators.mapping.placement import OnHost, Placed


NOTHING = Fetches(0, 0, 0, 0)


class Movement(NamedTuple):
    """What an operation moves. Of a memory it depends on the sizes only (buffer, element, burst, row), not on times."""

    reads: Count
    writes: Count
    """Bytes that cross."""
    accesses: Count
    row_misses: Count
    first: Count
    """Bytes that an engine needs before it can begin."""
    last: Count
    """Bytes that it leaves at its end."""
    starts: Count
    cold: Count
    again: Count
    """Rows of a table that come for the first time, and that had left the buffer."""
    written: Count = 0
    """Accesses that write; all others read."""

    def at(self, place: Any) -> Movement:
        """The movement at this place, or at these places, of arrays."""
        return Movement(*(count if np.ndim(count) == 0 else count[place] for count in self))


class Times(Protocol):
    """What of memories decides how long a movement takes: of one, or arrays of many."""

    @property
    def sizes(self) -> Sizes: ...
    @property
    def double_buffering(self) -> Any: ...
    @property
    def bytes_per_cycle(self) -> Any: ...
    @property
    def latency_cycles(self) -> Any: ...
    @property
    def row_miss_cycles(self) -> Any: ...
    @property
    def banks(self) -> Any: ...


def traffic_of(
    engine: EngineDescription,
    shape: MatrixProduct | ConvolutionShape | Bags,
    mapping: dict[str, Any],
    result: Result,
    memory: Memory,
    operation: Operation | None = None,
) -> MemoryTraffic:
    """What an operation moves under this mapping, whose `result` the engine gave, and how long the engine waits for it.

    `operation`, where it is given, tells how many elements of a sparse engine's operands are not zero.
    """
    moved = movement_of(engine, shape, mapping, result, memory.sizes, operation)
    return MemoryTraffic(
        read_bytes=int(moved.reads),
        write_bytes=int(moved.writes),
        row_hits=int(moved.accesses - moved.row_misses),
        row_misses=int(moved.row_misses),
        stall_cycles=int(stalls_of(engine, moved, result.cycles, memory)),
        cold_misses=int(moved.cold),
        capacity_misses=int(moved.again),
        moved_read_bytes=int(moved.accesses - moved.written) * memory.burst_bytes,
        moved_write_bytes=int(moved.written) * memory.burst_bytes,
    )


def movement_of(
    engine: EngineDescription,
    shape: MatrixProduct | ConvolutionShape | Bags,
    mapping: dict[str, Any],
    result: Result | Accesses,
    sizes: Sizes,
    operation: Operation | None = None,
) -> Movement:
    """What an operation moves, as `traffic_of`; the same for memories that differ in their times only.

    Sizes of the mapping and what the engine counts may be arrays, or sizes of memories.
    """
    with blame_package(engine.kind):
        reuse = engine.simulator.reuse(engine, shape, mapping, result, operation)
    crossing, left = crossings(reuse.operands, sizes.resident_bytes // sizes.element_bytes)
    if reuse.table is None:
        return _movement(reuse, crossing, NOTHING, 0, sizes)
    assert isinstance(shape, Bags), "only bags look rows up"
    # Rows of the table have the room that indices and partial sums leave.
    stream, at_once = reuse.table
    parts = np.broadcast_arrays(left * sizes.element_bytes, at_once, *sizes)
    cases, which = np.unique(np.stack([part.ravel() for part in parts]), axis=1, return_inverse=True)
    fetched = np.array(
        [
            stream.fetches(Sizes(*sizes_row), room, shape.columns, columns)
            for room, columns, *sizes_row in cases.T.tolist()
        ]
    )
    fetches = Fetches(*(counts.reshape(parts[0].shape) for counts in fetched[which.ravel()].T))
    # Bags that a bitmap engine takes together share the rows that they share.
    rows = np.minimum((fetches.cold + fetches.again) * shape.columns, result.input_reads)
    return _movement(reuse, crossing, fetches, rows, sizes)


def with_memory(placed: list[Placed | OnHost], accelerator: Accelerator) -> list[Placed | OnHost]:
    """The operations with their traffic; unchanged where the accelerator's buffer is unlimited."""
    # The search for mappings asks for traffic itself, so placement imports this file.
    from sonda.accelerators.mapping.placement import Placed

    memory = accelerator.memory
    if memory is None:
        return placed
    filled: list[Placed | OnHost] = []
    for item in placed:
        if isinstance(item, Placed):
            traffic = traffic_of(item.engine, item.operation.shape, item.mapping, item.result, memory, item.operation)
            item = replace(item, traffic=traffic)
        filled.append(item)
    return filled


def _movement(reuse: Reuse, crossing: list[Crossing], fetches: Fetches, rows: Count, sizes: Sizes) -> Movement:
    """Operands that lie in memory in the order in which they are read or written, and so many elements of a table."""
    reads, writes, accesses, row_misses, written = rows, 0, fetches.accesses, fetches.row_misses, 0
    for operand in (*crossing, Crossing(0, reuse.outputs)):
        for elements in operand:
            size = elements * sizes.element_bytes
            accesses = accesses + -(-size // sizes.burst_bytes)
            row_misses = row_misses + -(-size // sizes.row_bytes)
        reads = reads + operand.reads
        writes = writes + operand.writes
        written = written + -(-operand.writes * sizes.element_bytes // sizes.burst_bytes)
    reads, writes = reads * sizes.element_bytes, writes * sizes.element_bytes
    first = np.minimum(reuse.first * sizes.element_bytes, reads)
    last = np.minimum(reuse.last * sizes.element_bytes, writes)
    return Movement(
        reads, writes, accesses, row_misses, first, last, reuse.starts, fetches.cold, fetches.again, written
    )


def stalls_of(engine: EngineDescription, moved: Movement, cycles: Count, memory: Times) -> Count:
    """Cycles that the engine waits for this movement, beyond the `cycles` of its own.

    More cycles of its own never make cycles and stalls together fewer. So a lower bound of the cycles gives a lower
    bound of both together.
    """
    sizes = memory.sizes
    fillings = -(-moved.reads // sizes.resident_bytes)
    moving = moved.accesses * sizes.burst_bytes / memory.bytes_per_cycle
    moving = moving + moved.row_misses * memory.row_miss_cycles / memory.banks
    busy = fillings * memory.latency_cycles + moving
    ports = engine.hardware.read_ports
    around = np.minimum(fillings, 1) * memory.latency_cycles + _waiting_cycles(moved.first, ports, memory)
    around = around + _waiting_cycles(moved.last, engine.hardware.write_ports, memory)
    beyond = np.maximum(moved.first - sizes.resident_bytes, 0)
    again = (moved.starts - 1) * (beyond > 0) * _waiting_cycles(beyond, ports, memory)
    overlapped = np.maximum(np.minimum(around + again, busy), busy - cycles)
    return np.ceil(np.where(memory.double_buffering, overlapped, busy)).astype(np.int64)


def _waiting_cycles(size: Count, ports: int, memory: Times) -> Any:
    """Cycles for so many bytes that lie together, beyond those in which the engine itself takes or gives them.

    Bytes and rows apart, so that fewer bytes are never waited for longer.
    """
    sizes = memory.sizes
    moving = np.maximum(0.0, size / memory.bytes_per_cycle - size / (sizes.element_bytes * ports))
    return moving + -(-size // sizes.row_bytes) * memory.row_miss_cycles / memory.banks


# ---- Many memories at once, for what moves to and from them and how long engines wait for that ----------------------


class Memories:
    """Several memories as if they were one whose numbers are arrays, an element for each memory."""

    def __init__(self, memories: Sequence[Memory]) -> None:
        self.sizes = Sizes(*np.array([memory.sizes for memory in memories], np.int64).T)
        self.double_buffering = _gather(memories, "double_buffering", np.bool_)
        self.bytes_per_cycle = _gather(memories, "bytes_per_cycle", np.float64)
        self.latency_cycles = _gather(memories, "latency_cycles", np.int64)
        self.row_miss_cycles = _gather(memories, "row_miss_cycles", np.int64)
        self.banks = _gather(memories, "banks", np.int64)


def _gather(memories: Sequence[Memory], name: str, kind: Any) -> Any:
    return np.array([getattr(memory, name) for memory in memories], kind)
