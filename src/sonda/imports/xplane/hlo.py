"""Programs of XLA in a profile: its instructions, and the operation of the framework that each came from.

TensorFlow and JAX put every program that ran into the plane `/host:metadata`, as an `HloProto` (github.com/openxla/xla,
`xla/service/hlo.proto`, `xla/xla_data.proto`), under the `program_id` that events of its instructions carry.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from sonda.imports.xplane.planes import XPlane, XSpace
from sonda.imports.xplane.scanner import varint
from sonda.imports.xplane.wire import NUMBER, STRETCH, Buffer, Field, fields, text

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
class HloInstruction:
    """One instruction. `scopes`: the operation that it came from (`forward/stem.0/Conv2D`), '' where unknown."""

    name: str = ""
    opcode: str = ""
    scopes: str = ""
    number: int = 0
    operands: list[int] = field(default_factory=list)
    called: list[int] = field(default_factory=list)
    """Numbers of the computations inside it."""


def programs(space: XSpace) -> dict[int, dict[str, HloInstruction]]:
    """By the number of a program its instructions by name, each with the scopes of the operation that it counts for.

    An instruction that several operations were fused into counts for its product; with several products for what their
    scopes share; without one for its own last operation. One that XLA added counts for the next that uses its result.
    """
    instructions = {}
    for plane in space.planes:
        if plane.name == METADATA:
            for number, about in plane.events.items():
                if (program := _program(plane, about.stats)) is not None:
                    instructions[number] = _assign_scopes(program)
    return instructions


def _program(plane: XPlane, rows: tuple[tuple[int, int, int, int], ...]) -> dict[int, list[HloInstruction]] | None:
    """Instructions by the number of their computation."""
    for metadata, _, begin, end in rows:
        if plane.stat_names.get(metadata) == PROGRAM:
            return dict(_computations(plane.data, begin, end))
    return None


def _computations(data: Buffer, begin: int, end: int) -> Iterator[tuple[int, list[HloInstruction]]]:
    for module in _subfields(data, begin, end, MODULE):
        for computation in _subfields(data, module.value, module.stop, COMPUTATIONS):
            number, instructions = 0, []
            for entry in fields(data, computation.value, computation.stop):
                if entry.number == COMPUTATION_ID and entry.wire == NUMBER:
                    number = entry.value
                elif entry.number == INSTRUCTIONS and entry.wire == STRETCH:
                    instructions.append(_read_instruction(data, entry.value, entry.stop))
            yield number, instructions


def _subfields(data: Buffer, begin: int, end: int, number: int) -> Iterator[Field]:
    return (
        entry
        for entry in fields(data, begin, end)
        if entry.number == number and entry.wire == STRETCH and entry.stop <= end
    )


def _read_instruction(data: Buffer, begin: int, end: int) -> HloInstruction:
    instruction = HloInstruction()
    for entry in fields(data, begin, end):
        if entry.wire == NUMBER:
            if entry.number == ID:
                instruction.number = entry.value
            elif entry.number in (OPERANDS, CALLED):
                (instruction.operands if entry.number == OPERANDS else instruction.called).append(entry.value)
        elif entry.wire != STRETCH or entry.stop > end:
            continue
        elif entry.number == NAME:
            instruction.name = text(data, entry.value, entry.stop)
        elif entry.number == OPCODE:
            instruction.opcode = text(data, entry.value, entry.stop)
        elif entry.number == ABOUT:
            for word in _subfields(data, entry.value, entry.stop, SCOPES):
                instruction.scopes = text(data, word.value, word.stop)
        elif entry.number in (OPERANDS, CALLED):
            (instruction.operands if entry.number == OPERANDS else instruction.called).extend(
                _packed_numbers(data, entry.value, entry.stop)
            )
    if instruction.scopes == ARGUMENTS:
        instruction.scopes = ""
    return instruction


def _packed_numbers(data: Buffer, at: int, stop: int) -> Iterator[int]:
    """Whole numbers that are packed one behind another."""
    while at < stop:
        value, at = varint(data, at, stop)
        if at < 0:
            return
        yield value


def _assign_scopes(program: dict[int, list[HloInstruction]]) -> dict[str, HloInstruction]:
    """Instructions by name, with the scopes that each counts for."""
    every = {instruction.number: instruction for inside in program.values() for instruction in inside}
    users: dict[int, list[int]] = {}
    for instruction in every.values():
        for operand in instruction.operands:
            users.setdefault(operand, []).append(instruction.number)
    own = {number: _own_scopes(instruction, program) for number, instruction in every.items()}
    result = {}
    for number, instruction in every.items():
        asked = [number]
        for _ in range(MOST_USERS):
            if known := next((own[step] for step in asked if own.get(step)), ""):
                break
            asked = list(dict.fromkeys(user for step in asked for user in users.get(step, ())))
        result[instruction.name] = HloInstruction(
            instruction.name, instruction.opcode, known, number, instruction.operands, instruction.called
        )
    return result


def _own_scopes(instruction: HloInstruction, program: dict[int, list[HloInstruction]]) -> str:
    """The scopes of an instruction by itself, or of what is inside it."""
    inside = [inner for number in instruction.called for inner in program.get(number, ())]
    products = {inner.scopes for inner in inside if inner.opcode in PRODUCTS and inner.scopes}
    if products:
        return shared_scopes(products)
    return instruction.scopes or next((inner.scopes for inner in reversed(inside) if inner.scopes), "")


def shared_scopes(scopes: set[str]) -> str:
    """What scopes have in common from the outermost on; of one scope itself."""
    side_by_side = zip(*(path.split("/") for path in sorted(scopes)), strict=False)
    return "/".join(words[0] for words in takewhile(lambda words: len(set(words)) == 1, side_by_side))
