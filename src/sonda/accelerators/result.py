"""What an engine returns: cycles, accesses of the global buffer, activity counters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Count = Any
"""A whole number; or an array, where many operations or many mappings are counted at once."""
Counters = dict[str, dict[str, dict[str, int]]]
"""Section -> component -> INSTANCES and operation counts summed over them, named as STONNE names them."""


INSTANCES = "entries"
"""Stands among the operation counts of a component for how many of it there are."""


@dataclass(frozen=True)
class Result:
    """One operation on one engine under one mapping. All numbers are simulated."""

    cycles: int
    weight_reads: int
    input_reads: int
    psum_reads: int
    writes: int
    multiplications: int
    """As the engine counts them, on some engines with those that only fill a tile up; see `Placed.products`."""
    counters: Counters = field(default_factory=dict)
    stack: dict[str, int] = field(default_factory=dict)
    """Cycles by what they were spent on: distribution, compute, reduction, writeback, configuration; they add up."""

    @property
    def reads(self) -> int:
        return self.weight_reads + self.input_reads + self.psum_reads


def largest(count: Count) -> int:
    """The number, or the largest of an array."""
    return count if isinstance(count, int) else int(count.max())
