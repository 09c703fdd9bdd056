"""`Engine`: what a kind of simulated engine says of itself, and how it simulates an operation.

A kind is a class; an engine of an accelerator is an `EngineDescription` of that kind, which every method is given. Only
`simulate` must be written. The attributes say what a description of this kind may hold and which operations it takes;
the other methods have answers that fit an engine whose time depends on shapes only and which maps in one way.

Sonda's own kinds are in `engines/kinds`. A kind of another package is an entry point of the group `sonda.engines`,
whose name is the kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from sonda.accelerators.description.engine import OPERATIONS, EngineDescription
from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines.kinds.dense import dense_product
from sonda.accelerators.engines.result import Result
from sonda.accelerators.mapping.search import UNBOUNDED, Choice, FormMappings, MappingSpace, Taken
from sonda.accelerators.memory.reuse import Accesses, Reuse, rereading
from sonda.accelerators.operations.program import Bags, ConvolutionShape, MatrixProduct, Operation
from sonda.record.errors import SondaError

__all__ = (
    "PRODUCTS", "UNBOUNDED", "Accesses", "Bags", "Batch", "Choice", "ConvolutionShape", "Engine", "EngineDescription",
    "FormMappings", "Hardware", "MappingSpace", "MatrixProduct", "Operation", "Result", "Reuse", "Taken",
    "dense_product", "rereading",
)  # fmt: skip
"""What an author of an engine needs, in one place."""
PRODUCTS = tuple(kind for kind in OPERATIONS if kind != "embedding_bag")
"""Kinds of operation that are products of matrices or convolutions."""


class Batch(Protocol):
    """Operations of a program, made ready once for all designs of a kind that may take them.

    Both methods give some of the designs at a time: their numbers, and what they make of the operations, those of one
    design after those of another. A design that cannot run one of the operations is left out.
    """

    def on(self, engines: Sequence[EngineDescription], given: bool) -> Iterable[tuple[list[int], list[Taken]]]:
        """Under the mapping that `Engine.choose_mapping` would choose."""

    def best_on(self, engines: Sequence[EngineDescription]) -> Iterable[tuple[list[int], list[Taken]]]:
        """Under the mapping of fewest cycles, the buffer being unlimited. Nothing where only a search can tell."""


class Engine(ABC):
    """One kind of engine."""

    # ---- limits -------------------------------------------------------------------------------------------------

    operations: ClassVar[Sequence[str]] = PRODUCTS
    """Kinds of operation that it takes, of `OPERATIONS`."""
    zeros_matter: ClassVar[bool] = False
    """Whether its time depends on where operands are zero: then operations come with their patterns of zeros."""
    moves_memory: ClassVar[bool] = False
    """Whether `reuse` says what it fetches again, so that a description may put a finite buffer before a memory."""

    # ---- description --------------------------------------------------------------------------------------------

    has_mesh: ClassVar[bool] = False
    """Whether it has rows and columns of processing elements, in place of a line of multipliers."""
    reduction: ClassVar[str] = "ASNETWORK"
    """Unless the description gives it."""
    accumulators: ClassVar[bool | None] = True
    """Unless the description gives it; None where it must."""
    controller: ClassVar[str] = Hardware.controller
    """STONNE's name of its memory controller."""
    product_tile: ClassVar[tuple[str, ...]] = ()
    """Letters of a matrix product's tile; none where it has no choice."""
    fully_connected_tile: ClassVar[Mapping[str, str]] = {}
    """Other letters in which a description may give that tile, and those that they stand for."""
    convolution_tile: ClassVar[tuple[str, ...]] = ()
    """Letters of a convolution's tile; none where it has no choice."""
    dataflows: ClassVar[tuple[str, ...]] = ()
    """Those that a description may choose from; none where it has no choice."""

    def problems(self, description: EngineDescription, wrong: set[str]) -> Iterator[SondaError]:
        """Reasons why such an engine cannot be built, beyond those of any hardware.

        Each cause begins with the name of a field. What depends on a field in `wrong` is not judged.
        """
        yield from ()

    # ---- simulation ---------------------------------------------------------------------------------------------

    @abstractmethod
    def simulate(self, description: EngineDescription, operation: Operation, mapping: Mapping[str, Any]) -> Result:
        """What the operation takes under a mapping that `choose_mapping` or `mappings` gave.

        Raises SondaError where the engine cannot run it.
        """

    def choose_mapping(self, description: EngineDescription, operation: Operation, given: bool) -> dict[str, Any]:
        """The mapping that the description gives, where that is wanted (`given`) and there is one, else a rule's."""
        return {}

    def choose(self, description: EngineDescription, operation: Operation, given: bool) -> Choice:
        """The operation under the mapping that `choose_mapping` chooses."""
        mapping = self.choose_mapping(description, operation, given)
        return Choice(mapping, self.simulate(description, operation, mapping))

    def mappings(self, description: EngineDescription, operation: Operation) -> MappingSpace | None:
        """All mappings that a search may choose from, those of `choose_mapping` first, with bounds of their cycles.

        None where there is nothing to choose.
        """
        return None

    def choose_many(
        self, description: EngineDescription, operations: Sequence[Operation], given: bool
    ) -> dict[Operation, Choice]:
        """Of these operations those that are faster simulated together, each as `choose` would have it."""
        return {}

    def batch(self, operations: Sequence[Operation]) -> Batch | None:
        """The operations made ready for many designs; None where designs are simulated one by one."""
        return None

    def useful_products(self, operation: Operation, mapping: Mapping[str, Any], result: Result) -> int:
        """Multiplications that the operation asks for, without those that only fill a tile up."""
        return result.multiplications

    # ---- memory behind the buffer -------------------------------------------------------------------------------

    def reuse(
        self,
        description: EngineDescription,
        shape: MatrixProduct | ConvolutionShape | Bags,
        mapping: Mapping[str, Any],
        counted: Result | Accesses,
        operation: Operation | None,
    ) -> Reuse:
        """What it reads and writes again under a mapping, and what must stay in the buffer not to cross twice.

        `operation`, where it is there, tells how many elements are not zero. Sizes of the mapping and what is counted
        may be arrays. Energy and area need nothing more: they follow from `Result.counters`.
        """
        raise NotImplementedError("moves_memory promises this method")
