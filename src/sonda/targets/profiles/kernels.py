"""Kernels and copies of a GPU under the phases and layers that launched them.

The steps of the pass `kernels` ran under the framework's own profiler. Its trace or profile is read like any imported
one. The parent of every activity of the device is the span that was open at the moment of the launch, on the thread
that launched it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sonda.frameworks.collector.clock import CLOCK
from sonda.frameworks.reconstruction.assembly import Assembly
from sonda.imports.kineto.reader import read_kineto
from sonda.imports.trace.ranks import link_in_memory
from sonda.imports.xplane.reader import read_xplane
from sonda.record.errors import SondaError
from sonda.record.spans import Spans, Words, join_spans

ON_DEVICE = ("kernel", "copy", "collective")
HOST_CALL = re.compile(r"(?:cuda|hip)(Malloc|Free|MallocAsync|FreeAsync|Memcpy|MemcpyAsync|\w+Synchronize)(?:_v\d+)?$")
"""Calls of a GPU's library that the host may wait in."""
DOUBTFUL_NS = 20_000
"""Where clocks are tied less closely than this, it is doubtful which small layer launched a kernel."""


@dataclass
class SpansWithKernels:
    """Spans with the activities of devices, and notes on them."""

    spans: Spans
    notes: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    """What the host spent in calls that wait, as `record.evidence.DeviceCall` holds it; of the first trace."""


@dataclass(frozen=True)
class ClockTie:
    """Ties a trace's clock to the collector's.

    `offsets` are the ns to subtract at `moments`, the first and the last group of marks.
    """

    moments: tuple[int, int]
    offsets: tuple[float, float]
    uncertainty: float
    """ns, half of what the marks leave open."""

    def to_collector(self, times: np.ndarray) -> np.ndarray:
        """Times of the trace on the collector's clock, ns."""
        return (times - np.interp(times, self.moments, self.offsets)).astype(np.int64)


def with_kernels(assembly: Assembly, directory: Path, begin: int) -> SpansWithKernels:
    """The assembled spans with the activities of devices behind them. `begin` is when the run began, ns."""
    result = SpansWithKernels(assembly.spans)
    if assembly.no_kernels:
        result.notes.append(f"no kernels were recorded: {assembly.no_kernels}")
    for number, (name, rank) in enumerate(assembly.kernels):
        try:
            _add_trace(result, directory / name, rank, begin, number, assembly.launching.get(name))
        except SondaError as error:
            result.notes.append(f"kernels are missing: {error.cause}")
    if assembly.devices and not assembly.kernels and not assembly.no_kernels:
        result.notes.append("the program ended before kernels were recorded: it took too few steps")
    return result


def _add_trace(result: SpansWithKernels, path: Path, rank: int, begin: int, number: int, launching: int | None) -> None:
    """Add the activities of one trace to `result`.

    `launching` is the thread that launched everything, for traces that do not number threads as the system does.
    """
    read = read_xplane if path.name.endswith(".xplane.pb") else read_kineto
    trace = link_in_memory(read(path, path.parent, number, lambda _: None))
    clock = tie_clocks(trace)
    if clock.uncertainty > DOUBTFUL_NS:
        result.notes.append(
            f"the profiler's clock is known to ±{clock.uncertainty / 1000:.0f} µs only: kernels of short layers may "
            "hang on their neighbours"
        )
    rows = np.flatnonzero(np.isin(trace.words("kind").decoded(), ON_DEVICE))
    call = trace.number("parent")[rows]
    launched = call >= 0
    start = clock.to_collector(trace.number("start")) - begin
    if not result.calls:
        result.calls = _sum_calls(result.spans, trace, start, rank)
    # An activity without a launch is taken to be launched when it began.
    moment = np.where(launched, start[np.maximum(call, 0)], start[rows])
    thread = np.where(launched, trace.number("thread")[np.maximum(call, 0)], -1)
    if launching is not None:
        thread = np.full(len(rows), launching)
    parent = _open_at(result.spans, moment, thread, rank)
    lost = int((parent < 0).sum())
    if lost:
        result.notes.append(f"{lost:,} of {len(rows):,} activities of devices belong to no observed step: left out")
    placed = parent >= 0
    rows, parent = rows[placed], parent[placed]
    activities = Spans(
        {
            "start": start[rows],
            "duration": trace.number("duration")[rows],
            "rank": np.full(len(rows), rank),
            **{name: trace.number(name)[rows] for name in ("thread", "stream")},
        },
        {
            **{name: _select_words(trace.words(name), rows) for name in ("kind", "name", "device")},
            "path": _select_words(result.spans.words("path"), parent),
            "direction": _select_words(result.spans.words("direction"), parent),
            "pass": Words.constant("kernels", len(rows)),
            "clock": Words.constant("device", len(rows)),
        },
        {column: values[rows] for column, values in trace.metrics.items()},
    )
    result.spans = join_spans(result.spans, activities, parent)


def _sum_calls(spans: Spans, trace: Spans, start: np.ndarray, rank: int) -> list[dict[str, Any]]:
    """Calls of a step that wait, by name: those that begin inside of a recorded step."""
    in_pass = spans.words("pass").equal("kernels") & (spans.number("rank") == rank)
    steps = np.flatnonzero(in_pass & spans.words("kind").equal("step"))
    if not len(steps):
        return []
    begins = np.sort(spans.number("start")[steps])
    ends = np.sort(spans.number("start")[steps] + spans.number("duration")[steps])
    name = trace.words("name")
    short = [match[1] if (match := HOST_CALL.match(word)) else "" for word in name.words]
    rows = np.flatnonzero(np.array([bool(word) for word in short], dtype=bool)[name.codes])
    at = np.searchsorted(begins, start[rows], "right") - 1
    rows = rows[(at >= 0) & (start[rows] < ends[np.maximum(at, 0)])]
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in rows.tolist():
        total = sums[short[name.codes[row]]]
        total[0] += 1
        total[1] += float(trace.number("duration")[row])
    return [
        {"name": word, "count": count / len(steps), "ns": ns / len(steps)} for word, (count, ns) in sorted(sums.items())
    ]


def _select_words(words: Words, rows: np.ndarray) -> Words:
    return Words(words.codes[rows], words.words)


def tie_clocks(trace: Spans) -> ClockTie:
    """The clock of a trace, from marks whose names hold the collector's time just before each.

    A mark begins after that time and ends before the next mark's: both bound the difference of the clocks. Raises
    SondaError where the trace holds no mark.
    """
    name = trace.words("name")
    is_mark = np.array([word.startswith(CLOCK) for word in name.words], dtype=bool)[name.codes]
    rows = np.flatnonzero(is_mark)
    if not len(rows):
        raise SondaError("the profiler's trace holds no mark of Sonda's clock", "")
    rows = rows[np.argsort(trace.number("start")[rows], kind="stable")]
    times = np.array([int(name.words[code][len(CLOCK) :]) for code in name.codes[rows]], dtype=np.int64)
    starts = trace.number("start")[rows]
    ends = starts + trace.number("duration")[rows]
    # One group of marks before the steps and one after them: the widest gap is between the two.
    gap = int(np.argmax(np.diff(times))) + 1 if len(times) > 1 else 1
    moments, offsets, open_ = [], [], []
    for group in (slice(0, gap), slice(gap, len(times))):
        if len(times[group]):
            most = (starts[group] - times[group]).min()
            least = (ends[group][:-1] - times[group][1:]).max() if len(times[group]) > 1 else most
            moments.append(int(starts[group].mean()))
            offsets.append((float(least) + float(most)) / 2)
            open_.append((float(most) - float(least)) / 2)
    return ClockTie((moments[0], moments[-1]), (offsets[0], offsets[-1]), max(open_))


def _open_at(spans: Spans, moment: np.ndarray, thread: np.ndarray, rank: int) -> np.ndarray:
    """For every launch the row of the innermost phase or layer of the pass that was open on its thread, or -1.

    Where a thread has none, the phase that was open on another one.
    """
    kind = spans.words("kind")
    in_pass = spans.words("pass").equal("kernels") & (spans.number("rank") == rank)
    phases = np.flatnonzero(in_pass & kind.equal("phase"))
    inner = np.flatnonzero(in_pass & (kind.equal("phase") | kind.equal("layer")))
    rows = _innermost(spans, phases, moment)
    for identity in np.unique(thread).tolist():
        on_this_thread = thread == identity
        thread_rows = inner[spans.number("thread")[inner] == identity]
        if len(thread_rows):
            on_thread = _innermost(spans, thread_rows, moment[on_this_thread])
            rows[on_this_thread] = np.where(on_thread >= 0, on_thread, rows[on_this_thread])
    return rows


def _innermost(spans: Spans, rows: np.ndarray, moment: np.ndarray) -> np.ndarray:
    """Of these nested rows, for every moment the last to begin that has not ended, or -1."""
    if not len(rows):
        return np.full(len(moment), -1, dtype=np.int64)
    start, end = spans.number("start"), spans.number("start") + spans.number("duration")
    rows = rows[np.lexsort((-end[rows], start[rows]))]
    at = np.searchsorted(start[rows], moment, "right") - 1
    # The span that began last may have ended. Then the span around it may be open; each turn goes one further out.
    around = _holders(start[rows], end[rows])
    asking = np.flatnonzero(at >= 0)
    while len(asking):
        asking = asking[end[rows[at[asking]]] <= moment[asking]]
        at[asking] = around[at[asking]]
        asking = asking[at[asking] >= 0]
    return np.where(at >= 0, rows[np.maximum(at, 0)], -1)


def _holders(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """For every interval, in the order of their starts, the index of the innermost one that contains it, or -1."""
    holders = np.full(len(start), -1, dtype=np.int64)
    stack: list[int] = []
    for place, (begin, stop) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while stack and end[stack[-1]] <= begin:
            stack.pop()
        while stack and end[stack[-1]] < stop:
            stack.pop()
        if stack:
            holders[place] = stack[-1]
        stack.append(place)
    return holders
