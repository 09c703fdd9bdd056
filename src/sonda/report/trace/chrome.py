"""A run as a trace for Perfetto and chrome://tracing (Chrome's JSON format).

A process of the trace is a node, rank and clock; its tracks are threads, and the streams of devices. Passes whose times
were disturbed (count, kernels, modelled) have tracks of their own, named so, and never mix with timed steps. Spans that
overlap without being nested go to a further lane of their track, because a track of this format can only hold nested
ones. Samples are counters, and so are the metrics of phases and of activities of devices (`trace_counters.py`). Times
are µs with three decimals: no nanosecond is lost. Of a simulated run without a clock a cycle is drawn as one ns, which
the trace says. Memory does not grow with the run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from sonda.record.files.tables import read_samples
from sonda.record.progress import Say
from sonda.record.run import Run
from sonda.record.samples import Sample
from sonda.report.output import whole_file
from sonda.report.trace.spans import WORDS, DrawnSpans
from sonda.report.trace.tracks import IN_CYCLES, Track, in_cycles, nothing_to_draw


def write_trace(path: Path, run: Run, say: Say = lambda text: None) -> Path:
    """Write the trace of a run, compressed when the name ends in `.gz`; returns the path. `say` is told how far it is.

    Raises SondaError where it cannot be written, or where there is nothing to draw.
    """
    with whole_file(path) as stream:
        _write(stream, run, say)
    return path


def _write(stream: IO[bytes], run: Run, say: Say) -> None:
    about = {
        "run": run.id,
        "workload": run.info.workload.plain(),
        "target": run.info.target.plain(),
        "status": run.info.status,
    }
    if in_cycles(run):
        about["times"] = IN_CYCLES
    head = json.dumps({"displayTimeUnit": "ms", "otherData": about}, default=str)
    stream.write((head[:-1] + ', "traceEvents": [\n').encode())
    processes: dict[tuple[str, int, str], int] = {}
    first = True
    for text in _events(run, processes, say):
        stream.write((text if first else ",\n" + text).encode())
        first = False
    if first:
        raise nothing_to_draw(run)
    stream.write(b"\n]}\n")


def _events(run: Run, processes: dict[tuple[str, int, str], int], say: Say) -> Iterator[str]:
    """Pieces of JSON, each one or more events joined by commas."""
    with DrawnSpans(run) as drawn:
        process_of: dict[int, int] = {}
        for (code, lane), thread in drawn.threads.items():
            track = drawn.tracks[code]
            process = _process(processes, track)
            process_of[thread] = process
            name = track.name if lane == 0 else f"{track.name} (overlapping {lane})"
            yield _meta("thread_name", process, thread, {"name": name})
            yield _meta("thread_sort_index", process, thread, {"sort_index": thread})
        yield from _complete_events(drawn, process_of, say)
        for counter in () if drawn.counters is None else drawn.counters.points():
            process = _process(processes, Track(counter.node, counter.rank, counter.clock, ""))
            yield _counter(counter.name, process, counter.time, counter.unit, counter.value)
    for samples in [run.samples] if "samples" in run.__dict__ else read_samples(run):
        yield from _counters(samples, processes)
    for (node, rank, clock), process in processes.items():
        words = [node or "this machine", f"rank {rank}"] + ([f"{clock} clock"] if clock != "host" else [])
        yield _meta("process_name", process, 0, {"name": ", ".join(words)})
        yield _meta("process_sort_index", process, 0, {"sort_index": process})


def _complete_events(drawn: DrawnSpans, process_of: dict[int, int], say: Say) -> Iterator[str]:
    texts = {name: [json.dumps(word) for word in drawn.words[name]] for name in WORDS}
    names, kinds, paths, directions, passes = (texts[name] for name in WORDS)
    where = {thread: f'"pid":{process},"tid":{thread}' for thread, process in process_of.items()}
    written = 0
    for rows, threads in drawn.blocks():
        say(f"writing {written:,} of {drawn.count:,} spans")
        written += len(rows)
        columns = [rows[name].tolist() for name in (*WORDS, "id", "parent", "call", "start", "shorter")]
        lines = []
        for thread, name, kind, path, direction, pass_, identity, parent, call, start, shorter, metric in zip(
            threads, *columns, _metric_texts(drawn, rows), strict=True
        ):
            extra = f',"path":{paths[path]},"call":{call}' if paths[path] != '""' else ""
            if directions[direction] != '""':
                extra += f',"direction":{directions[direction]}'
            lines.append(
                f'{{"ph":"X","name":{names[name]},"cat":{kinds[kind]},"ts":{_micro(start)},"dur":{_micro(-shorter)},'
                f'{where[thread]},"args":{{"id":{identity},"parent":{parent},"pass":{passes[pass_]}'
                f"{extra}{metric}}}}}"
            )
        yield ",\n".join(lines)


def _metric_texts(drawn: DrawnSpans, rows: Any) -> list[str]:
    """For every row, its metrics as further members of a JSON object; missing ones are left out."""
    import numpy as np

    texts = [""] * len(rows)
    for number, name in enumerate(drawn.metrics):
        chosen = drawn.metric(rows, number)
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
