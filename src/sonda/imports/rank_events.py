"""The events of one rank, spilled; and how ranks become the spans of one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sonda.imports.linking import Linker
from sonda.imports.raw_event import EARLIEST, LATEST, Source
from sonda.imports.spill import Spill, in_order
from sonda.record.span_file import SpanWriter


@dataclass
class RankEvents:
    """What was read from one file."""

    file: str
    spills: list[Spill]
    source: Source
    head: dict[str, Any] = field(default_factory=dict)
    """What the file says about itself."""
    rank: int | None = None
    truncated: bool = False
    base: int = 0
    """ns at which the file's clock has its zero, as far as it says so."""

    @property
    def first_start(self) -> int | None:
        return min((first for spill in self.spills if (first := spill.first_start) is not None), default=None)


@dataclass
class Written:
    """What became spans, and what a reader of them must know."""

    rows: int
    on_device: int
    notes: list[str]


def write_ranks(ranks: Sequence[RankEvents], directory: Path, tell: Callable[[str], None]) -> Written:
    """Write `spans.parquet`, rank after rank, each in the order of time; the first event of all is at 0.

    The spilled files are removed. Raises OSError when the disk is full.
    """
    notes = number_ranks(ranks)
    notes += _align(ranks)
    origin = min((first for one in ranks if (first := one.first_start) is not None), default=0)
    on_device = 0
    with SpanWriter(directory) as writer:
        for one in ranks:
            tell(f"linking {one.file}")
            names = list(one.source.names)
            threads = [thread for _, thread in one.source.threads]
            linker = Linker(one.rank or 0, writer.rows, origin, names, threads)
            for block in in_order(one.spills):
                writer.append(linker.spans(block))
            on_device += linker.on_device
            notes += _remarks(one, linker, len(ranks) > 1)
            for spill in one.spills:
                spill.path.unlink()
    return Written(writer.rows, on_device, notes)


def number_ranks(ranks: Sequence[RankEvents]) -> list[str]:
    """Give every file a rank of its own: what it says, or where two say the same, its place."""
    said = [one.rank for one in ranks]
    if None in said or len(set(said)) < len(said):
        for place, one in enumerate(ranks):
            one.rank = place
        if len(ranks) > 1:
            return ["the files do not say which rank each is: ranks are numbered in the order of the files"]
    return []


def _align(ranks: Sequence[RankEvents]) -> list[str]:
    """Bring files whose clocks begin at different moments onto the first one's."""
    notes = []
    for one in ranks:
        shift = one.base - ranks[0].base
        first = one.first_start
        if shift and first is not None:
            if not EARLIEST < first + shift < LATEST // 2:
                notes.append(f"{one.file} says a beginning of its clock that cannot be: it is left out of account")
                continue
            for spill in one.spills:
                spill.shift = shift
    return notes


def _remarks(one: RankEvents, linker: Linker, several: bool) -> list[str]:
    """What was left out, or stands in doubt."""
    where = f"{one.file}: " if several else ""
    said = [f"{where}{count:,} events {reason}: left out" for reason, count in one.source.left_out.items()]
    if one.truncated:
        said.append(f"{where}the file ends in the middle: what stands before that is here")
    if linker.overlapping:
        said.append(
            f"{where}{linker.overlapping:,} events of the host overlap an earlier one of their thread that does not "
            "hold them"
        )
    if linker.without_launch:
        said.append(
            f"{where}the launch of {linker.without_launch:,} of {linker.on_device:,} activities of devices is not in "
            "the trace: they have no launch latency"
        )
    if linker.before_launch:
        said.append(
            f"{where}{linker.before_launch:,} activities of devices begin before their launch: the clocks of host and "
            "device differ, so launch latencies are doubtful"
        )
    return said
