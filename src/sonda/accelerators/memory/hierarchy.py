"""The memory behind the global buffer: how large the buffer is, how fast the memory, and what moves between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Memory:
    """A finite global buffer and the memory behind it, in bytes and in cycles of the accelerator."""

    buffer_bytes: int
    bytes_per_cycle: float
    latency_cycles: int
    """From asking for something to its first bytes, the row being closed."""
    row_bytes: int
    row_miss_cycles: int
    """Added where an access leaves the open row."""
    element_bytes: int = 4
    double_buffering: bool = True
    dram: str = ""
    """Preset of the energy per bit; '' where it is not known."""
    burst_bytes: int = 64
    """Moved by one access, also where less is wanted."""
    banks: int = 1
    """Rows that can be opened at the same time: that many misses wait together."""

    @property
    def resident_bytes(self) -> int:
        """Room for what stays; with double buffering the other half is being filled meanwhile."""
        return max(1, self.buffer_bytes // 2 if self.double_buffering else self.buffer_bytes)

    @property
    def sizes(self) -> Sizes:
        """All of it that decides what moves."""
        return Sizes(self.resident_bytes, self.element_bytes, self.burst_bytes, self.row_bytes)


class Sizes(NamedTuple):
    """Sizes of a memory in bytes; arrays where they are of many memories."""

    resident_bytes: Any
    element_bytes: Any
    burst_bytes: Any
    row_bytes: Any


@dataclass(frozen=True)
class MemoryTraffic:
    """What one operation moves to and from memory. All numbers are simulated."""

    read_bytes: int
    """Wanted by the engine; what accesses bring beside it is not counted here but in `moved_read_bytes`."""
    write_bytes: int
    row_hits: int
    """Accesses, of reads and writes, to a row of the memory that was open."""
    row_misses: int
    stall_cycles: int
    """Cycles that the engine waits for memory, beyond its own; never negative."""
    cold_misses: int = 0
    """Rows of an embedding table that come into the buffer for the first time."""
    capacity_misses: int = 0
    """Rows of an embedding table that had been in the buffer and had to leave it."""
    moved_read_bytes: int = 0
    """Bytes of all accesses that read: whole bursts, wanted or not."""
    moved_write_bytes: int = 0
