"""Tracks: where the spans of a run are drawn, and on which lanes, so that what is drawn on one lane is nested.

Passes whose times were disturbed (count, kernels, modelled) have tracks of their own, named so, and never mix with
timed steps. Of a simulated run without a clock a cycle is drawn as one ns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.record.spans import NUMBER_COLUMNS, TEXT_COLUMNS, Spans
from sonda.record.target import SimulatedTarget

ON_STREAMS = ("kernel", "copy", "collective")
UNDISTURBED = ("timed", "warmup")
TRACK_WORDS = ("node", "clock", "device", "pass")
"""Columns of words that tell tracks apart."""
IN_CYCLES = "cycles, one drawn as 1 ns: the accelerator's description gives no clock"


@dataclass(frozen=True)
class Track:
    """A thread, or a stream of a device."""

    node: str
    rank: int
    clock: str
    name: str
    device: str = ""
    """The device of a stream; '' for a thread, which drives every device."""
    number: int = 0
    """Number of the thread or stream."""


def nothing_to_draw(run: Run) -> SondaError:
    """What is wrong with drawing a run that holds no moment in time, as an exploration does not."""
    return SondaError(
        f"run {run.id} has no spans to draw", "name a run that has steps; all it holds: sonda show --json"
    )


def in_cycles(run: Run) -> bool:
    """Whether a run has cycles only, because its accelerator's description gives no clock."""
    target = run.info.target
    if not isinstance(target, SimulatedTarget):
        return False
    return target.description is None or not target.description.clock_hz


def timed_spans(run: Run) -> Spans:
    """The spans of a run, with times that can be drawn."""
    return _timed_by_cycles(run.spans) if in_cycles(run) else run.spans


def _timed_by_cycles(spans: Spans) -> Spans:
    """The same with a cycle as one ns: operations follow each other, and what is around them spans them."""
    import numpy as np

    cycles = np.nan_to_num(spans.metric("cycles", "simulated")).astype(np.int64)
    parent, leaf = spans.number("parent"), spans.where(kind="op")
    # An operation begins when those before it have ended; anything else with the first operation inside it, or, where
    # there is none, when those written down before it have ended.
    done = np.concatenate(([0], np.cumsum(np.where(leaf, cycles, 0))))
    start = done[:-1].copy()
    first = np.full(len(spans), -1, np.int64)
    for row in np.flatnonzero(leaf & (cycles > 0))[::-1].tolist():
        around = int(parent[row])
        while around >= 0:
            first[around] = start[row]
            around = int(parent[around])
    start = np.where(first >= 0, first, start)
    numbers = {name: spans.number(name) for name in NUMBER_COLUMNS} | {"start": start, "duration": cycles}
    return Spans(numbers, {name: spans.words(name) for name in TEXT_COLUMNS}, spans.metrics)


def tracks(spans: Spans) -> tuple[Any, list[Track]]:
    """The track of every span as a code, and the tracks."""
    columns = track_columns(spans, {name: spans.words(name).codes for name in TRACK_WORDS})
    codes, first = fold_rows(columns)
    words = {name: spans.words(name).words for name in TRACK_WORDS}
    return codes, [track([int(column[row]) for column in columns], words) for row in first]


def track_columns(spans: Spans, codes: Mapping[str, Any]) -> list[Any]:
    """What tells tracks apart, a number each: node, rank, clock, the device of a stream or -1 for a thread, the number
    of either, and the pass, or -1 where it disturbed no times. `codes` are those of the words."""
    import numpy as np

    on_stream = np.zeros(len(spans), dtype=bool)
    for kind in ON_STREAMS:
        on_stream |= spans.words("kind").equal(kind)
    passes = spans.words("pass")
    disturbed = np.array([word not in UNDISTURBED for word in passes.words], dtype=bool)[passes.codes]
    return [
        codes["node"],
        spans.number("rank"),
        codes["clock"],
        # A thread drives every device; only streams belong to one.
        np.where(on_stream, codes["device"], -1),
        np.where(on_stream, spans.number("stream"), spans.number("thread")),
        np.where(disturbed, codes["pass"], -1),
    ]


def fold_rows(columns: Sequence[Any]) -> tuple[Any, Any]:
    """A code for each row, equal for equal rows and in the order of the columns; and the first row of each code."""
    import numpy as np

    # One column at a time, because sorting whole rows is many times slower.
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, inverse = np.unique(column, return_inverse=True)
        codes = np.unique(codes * len(values) + inverse, return_inverse=True)[1]
    return codes, np.unique(codes, return_index=True)[1]


def track(key: Sequence[int], words: Mapping[str, Sequence[str]]) -> Track:
    """The track that `track_columns` tell apart by these numbers."""
    node, rank, clock, device, number, code = key
    of = words["device"][device] if device >= 0 else ""
    name = f"{of} stream {number}" if device >= 0 else f"thread {number}"
    if code >= 0:
        name += f" · {words['pass'][code]} pass (times disturbed)"
    return Track(words["node"][node], rank, words["clock"][clock], name, of, number)


class Lanes:
    """Lanes of spans that are given track by track, in the order of their starts, of equal starts the longest first."""

    def __init__(self) -> None:
        self._track: int | None = None
        self._open: list[list[int]] = []

    def assign(self, codes: Any, starts: Any, durations: Any) -> list[int]:
        """The lanes of the next spans."""
        lanes = []
        for code, start, duration in zip(codes.tolist(), starts.tolist(), durations.tolist(), strict=True):
            if code != self._track:
                self._track, self._open = code, [[]]
            end = start + duration
            for lane, ends in enumerate(self._open):
                while ends and ends[-1] <= start:
                    ends.pop()
                if not ends or end <= ends[-1]:
                    ends.append(end)
                    lanes.append(lane)
                    break
            else:
                lanes.append(len(self._open))
                self._open.append([end])
        return lanes


def lanes(spans: Spans, codes: Any) -> tuple[Any, list[int]]:
    """An order in which parents come before children on every track, and the lane of each span in that order."""
    import numpy as np

    starts, durations = spans.number("start"), spans.number("duration")
    order = np.lexsort((spans.number("id"), -durations, starts, codes))
    return order, Lanes().assign(codes[order], starts[order], durations[order])
