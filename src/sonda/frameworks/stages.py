"""Reads the stages of a program's processes: imports, files of weights, compilation, what observing took."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

PROCESS = "process"
"""The stage that is a whole process, from the first moment in which it was observed to its end."""


class Stage(NamedTuple):
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


def read_stages(directory: Path, begin: int, end: int) -> list[Stage]:
    """The stages of all processes that wrote into a directory, within the run. A line cut short is left out."""
    found = [stage for path in sorted(directory.glob("*.stages")) for stage in _read(path, end)]
    within = [stage._replace(start=max(stage.start, begin), end=min(stage.end, end)) for stage in found]
    return [stage for stage in within if stage.end >= stage.start]


def _read(path: Path, end: int) -> Iterator[Stage]:
    decode = msgspec.json.Decoder(_Line).decode
    process = begun = 0
    for text in path.read_bytes().splitlines():
        try:
            line = decode(text)
        except msgspec.MsgspecError:
            continue
        if line.kind:
            yield Stage(line.kind, line.name, line.what, line.thread, line.start, line.end)
        elif line.ended and begun:
            yield Stage("stage", PROCESS, "", line.process, begun, line.ended)
            process = begun = 0
        elif line.begun:
            # A program that replaces itself keeps its number: it begins again, and is one process.
            process, begun = line.process, begun or line.begun
    if begun:  # it was killed, or left without saying so
        yield Stage("stage", PROCESS, "", process, begun, end)
