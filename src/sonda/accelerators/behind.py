"""What crosses between the global buffer and the memory behind it, and how long an engine waits for that.

Every operation begins with an empty buffer and leaves its results in memory: what lies between two operations
(activation functions, the interaction of DLRM) runs on the host, which needs them there. With an unlimited buffer, as
without a `[memory]`, nothing crosses and nothing waits.

Traffic. Each operand crosses as often as the engine reads it from the buffer, less what the buffer saves by keeping
(`reuse`); results cross once. It stays: half of the buffer with double buffering, all of it without. So no operand
crosses less than once or more often than the engine reads it. Of an embedding table the rows that bags name cross,
through a buffer that keeps those used last (`row_stream`); of a compressed operand its elements, one word each, and of
bags one word for every index. Bitmaps and pointers are not counted, as engines do not count them.

Accesses. The memory moves bursts. A stream of a dense operand lies in it in the order in which it is read and misses
once for every row; a row of a table misses where the access before was to another row of the memory.

Time. The memory is busy for accesses x burst_bytes / bytes_per_cycle + row misses x row_miss_cycles / banks, and once
more latency_cycles whenever the resident part has been filled anew, ceil(read bytes / resident bytes) times. Without
double buffering the engine stands still all that time. With it, the longer of two counts: the memory's time; or the
engine's with the latency, its first operands before it and its last results after it, as far as the memory needs longer
for them than the engine itself. Where an engine starts anew with other weights, these have come meanwhile, but for
what the resident part cannot hold. A stall is what all this takes beyond the engine's own cycles.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sonda.accelerators.engine_description import EngineDescription
from sonda.accelerators.memory import Memory, Traffic
from sonda.accelerators.operation import Bags, Convolution, MatrixProduct, Operation
from sonda.accelerators.result import Result
from sonda.accelerators.reuse import (
    STATIONARY_ROWS,
    Crossing,
    Operand,
    Reuse,
    crossings,
    finished,
    merged_sums,
    partial_sums,
    rereading,
    reuse_of,
)
from sonda.accelerators.row_stream import Fetches, row_stream

if TYPE_CHECKING:
    from sonda.accelerators.description import Accelerator
    from sonda.accelerators.placement import OnHost, Placed

NOTHING = Fetches(0, 0, 0, 0)


class _Moved(NamedTuple):
    """Bytes that cross, and the accesses that they take."""

    reads: int
    writes: int
    accesses: int
    row_misses: int


class Movement(NamedTuple):
    """What an operation moves. Of a memory it depends on the sizes only (buffer, element, burst, row), not on times."""

    moved: _Moved
    first: int
    """Bytes that an engine needs before it can begin."""
    last: int
    """Bytes that it leaves at its end."""
    starts: int
    fetches: Fetches


def traffic_of(
    engine: EngineDescription,
    shape: MatrixProduct | Convolution | Bags,
    mapping: dict[str, Any],
    result: Result,
    memory: Memory,
    operation: Operation | None = None,
) -> Traffic:
    """What an operation moves under this mapping, whose `result` the engine gave, and how long the engine waits for it.

    `operation`, where it is given, tells how many elements of a sparse engine's operands are not zero.
    """
    movement = movement_of(engine, shape, mapping, result, memory, operation)
    moved = movement.moved
    return Traffic(
        read_bytes=moved.reads,
        write_bytes=moved.writes,
        row_hits=moved.accesses - moved.row_misses,
        row_misses=moved.row_misses,
        stall_cycles=stalls_of(engine, movement, result, memory),
        cold_misses=movement.fetches.cold,
        capacity_misses=movement.fetches.again,
    )


def movement_of(
    engine: EngineDescription,
    shape: MatrixProduct | Convolution | Bags,
    mapping: dict[str, Any],
    result: Result,
    memory: Memory,
    operation: Operation | None = None,
) -> Movement:
    """What an operation moves, as `traffic_of`; the same for memories that differ in their times only."""
    if isinstance(shape, Bags):
        return _movement_of_bags(engine, shape, mapping, result, memory)
    reuse = reuse_of(engine, shape, mapping, result, operation)
    crossing, _ = crossings(reuse.operands, memory.resident_bytes // memory.element_bytes)
    return _movement(reuse, _streamed(crossing, reuse.outputs, memory), NOTHING, memory)


def with_memory(placed: list[Placed | OnHost], accelerator: Accelerator) -> list[Placed | OnHost]:
    """The same operations with their traffic; as they are where the accelerator's buffer is unlimited."""
    # The search for mappings asks for traffic itself, so placement imports this file.
    from sonda.accelerators.placement import Placed

    memory = accelerator.memory
    if memory is None:
        return placed
    filled: list[Placed | OnHost] = []
    for one in placed:
        if isinstance(one, Placed):
            operation = one.operation
            found = traffic_of(one.engine, operation.shape, one.mapping, one.result, memory, operation)
            one = replace(one, traffic=found)
        filled.append(one)
    return filled


def _movement_of_bags(
    engine: EngineDescription, bags: Bags, mapping: dict[str, Any], result: Result, memory: Memory
) -> Movement:
    reuse, at_once = _reuse_of_bags(engine, bags, mapping, result)
    crossing, left = crossings(reuse.operands, memory.resident_bytes // memory.element_bytes)
    moved = _streamed(crossing, reuse.outputs, memory)
    if not at_once:
        return _movement(reuse, moved, NOTHING, memory)
    # Rows of the table have the room that indices and partial sums leave.
    fetches = row_stream(engine, bags).fetches(memory, left * memory.element_bytes, bags.columns, at_once)
    # Bags that a bitmap engine takes together share the rows that they share.
    rows = min((fetches.cold + fetches.again) * bags.columns, result.input_reads)
    moved = _Moved(
        moved.reads + rows * memory.element_bytes,
        moved.writes,
        moved.accesses + fetches.accesses,
        moved.row_misses + fetches.row_misses,
    )
    return _movement(reuse, moved, fetches, memory)


def _reuse_of_bags(engine: EngineDescription, bags: Bags, mapping: dict[str, Any], result: Result) -> tuple[Reuse, int]:
    """All but the table, and the columns of it that are taken at a time; 0 where the whole table is an operand."""
    multipliers = engine.hardware.multipliers
    outputs = len(bags.sizes) * bags.columns
    indices = Operand(result.weight_reads)
    first = 1 + bags.columns
    if engine.kind == "compressed_row":
        return Reuse((indices,), outputs, first, mapping["T_N"]), mapping["T_N"]
    if engine.kind == "bitmap_sparse":
        more = max(0, result.writes - outputs)
        outputs = min(outputs, result.writes)
        if mapping["dataflow"] == STATIONARY_ROWS:
            sums = partial_sums(result.psum_reads, more, bags.columns)
            return Reuse((indices, sums), outputs, first, multipliers), 1
        entries = min(result.input_reads, bags.distinct.nonzeros)
        streams = rereading(result.input_reads, (max(1, entries), entries))
        sums = partial_sums(result.psum_reads, more, len(bags.sizes))
        return Reuse((indices, streams, sums), outputs, 2 * multipliers, multipliers), 0
    waiting = result.writes
    if engine.kind == "gustavson":
        waiting = -(-int(bags.sizes.max()) // multipliers) * bags.columns
    sums = merged_sums(engine, result, waiting)
    return Reuse((indices, sums), finished(engine, result), first, multipliers), bags.columns


def _streamed(crossing: list[Crossing], outputs: int, memory: Memory) -> _Moved:
    """Operands that lie in memory in the order in which they are read or written."""
    reads = writes = accesses = row_misses = 0
    for one in (*crossing, Crossing(0, outputs)):
        for elements in one:
            size = elements * memory.element_bytes
            accesses += -(-size // memory.burst_bytes)
            row_misses += -(-size // memory.row_bytes)
        reads += one.reads
        writes += one.writes
    return _Moved(reads * memory.element_bytes, writes * memory.element_bytes, accesses, row_misses)


def _movement(reuse: Reuse, moved: _Moved, fetches: Fetches, memory: Memory) -> Movement:
    first = min(reuse.first * memory.element_bytes, moved.reads)
    last = min(reuse.last * memory.element_bytes, moved.writes)
    return Movement(moved, first, last, reuse.starts, fetches)


def stalls_of(engine: EngineDescription, movement: Movement, result: Result, memory: Memory) -> int:
    """Cycles that the engine waits for this movement, beyond those of its `result`."""
    moved, first = movement.moved, movement.first
    fillings = -(-moved.reads // memory.resident_bytes)
    busy = fillings * memory.latency_cycles + memory.transfer_cycles(moved.accesses, moved.row_misses)
    stalls = busy
    if memory.double_buffering:
        reads, writes = engine.hardware.read_ports, engine.hardware.write_ports
        around = min(fillings, 1) * memory.latency_cycles + _waited(first, reads, memory)
        around += _waited(movement.last, writes, memory)
        if movement.starts > 1 and first > memory.resident_bytes:
            around += (movement.starts - 1) * _waited(first - memory.resident_bytes, reads, memory)
        stalls = max(min(around, busy), busy - result.cycles)
    return math.ceil(stalls)


def _waited(size: int, ports: int, memory: Memory) -> float:
    """Cycles for so many bytes that lie together, beyond those in which the engine itself takes or gives them.

    Bytes and rows apart, so that fewer bytes are never waited for longer.
    """
    moving = max(0.0, size / memory.bytes_per_cycle - size / (memory.element_bytes * ports))
    return moving + -(-size // memory.row_bytes) * memory.row_miss_cycles / memory.banks
