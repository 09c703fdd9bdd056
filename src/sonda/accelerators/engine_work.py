"""The work of one engine: all operations of a program that it takes, simulated once for each design and remembered."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.area import INSTANCES, instances_of
from sonda.accelerators.behind import movement_of, stalls_of
from sonda.accelerators.description import Accelerator
from sonda.accelerators.engine_description import EngineDescription
from sonda.accelerators.memory import Memory
from sonda.accelerators.operation import Operation, Program
from sonda.accelerators.placement import SPARSE, Learnt, Placed, Placement
from sonda.accelerators.waiting import Memories
from sonda.record.errors import SondaError

Whole = NDArray[np.int64]
SEARCHED = "best"
"""The mapping that depends on the memory behind the buffer too."""


@dataclass(frozen=True, eq=False)
class Work:
    """What an engine does for a program, without waiting for memory."""

    placed: tuple[tuple[Placed, int], ...]
    """Operations with how often each is done."""
    cycles: int
    counts: dict[tuple[str, str], int]
    """By component and operation, over all sections of the machine."""
    instances: dict[str, int]
    """By component."""


@dataclass(frozen=True)
class Moved:
    """What all operations of a work move to and from memories behind the buffer, an element for each memory."""

    bytes: Whole
    row_hits: Whole
    row_misses: Whole
    stall_cycles: Whole


class EngineWork:
    """The operations of one program on engines; remembers by design, so that asking again costs nothing."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._alike: dict[tuple[tuple[str, ...], bool], list[tuple[Operation, int]]] = {}
        self._placed: dict[Any, Placed | SondaError] = {}
        self._work: dict[Any, Work | SondaError] = {}
        self._learnt: dict[Any, Learnt] = {}

    @property
    def simulations(self) -> int:
        """Distinct operations on distinct designs so far; those that cannot be are counted too."""
        return len(self._placed)

    def left(self, accelerator: Accelerator) -> dict[str, int]:
        """Operations that run on the host because no engine takes them, by kind."""
        return dict(Counter(one.kind for one in self._program.operations if accelerator.route.get(one.kind) is None))

    def on(
        self,
        accelerator: Accelerator,
        engine: EngineDescription,
        mapping: str,
        memory: Memory | None,
    ) -> Work | SondaError:
        """All that this engine takes as the accelerator routes it; an error where it cannot, naming the layer.

        `memory` matters only for a mapping that is searched.
        """
        kinds = tuple(kind for kind, name in accelerator.route.items() if name == engine.name)
        design = (_key(engine), mapping, memory if mapping == SEARCHED else None)
        found = self._work.get((design, kinds))
        if found is None:
            alone = dataclasses.replace(
                accelerator,
                engines={engine.name: engine},
                route=dict.fromkeys(kinds, engine.name),
                memory=design[2],
            )
            learnt = self._learnt.setdefault(design[0], Learnt())
            found = self._work[design, kinds] = self._take(Placement(alone, mapping, learnt), engine, kinds, design)
        return found

    def moved(self, work: Work, memories: Sequence[Memory]) -> Moved:
        """What this work moves through each of these finite buffers, and how long its engine waits."""
        found = Moved(*np.zeros((4, len(memories)), np.int64))
        # Memories that differ in their times only share what moves.
        sizes = {memory.sizes: place for place, memory in enumerate(memories)}
        order = {one: place for place, one in enumerate(sizes)}
        which = np.array([order[memory.sizes] for memory in memories])
        distinct, times = Memories([memories[place] for place in sizes.values()]), Memories(memories)
        for one, count in work.placed:
            operation = one.operation
            moved = movement_of(one.engine, operation.shape, one.mapping, one.result, distinct.sizes, operation)
            moved = moved.at(which)
            found.bytes[:] += count * (moved.reads + moved.writes)
            found.row_misses[:] += count * moved.row_misses
            found.row_hits[:] += count * (moved.accesses - moved.row_misses)
            found.stall_cycles[:] += count * stalls_of(one.engine, moved, one.result.cycles, times)
        return found

    def _take(
        self, placement: Placement, engine: EngineDescription, kinds: tuple[str, ...], design: Any
    ) -> Work | SondaError:
        placed: list[tuple[Placed, int]] = []
        counts: Counter[tuple[str, str]] = Counter()
        instances: dict[str, int] = {}
        operations = self._operations(kinds, engine.kind in SPARSE)
        placement.prepare(one for one, _ in operations if (design, id(one)) not in self._placed)
        for operation, count in operations:
            one = self._place(placement, operation, design)
            if isinstance(one, SondaError):
                return one
            placed.append((one, count))
            instances = instances_of(one.result.counters)
            for components in one.result.counters.values():
                for component, activity in components.items():
                    for name, value in activity.items():
                        if value and name != INSTANCES:
                            counts[component, name] += count * value
        cycles = sum(count * one.result.cycles for one, count in placed)
        return Work(tuple(placed), cycles, dict(counts), instances)

    def _place(self, placement: Placement, operation: Operation, design: Any) -> Placed | SondaError:
        # What routes change is which operations an engine takes, never what one of them costs there.
        key = (design, id(operation))
        if key not in self._placed:
            try:
                found = placement.place_one(operation, self._program.path(operation))
            except SondaError as error:
                self._placed[key] = error
            else:
                assert isinstance(found, Placed), "only kinds that are routed to the engine are asked for"
                self._placed[key] = found
        return self._placed[key]

    def _operations(self, kinds: tuple[str, ...], zeros_count: bool) -> list[tuple[Operation, int]]:
        """The first of each group of operations that are alike, in the program's order, with the group's size.

        Where zeros count, no two are taken to be alike.
        """
        known = self._alike.get((kinds, zeros_count))
        if known is None:
            groups: dict[Any, list[Any]] = {}
            for operation in self._program.operations:
                if operation.kind in kinds:
                    key = id(operation) if zeros_count else (operation.kind, operation.shape)
                    groups.setdefault(key, [operation, 0])[1] += 1
            known = self._alike[kinds, zeros_count] = [(first, count) for first, count in groups.values()]
        return known


def _key(engine: EngineDescription) -> tuple[Any, ...]:
    """The engine as something to look up by: its dictionaries as pairs."""
    given = (engine.dataflow, engine.tile, engine.convolution_tile)
    return engine.name, engine.kind, engine.hardware, *(tuple(one.items()) for one in given)
