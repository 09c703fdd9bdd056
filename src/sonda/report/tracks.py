"""Tracks: where the spans of a run are drawn, and on which lanes, so that what is drawn on one lane is nested.

Passes whose times were disturbed (count, kernels, modelled) have tracks of their own, named so, and never mix with
timed steps. Of a simulated run without a clock a cycle is drawn as one ns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sonda.record.run import Run
from sonda.record.span import NUMBER_COLUMNS, TEXT_COLUMNS, Spans

ON_STREAMS = ("kernel", "copy", "collective")
UNDISTURBED = ("timed", "warmup")
IN_CYCLES = "cycles, one drawn as 1 ns: the accelerator's description gives no clock"


@dataclass(frozen=True)
class Track:
    """A thread, or a stream of a device."""

    node: str
    rank: int
    clock: str
    name: str
    device: str = ""
    """Of a stream; a thread drives every device."""
    number: int = 0
    """Of the thread or stream."""


def in_cycles(run: Run) -> bool:
    """Whether a run has cycles only, because its accelerator's description gives no clock."""
    target = run.info.target
    return target.get("device") == "sim" and not (target.get("description") or {}).get("clock_hz")


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
    import numpy as np

    on_stream = np.zeros(len(spans), dtype=bool)
    for kind in ON_STREAMS:
        on_stream |= spans.words("kind").equal(kind)
    place = np.where(on_stream, spans.number("stream"), spans.number("thread"))
    columns = [
        spans.words("node").codes,
        spans.number("rank"),
        spans.words("clock").codes,
        # A thread drives every device; only streams belong to one.
        np.where(on_stream, spans.words("device").codes, -1),
        place,
        _disturbed(spans),
    ]
    # Folded one column at a time, because sorting whole rows is many times slower.
    codes = np.zeros(len(spans), dtype=np.int64)
    for column in columns:
        values, inverse = np.unique(column, return_inverse=True)
        codes = np.unique(codes * len(values) + inverse, return_inverse=True)[1]
    first = np.unique(codes, return_index=True)[1]
    unique = [[int(column[row]) for column in columns] for row in first]
    nodes, clocks, devices = (spans.words(name).words for name in ("node", "clock", "device"))
    passes = spans.words("pass").words
    tracks = []
    for node, rank, clock, device, number, code in unique:
        name = f"{devices[device]} stream {number}" if device >= 0 else f"thread {number}"
        if code >= 0:
            name += f" · {passes[code]} pass (times disturbed)"
        tracks.append(Track(nodes[node], rank, clocks[clock], name, devices[device] if device >= 0 else "", number))
    return codes, tracks


def _disturbed(spans: Spans) -> Any:
    """The pass of spans whose times were disturbed, -1 for the others."""
    import numpy as np

    column = spans.words("pass")
    marks = np.array([-1 if word in UNDISTURBED else code for code, word in enumerate(column.words)], dtype=np.int64)
    return marks[column.codes]


def lanes(spans: Spans, codes: Any) -> tuple[Any, list[int]]:
    """An order in which parents come before children on every track, and the lane of each span in that order."""
    import numpy as np

    starts, durations = spans.number("start"), spans.number("duration")
    order = np.lexsort((spans.number("id"), -durations, starts, codes))
    lanes: list[int] = [0] * len(order)
    track = None
    open_ends: list[list[int]] = []
    listed = zip(codes[order].tolist(), starts[order].tolist(), durations[order].tolist(), strict=True)
    for position, (code, start, duration) in enumerate(listed):
        if code != track:
            track, open_ends = code, [[]]
        end = start + duration
        for lane, ends in enumerate(open_ends):
            while ends and ends[-1] <= start:
                ends.pop()
            if not ends or end <= ends[-1]:
                ends.append(end)
                lanes[position] = lane
                break
        else:
            lanes[position] = len(open_ends)
            open_ends.append([end])
    return order, lanes
