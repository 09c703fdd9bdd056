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
import numpy as np

from sonda.imports.readers import FINISHING, read_trace
from sonda.imports.trace.ranks import RankEvents, WrittenSpans, place_ranks, write_rank
from sonda.imports.trace.raw_events import EventTables
from sonda.imports.trace.readings import ReadingWriter
from sonda.imports.trace.spill import SortedRun, Spill
from sonda.record.errors import SondaError
from sonda.record.files.parquet_join import join_files
from sonda.record.files.tables import SpanWriter
from sonda.record.progress import Say
from sonda.record.run import SAMPLES, SPANS

# ---- The state of a rank beside its spilled rows: another process goes on from there --------------------------------

NAME = "rank.state"


class SpillState(msgspec.Struct):
    """A spilled file: its name in the directory, its runs, and how its numbers are translated."""

    name: str
    runs: list[SortedRun]
    names: list[int] | None
    threads: list[int] | None


class RankState(msgspec.Struct):
    """What linking has to know of `RankEvents`, but for the rows."""

    kind: str
    file: str
    spills: list[SpillState]
    marks: list[SpillState]
    names: list[str]
    threads: list[tuple[str, int]]
    left_out: dict[str, int]
    processes: dict[str, str]
    lines: dict[int, str]
    truncated: bool
    notes: list[str]


def keep_state(events: RankEvents, kind: str, directory: Path) -> None:
    """Write what is known of a rank into the directory of its spilled files. Raises OSError when the disk is full."""
    source = events.source
    state = RankState(
        kind, events.file, [_spill_state(spill) for spill in events.spills],
        [_spill_state(marks) for marks in events.marks], list(source.names), source.threads,
        source.left_out, source.processes, source.lines, events.truncated, events.notes,
    )  # fmt: skip
    (directory / NAME).write_bytes(msgspec.msgpack.encode(state))


def read_state(directory: Path) -> RankEvents:
    """The rank whose state was kept in a directory. Raises OSError when it cannot be read."""
    state = msgspec.msgpack.decode((directory / NAME).read_bytes(), type=RankState)
    source = EventTables(left_out=state.left_out, processes=state.processes, lines=state.lines)
    for name in state.names:
        source.names[name]
    source.places.numbered = {thread: place for place, thread in enumerate(state.threads)}
    events = RankEvents(
        state.file, [_restore_spill(spill, directory) for spill in state.spills], source, truncated=state.truncated,
        marks=[_restore_spill(mark, directory) for mark in state.marks], notes=state.notes,
    )  # fmt: skip
    events.finish = FINISHING.get(state.kind, events.finish)
    return events


def _spill_state(spill: Spill) -> SpillState:
    names, threads = (None if table is None else table.tolist() for table in (spill.names, spill.threads))
    return SpillState(spill.path.name, spill.runs, names, threads)


def _restore_spill(state: SpillState, directory: Path) -> Spill:
    spill = Spill(directory / state.name)
    spill.runs = state.runs
    spill.names, spill.threads = (
        None if numbers is None else np.array(numbers, dtype=np.int32) for numbers in (state.names, state.threads)
    )
    return spill


# ----------------------------------------------------------------------------------------------------------------------

PLACE = "ranks"
"""The directory of the workers' directories."""

Spread = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[tuple[int, Any]]]
"""Has a function called with each of these orders, anywhere and in any order, and yields place and value of each as it
ends. A call whose worker dies is made again. Raises SondaError for the first that fails."""


@dataclass(frozen=True)
class ReadOrder:
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
class LinkOrder:
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
) -> tuple[list[ReadRank], WrittenSpans]:  # fmt: skip
    """As reading all `files` and `write_ranks` do; of the files' heads these `members` come back.

    Raises SondaError where a trace cannot be read, OSError where the disk is full.
    """
    place = (directory / PLACE).resolve()
    place.mkdir()
    by_size = sorted(files, key=lambda path: -path.stat().st_size)
    numbers = {path: number for number, path in enumerate(files)}
    readings = [ReadOrder(kind, path.resolve(), place, numbers[path], members) for path in by_size]
    read: dict[int, ReadRank] = {}
    for at, read_back in spread(read_rank, readings):
        read[readings[at].number] = read_back
        say(f"read {len(read)} of {len(files)} traces")
    ranks = [read[number] for number in range(len(files))]
    ranks.sort(key=lambda rank: -1 if rank.rank is None else rank.rank)
    notes, origin = place_ranks(ranks)
    first, writings = 0, []
    for rank in ranks:
        writings.append(
            LinkOrder(rank.file, Path(rank.directory), rank.rank or 0, first, rank.rows, rank.shift, origin)
        )
        first += rank.rows
    order = sorted(range(len(ranks)), key=lambda at: -ranks[at].rows)
    written: dict[int, WrittenRank] = {}
    for at, done in spread(link_rank, [writings[at] for at in order]):
        written[order[at]] = done
        shutil.rmtree(ranks[order[at]].directory)
        say(f"linked {len(written)} of {len(files)} traces")
    parts = [written[at] for at in range(len(ranks))]
    for rank, part in zip(ranks, parts, strict=True):
        rank.left_out = part.left_out
        notes += part.notes
    full = [Path(part.directory) / SPANS for part, rank in zip(parts, ranks, strict=True) if rank.rows]
    rows = join_files(full, directory / SPANS) if full else 0
    samples = [Path(part.directory) / SAMPLES for part in parts if part.samples]
    if samples:
        join_files(samples, directory / SAMPLES)
    shutil.rmtree(place)
    return ranks, WrittenSpans(rows, sum(part.on_device for part in parts), notes)


def read_rank(order: ReadOrder) -> ReadRank:
    """Spill one trace into a directory of its own. Raises SondaError when it cannot be read, or nothing be written."""
    directory = _make_directory(order.directory, order.path)
    try:
        events = read_trace(order.kind, order.path, directory, order.number, lambda _: None, alone=True)
        keep_state(events, order.kind, directory)
        return ReadRank(
            order.path.name, str(directory), events.rank, events.base, events.first_start, events.rows,
            events.truncated, {name: events.head[name] for name in order.members if name in events.head},
            events.left_out,
        )  # fmt: skip
    except OSError as error:
        raise _disk_error(order.path.name, error) from None


def link_rank(order: LinkOrder) -> WrittenRank:
    """Write the spans of one rank into a directory of its own. Raises SondaError when the disk is full."""
    directory = _make_directory(order.read.parent, order.read)
    try:
        events = read_state(order.read)
        events.rank, events.shift = order.rank, order.shift
        with SpanWriter(directory) as writer, ReadingWriter(directory, order.origin) as samples:
            written = write_rank(events, writer, samples, order.first_row, order.origin, several=True)
    except OSError as error:
        raise _disk_error(order.file, error) from None
    if written.rows != order.rows:
        raise SondaError(f"{order.file}: {written.rows:,} spans became of {order.rows:,} events", "report it")
    some = (directory / SAMPLES).exists()
    return WrittenRank(str(directory), written.on_device, some, written.notes, events.left_out)


def _make_directory(place: Path, seen: Path) -> Path:
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


def _disk_error(name: str, error: OSError) -> SondaError:
    return SondaError(
        f"{name}: {os.uname().nodename} cannot read it or keep what is read: {error.strerror or error}",
        "free some space, or point $SONDA_HOME at a directory that can be written",
    )
