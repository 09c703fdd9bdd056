"""The events of a rank in a file beside its spilled rows, so that another process can go on with them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from sonda.imports.rank_events import RankEvents
from sonda.imports.raw_event import Source
from sonda.imports.readers import FINISHING
from sonda.imports.spill import SortedRun, Spill

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
        kind, events.file, [_kept(one) for one in events.spills], [_kept(one) for one in events.marks],
        list(source.names), source.threads, source.left_out, source.processes, source.lines,
        events.truncated, events.notes,
    )  # fmt: skip
    (directory / NAME).write_bytes(msgspec.msgpack.encode(state))


def read_state(directory: Path) -> RankEvents:
    """The rank whose state was kept in a directory. Raises OSError when it cannot be read."""
    state = msgspec.msgpack.decode((directory / NAME).read_bytes(), type=RankState)
    source = Source(left_out=state.left_out, processes=state.processes, lines=state.lines)
    for name in state.names:
        source.names[name]
    source.places.numbered = {thread: place for place, thread in enumerate(state.threads)}
    found = RankEvents(
        state.file, [_spill(one, directory) for one in state.spills], source, truncated=state.truncated,
        marks=[_spill(one, directory) for one in state.marks], notes=state.notes,
    )  # fmt: skip
    found.finish = FINISHING.get(state.kind, found.finish)
    return found


def _kept(spill: Spill) -> SpillState:
    names, threads = (None if one is None else one.tolist() for one in (spill.names, spill.threads))
    return SpillState(spill.path.name, spill.runs, names, threads)


def _spill(state: SpillState, directory: Path) -> Spill:
    found = Spill(directory / state.name)
    found.runs = state.runs
    found.names, found.threads = (
        None if numbers is None else np.array(numbers, dtype=np.int32) for numbers in (state.names, state.threads)
    )
    return found
