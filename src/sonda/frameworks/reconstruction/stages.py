"""Reads the stages of a program's processes: imports, files of weights, compilation, and observing itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

PROCESS = "process"
"""Name of the stage that is a whole process, from the first moment in which it was observed to its end."""


class ObservedStage(NamedTuple):
    """A stage of one thread; times are ns on the host's clock. A process is a stage of its main thread."""

    kind: str
    name: str
    detail: str
    """The module that was imported, or the function that saved or loaded."""
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
    """A process whose end is not in its file: it was killed, or became a program without Python."""

    process: int
    begun: int
    last: int
    """The last time in its file, ns."""


def read_stages(directory: Path, begin: int, end: int) -> list[ObservedStage]:
    """Read the stages of all processes in a directory, cut to the run (ns). A line that was cut short is left out."""
    stages: list[ObservedStage] = []
    processes = [_read_process(path, stages) for path in sorted(directory.glob("*.stages"))]
    unended = [process for process in processes if process is not None]
    ended = [stage.start for stage in stages if stage.name == PROCESS]
    first = min([*ended, *(process.begun for process in unended)], default=0)
    for process in unended:
        # The program ends with its first process. Of any other, no more is known than its file says.
        last = end if process.begun == first else process.last
        stages.append(ObservedStage("stage", PROCESS, "", process.process, process.begun, last))
    within = [stage._replace(start=max(stage.start, begin), end=min(stage.end, end)) for stage in stages]
    return [stage for stage in within if stage.end >= stage.start]


def _read_process(path: Path, stages: list[ObservedStage]) -> _UnendedProcess | None:
    """Append the stages of one process; returns the process where its end is not in its file."""
    decode = msgspec.json.Decoder(_Line).decode
    process = begun = last = 0
    for text in path.read_bytes().splitlines():
        try:
            line = decode(text)
        except msgspec.MsgspecError:
            continue
        last = max(last, line.end, line.begun)
        if line.kind:
            stages.append(ObservedStage(line.kind, line.name, line.what, line.thread, line.start, line.end))
        elif line.ended and begun:
            stages.append(ObservedStage("stage", PROCESS, "", line.process, begun, line.ended))
            process = begun = 0
        elif line.begun:
            # A program that replaces itself keeps its process id: it begins again, and is one process.
            process, begun = line.process, begun or line.begun
    return _UnendedProcess(process, begun, last) if begun else None


def stage_columns(stages: Sequence[ObservedStage], code: Callable[[str, str], int]) -> dict[str, np.ndarray]:
    """Columns of rows below the run, which is row 0; `code(column, word)` gives the number of a word."""
    count = len(stages)

    def words(column: str, chosen: list[str]) -> np.ndarray:
        return np.array([code(column, word) for word in chosen], dtype=np.int32)

    nothing = np.zeros(count, dtype=np.int32)
    return {
        "kind": words("kind", [stage.kind for stage in stages]),
        "name": words("name", [stage.name for stage in stages]),
        "path": words("path", [stage.detail for stage in stages]),
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
