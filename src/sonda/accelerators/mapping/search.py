"""The search for the mapping that costs least, with the simulator as its judge.

What a mapping moves to and from memory is known without simulating, and so is a lower bound of the engine's cycles
(`least_cycles`). Both together give the least cost of a mapping. Mappings are tried in the order of their least cost,
and only while that is below the best cost so far: what is left out cannot be better. The search ends after a limited
number of trials and then says that it is not complete.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.description.engine import EngineDescription
from sonda.accelerators.engines.result import Result
from sonda.accelerators.memory.hierarchy import Memory, Sizes
from sonda.accelerators.memory.reuse import Accesses
from sonda.accelerators.memory.traffic import Movement, movement_of, stalls_of
from sonda.accelerators.operations.program import Operation
from sonda.record.errors import SondaError

Whole = NDArray[np.int64]
MOST_TRIED = 400
"""Mappings that are simulated for one operation, beside those given."""
UNBOUNDED = np.zeros(1, np.int64)
"""Least cycles of one mapping that is tried in any case."""


@dataclass(frozen=True)
class Choice:
    """A mapping, what an engine makes of it, and how it was found."""

    mapping: dict[str, Any]
    result: Result
    tried: int = 1
    """Mappings that were simulated."""
    proved: bool = False
    """Whether nothing that was listed can cost less."""


@dataclass
class FormMappings:
    """Mappings of one form, by number. What is learnt of them holds for every memory behind the buffer."""

    least: Whole
    """Cycles that the engine takes at least."""
    simulate: Callable[[int], Choice]
    mapping: dict[str, Any] = field(default_factory=dict)
    """The mappings as one, in the words of a `Choice`; sizes are arrays."""
    accesses: Accesses | None = None
    """What the engine reads and writes; nothing where only a simulation can tell."""
    cycles: Callable[[int], int] | None = None
    """The engine's cycles without all else that `simulate` counts."""
    _cycles: dict[int, int | SondaError] = field(default_factory=dict)
    _choices: dict[int, Choice] = field(default_factory=dict)
    _movements: dict[Sizes, Movement] = field(default_factory=dict)

    def choice(self, number: int) -> Choice:
        """The mapping of this number, simulated."""
        if number not in self._choices:
            self._choices[number] = self.simulate(number)
        return self._choices[number]

    def engine_cycles(self, number: int) -> int | SondaError:
        """Cycles of the engine under the mapping of this number, or why it cannot follow it."""
        if number not in self._cycles:
            try:
                exactly = self.choice(number).result.cycles if self.cycles is None else self.cycles(number)
            except SondaError as error:
                self._cycles[number] = error
            else:
                self._cycles[number] = exactly
        return self._cycles[number]

    def movement(self, engine: EngineDescription, operation: Operation, sizes: Sizes) -> Movement | None:
        """What all of them move; nothing where only a simulation can tell."""
        if self.accesses is None:
            return None
        if sizes not in self._movements:
            movement = movement_of(engine, operation.shape, self.mapping, self.accesses, sizes, operation)
            self._movements[sizes] = Movement(*(np.broadcast_to(counts, len(self.least)) for counts in movement))
        return self._movements[sizes]


@dataclass
class MappingSpace:
    """All mappings of an operation: some that a search begins with, and the others."""

    starts: Sequence[FormMappings]
    options: Sequence[FormMappings]


@dataclass(frozen=True)
class MappingCost:
    """What mappings of an operation cost, in cycles: the engine's own, and those in which it waits for memory."""

    engine: EngineDescription
    operation: Operation
    memory: Memory | None

    def least(self, options: FormMappings) -> Whole:
        """The least cost of each mapping of a form."""
        moved = self._movement(options)
        if moved is None or self.memory is None:
            return options.least
        least: Whole = options.least + stalls_of(self.engine, moved, options.least, self.memory)
        return least

    def total(self, options: FormMappings, number: int) -> int | SondaError:
        """The cost of one mapping, or why the engine cannot follow it."""
        cycles = options.engine_cycles(number)
        if isinstance(cycles, SondaError) or self.memory is None:
            return cycles
        moved = self._movement(options)
        if moved is None:
            choice, shape = options.choice(number), self.operation.shape
            sizes = self.memory.sizes
            moved = movement_of(self.engine, shape, choice.mapping, choice.result, sizes, self.operation)
        return cycles + int(stalls_of(self.engine, moved.at(number), cycles, self.memory))

    def _movement(self, options: FormMappings) -> Movement | None:
        return None if self.memory is None else options.movement(self.engine, self.operation, self.memory.sizes)


def search(listed: MappingSpace, cost: MappingCost, most: int = MOST_TRIED) -> Choice:
    """The cheapest of all that is listed; the first of equals, so that a start is kept where none is better.

    Raises SondaError where there is nothing to choose from.
    """
    best: tuple[FormMappings, int] | None = None
    lowest = np.iinfo(np.int64).max
    tried = 0
    refused = SondaError("no mapping of this layer fits the engine", "give more multipliers, or accumulators")
    for start in listed.starts:
        for which in range(len(start.least)):
            cycles = cost.total(start, which)
            if isinstance(cycles, SondaError):
                refused = cycles
                continue
            tried += 1
            if cycles < lowest:
                best, lowest = (start, which), cycles
    options = listed.options
    none = np.zeros(0, np.int64)
    form = np.repeat(np.arange(len(options)), [len(mappings.least) for mappings in options])
    number = np.concatenate([none, *(np.arange(len(mappings.least)) for mappings in options)])
    least = np.concatenate([none, *(cost.least(mappings) for mappings in options)])
    worthy = np.flatnonzero(least < lowest)
    # Of those that memory alone makes cost as much, the one first whose engine takes least.
    engines = np.concatenate([none, *(mappings.least for mappings in options)])[worthy]
    order = worthy[np.lexsort((engines, least[worthy]))]
    left = most
    for place in order.tolist():
        if not left or least[place] >= lowest:
            break
        least[place] = np.iinfo(np.int64).max
        mappings, which = options[form[place]], int(number[place])
        cycles = cost.total(mappings, which)
        if isinstance(cycles, SondaError):
            continue  # more blocks of filters overlap than an engine follows
        left -= 1
        tried += 1
        if cycles < lowest:
            best, lowest = (mappings, which), cycles
    if best is None:
        raise refused
    chosen = best[0].choice(best[1])
    return Choice(chosen.mapping, chosen.result, tried, proved=not bool((least < lowest).any()))


# ---- What an engine makes of many operations at once ----------------------------------------------------------------


@dataclass(frozen=True)
class Taken:
    """Some of the operations that an engine was given, each under a mapping."""

    places: Sequence[int]
    """Which of them."""
    result: Result
    """Counts are arrays with an element for each: of one of the products that the operation consists of."""
    count: NDArray[np.int64]
    """Products of each operation, which follow each other."""
    mapping: Callable[[int], dict[str, Any]]
    """Gives the mapping of an element."""
