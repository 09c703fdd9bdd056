"""Reads the stages of a program's processes: imports, files of weights, compilation, what observing took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

PROCESS = "process"
"""The stage that is a whole process, from the first moment in which it was observed to its end."""


class ObservedStage(NamedTuple):
    """A stage of one thread; times are ns on the host's clock. A process is one of its main thread."""

    kind: str
    name: str
    what: str
    """Which module was imported, which function saved or loaded."""
    thread: int
    start: int
    end: int


class _Line(msgspec.Struct):
    """A line as the collector writes it: a stage, or a process that begins or ends."""

    kind: str = ""
    name: str = ""
    what: str = ""
    thread: int = 0
    start: int = 0
    end: int = 0
    process: int = 0
    begun: int = 0
    ended: int = 0


class _UnendedProcess(NamedTuple):
    """A process that did not say when it ended: it was killed, or became a program without Python."""

    process: int
    begun: int
    last: int
    """The end of the last that is known of it."""


def read_stages(directory: Path, begin: int, end: int) -> list[ObservedStage]:
    """The stages of all processes that wrote into a directory, within the run. A line cut short is left out."""
    found: list[ObservedStage] = []
    unended = [one for path in sorted(directory.glob("*.stages")) if (one := _read_process(path, found)) is not None]
    others = [stage.start for stage in found if stage.name == PROCESS]
    first = min([*others, *(one.begun for one in unended)], default=0)
    for one in unended:
        # With the first the program ends. Of any other no more is known than what it wrote.
        last = end if one.begun == first else one.last
        found.append(ObservedStage("stage", PROCESS, "", one.process, one.begun, last))
    within = [stage._replace(start=max(stage.start, begin), end=min(stage.end, end)) for stage in found]
    return [stage for stage in within if stage.end >= stage.start]


def _read_process(path: Path, found: list[ObservedStage]) -> _UnendedProcess | None:
    """Append the stages of one process; the process itself where it did not say when it ended."""
    decode = msgspec.json.Decoder(_Line).decode
    process = begun = last = 0
    for text in path.read_bytes().splitlines():
        try:
            line = decode(text)
        except msgspec.MsgspecError:
            continue
        last = max(last, line.end, line.begun)
        if line.kind:
            found.append(ObservedStage(line.kind, line.name, line.what, line.thread, line.start, line.end))
        elif line.ended and begun:
            found.append(ObservedStage("stage", PROCESS, "", line.process, begun, line.ended))
            process = begun = 0
        elif line.begun:
            # A program that replaces itself keeps its number: it begins again, and is one process.
            process, begun = line.process, begun or line.begun
    return _UnendedProcess(process, begun, last) if begun else None


def stage_columns(stages: Sequence[ObservedStage], code: Callable[[str, str], int]) -> dict[str, np.ndarray]:
    """Rows below the run, the row 0; `code(column, word)` is the number of a word."""
    count = len(stages)

    def words(column: str, chosen: list[str]) -> np.ndarray:
        return np.array([code(column, word) for word in chosen], dtype=np.int32)

    nothing = np.zeros(count, dtype=np.int32)
    return {
        "kind": words("kind", [stage.kind for stage in stages]),
        "name": words("name", [stage.name for stage in stages]),
        "path": words("path", [stage.what for stage in stages]),
        "passes": words("pass", ["timed"] * count),
        "direction": nothing,
        "call": nothing,
        "rank": nothing,
        "level": np.ones(count, dtype=np.int32),
        "parent": np.zeros(count, dtype=np.int64),
        "thread": np.array([stage.thread for stage in stages], dtype=np.int64),
        "start": np.array([stage.start for stage in stages], dtype=np.int64),
        "end": np.array([stage.end for stage in stages], dtype=np.int64),
    }
