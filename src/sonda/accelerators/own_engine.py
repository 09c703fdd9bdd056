"""Kinds of engine that other packages add, through the entry-point group `sonda.engines`.

An entry's name is the kind; it names a function `simulate(hardware, shape) -> Result`: what one operation takes on a
`Hardware`, where the shape is a `MatrixProduct` or a `Convolution`. Its attribute `operations`, where it has one, lists
the kinds of operation that it takes. It chooses its mapping itself and says nothing of a memory behind the buffer.
"""

from __future__ import annotations

from numbers import Integral

from sonda.accelerators.engine_description import OPERATIONS, EngineDescription
from sonda.accelerators.operation import Operation
from sonda.accelerators.result import Result
from sonda.accelerators.search import Choice
from sonda.record.added import ENGINES, added, called, imported
from sonda.record.errors import SondaError

COUNTS = ("cycles", "weight_reads", "input_reads", "psum_reads", "writes", "multiplications")


def takes(kind: str, operation: str) -> bool:
    """Whether an added kind of engine takes a kind of operation. Raises SondaError where it cannot be imported."""
    usual = [one for one in OPERATIONS if one != "embedding_bag"]
    return operation in getattr(imported(added(ENGINES)[kind]), "operations", usual)


def choose(engine: EngineDescription, operation: Operation) -> Choice:
    """The operation on an added kind of engine. Raises SondaError where it fails or gives what is no result."""
    entry = added(ENGINES).get(engine.kind)
    if entry is None:
        raise SondaError(f"there is no engine {engine.kind!r} any more", "install the package that adds it")
    result = called(entry, engine.hardware, operation.shape)
    whole = isinstance(result, Result) and all(isinstance(getattr(result, name), Integral) for name in COUNTS)
    if not whole or result.cycles < 0 or sum(result.stack.values()) not in (0, result.cycles):
        raise SondaError(
            f"the engine {engine.kind} of {entry.value} gives {result!r:.60}, which is no Result of whole numbers "
            "whose stack adds up to its cycles",
            "mend or uninstall the package that adds it",
        )
    return Choice({}, result)
