"""A function as XLA compiled it, read from its text (`compiled.as_text()`): computations and their instructions.

An instruction keeps the scopes that it came from (`op_name`) and its place in the source. The place is the number of a
frame, whose tables stand at the head of the text, or file and line themselves, as older versions write them.
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
CALLEE = re.compile(r"\b(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)")
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
"""Ends the opcode of an asynchronous instruction, until whose `-done` others run. Its shape is a tuple: inputs, result,
perhaps contexts."""
ALWAYS_STARTED = ("all-gather-start", "all-reduce-start", "collective-permute-start", "copy-start", "async-start")
"""Opcodes that are always asynchronous. Their shapes are different."""


Choose = Callable[[Sequence[str]], Sequence[str]]
"""Takes the names of branches, and gives those that count."""


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
    """The text behind the operands."""
    root: bool = False

    @cached_property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays of its result: one, or those of a tuple."""
        return tuple(
            Array(kind, tuple(int(side) for side in sides.split(",") if side))
            for kind, sides in ARRAY.findall(self.shape)
        )

    @cached_property
    def scopes(self) -> str:
        """The scopes that it came from; of an instruction that was made of several, those of the first."""
        match = SCOPES.search(self.attributes)
        return match[1].partition(";")[0] if match else ""

    @cached_property
    def callees(self) -> tuple[str, ...]:
        """Names of the computations that it runs or applies."""
        branches = BRANCHES.search(self.attributes)
        return (*CALLEE.findall(self.attributes), *(OPERAND.findall(branches[1]) if branches else ()))

    @property
    def body(self) -> str:
        match = BODY.search(self.attributes)
        return match[1] if match else ""

    @property
    def trips(self) -> int | None:
        """How often a loop runs; None where XLA does not know."""
        match = TRIPS.search(self.attributes)
        return int(match[1]) if match else None


@dataclass
class Module:
    """A compiled function: its computations by name, and where its instructions come from."""

    name: str = ""
    entry: str = ""
    copies: int = 1
    """Devices that run it in parallel, each on its own share."""
    computations: dict[str, list[Instruction]] = field(default_factory=dict)
    tables: dict[str, dict[int, str]] = field(default_factory=dict)

    @cached_property
    def by_name(self) -> dict[str, Instruction]:
        """Instructions of all computations by name."""
        return {
            instruction.name: instruction for instructions in self.computations.values() for instruction in instructions
        }

    def frames(self, instruction: Instruction) -> tuple[Frame, ...]:
        """The calls that led to an instruction, outermost first; () where nothing is known."""
        number = FRAME.search(instruction.attributes)
        if number is not None:
            return self._frame_chain(int(number[1]))
        source = SOURCE.search(instruction.attributes)
        return (Frame(source[1], "", int(source[2] or 0)),) if source else ()

    def _frame_chain(self, number: int) -> tuple[Frame, ...]:
        frames, above = self._frames
        chain: list[Frame] = []
        while number in frames and len(chain) < len(frames):
            chain.append(frames[number])
            number = above[number]
        return tuple(reversed(chain))

    @cached_property
    def _frames(self) -> tuple[dict[int, Frame], dict[int, int]]:
        """Every frame by its number, and by the same number that of its caller, 0 for none."""
        files, functions, locations, stack = (self.tables.get(name, {}) for name in SECTIONS)
        frames: dict[int, Frame] = {}
        parents: dict[int, int] = {}
        for number, text in stack.items():
            numbers = _parse_numbers(text)
            location = _parse_numbers(locations.get(numbers.get("file_location_id", 0), ""))
            file = files.get(location.get("file_name_id", 0), "")
            function = functions.get(location.get("function_name_id", 0), "")
            frames[number] = Frame(file, function, location.get("line", 0))
            parents[number] = numbers.get("parent_frame_id", 0)
        # The first frame has no caller. Where XLA writes a number for it, all numbers are one too high.
        too_high = parents[min(parents)] if parents else 0
        return frames, {number: max(parent - too_high, 0) for number, parent in parents.items()}

    def executed_instructions(
        self, choose: Choose = list, computation: str = ""
    ) -> Iterator[tuple[Instruction, int | None]]:
        """The instructions that run by themselves, and how often each runs in a call (None: XLA does not know).

        A fusion runs by itself; a computation that is applied to every element does not. `choose` chooses among the
        branches of a condition, by default all. `computation`: another one than that of the whole call.
        """
        return self._walk_executed(computation or self.entry, 1, (), choose)

    def _walk_executed(
        self, name: str, times: int | None, outer: tuple[str, ...], choose: Choose
    ) -> Iterator[tuple[Instruction, int | None]]:
        if name in outer:
            return
        for instruction in self.computations.get(name, ()):
            if instruction.opcode == "while":
                runs = None if times is None or instruction.trips is None else times * instruction.trips
                yield from self._walk_executed(instruction.body, runs, (*outer, name), choose)
            elif instruction.opcode in CALLING:
                callees = instruction.callees
                for inner in choose(callees) if instruction.opcode == "conditional" else callees:
                    yield from self._walk_executed(inner, times, (*outer, name), choose)
            else:
                yield instruction, times

    def run_sequence(self, most: int) -> list[Instruction] | None:
        """The instructions of a call in the order of time, each as often as it runs; of a condition all branches.

        None where XLA does not know how often a loop runs, or where there are more instructions than `most`.
        """
        unrolled: list[Instruction] = []
        return unrolled if self._unroll(self.entry, (), unrolled, most) else None

    def _unroll(self, name: str, outer: tuple[str, ...], unrolled: list[Instruction], most: int) -> bool:
        for instruction in self.computations.get(name, ()) if name not in outer else ():
            loops = instruction.opcode == "while"
            inner = (instruction.body,) if loops else instruction.callees if instruction.opcode in CALLING else ()
            trips = instruction.trips if loops else 1
            if trips is None or len(unrolled) > most:
                return False
            if not inner:
                unrolled.append(instruction)
            for _ in range(trips if inner else 0):
                if not all(self._unroll(computation, (*outer, name), unrolled, most) for computation in inner):
                    return False
        return len(unrolled) <= most


def _parse_numbers(text: str) -> dict[str, int]:
    return {name: int(value) for name, value in NUMBER.findall(text)}


def read_module(text: str) -> Module:
    """Read the text of a compiled function. Lines that are no part of a module are ignored."""
    module = Module()
    current: list[Instruction] = []
    table: dict[int, str] = {}
    for line in text.splitlines():
        if (match := INSTRUCTION.match(line)) is not None and line[:1].isspace():
            instruction = _parse_instruction(match)
            if instruction is not None:
                current.append(instruction)
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


def _parse_instruction(match: re.Match[str]) -> Instruction | None:
    root, name, rest = match.groups()
    end = _closing_bracket(rest, 0) + 1 if rest.startswith("(") else rest.find(" ")
    opcode = OPCODE.match(rest, max(end, 0))
    if opcode is None:
        return None
    closing = _closing_bracket(rest, opcode.end() - 1)
    operands = tuple(OPERAND.findall(rest[opcode.end() : closing]))
    kind, shape = opcode[1], rest[:end]
    if kind.endswith(STARTED) and kind not in ALWAYS_STARTED and shape.startswith("(("):
        kind, shape = kind.removesuffix(STARTED), _second_element(shape)
    return Instruction(name, kind, shape, operands, rest[closing + 1 :], bool(root))


def _second_element(shape: str) -> str:
    """The second element of a tuple whose first element is a tuple. Sides and layouts contain commas as well."""
    begin = _closing_bracket(shape, 1) + 1
    depth = 0
    for at in range(begin, len(shape)):
        depth += (shape[at] in "([{") - (shape[at] in ")]}")
        if depth < 0 or (not depth and shape[at] == "," and at > begin):
            return shape[begin:at].lstrip(", ")
    return shape[begin:].lstrip(", ")


def _closing_bracket(text: str, opening: int) -> int:
    """The position of the bracket that closes the one at `opening`; the end of the text where there is none."""
    depth = 0
    for at in range(opening, len(text)):
        if text[at] == "(":
            depth += 1
        elif text[at] == ")":
            depth -= 1
            if not depth:
                return at
    return len(text)
