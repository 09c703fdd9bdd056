"""Programs of XLA in a profile: its instructions, and the operation of the framework that each came from.

TensorFlow and JAX put every program that ran into the plane `/host:metadata`, as an `HloProto` (github.com/openxla/xla,
`xla/service/hlo.proto`, `xla/xla_data.proto`), under the `program_id` that events of its instructions carry.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from sonda.imports.wire import NUMBER, STRETCH, Buffer, Field, fields, text
from sonda.imports.xplane_kernel import varint
from sonda.imports.xplane_plane import Plane, Space

METADATA = "/host:metadata"
PROGRAM = "Hlo Proto"
PRODUCTS = ("convolution", "dot")
ARGUMENTS = "XLA_Args"
"""The scope of what a program is given: that of no operation."""
MOST_USERS = 8
"""Steps from an instruction without scopes to one that uses its result."""
MODULE, COMPUTATIONS, INSTRUCTIONS, COMPUTATION_ID = 1, 3, 2, 5
NAME, OPCODE, ABOUT, ID, OPERANDS, CALLED = 1, 2, 7, 35, 36, 38
SCOPES = 2
"""Field of OpMetadata."""


@dataclass
class Instruction:
    """One instruction. `scopes`: the operation that it came from (`forward/stem.0/Conv2D`), '' where nobody said."""

    name: str = ""
    opcode: str = ""
    scopes: str = ""
    number: int = 0
    operands: list[int] = field(default_factory=list)
    called: list[int] = field(default_factory=list)
    """Numbers of the computations inside it."""


def programs(space: Space) -> dict[int, dict[str, Instruction]]:
    """By the number of a program its instructions by name, each with the scopes of the operation that it counts for.

    An instruction that several operations were fused into counts for its product; with several products for what their
    scopes share; without one for its own last operation. One that XLA added counts for the next that uses its result.
    """
    found = {}
    for plane in space.planes:
        if plane.name == METADATA:
            for number, about in plane.events.items():
                if (program := _program(plane, about.stats)) is not None:
                    found[number] = _scoped(program)
    return found


def _program(plane: Plane, rows: tuple[tuple[int, int, int, int], ...]) -> dict[int, list[Instruction]] | None:
    """Instructions by the number of their computation."""
    for metadata, _, begin, end in rows:
        if plane.stat_names.get(metadata) == PROGRAM:
            return dict(_computations(plane.data, begin, end))
    return None


def _computations(data: Buffer, begin: int, end: int) -> Iterator[tuple[int, list[Instruction]]]:
    for module in _inside(data, begin, end, MODULE):
        for computation in _inside(data, module.value, module.stop, COMPUTATIONS):
            number, instructions = 0, []
            for one in fields(data, computation.value, computation.stop):
                if one.number == COMPUTATION_ID and one.wire == NUMBER:
                    number = one.value
                elif one.number == INSTRUCTIONS and one.wire == STRETCH:
                    instructions.append(_instruction(data, one.value, one.stop))
            yield number, instructions


def _inside(data: Buffer, begin: int, end: int, number: int) -> Iterator[Field]:
    return (one for one in fields(data, begin, end) if one.number == number and one.wire == STRETCH and one.stop <= end)


def _instruction(data: Buffer, begin: int, end: int) -> Instruction:
    found = Instruction()
    for one in fields(data, begin, end):
        if one.wire == NUMBER:
            if one.number == ID:
                found.number = one.value
            elif one.number in (OPERANDS, CALLED):
                (found.operands if one.number == OPERANDS else found.called).append(one.value)
        elif one.wire != STRETCH or one.stop > end:
            continue
        elif one.number == NAME:
            found.name = text(data, one.value, one.stop)
        elif one.number == OPCODE:
            found.opcode = text(data, one.value, one.stop)
        elif one.number == ABOUT:
            for word in _inside(data, one.value, one.stop, SCOPES):
                found.scopes = text(data, word.value, word.stop)
        elif one.number in (OPERANDS, CALLED):
            (found.operands if one.number == OPERANDS else found.called).extend(_numbers(data, one.value, one.stop))
    if found.scopes == ARGUMENTS:
        found.scopes = ""
    return found


def _numbers(data: Buffer, at: int, stop: int) -> Iterator[int]:
    """Whole numbers that are packed one behind another."""
    while at < stop:
        value, at = varint(data, at, stop)
        if at < 0:
            return
        yield value


def _scoped(program: dict[int, list[Instruction]]) -> dict[str, Instruction]:
    """Instructions by name, with the scopes that each counts for."""
    every = {one.number: one for inside in program.values() for one in inside}
    users: dict[int, list[int]] = {}
    for one in every.values():
        for operand in one.operands:
            users.setdefault(operand, []).append(one.number)
    own = {number: _own(one, program) for number, one in every.items()}
    result = {}
    for number, one in every.items():
        asked = [number]
        for _ in range(MOST_USERS):
            if known := next((own[step] for step in asked if own.get(step)), ""):
                break
            asked = list(dict.fromkeys(user for step in asked for user in users.get(step, ())))
        result[one.name] = Instruction(one.name, one.opcode, known, number, one.operands, one.called)
    return result


def _own(one: Instruction, program: dict[int, list[Instruction]]) -> str:
    """The scopes of an instruction by itself, or of what is inside it."""
    inside = [inner for number in one.called for inner in program.get(number, ())]
    products = {inner.scopes for inner in inside if inner.opcode in PRODUCTS and inner.scopes}
    if products:
        return shared(products)
    return one.scopes or next((inner.scopes for inner in reversed(inside) if inner.scopes), "")


def shared(scopes: set[str]) -> str:
    """What scopes have in common from the outermost on; of one scope itself."""
    side_by_side = zip(*(one.split("/") for one in sorted(scopes)), strict=False)
    return "/".join(words[0] for words in takewhile(lambda words: len(set(words)) == 1, side_by_side))
