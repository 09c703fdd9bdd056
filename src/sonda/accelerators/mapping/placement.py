"""Placement: which engine takes which operation of a program, under which mapping, and what it takes there."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sonda.accelerators.description.accelerator import Accelerator
from sonda.accelerators.description.engine import EngineDescription
from sonda.accelerators.engines.registry import blame_package, check_result
from sonda.accelerators.engines.result import Result
from sonda.accelerators.mapping import rules as maps
from sonda.accelerators.mapping.search import Choice, MappingCost, MappingSpace, search
from sonda.accelerators.memory.hierarchy import MemoryTraffic
from sonda.accelerators.operations.program import ModelProgram, Operation
from sonda.record.errors import SondaError, nearest

SEARCHED = "best"
"""The mapping that depends on the memory behind the buffer too."""
MAPPINGS = ("", "stonne", SEARCHED)
"""Ways to choose a mapping; see Placement."""


@dataclass(frozen=True)
class Placed:
    """An operation on an engine. Where it has several products, they follow each other and are added up."""

    operation: Operation
    engine: EngineDescription
    mapping: dict[str, Any]
    """What was chosen: sizes of the tile, the dataflow, which operand is compressed."""
    result: Result
    """What the engine alone takes, as if all operands lay in the global buffer."""
    traffic: MemoryTraffic | None = None
    """What moves to and from the memory behind a finite buffer; None where the buffer is unlimited."""
    tried: int = 1
    """Mappings that were simulated to choose this one."""
    proved: bool = False
    """Whether it was searched, and nothing that the search lists can take fewer cycles."""

    @property
    def cycles(self) -> int:
        """Cycles of the engine and those in which it waits for memory."""
        return self.result.cycles + (self.traffic.stall_cycles if self.traffic else 0)

    @property
    def products(self) -> int:
        """Those that the operation asks for; what only fills a tile up is in `result.multiplications` alone."""
        return self.engine.simulator.useful_products(self.operation, self.mapping, self.result)

    @property
    def words(self) -> str:
        """The mapping in a few words: `T_M=1 T_N=64 T_K=4`; of a convolution's tile, the sizes that are not 1."""
        long = len(self.mapping) > len(maps.PRODUCT_LETTERS) + 1
        shown = {name: value for name, value in self.mapping.items() if value != 1 or not long}
        return " ".join(f"{name}={value}" if name.startswith("T_") else str(value) for name, value in shown.items())


@dataclass(frozen=True)
class OnHost:
    """An operation that no engine takes, and why."""

    operation: Operation
    reason: str


@dataclass
class Learnt:
    """What searches learn of engines; it holds whatever memory is behind them."""

    listed: dict[Any, MappingSpace | None] = field(default_factory=dict)


@dataclass
class Placement:
    """Engines for the operations of programs; what only shapes decide is computed once.

    `mapping` says who chooses: '' the description where it gives a tile or a dataflow, else a rule; 'stonne' the rule,
    whatever the description gives; 'best' a search among all mappings, with the engine as its judge, which begins with
    those two and so is never worse. With a finite buffer it counts the cycles in which the engine waits for memory.

    Rules are STONNE's own for matrix products, compressed rows and dataflows. Convolutions on the flexible dense
    engine, for which STONNE has no rule of its own, follow that of `mapping.convolution_tile`, and a mesh is filled.
    """

    accelerator: Accelerator
    mapping: str = ""
    learnt: Learnt = field(default_factory=Learnt)
    """May be shared by placements on the same engines."""
    _known: dict[Any, Choice] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.mapping not in MAPPINGS:
            raise SondaError(f"mapping {self.mapping!r} is unknown", nearest(self.mapping, MAPPINGS[1:]))

    def patterns(self) -> frozenset[str]:
        """Kinds of operation whose zeros must be known. Those of embedding bags always are."""
        engines = {kind: self.accelerator.engine_for(kind) for kind in self.accelerator.route}
        return frozenset(
            kind
            for kind, engine in engines.items()
            if engine and engine.simulator.zeros_matter and kind != "embedding_bag"
        )

    def place(self, program: ModelProgram) -> list[Placed | OnHost]:
        """Every operation in its order. Raises SondaError naming the layer that its engine cannot run."""
        self.prepare(program.operations)
        return [self.place_operation(operation, program.path(operation)) for operation in program.operations]

    def prepare(self, operations: Iterable[Operation]) -> None:
        """Place operations together where that is faster; where it cannot be, placing one by one says why."""
        if self.mapping == SEARCHED:
            return
        of_engine: dict[str, list[Operation]] = {}
        for operation in operations:
            engine = self.accelerator.engine_for(operation.kind)
            if engine is not None and (engine.name, operation) not in self._known:
                of_engine.setdefault(engine.name, []).append(operation)
        for name, some in of_engine.items():
            engine = self.accelerator.engines[name]
            with suppress(SondaError), blame_package(engine.kind):
                chosen = engine.simulator.choose_many(engine, some, self.mapping == "")
                self._known |= {(name, operation): choice for operation, choice in chosen.items()}

    def place_operation(self, operation: Operation, path: str = "") -> Placed | OnHost:
        """One operation; `path` is where it stands, for errors."""
        engine = self.accelerator.engine_for(operation.kind)
        if engine is None:
            return OnHost(operation, f"{self.accelerator.name} has no engine for {operation.kind}")
        try:
            chosen = self._choose(operation, engine)
        except SondaError as error:
            where = f"{path or 'the model'} ({operation.name}) on {engine.name}"
            raise SondaError(f"{where}: {error.cause}", error.remedy) from None
        return Placed(operation, engine, chosen.mapping, chosen.result, None, chosen.tried, chosen.proved)

    def _choose(self, operation: Operation, engine: EngineDescription) -> Choice:
        # Remembered by operation, or by its shape where nothing else decides.
        key = (engine.name, operation if engine.simulator.zeros_matter else operation.shape)
        for known in ((engine.name, operation), key):
            if known in self._known:
                return self._known[known]
        with blame_package(engine.kind):
            chosen = self._search(key, operation, engine) if self.mapping == SEARCHED else None
            if chosen is None:
                chosen = engine.simulator.choose(engine, operation, self.mapping != "stonne")
        check_result(engine.kind, chosen.result)
        self._known[key] = chosen
        return chosen

    def _search(self, key: Any, operation: Operation, engine: EngineDescription) -> Choice | None:
        """The best of all mappings; nothing where there is nothing to choose."""
        if key not in self.learnt.listed:
            self.learnt.listed[key] = engine.simulator.mappings(engine, operation)
        listed = self.learnt.listed[key]
        return None if listed is None else search(listed, MappingCost(engine, operation, self.accelerator.memory))
