"""The work of one engine: all operations of a program that it takes, simulated once for each design and remembered."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.description.accelerator import Accelerator
from sonda.accelerators.description.engine import EngineDescription
from sonda.accelerators.energy.area import instances_of
from sonda.accelerators.engines.contract import Batch
from sonda.accelerators.engines.registry import blame_package
from sonda.accelerators.engines.result import INSTANCES, Count, Counters, Result
from sonda.accelerators.mapping.placement import SEARCHED, Learnt, Placed, Placement
from sonda.accelerators.mapping.search import Taken
from sonda.accelerators.memory.hierarchy import Memory
from sonda.accelerators.memory.reuse import Accesses
from sonda.accelerators.memory.traffic import Memories, movement_of, stalls_of
from sonda.accelerators.operations.program import ModelProgram, Operation
from sonda.record.errors import SondaError

Whole = NDArray[np.int64]


class WorkItem(NamedTuple):
    """One operation among those that an engine does."""

    operation: Operation
    often: int
    """How many times it is done."""
    mapping: dict[str, Any]
    cycles: int
    """Of doing it once."""
    counted: Result | Accesses
    """Reads and writes of doing it once."""


@dataclass(frozen=True, eq=False)
class DesignWork:
    """What an engine does for a program, without waiting for memory."""

    engine: EngineDescription | None
    parts: Callable[[], Sequence[WorkItem]]
    cycles: int
    counts: dict[tuple[str, str], int]
    """By component and operation, over all sections of the machine."""
    instances: dict[str, int]
    """By component."""


@dataclass(frozen=True)
class WorkTraffic:
    """What all operations of a work move to and from memories behind the buffer, an element for each memory."""

    bytes: Whole
    row_hits: Whole
    row_misses: Whole
    stall_cycles: Whole


class EngineWork:
    """Simulates the operations of one program on engines. Results are remembered, so asking again costs nothing."""

    def __init__(self, program: ModelProgram) -> None:
        self._program = program
        self._alike: dict[tuple[tuple[str, ...], bool], list[tuple[Operation, int]]] = {}
        self._placed: dict[Any, Placed | SondaError] = {}
        self._together = 0
        self._batches: dict[tuple[str, tuple[str, ...]], Batch | None] = {}
        self._work: dict[Any, DesignWork | SondaError] = {}
        self._learnt: dict[Any, Learnt] = {}

    @property
    def simulations(self) -> int:
        """Distinct operations on distinct designs that were simulated so far, those that failed included."""
        return len(self._placed) + self._together

    def host_operations(self, accelerator: Accelerator) -> dict[str, int]:
        """Operations that run on the host because no engine takes them, by kind."""
        return dict(
            Counter(
                operation.kind
                for operation in self._program.operations
                if accelerator.route.get(operation.kind) is None
            )
        )

    def prepare(self, accelerator: Accelerator, engines: Iterable[EngineDescription], mapping: str) -> None:
        """Simulate designs of one engine all at once, as far as that can be; `work_on` then finds what they take.

        A mapping that is searched is that of an unlimited buffer.
        """
        by_kind: dict[str, list[EngineDescription]] = {}
        for engine in engines:
            by_kind.setdefault(engine.kind, []).append(engine)
        for designs in by_kind.values():
            self._prepare(_kinds(accelerator, designs[0]), designs, mapping)

    def _prepare(self, kinds: tuple[str, ...], engines: list[EngineDescription], mapping: str) -> None:
        """Designs of one kind, all of which take these kinds of operation."""
        simulator = engines[0].simulator
        designs = {(_key(engine), mapping, None): engine for engine in engines}
        designs = {design: engine for design, engine in designs.items() if (design, kinds) not in self._work}
        operations = self._operations(kinds, simulator.zeros_matter)
        if not operations or not designs:
            return
        # Where one of them fails, only simulating one by one tells which.
        with suppress(SondaError), blame_package(engines[0].kind):
            made = (engines[0].kind, kinds)
            if made not in self._batches:
                self._batches[made] = simulator.batch([operation for operation, _ in operations])
            batch = self._batches[made]
            if batch is None:
                return
            keys, ready = list(designs), list(designs.values())
            for numbers, taken in batch.best_on(ready) if mapping == SEARCHED else batch.on(ready, mapping == ""):
                works = _works([ready[number] for number in numbers], operations, taken)
                self._work |= {(keys[number], kinds): work for number, work in zip(numbers, works, strict=True)}
                self._together += len(numbers) * len(operations)

    def work_on(
        self,
        accelerator: Accelerator,
        engine: EngineDescription,
        mapping: str,
        memory: Memory | None,
    ) -> DesignWork | SondaError:
        """What the engine does for all operations that the accelerator routes to it.

        Returns an error that names the layer where the engine cannot run it.

        `memory` matters only for a mapping that is searched.
        """
        kinds = _kinds(accelerator, engine)
        design = (_key(engine), mapping, memory if mapping == SEARCHED else None)
        work = self._work.get((design, kinds))
        if work is None:
            alone = dataclasses.replace(
                accelerator,
                engines={engine.name: engine},
                route=dict.fromkeys(kinds, engine.name),
                memory=design[2],
            )
            learnt = self._learnt.setdefault(design[0], Learnt())
            work = self._work[design, kinds] = self._take(Placement(alone, mapping, learnt), engine, kinds, design)
        return work

    def work_traffic(self, work: DesignWork, memories: Sequence[Memory]) -> WorkTraffic:
        """What this work moves through each of these finite buffers, and how long its engine waits."""
        totals = WorkTraffic(*np.zeros((4, len(memories)), np.int64))
        # Memories that differ in their times only share what moves.
        sizes = {memory.sizes: place for place, memory in enumerate(memories)}
        order = {size: place for place, size in enumerate(sizes)}
        which = np.array([order[memory.sizes] for memory in memories])
        distinct, times = Memories([memories[place] for place in sizes.values()]), Memories(memories)
        for operation, often, mapping, cycles, counted in work.parts():
            assert work.engine is not None
            moved = movement_of(work.engine, operation.shape, mapping, counted, distinct.sizes, operation)
            moved = moved.at(which)
            totals.bytes[:] += often * moved.accesses * times.sizes.burst_bytes
            totals.row_misses[:] += often * moved.row_misses
            totals.row_hits[:] += often * (moved.accesses - moved.row_misses)
            totals.stall_cycles[:] += often * stalls_of(work.engine, moved, cycles, times)
        return totals

    def _take(
        self, placement: Placement, engine: EngineDescription, kinds: tuple[str, ...], design: Any
    ) -> DesignWork | SondaError:
        operations = self._operations(kinds, engine.simulator.zeros_matter)
        parts: list[WorkItem] = []
        counts: Counter[tuple[str, str]] = Counter()
        instances: dict[str, int] = {}
        placement.prepare(operation for operation, _ in operations if (design, id(operation)) not in self._placed)
        for operation, count in operations:
            placed = self._place(placement, operation, design)
            if isinstance(placed, SondaError):
                return placed
            parts.append(WorkItem(operation, count, placed.mapping, placed.result.cycles, placed.result))
            instances = instances_of(placed.result.counters)
            for components in placed.result.counters.values():
                for component, activity in components.items():
                    for name, value in activity.items():
                        if value and name != INSTANCES:
                            counts[component, name] += count * value
        return DesignWork(
            engine, lambda: parts, sum(item.often * item.cycles for item in parts), dict(counts), instances
        )

    def _place(self, placement: Placement, operation: Operation, design: Any) -> Placed | SondaError:
        # Routes change which operations an engine takes, never what an operation costs there.
        key = (design, id(operation))
        if key not in self._placed:
            try:
                placed = placement.place_operation(operation, self._program.path(operation))
            except SondaError as error:
                self._placed[key] = error
            else:
                assert isinstance(placed, Placed), "only kinds that are routed to the engine are asked for"
                self._placed[key] = placed
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


def _works(
    engines: list[EngineDescription], operations: list[tuple[Operation, int]], groups: Sequence[Taken]
) -> list[DesignWork]:
    """The work of each design over all groups. In a group the operations of one design follow those of another."""
    cycles = np.zeros(len(engines), np.int64)
    counts: list[dict[tuple[str, str], int]] = [{} for _ in engines]
    instances: list[dict[str, int]] = [{} for _ in engines]
    counted = []
    for taken in groups:
        often = np.array([operations[place][1] for place in taken.places], np.int64) * taken.count
        often = often.reshape(len(engines), -1)
        cycles += (often * np.reshape(taken.result.cycles, often.shape)).sum(axis=1)
        counted.append((taken.places, taken.mapping, _counted(taken), often.shape[1]))
        instances = _add(counts, taken.result.counters, often)

    def parts(number: int) -> list[WorkItem]:
        return [
            WorkItem(*operations[places[place]], mapping(place), cycles, Accesses(*accesses))
            for places, mapping, all_counted, many in counted
            for place, (cycles, *accesses) in enumerate(
                all_counted[number * many : (number + 1) * many].tolist(), number * many
            )
        ]

    return [
        DesignWork(engine, partial(parts, number), total, counts[number], instances[number])
        for number, (engine, total) in enumerate(zip(engines, cycles.tolist(), strict=True))
    ]


def _counted(taken: Taken) -> Whole:
    """Cycles and accesses of every operation, a row each. No more is kept: designs may be many."""
    result = taken.result
    counted = (result.cycles, result.weight_reads, result.input_reads, result.psum_reads, result.writes)
    rows: Whole = (np.array(counted, np.int64) * taken.count).T
    return rows


def _add(into: list[dict[tuple[str, str], int]], counters: Counters, often: Whole) -> list[dict[str, int]]:
    """Add the counts of the operations of designs, by component and operation.

    `often` (designs x operations) says how many times each is done. Returns the instances of every
    design; components that a design does not have are left out.
    """
    designs, many = often.shape
    names: list[tuple[str, str]] = []
    values: list[Count] = []
    instances: dict[str, Count] = {}
    value: Count
    for components in counters.values():
        for component, activity in components.items():
            for name, value in activity.items():
                if name == INSTANCES:
                    instances[component] = instances.get(component, 0) + (value[::many] if np.ndim(value) else value)
                elif np.ndim(value) or value:
                    names.append((component, name))
                    values.append(value)
    totals = np.einsum("kdo,do->dk", _table(values, often.size).reshape(-1, designs, many), often)
    for counts, row in zip(into, totals.tolist(), strict=True):
        for key, total in zip(names, row, strict=True):
            if total:
                counts[key] = counts.get(key, 0) + total
    rows = _table(list(instances.values()), designs).T.tolist()
    return [{name: count for name, count in zip(instances, row, strict=True) if count} for row in rows]


def _table(rows: list[Count], length: int) -> Whole:
    """The rows as one array; a row is an array, or one number for all its elements."""
    table = np.empty((len(rows), length), np.int64)
    for place, row in enumerate(rows):
        table[place] = row
    return table


def _kinds(accelerator: Accelerator, engine: EngineDescription) -> tuple[str, ...]:
    return tuple(kind for kind, name in accelerator.route.items() if name == engine.name)


def _key(engine: EngineDescription) -> tuple[Any, ...]:
    """The engine as something to look up by: its dictionaries as pairs."""
    given = (engine.dataflow, engine.tile, engine.convolution_tile)
    return engine.name, engine.kind, engine.hardware, *(tuple(table.items()) for table in given)
