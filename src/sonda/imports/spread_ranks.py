"""Ranks read by several workers at once, and put together as if one had read them all.

First every trace is read and spilled; then it is known how many spans each becomes and where all clocks begin, so every
rank can be linked and written with the rows that it has in the run. What the workers wrote is joined without unpacking
it. Each attempt has a directory of its own: a worker that dies leaves nothing that another could mistake for its own.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from sonda.imports.rank_events import Written, place_ranks, write_rank
from sonda.imports.rank_state import keep_state, read_state
from sonda.imports.readers import read_trace
from sonda.imports.reading_file import ReadingWriter
from sonda.record.errors import SondaError
from sonda.record.joined_file import join_files
from sonda.record.run import SAMPLES, SPANS
from sonda.record.saying import Say
from sonda.record.span_file import SpanWriter

PLACE = "ranks"
"""The directory of the workers' directories."""

Spread = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[tuple[int, Any]]]
"""Has a function called with each of these orders, anywhere and in any order, and yields place and value of each as it
ends. A call whose worker dies is made again. Raises SondaError for the first that fails."""


@dataclass(frozen=True)
class Reading:
    """The order to read one trace."""

    kind: str
    path: Path
    directory: Path
    number: int
    members: tuple[str, ...]
    """Of the file's head, those that are asked for."""

    def __str__(self) -> str:
        return self.path.name


@dataclass(frozen=True)
class Writing:
    """The order to link and write one rank; `read` is the directory where it was spilled."""

    file: str
    read: Path
    rank: int
    first_row: int
    rows: int
    shift: int
    origin: int

    def __str__(self) -> str:
        return self.file


class ReadRank(msgspec.Struct):
    """What a worker found in a trace, without its events."""

    file: str
    directory: str
    rank: int | None
    base: int
    first: int | None
    rows: int
    truncated: bool
    head: dict[str, Any]
    left_out: dict[str, int]
    shift: int = 0

    @property
    def first_start(self) -> int | None:
        return self.first


class WrittenRank(msgspec.Struct):
    """What became of a rank, and where its spans are."""

    directory: str
    on_device: int
    samples: bool
    notes: list[str]
    left_out: dict[str, int]


def spread_ranks(
    kind: str, files: Sequence[Path], directory: Path, members: tuple[str, ...], say: Say,
    spread: Spread,
) -> tuple[list[ReadRank], Written]:  # fmt: skip
    """As reading all `files` and `write_ranks` do; of the files' heads these `members` come back.

    Raises SondaError where a trace cannot be read, OSError where the disk is full.
    """
    place = (directory / PLACE).resolve()
    place.mkdir()
    by_size = sorted(files, key=lambda path: -path.stat().st_size)
    numbers = {path: number for number, path in enumerate(files)}
    readings = [Reading(kind, path.resolve(), place, numbers[path], members) for path in by_size]
    read: dict[int, ReadRank] = {}
    for at, found in spread(read_rank, readings):
        read[readings[at].number] = found
        say(f"read {len(read)} of {len(files)} traces")
    ranks = [read[number] for number in range(len(files))]
    ranks.sort(key=lambda one: -1 if one.rank is None else one.rank)
    notes, origin = place_ranks(ranks)
    first, writings = 0, []
    for one in ranks:
        writings.append(Writing(one.file, Path(one.directory), one.rank or 0, first, one.rows, one.shift, origin))
        first += one.rows
    order = sorted(range(len(ranks)), key=lambda at: -ranks[at].rows)
    written: dict[int, WrittenRank] = {}
    for at, done in spread(link_rank, [writings[at] for at in order]):
        written[order[at]] = done
        shutil.rmtree(ranks[order[at]].directory)
        say(f"linked {len(written)} of {len(files)} traces")
    parts = [written[at] for at in range(len(ranks))]
    for one, part in zip(ranks, parts, strict=True):
        one.left_out = part.left_out
        notes += part.notes
    full = [Path(part.directory) / SPANS for part, one in zip(parts, ranks, strict=True) if one.rows]
    rows = join_files(full, directory / SPANS) if full else 0
    samples = [Path(part.directory) / SAMPLES for part in parts if part.samples]
    if samples:
        join_files(samples, directory / SAMPLES)
    shutil.rmtree(place)
    return ranks, Written(rows, sum(part.on_device for part in parts), notes)


def read_rank(order: Reading) -> ReadRank:
    """Spill one trace into a directory of its own. Raises SondaError when it cannot be read, or nothing be written."""
    directory = _own(order.directory, order.path)
    try:
        found = read_trace(order.kind, order.path, directory, order.number, lambda _: None, alone=True)
        keep_state(found, order.kind, directory)
        return ReadRank(
            order.path.name, str(directory), found.rank, found.base, found.first_start, found.rows, found.truncated,
            {name: found.head[name] for name in order.members if name in found.head}, found.left_out,
        )  # fmt: skip
    except OSError as error:
        raise _failed(order.path.name, error) from None


def link_rank(order: Writing) -> WrittenRank:
    """Write the spans of one rank into a directory of its own. Raises SondaError when the disk is full."""
    directory = _own(order.read.parent, order.read)
    try:
        found = read_state(order.read)
        found.rank, found.shift = order.rank, order.shift
        with SpanWriter(directory) as writer, ReadingWriter(directory, order.origin) as samples:
            written = write_rank(found, writer, samples, order.first_row, order.origin, several=True)
    except OSError as error:
        raise _failed(order.file, error) from None
    if written.rows != order.rows:
        raise SondaError(f"{order.file}: {written.rows:,} spans became of {order.rows:,} events", "report it")
    some = (directory / SAMPLES).exists()
    return WrittenRank(str(directory), written.on_device, some, written.notes, found.left_out)


def _own(place: Path, seen: Path) -> Path:
    """A new directory in `place`. Raises SondaError on a machine that does not see the same files."""
    directory = place / secrets.token_hex(8)
    try:
        seen.stat()
        directory.mkdir()
    except OSError as error:
        raise SondaError(
            f"{os.uname().nodename} cannot use {seen.name} or {place}: {error.strerror}",
            "keep traces and runs where every worker sees them, on a shared file system",
        ) from None
    return directory


def _failed(name: str, error: OSError) -> SondaError:
    return SondaError(
        f"{name}: {os.uname().nodename} cannot read it or keep what is read: {error.strerror or error}",
        "free some space, or point $SONDA_HOME at a directory that can be written",
    )
