"""Placement: which engine takes which operation of a program, under which mapping, and what it takes there."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sonda.accelerators import dense_operation, own_engine, sparse_operation
from sonda.accelerators import mapping as maps
from sonda.accelerators.description import Accelerator
from sonda.accelerators.engine_description import SPARSE, EngineDescription, is_own
from sonda.accelerators.engines.compressed_row import RowTile, RowTimes
from sonda.accelerators.memory import Traffic
from sonda.accelerators.operation import Operation, Program
from sonda.accelerators.result import Result
from sonda.accelerators.search import Choice, Cost, Listed, search
from sonda.accelerators.useful import useful_products
from sonda.record.errors import SondaError
from sonda.record.nearest import nearest

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
    """Of the engine alone, as if all operands lay in the global buffer."""
    traffic: Traffic | None = None
    """To and from the memory behind a finite buffer; nothing where the buffer is unlimited."""
    tried: int = 1
    """Mappings that were simulated to choose this one."""
    proved: bool = False
    """Whether it was searched, and nothing that the search lists can take fewer cycles."""

    @property
    def cycles(self) -> int:
        """With the cycles in which the engine waits for memory."""
        return self.result.cycles + (self.traffic.stall_cycles if self.traffic else 0)

    @property
    def products(self) -> int:
        """Those that the operation asks for; what only fills a tile up is in `result.multiplications` alone."""
        return useful_products(self.engine.kind, self.operation, self.mapping, self.result)

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

    listed: dict[Any, Listed] = field(default_factory=dict)
    _row_times: dict[tuple[str, RowTile], RowTimes] = field(default_factory=dict)

    def row_times(self, engine: EngineDescription, tile: RowTile) -> RowTimes:
        """What rows take on an engine of compressed rows under a tile."""
        key = (engine.name, tile)
        if key not in self._row_times:
            self._row_times[key] = RowTimes(engine.hardware, tile)
        return self._row_times[key]


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
        found = {kind: self.accelerator.engine_for(kind) for kind in self.accelerator.route}
        return frozenset(
            kind for kind, engine in found.items() if engine and engine.kind in SPARSE and kind != "embedding_bag"
        )

    def place(self, program: Program) -> list[Placed | OnHost]:
        """Every operation in its order. Raises SondaError naming the layer that its engine cannot run."""
        self.prepare(program.operations)
        return [self.place_one(operation, program.path(operation)) for operation in program.operations]

    def prepare(self, operations: Iterable[Operation]) -> None:
        """Place embedding bags together where that is faster; where it cannot be, placing one by one says why."""
        engine = self.accelerator.engine_for("embedding_bag")
        if engine is None or engine.kind != "compressed_row" or self.mapping == SEARCHED:
            return
        bags = [one for one in operations if one.kind == "embedding_bag" and (engine.name, one) not in self._known]
        with suppress(SondaError):
            for one, choice in zip(bags, sparse_operation.choose_bags(engine, bags, self.mapping == ""), strict=True):
                self._known[engine.name, one] = choice

    def place_one(self, operation: Operation, path: str = "") -> Placed | OnHost:
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
        key = (engine.name, operation if engine.kind in SPARSE else operation.shape)
        if key in self._known:
            return self._known[key]
        if is_own(engine.kind):
            chosen = own_engine.choose(engine, operation)
        elif self.mapping != SEARCHED:
            given = self.mapping == ""
            if engine.kind in SPARSE:
                return sparse_operation.choose(engine, operation, given)
            chosen = dense_operation.choose(engine, operation.shape, given)
        else:
            chosen = search(self._listed(key, operation, engine), Cost(engine, operation, self.accelerator.memory))
        self._known[key] = chosen
        return chosen

    def _listed(self, key: Any, operation: Operation, engine: EngineDescription) -> Listed:
        known = self.learnt.listed
        if key not in known:
            if engine.kind in SPARSE:
                known[key] = sparse_operation.listed(engine, operation, self.learnt.row_times)
            else:
                known[key] = dense_operation.listed(engine, operation.shape)
        return known[key]
