"""What XLA made of a function, read from its text (`compiled.as_text()`): computations and their instructions.

An instruction keeps the scopes that it came from (`op_name`) and the place in the source: a number of a frame, whose
tables stand at the head of the text, or file and line themselves, as older versions write them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

MODULE = re.compile(r"^HloModule ([\w.\-]+)")
COPIES = re.compile(r"\b(?:num_partitions|replica_count)=(\d+)")
COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
INSTRUCTION = re.compile(r"^\s*(ROOT )?%?([\w.\-]+) = (.*)$")
OPCODE = re.compile(r"\s*([\w\-]+)\(")
OPERAND = re.compile(r"%([\w.\-]+)")
SCOPES = re.compile(r'\bop_name="([^"]*)"')
FRAME = re.compile(r"\bstack_frame_id=(\d+)")
SOURCE = re.compile(r'\bsource_file="([^"]*)"(?: source_line=(\d+))?')
CALLED = re.compile(r"\b(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)")
BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")
BODY = re.compile(r"\bbody=%?([\w.\-]+)")
TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
ARRAY = re.compile(r"\b([a-z]\w*)\[([\d,]*)\]")
TABLE = re.compile(r'^(\d+) (?:"(.*)"|\{(.*)\})$')
NUMBER = re.compile(r"(\w+)=(\d+)")
SECTIONS = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
CALLING = ("call", "conditional", "async-start")
"""Opcodes that run computations of their own."""
STARTED = "-start"
"""Behind the opcode of an instruction beside which others run, until its `-done`. Its shape is a tuple: inputs, result,
perhaps contexts."""
OWN = ("all-gather-start", "all-reduce-start", "collective-permute-start", "copy-start", "async-start")
"""Opcodes that exist so only: their shapes are others."""


Choose = Callable[[Sequence[str]], Sequence[str]]
"""Of the names of branches those that count."""


@dataclass(frozen=True)
class Frame:
    """A place in a program: file, function ('' where it is not known) and line."""

    file: str
    function: str
    line: int


@dataclass(frozen=True)
class Array:
    """The shape of an array: type of its elements as XLA writes it (`f32`), and its sides."""

    kind: str
    sides: tuple[int, ...]

    @property
    def size(self) -> int:
        count = 1
        for side in self.sides:
            count *= side
        return count


@dataclass(frozen=True)
class Instruction:
    """One line of a computation."""

    name: str
    opcode: str
    shape: str
    operands: tuple[str, ...]
    attributes: str
    """All that stands behind the operands."""
    root: bool = False

    @cached_property
    def arrays(self) -> tuple[Array, ...]:
        """Of its result: one, or those of a tuple."""
        return tuple(
            Array(kind, tuple(int(side) for side in sides.split(",") if side))
            for kind, sides in ARRAY.findall(self.shape)
        )

    @cached_property
    def scopes(self) -> str:
        """Of an instruction that was made of several those of the first."""
        found = SCOPES.search(self.attributes)
        return found[1].partition(";")[0] if found else ""

    @cached_property
    def called(self) -> tuple[str, ...]:
        """Names of the computations that it runs, or applies."""
        branches = BRANCHES.search(self.attributes)
        return (*CALLED.findall(self.attributes), *(OPERAND.findall(branches[1]) if branches else ()))

    @property
    def body(self) -> str:
        found = BODY.search(self.attributes)
        return found[1] if found else ""

    @property
    def trips(self) -> int | None:
        """How often a loop runs; None where XLA does not know."""
        found = TRIPS.search(self.attributes)
        return int(found[1]) if found else None


@dataclass
class Module:
    """A compiled function: its computations by name, and where its instructions come from."""

    name: str = ""
    entry: str = ""
    copies: int = 1
    """Devices that run it side by side, each on its own share."""
    computations: dict[str, list[Instruction]] = field(default_factory=dict)
    tables: dict[str, dict[int, str]] = field(default_factory=dict)

    @cached_property
    def named(self) -> dict[str, Instruction]:
        """Instructions of all computations by name."""
        return {one.name: one for inside in self.computations.values() for one in inside}

    def frames(self, instruction: Instruction) -> tuple[Frame, ...]:
        """The calls that led to an instruction, outermost first; () where nothing is known."""
        number = FRAME.search(instruction.attributes)
        if number is not None:
            return self._chain(int(number[1]))
        source = SOURCE.search(instruction.attributes)
        return (Frame(source[1], "", int(source[2] or 0)),) if source else ()

    def _chain(self, number: int) -> tuple[Frame, ...]:
        frames, above = self._frames
        found: list[Frame] = []
        while number in frames and len(found) < len(frames):
            found.append(frames[number])
            number = above[number]
        return tuple(reversed(found))

    @cached_property
    def _frames(self) -> tuple[dict[int, Frame], dict[int, int]]:
        """Every frame by its number, and the number of the one around it, 0 for none."""
        files, functions, locations, stack = (self.tables.get(name, {}) for name in SECTIONS)
        frames: dict[int, Frame] = {}
        above: dict[int, int] = {}
        for number, text in stack.items():
            about = _numbers(text)
            place = _numbers(locations.get(about.get("file_location_id", 0), ""))
            file = files.get(place.get("file_name_id", 0), "")
            function = functions.get(place.get("function_name_id", 0), "")
            frames[number] = Frame(file, function, place.get("line", 0))
            above[number] = about.get("parent_frame_id", 0)
        # The first frame has none around it: where XLA writes a number there, it writes all of them one too high.
        too_high = above[min(above)] if above else 0
        return frames, {number: max(around - too_high, 0) for number, around in above.items()}

    def executed(self, choose: Choose = list, computation: str = "") -> Iterator[tuple[Instruction, int | None]]:
        """What runs as an instruction of its own, and how often in a call (None: XLA does not know).

        A fusion is one; what is applied to every element is none. `choose` says which branches of a condition are
        given: all, unless told otherwise. `computation`: another one than that of the whole call.
        """
        return self._executed(computation or self.entry, 1, (), choose)

    def _executed(
        self, name: str, times: int | None, above: tuple[str, ...], choose: Choose
    ) -> Iterator[tuple[Instruction, int | None]]:
        if name in above:
            return
        for one in self.computations.get(name, ()):
            if one.opcode == "while":
                often = None if times is None or one.trips is None else times * one.trips
                yield from self._executed(one.body, often, (*above, name), choose)
            elif one.opcode in CALLING:
                for inner in choose(one.called) if one.opcode == "conditional" else one.called:
                    yield from self._executed(inner, times, (*above, name), choose)
            else:
                yield one, times

    def sequence(self, most: int) -> list[Instruction] | None:
        """What a call runs, one after the other, as often as it runs; of a condition all branches in turn.

        None where XLA does not know how often a loop runs, or where there are more instructions than `most`.
        """
        found: list[Instruction] = []
        return found if self._unrolled(self.entry, (), found, most) else None

    def _unrolled(self, name: str, above: tuple[str, ...], found: list[Instruction], most: int) -> bool:
        for one in self.computations.get(name, ()) if name not in above else ():
            inner = (one.body,) if one.opcode == "while" else one.called if one.opcode in CALLING else ()
            trips = one.trips if one.opcode == "while" else 1
            if trips is None or len(found) > most:
                return False
            if not inner:
                found.append(one)
            for _ in range(trips if inner else 0):
                if not all(self._unrolled(computation, (*above, name), found, most) for computation in inner):
                    return False
        return len(found) <= most


def _numbers(text: str) -> dict[str, int]:
    return {name: int(value) for name, value in NUMBER.findall(text)}


def read_module(text: str) -> Module:
    """Read the text of a compiled function. Lines that are none of a module are left out."""
    module = Module()
    current: list[Instruction] = []
    table: dict[int, str] = {}
    for line in text.splitlines():
        if (match := INSTRUCTION.match(line)) is not None and line[:1].isspace():
            found = _instruction(match)
            if found is not None:
                current.append(found)
        elif (match := COMPUTATION.match(line)) is not None:
            current = module.computations.setdefault(match[2], [])
            if match[1]:
                module.entry = match[2]
        elif (match := TABLE.match(line)) is not None:
            table[int(match[1])] = match[2] if match[2] is not None else match[3]
        elif line in SECTIONS:
            table = module.tables.setdefault(line, {})
        elif (match := MODULE.match(line)) is not None:
            module.name = match[1]
            for number in COPIES.findall(line):
                module.copies *= int(number)
    return module


def _instruction(match: re.Match[str]) -> Instruction | None:
    root, name, rest = match.groups()
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.find(" ")
    opcode = OPCODE.match(rest, max(end, 0))
    if opcode is None:
        return None
    closing = _closing(rest, opcode.end() - 1)
    operands = tuple(OPERAND.findall(rest[opcode.end() : closing]))
    kind, shape = opcode[1], rest[:end]
    if kind.endswith(STARTED) and kind not in OWN and shape.startswith("(("):
        kind, shape = kind.removesuffix(STARTED), _second(shape)
    return Instruction(name, kind, shape, operands, rest[closing + 1 :], bool(root))


def _second(shape: str) -> str:
    """The second element of a tuple whose first is one too. Commas stand in sides and layouts as well."""
    begin = _closing(shape, 1) + 1
    depth = 0
    for at in range(begin, len(shape)):
        depth += (shape[at] in "([{") - (shape[at] in ")]}")
        if depth < 0 or (not depth and shape[at] == "," and at > begin):
            return shape[begin:at].lstrip(", ")
    return shape[begin:].lstrip(", ")


def _closing(text: str, opening: int) -> int:
    """Where the bracket that opens there is closed; the end of the text where it is not."""
    depth = 0
    for at in range(opening, len(text)):
        if text[at] == "(":
            depth += 1
        elif text[at] == ")":
            depth -= 1
            if not depth:
                return at
    return len(text)
