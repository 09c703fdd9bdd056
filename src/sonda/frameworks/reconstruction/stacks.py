"""Reads the sampled stacks of a program's processes: one tree of frames, one table of samples, garbage collections."""

from __future__ import annotations

import io
import os
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from sonda.frameworks.collector.stacks.file import COLLECTION_NUMBERS, FRAME_NUMBERS, HEAD, MAGIC, SAMPLE_NUMBERS
from sonda.frameworks.collector.stacks.trie import OBSERVING
from sonda.frameworks.reconstruction.division import Division, find_division
from sonda.frameworks.reconstruction.source import UNKNOWN, FunctionEffects, LineFacts, SourceFile, join_lines
from sonda.frameworks.reconstruction.system_calls import name_call
from sonda.record.spans import Words
from sonda.record.stacks import FRAME_NUMBERS as FRAME_COLUMNS
from sonda.record.stacks import FRAME_WORDS, LIBRARY, SONDA, USER, Frames, Stacks, StackSamples
from sonda.record.stacks import SAMPLE_NUMBERS as COLUMNS

ROW_NUMBERS = {b"N": FRAME_NUMBERS, b"S": SAMPLE_NUMBERS, b"G": COLLECTION_NUMBERS}
INSTALLED = ("site-packages", "dist-packages")
"""Folders that packages are installed in."""
FORKED = ("process.py", "BaseProcess._bootstrap")
"""The function in which a process of `multiprocessing` begins. What a forked one has below it is its parent's stack."""
STATEMENT = re.compile(rb"\s*(async\s+)?(for|while|with|if|def|class|try)\b")
"""Begin of a line that holds the head of a statement with a body."""
LONGEST_TEXT = 200
"""Characters of an expression that are kept."""
LONGEST_NAME = 100
"""Characters of a function's name that are kept: its end."""


@dataclass
class _ProcessStacks:
    """What one file holds."""

    facts: dict[str, Any] = field(default_factory=dict)
    functions: dict[int, dict[str, Any]] = field(default_factory=dict)
    rows: dict[bytes, np.ndarray] = field(default_factory=dict)
    """Frames, samples and collections, by the type of their records."""


class SampledStacks(NamedTuple):
    """Sampled stacks of all processes; None where nothing was sampled."""

    stacks: Stacks | None
    collections: np.ndarray
    """A row for each garbage collection: begin and end (ns, CLOCK_MONOTONIC), thread, generation, process."""
    spent: dict[int, float]
    """By process: the part of its time that sampling took, 0 to 1."""
    division: Division | None = None
    """Where its processes divide their work, as far as the sources tell."""


def read_stacks(directory: Path, begin: int) -> SampledStacks:
    """Read the files of all processes in a directory; `begin` is that of the run (ns, CLOCK_MONOTONIC)."""
    tree = _FrameTree()
    samples: list[np.ndarray] = []
    calls: list[str] = []
    collections: list[np.ndarray] = []
    spent: dict[int, float] = {}
    for path in sorted(directory.glob("*.stacks")):
        read = _read_file(path)
        process = int(read.facts.get("process", 0))
        rows = tree.add_process(read)
        taken = read.rows[b"S"]
        stack = taken[:, 2]
        known = (stack >= -1) & (stack < len(rows))
        taken = taken[known]
        stack = np.append(rows, -1)[taken[:, 2]]
        worker = read.facts.get("worker")
        worker = int(worker) if isinstance(worker, int) else -1
        whose = np.full((len(taken), 2), (process, worker))
        collected = _measure_collections(taken, read.rows[b"G"])
        samples.append(
            np.column_stack((taken[:, 0] - begin, whose, taken[:, 1], stack, taken[:, 3:7], collected))
        )  # fmt: skip
        machine = str(read.facts.get("machine", ""))
        names = {number: name_call(machine, number) for number in np.unique(taken[:, 7] - 1).tolist()}
        calls += [names[number] for number in (taken[:, 7] - 1).tolist()]
        collections.append(np.column_stack((read.rows[b"G"], np.full(len(read.rows[b"G"]), process))))
        if len(taken):
            lasted = int(taken[-1, 0]) - int(read.facts.get("begun", taken[0, 0]))
            spent[process] = read.facts.get("spent", 0) / max(lasted, 1)
    together = np.concatenate(collections) if collections else np.zeros((0, COLLECTION_NUMBERS + 1), dtype=np.int64)
    if not sum(map(len, samples)):
        return SampledStacks(None, together, spent)
    table = np.concatenate(samples)
    order = np.argsort(table[:, 0], kind="stable")
    table = table[order]
    numbers = {name: table[:, place].copy() for place, name in enumerate(COLUMNS)}
    waits = Words.of(calls)
    return SampledStacks(
        Stacks(tree.frames(), StackSamples(numbers, {"call": Words(waits.codes[order], waits.words)})),
        together, spent, find_division(tree.sources()) if len(spent) > 1 else None,
    )  # fmt: skip


def _read_file(path: Path) -> _ProcessStacks:
    """Read one file. A record that a crash cut short ends the reading."""
    read = _ProcessStacks()
    blocks: dict[bytes, list[np.ndarray]] = {kind: [] for kind in ROW_NUMBERS}
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    for kind, payload in _split_records(path.read_bytes()):
        if kind == b"D":
            try:
                fact = decode(payload)
            except msgspec.MsgspecError:
                break
            if isinstance(fact.get("code"), int):
                read.functions[fact["code"]] = fact
            else:
                read.facts.update(fact)
        else:
            blocks[kind].append(np.frombuffer(payload, dtype="<i8").reshape(-1, ROW_NUMBERS[kind]))
    read.rows = {
        kind: np.concatenate([np.zeros((0, ROW_NUMBERS[kind]), dtype=np.int64), *parts])
        for kind, parts in blocks.items()
    }
    return read


def _split_records(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    position = len(MAGIC)
    while data.startswith(MAGIC) and position + HEAD.size <= len(data):
        kind, length = HEAD.unpack_from(data, position)
        position += HEAD.size
        whole = kind == b"D" or (kind in ROW_NUMBERS and length % (8 * ROW_NUMBERS[kind]) == 0)
        if not whole or position + length > len(data):
            return
        yield kind, memoryview(data)[position : position + length]
        position += length


def _measure_collections(taken: np.ndarray, collections: np.ndarray) -> np.ndarray:
    """For each sample, the ns since the thread's sample before in which that thread collected garbage."""
    collected = np.zeros(len(taken), dtype=np.int64)
    for thread in np.unique(collections[:, 2]).tolist():
        own = collections[collections[:, 2] == thread]
        moments = own[:, :2].ravel()
        spent = np.repeat(np.cumsum(own[:, 1] - own[:, 0]), 2)
        spent[0::2] -= own[:, 1] - own[:, 0]
        rows = taken[:, 1] == thread
        time, lasted = taken[rows, 0], taken[rows, 3]
        collected[rows] = np.interp(time, moments, spent) - np.interp(time - lasted, moments, spent)
    return collected


class _FrameTree:
    """The frames of all processes as one tree: equal stacks are one."""

    def __init__(self) -> None:
        self._rows: dict[tuple[Any, ...], int] = {}
        """By parent, position and words of a frame: its row."""
        self._sources: dict[str, list[bytes]] = {}
        self._parsed: dict[str, SourceFile] = {}
        self._effects = FunctionEffects()
        self._shown: dict[str, str] = {}
        """By path of a file that was read: how the run shows it."""

    def add_process(self, read: _ProcessStacks) -> np.ndarray:
        """Add the frames of a process; for each of them its row."""
        functions = {number: _Function.of(defined, read.facts) for number, defined in read.functions.items()}
        for defined in functions.values():
            # All at once: what a line feeds depends on what the functions of other files do.
            if defined.origin == USER and defined.path not in self._parsed:
                self._parse(defined)
        rows = np.full(len(read.rows[b"N"]), -1, dtype=np.int64)
        codes = read.rows[b"N"][:, 1].tolist()
        for number, (caller, code, *position) in enumerate(read.rows[b"N"].tolist()):
            function = functions.get(code)
            parent = int(rows[caller]) if 0 <= caller < number else -1
            if function is None:
                rows[number] = parent
                continue
            if (os.path.basename(function.path), function.name) == FORKED:
                parent = -1
            caller_function = functions.get(codes[caller]) if 0 <= caller < number else None
            origin = LIBRARY if _is_generated(function, caller_function) else function.origin
            mine = origin == USER
            text = self._find_text(function, *position) if mine else ""
            facts = self._find_facts(function, *position[:2]) if mine else UNKNOWN
            words = origin, function.module, function.file, _shorten(function.name), text
            key = (parent, function.line, *position, facts.statement, *words, *map(join_lines, facts[1:]))
            rows[number] = self._rows.setdefault(key, len(self._rows))
        return rows

    def frames(self) -> Frames:
        count = len(FRAME_COLUMNS)
        numbers = np.array([key[:count] for key in self._rows], dtype=np.int64).reshape(-1, count)
        return Frames(
            {name: numbers[:, place].copy() for place, name in enumerate(FRAME_COLUMNS)},
            {name: Words.of(str(key[count + place]) for key in self._rows) for place, name in enumerate(FRAME_WORDS)},
        )

    def sources(self) -> dict[str, bytes]:
        """The files of the program whose functions were sampled."""
        return {shown: b"\n".join(self._sources[path]) for path, shown in self._shown.items()}

    def _find_text(self, function: _Function, line: int, column: int, end_line: int, end_column: int) -> str:
        """The source of an expression in one line, or the whole line where columns are not known; '' without one."""
        lines = self._read_source(function)
        if not 0 < line <= end_line <= len(lines):
            return ""
        pieces = lines[line - 1 : end_line]
        if STATEMENT.match(pieces[0]):
            pieces = pieces[:1]  # of a loop the line with its head
        elif column >= 0 and end_column >= 0:
            pieces[-1] = pieces[-1][:end_column]
            pieces[0] = pieces[0][column:]
        text = " ".join(b" ".join(pieces).decode(errors="replace").split())
        return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"

    def _find_facts(self, function: _Function, line: int, column: int) -> LineFacts:
        if function.path not in self._parsed:
            self._parse(function)
        return self._parsed[function.path].look_up(function.name, function.line, line, column)

    def _parse(self, function: _Function) -> None:
        self._parsed[function.path] = SourceFile(self._read_source(function), self._effects)

    def _read_source(self, function: _Function) -> list[bytes]:
        if function.path not in self._sources:
            self._sources[function.path] = _read_lines(function)
            self._shown[function.path] = function.file
        return self._sources[function.path]


class _Function(NamedTuple):
    """A function of the program, or of what it uses."""

    origin: str
    module: str
    file: str
    """As the run shows it."""
    path: str
    name: str
    line: int
    source: str
    """Of code that is in no file, where it is known."""
    written: int
    """When its file was last written (ns), as the program saw it; 0 where that is not known."""
    size: int

    @classmethod
    def of(cls, defined: dict[str, Any], facts: dict[str, Any]) -> _Function:
        file, name = str(defined.get("file", "")), str(defined.get("name", ""))
        place = str(facts.get("place", ""))
        path = file if file.startswith("<") else os.path.normpath(os.path.join(place, file))
        origin, module = _find_origin(path, facts)
        below = place and path.startswith(place.rstrip(os.sep) + os.sep)
        shown = os.path.relpath(path, place) if below else path
        return cls(
            origin, module, shown, path, name, int(defined.get("line", 0)), str(defined.get("text", "")),
            int(defined.get("written", 0)), int(defined.get("size", 0)),
        )  # fmt: skip


def _shorten(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else "…" + name[1 - LONGEST_NAME :]


def _is_generated(function: _Function, caller: _Function | None) -> bool:
    """Whether a library has made this function from text, as named tuples and data classes are made.

    Code that a program executes itself begins with a module, and calls its own functions.
    """
    made = function.path.startswith("<") and not function.source and function.name != "<module>"
    return made and caller is not None and caller.path != function.path


def _find_origin(path: str, facts: dict[str, Any]) -> tuple[str, str]:
    """Where a file belongs, and the dotted name of a library's module."""
    if path == OBSERVING:
        return SONDA, ""
    if path.startswith("<frozen "):
        return LIBRARY, path[len("<frozen ") : -1]
    folders = path.split(os.sep)
    for name in INSTALLED:
        if name in folders:
            return LIBRARY, _name_module(folders[len(folders) - folders[::-1].index(name) :])
    for package in facts.get("frameworks", ()):
        if path.startswith(package + os.sep):
            return LIBRARY, _name_module(os.path.relpath(path, os.path.dirname(package)).split(os.sep))
    library = str(facts.get("library", ""))
    if library and path.startswith(library + os.sep):
        return LIBRARY, _name_module(os.path.relpath(path, library).split(os.sep))
    commands = os.path.join(str(facts.get("prefix", "")), "bin", "")
    return (LIBRARY, folders[-1]) if path.startswith(commands) else (USER, "")


def _name_module(folders: list[str]) -> str:
    """`json.decoder` of `json/decoder.py`, `json` of `json/__init__.py`."""
    names = [*folders[:-1], folders[-1].removesuffix(".py")]
    return ".".join(names[:-1] if names[-1] == "__init__" and len(names) > 1 else names)


def _read_lines(function: _Function) -> list[bytes]:
    """The lines of a function's source in UTF-8; [] where it is gone, or was written since the program saw it."""
    if function.source:
        return function.source.encode(errors="replace").splitlines()
    try:
        found = os.stat(function.path)
        if function.written and (found.st_mtime_ns, found.st_size) != (function.written, function.size):
            return []
        return _recode(Path(function.path).read_bytes()).splitlines()
    except (OSError, ValueError):
        return []


def _recode(source: bytes) -> bytes:
    """A source in UTF-8, whatever it says that it is written in: columns count bytes of that."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        return source.decode(encoding).encode()
    except (SyntaxError, UnicodeError, LookupError):
        return source
