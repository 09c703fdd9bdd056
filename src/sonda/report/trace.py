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
from pathlib import Path
from typing import IO, Any

from sonda.record.run import Run
from sonda.record.sample import Sample
from sonda.record.span import Spans
from sonda.report.output import whole_file
from sonda.report.trace_counters import metric_counters
from sonda.report.tracks import IN_CYCLES, Track, in_cycles, lanes, timed_spans, tracks

CHUNK = 50_000


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


def _events(run: Run, processes: dict[tuple[str, int, str], int]) -> Iterator[str]:
    """Pieces of JSON, each one or more events joined by commas."""
    spans = timed_spans(run)
    if len(spans):
        codes, found = tracks(spans)
        order, lane_of = lanes(spans, codes)
        threads: dict[tuple[int, int], int] = {}
        thread_of = [
            threads.setdefault(key, len(threads) + 1) for key in zip(codes[order].tolist(), lane_of, strict=True)
        ]
        process_of: dict[int, int] = {}
        for (code, lane), thread in threads.items():
            track = found[code]
            process = _process(processes, track)
            process_of[thread] = process
            name = track.name if lane == 0 else f"{track.name} (overlapping {lane})"
            yield _meta("thread_name", process, thread, {"name": name})
            yield _meta("thread_sort_index", process, thread, {"sort_index": thread})
        yield from _complete_events(spans, order, thread_of, process_of)
        # Without a clock there are no rates.
        for counter in () if in_cycles(run) else metric_counters(spans):
            process = _process(processes, Track(counter.node, counter.rank, counter.clock, ""))
            yield _counter(counter.name, process, counter.time, counter.unit, counter.value)
    yield from _counters(run.samples, processes)
    for (node, rank, clock), process in processes.items():
        words = [node or "this machine", f"rank {rank}"] + ([f"{clock} clock"] if clock != "host" else [])
        yield _meta("process_name", process, 0, {"name": ", ".join(words)})
        yield _meta("process_sort_index", process, 0, {"sort_index": process})


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
        process = _process(processes, Track(sample.node, 0, "host", ""))
        name = f"{sample.sensor} {sample.device} ({sample.source})"
        yield _counter(name, process, sample.time, sample.unit, sample.value)


def _counter(name: str, process: int, time: int, unit: str, value: float) -> str:
    return (
        f'{{"ph":"C","name":{json.dumps(name)},"pid":{process},"ts":{_micro(time)},'
        f'"args":{{{json.dumps(unit)}:{value!r}}}}}'
    )


def _process(processes: dict[tuple[str, int, str], int], track: Track) -> int:
    return processes.setdefault((track.node, track.rank, track.clock), len(processes) + 1)


def _meta(name: str, process: int, thread: int, args: dict[str, Any]) -> str:
    return json.dumps({"ph": "M", "name": name, "pid": process, "tid": thread, "args": args}, separators=(",", ":"))


def _micro(nanoseconds: int) -> str:
    whole, rest = divmod(abs(nanoseconds), 1000)
    return f"{'-' if nanoseconds < 0 else ''}{whole}.{rest:03d}"
