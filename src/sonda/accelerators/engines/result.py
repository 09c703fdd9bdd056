"""`Result`: what an engine gives for an operation, and how results add up.

An engine gives cycles, reads and writes of the global buffer, multiplications, and where it can two accounts more:
`stack`, which says what the cycles went to, and `counters`, which say how often each component worked. Energy and area
are computed from the counters; without them both are missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Count = Any
"""A whole number; or an array, where many operations or many mappings are counted at once."""
INSTANCES = "entries"
"""The key under which a component says how many of it there are, beside what they do."""
Counters = dict[str, dict[str, dict[str, int]]]
"""Section of the machine -> component -> how often all of its instances together did what.

`{"MSNetwork": {"MULTIPLIER": {"entries": 256, "MULTIPLICATION": 4096}}}`: 256 multipliers did 4096 multiplications.
Names are those of STONNE, by which the energy tables (`energy/tables/`) find their entries.
"""


@dataclass(frozen=True)
class Result:
    """One operation on one engine under one mapping. All numbers are simulated."""

    cycles: int
    """As if all operands lay in the global buffer: without waiting for a memory behind it."""
    weight_reads: int
    """Elements that the engine reads from the global buffer, as are `input_reads`."""
    input_reads: int
    psum_reads: int
    """Partial sums that it reads back."""
    writes: int
    """Elements written to the global buffer, partial sums among them."""
    multiplications: int
    """As the engine counts them, on some engines with those that only fill a tile up; see `Engine.useful_products`."""
    counters: Counters = field(default_factory=dict)
    """Empty where the engine counts no activity: then energy and area are missing."""
    stack: dict[str, int] = field(default_factory=dict)
    """Cycles by what they went to: distribution, compute, reduction, writeback, configuration.

    They add up to `cycles`; empty where the engine cannot tell.
    """

    @property
    def reads(self) -> int:
        """All elements that it reads from the global buffer."""
        return self.weight_reads + self.input_reads + self.psum_reads


def largest(count: Count) -> int:
    """The number, or the largest of an array."""
    return count if isinstance(count, int) else int(count.max())


def sum_results(results: list[Result]) -> Result:
    """The result of operations that follow each other."""
    first = results[0]
    if len(results) == 1:
        return first
    return Result(
        cycles=sum(result.cycles for result in results),
        weight_reads=sum(result.weight_reads for result in results),
        input_reads=sum(result.input_reads for result in results),
        psum_reads=sum(result.psum_reads for result in results),
        writes=sum(result.writes for result in results),
        multiplications=sum(result.multiplications for result in results),
        counters=_sum_counters([result.counters for result in results]),
        stack={part: sum(result.stack.get(part, 0) for result in results) for part in first.stack},
    )


def repeat_result(result: Result, count: Count) -> Result:
    """The result of doing an operation `count` times, one after the other."""
    if isinstance(count, int) and count == 1:
        return result
    counters = {
        section: {
            component: {name: value if name == INSTANCES else count * value for name, value in counts.items()}
            for component, counts in components.items()
        }
        for section, components in result.counters.items()
    }
    return Result(
        cycles=count * result.cycles,
        weight_reads=count * result.weight_reads,
        input_reads=count * result.input_reads,
        psum_reads=count * result.psum_reads,
        writes=count * result.writes,
        multiplications=count * result.multiplications,
        counters=counters,
        stack={part: count * cycles for part, cycles in result.stack.items()},
    )


def _sum_counters(all_counters: list[Any]) -> Any:
    """Counters summed; the instances of a component are the same hardware each time."""
    sums: dict[str, dict[str, dict[str, int]]] = {}
    for counters in all_counters:
        for section, components in counters.items():
            for component, counts in components.items():
                into = sums.setdefault(section, {}).setdefault(component, {})
                for name, value in counts.items():
                    into[name] = value if name == INSTANCES else into.get(name, 0) + value
    return sums
