"""The events of one rank, spilled; and how ranks become the spans of one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from sonda.imports.trace.devices import DeviceLines
from sonda.imports.trace.linker import Linker
from sonda.imports.trace.marks import MarkPairing, readings
from sonda.imports.trace.raw_events import EARLIEST, LATEST, EventTables
from sonda.imports.trace.readings import ReadingWriter
from sonda.imports.trace.spill import Spill, merge_by_time
from sonda.record.files.tables import SpanWriter
from sonda.record.progress import Say
from sonda.record.spans import Spans, join_spans

TAKEN = -(1 << 40)


@dataclass
class RankEvents:
    """What was read from one file."""

    file: str
    spills: list[Spill]
    source: EventTables
    head: dict[str, Any] = field(default_factory=dict)
    """What the file says about itself."""
    rank: int | None = None
    truncated: bool = False
    base: int = 0
    """ns at which the file's clock has its zero, as far as it says so."""
    marks: list[Spill] = field(default_factory=list)
    """Beginnings, ends and readings of counters."""
    finish: Callable[[Spans], Spans] = lambda spans: spans
    """What the reader of the file still makes of linked spans."""
    notes: list[str] = field(default_factory=list)
    """What the reader has to say about the file."""
    shift: int = 0
    """ns from the file's clock to the run's."""

    @property
    def files(self) -> list[Spill]:
        return self.spills + self.marks

    @property
    def first_start(self) -> int | None:
        """Of spans and readings, on the file's clock."""
        return min((first for spill in self.files if (first := spill.first_start) is not None), default=None)

    @property
    def left_out(self) -> dict[str, int]:
        """Events by the reason why they are not kept."""
        return self.source.left_out

    @property
    def rows(self) -> int:
        """How many spans it becomes."""
        lines = DeviceLines.from_tables(self.source)
        if lines is None:
            return sum(run.rows for spill in self.spills for run in spill.runs)
        return sum(lines.count_kept(block) for block in merge_by_time(self.spills))

    def pair(self, path: Path) -> None:
        """Make spans of beginnings and ends, spilled at `path`."""
        if all(marks.first_start is None for marks in self.marks):
            return
        pairing = MarkPairing(self.source)
        with Spill(path) as paired:
            for block in merge_by_time(self.marks):
                paired.add(pairing.spans(block))
        pairing.finish()
        self.spills.append(paired)


class PlacedRank(Protocol):
    """What has to be known of a file to give it its place among others."""

    file: str
    rank: int | None
    base: int
    shift: int

    @property
    def first_start(self) -> int | None: ...


@dataclass
class WrittenSpans:
    """What became spans, and what a reader of them must know."""

    rows: int
    on_device: int
    notes: list[str]


def write_ranks(ranks: Sequence[RankEvents], directory: Path, say: Say) -> WrittenSpans:
    """Write `spans.parquet`, rank after rank, each in the order of time; the first event of all is at 0.

    The spilled files are removed. Raises OSError when the disk is full.
    """
    notes, origin = place_ranks(ranks)
    on_device = 0
    with SpanWriter(directory) as writer, ReadingWriter(directory, origin) as samples:
        for rank in ranks:
            say(f"linking {rank.file}")
            written = write_rank(rank, writer, samples, writer.rows, origin, len(ranks) > 1)
            on_device += written.on_device
            notes += written.notes
            for spill in rank.files:
                spill.path.unlink()
    return WrittenSpans(writer.rows, on_device, notes)


def place_ranks(ranks: Sequence[PlacedRank]) -> tuple[list[str], int]:
    """Number the ranks and bring them onto one clock; what is to be said, and the moment in ns that becomes 0."""
    notes = number_ranks(ranks) + _align(ranks)
    return notes, min((first + rank.shift for rank in ranks if (first := rank.first_start) is not None), default=0)


def write_rank(
    rank: RankEvents, writer: SpanWriter, samples: ReadingWriter, first_row: int, origin: int, several: bool
) -> WrittenSpans:
    """Link and write one rank, its first span as row `first_row` of the run. Raises OSError when the disk is full."""
    for spill in rank.files:
        spill.shift = rank.shift
    before = writer.rows
    names = list(rank.source.names)
    for block in merge_by_time(rank.marks):
        samples.append(readings(block), names)
    lines = DeviceLines.from_tables(rank.source)
    linker = Linker(rank.rank or 0, first_row, origin, names, _threads(rank.source))
    for block in merge_by_time(rank.spills):
        writer.append(rank.finish(linker.link(block if lines is None else lines.place(block))))
    return WrittenSpans(writer.rows - before, linker.on_device, _remarks(rank, linker, several))


def link_in_memory(events: RankEvents) -> Spans:
    """The spans of one small trace in memory, on its own clock. The spilled files are removed."""
    names, threads = list(events.source.names), [thread for _, thread in events.source.threads]
    linker = Linker(events.rank or 0, 0, 0, names, threads)
    spans = Spans({"start": np.zeros(0, np.int64)}, {})
    lines = DeviceLines.from_tables(events.source)
    for block in merge_by_time(events.spills):
        more = linker.link(block if lines is None else lines.place(block))
        spans = join_spans(spans, more, more.number("parent"))
    for spill in events.spills:
        spill.path.unlink()
    return events.finish(spans)


def _threads(source: EventTables) -> list[int]:
    """The number of every thread in the run: its own, or where another process has the same, one that none has."""
    threads: dict[int, None] = {}
    for place, (_, thread) in enumerate(source.threads):
        threads[thread if thread not in threads else TAKEN - place] = None
    return list(threads)


def number_ranks(ranks: Sequence[PlacedRank]) -> list[str]:
    """Give every file a rank of its own: what it says, or where two say the same, its place."""
    numbers = [rank.rank for rank in ranks]
    twice = {rank for rank in numbers if rank is not None and numbers.count(rank) > 1}
    if None not in numbers and not twice:
        return []
    for place, ranked in enumerate(ranks):
        ranked.rank = place
    if len(ranks) == 1:
        return []
    why = f"several files say that they are rank {min(twice)}" if twice else "not every file says which rank it is"
    return [f"{why}: ranks are numbered in the order of the files"]


def _align(ranks: Sequence[PlacedRank]) -> list[str]:
    """Bring files whose clocks begin at different moments onto the first one's."""
    notes = []
    for rank in ranks:
        shift = rank.base - ranks[0].base
        first = rank.first_start
        if shift and first is not None:
            if not EARLIEST < first + shift < LATEST // 2:
                notes.append(f"{rank.file} says a beginning of its clock that cannot be: it is left out of account")
                continue
            rank.shift = shift
    return notes


def _remarks(rank: RankEvents, linker: Linker, several: bool) -> list[str]:
    """What was left out, or stands in doubt."""
    where = f"{rank.file}: " if several else ""
    remarks = [f"{where}{note}" for note in rank.notes]
    remarks += [f"{where}{count:,} events {reason}: left out" for reason, count in rank.source.left_out.items()]
    if rank.truncated:
        remarks.append(f"{where}the file ends in the middle: what stands before that is here")
    if linker.overlapping:
        remarks.append(
            f"{where}{linker.overlapping:,} events of the host overlap an earlier one of their thread that does not "
            "hold them"
        )
    if linker.without_launch:
        remarks.append(
            f"{where}the launch of {linker.without_launch:,} of {linker.on_device:,} activities of devices is not in "
            "the trace: they have no launch latency"
        )
    if linker.without_device:
        remarks.append(
            f"{where}{linker.without_device:,} activities do not say on which device they ran: they are shown on cuda:0"
        )
    if linker.waits_for_unknown:
        remarks.append(
            f"{where}{linker.waits_for_unknown:,} waits of streams do not say for which stream: the critical path "
            "takes what ended last before"
        )
    if linker.before_launch:
        remarks.append(
            f"{where}{linker.before_launch:,} activities of devices begin before their launch: the clocks of host and "
            "device differ, so launch latencies are doubtful"
        )
    return remarks
