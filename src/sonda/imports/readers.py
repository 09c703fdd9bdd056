"""Which reader reads which kind of trace."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from sonda.imports import nsys
from sonda.imports.kineto.reader import read_kineto
from sonda.imports.trace.ranks import RankEvents
from sonda.imports.xplane.reader import read_xplane, split_paths
from sonda.record.progress import Say
from sonda.record.spans import Spans

Reader = Callable[[Path, Path, int, Say], RankEvents]
TRACES: dict[str, Reader] = {"kineto": read_kineto, "nsys": nsys.read_nsys, "xplane": read_xplane}
ALONE: dict[str, Reader] = {**TRACES, "kineto": partial(read_kineto, alone=True)}
"""The same without helpers: where several traces are read at once, each process has enough to do."""
FINISHING: dict[str, Callable[[Spans], Spans]] = {"xplane": split_paths}
"""What a reader still makes of linked spans."""
LATEST_BASE = 1 << 62


def read_trace(kind: str, path: Path, directory: Path, number: int, say: Say, alone: bool = False) -> RankEvents:
    """Spill the events of one trace into `directory`; `number` makes names of files that no other trace has.

    Beginnings and ends are paired. Raises SondaError when it is no trace or cannot be read, OSError when the disk is
    full.
    """
    events = (ALONE if alone else TRACES)[kind](path, directory, number, say)
    base = events.head.get("baseTimeNanoseconds")
    events.base = base if isinstance(base, int) and 0 <= base < LATEST_BASE else 0
    events.pair(directory / f"events-paired-{number}")
    return events
