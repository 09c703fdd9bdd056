"""A run as a trace for Perfetto and chrome://tracing (Chrome's JSON format).

A process of the trace is a node, rank and clock; its tracks are threads, and the streams of devices. Passes whose times
were disturbed (count, kernels, modelled) have tracks of their own, named so, and never mix with timed steps. Spans that
overlap without being nested go to a further lane of their track, because a track of this format can only hold nested
ones. Samples are counters, and so are the metrics of phases and of activities of devices (`trace_counters.py`). Times
are µs with three decimals: no nanosecond is lost. Of a simulated run without a clock a cycle is drawn as one ns, which
the trace says.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sonda.record.run import Run
from sonda.record.sample import Sample
from sonda.record.span import NUMBER_COLUMNS, TEXT_COLUMNS, Spans
from sonda.report.output import whole_file
from sonda.report.trace_counters import metric_counters

CHUNK = 50_000
ON_STREAMS = ("kernel", "copy", "collective")
UNDISTURBED = ("timed", "warmup")
IN_CYCLES = "cycles, one drawn as 1 ns: the accelerator's description gives no clock"


@dataclass(frozen=True)
class _Track:
    node: str
    rank: int
    clock: str
    name: str


def write_trace(path: Path, run: Run) -> Path:
    """Write the trace of a run, compressed when the name ends in `.gz`; returns the path."""
    with whole_file(path) as stream:
        _write(stream, run)
    return path


def _write(stream: IO[bytes], run: Run) -> None:
    about = {"run": run.id, "workload": run.info.workload, "target": run.info.target, "status": run.info.status}
    if in_cycles(run):
        about["times"] = IN_CYCLES
    head = json.dumps({"displayTimeUnit": "ms", "otherData": about}, default=str)
    stream.write((head[:-1] + ', "traceEvents": [\n').encode())
    processes: dict[tuple[str, int, str], int] = {}
    first = True
    for text in _events(run, processes):
        stream.write((text if first else ",\n" + text).encode())
        first = False
    stream.write(b"\n]}\n")


def in_cycles(run: Run) -> bool:
    """Whether a run has cycles only, because its accelerator's description gives no clock."""
    target = run.info.target
    return target.get("device") == "sim" and not (target.get("description") or {}).get("clock_hz")


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


def _events(run: Run, processes: dict[tuple[str, int, str], int]) -> Iterator[str]:
    """Pieces of JSON, each one or more events joined by commas."""
    spans = _timed_by_cycles(run.spans) if in_cycles(run) else run.spans
    if len(spans):
        codes, tracks = _tracks(spans)
        order, lanes = _nested(spans, codes)
        threads: dict[tuple[int, int], int] = {}
        thread_of = [
            threads.setdefault(key, len(threads) + 1) for key in zip(codes[order].tolist(), lanes, strict=True)
        ]
        process_of: dict[int, int] = {}
        for (code, lane), thread in threads.items():
            track = tracks[code]
            process = _process(processes, track)
            process_of[thread] = process
            name = track.name if lane == 0 else f"{track.name} (overlapping {lane})"
            yield _meta("thread_name", process, thread, {"name": name})
            yield _meta("thread_sort_index", process, thread, {"sort_index": thread})
        yield from _complete_events(spans, order, thread_of, process_of)
        # Without a clock there are no rates.
        for counter in () if in_cycles(run) else metric_counters(spans):
            process = _process(processes, _Track(counter.node, counter.rank, counter.clock, ""))
            yield _counter(counter.name, process, counter.time, counter.unit, counter.value)
    yield from _counters(run.samples, processes)
    for (node, rank, clock), process in processes.items():
        words = [node or "this machine", f"rank {rank}"] + ([f"{clock} clock"] if clock != "host" else [])
        yield _meta("process_name", process, 0, {"name": ", ".join(words)})
        yield _meta("process_sort_index", process, 0, {"sort_index": process})


def _tracks(spans: Spans) -> tuple[Any, list[_Track]]:
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
        tracks.append(_Track(nodes[node], rank, clocks[clock], name))
    return codes, tracks


def _disturbed(spans: Spans) -> Any:
    """The pass of spans whose times were disturbed, -1 for the others."""
    import numpy as np

    column = spans.words("pass")
    marks = np.array([-1 if word in UNDISTURBED else code for code, word in enumerate(column.words)], dtype=np.int64)
    return marks[column.codes]


def _nested(spans: Spans, codes: Any) -> tuple[Any, list[int]]:
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


def _complete_events(
    spans: Spans, order: Any, thread_of: list[int], process_of: dict[int, int]
) -> Iterator[str]:  # fmt: skip
    names = [json.dumps(word) for word in spans.words("name").words]
    kinds = [json.dumps(word) for word in spans.words("kind").words]
    details = {name: [json.dumps(word) for word in spans.words(name).words] for name in ("path", "direction", "pass")}
    where = {thread: f'"pid":{process},"tid":{thread}' for thread, process in process_of.items()}
    for begin in range(0, len(order), CHUNK):
        rows = order[begin : begin + CHUNK]
        columns = [spans.words(name).codes[rows].tolist() for name in ("name", "kind", "path", "direction", "pass")]
        numbers = [spans.number(name)[rows].tolist() for name in ("id", "parent", "call", "start", "duration")]
        metrics = _metric_texts(spans, rows)
        lines = []
        for thread, name, kind, path, direction, pass_, identity, parent, call, start, duration, metric in zip(
            thread_of[begin : begin + CHUNK], *columns, *numbers, metrics, strict=True
        ):
            extra = f',"path":{details["path"][path]},"call":{call}' if details["path"][path] != '""' else ""
            if details["direction"][direction] != '""':
                extra += f',"direction":{details["direction"][direction]}'
            lines.append(
                f'{{"ph":"X","name":{names[name]},"cat":{kinds[kind]},"ts":{_micro(start)},"dur":{_micro(duration)},'
                f'{where[thread]},"args":{{"id":{identity},"parent":{parent},"pass":{details["pass"][pass_]}'
                f"{extra}{metric}}}}}"
            )
        yield ",\n".join(lines)


def _metric_texts(spans: Spans, rows: Any) -> list[str]:
    """For every row, its metrics as further members of a JSON object; missing ones are left out."""
    import numpy as np

    texts = [""] * len(rows)
    for name, values in spans.metrics.items():
        chosen = values[rows]
        key = json.dumps(name)
        known = np.flatnonzero(np.isfinite(chosen))
        for position, value in zip(known.tolist(), chosen[known].tolist(), strict=True):
            texts[position] += f",{key}:{value!r}"
    return texts


def _counters(samples: list[Sample], processes: dict[tuple[str, int, str], int]) -> Iterator[str]:
    for sample in samples:
        if not math.isfinite(sample.value):
            continue
        process = _process(processes, _Track(sample.node, 0, "host", ""))
        name = f"{sample.sensor} {sample.device} ({sample.source})"
        yield _counter(name, process, sample.time, sample.unit, sample.value)


def _counter(name: str, process: int, time: int, unit: str, value: float) -> str:
    return (
        f'{{"ph":"C","name":{json.dumps(name)},"pid":{process},"ts":{_micro(time)},'
        f'"args":{{{json.dumps(unit)}:{value!r}}}}}'
    )


def _process(processes: dict[tuple[str, int, str], int], track: _Track) -> int:
    return processes.setdefault((track.node, track.rank, track.clock), len(processes) + 1)


def _meta(name: str, process: int, thread: int, args: dict[str, Any]) -> str:
    return json.dumps({"ph": "M", "name": name, "pid": process, "tid": thread, "args": args}, separators=(",", ":"))


def _micro(nanoseconds: int) -> str:
    whole, rest = divmod(abs(nanoseconds), 1000)
    return f"{'-' if nanoseconds < 0 else ''}{whole}.{rest:03d}"
