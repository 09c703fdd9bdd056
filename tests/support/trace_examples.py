"""Small traces made by hand, and real ones recorded on an H200."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from places import DATA
from sonda.record.run import Run
from sonda.targets.imported.launcher import import_files

GPU = DATA / "gpu"
KINETO = GPU / "kineto"


def op(name: str, start: float | str, length: float | str, external: int = 0, thread: int = 1) -> dict[str, Any]:
    """An operation of the host; µs."""
    found: dict[str, Any] = {
        "ph": "X",
        "cat": "cpu_op",
        "name": name,
        "pid": 10,
        "tid": thread,
        "ts": start,
        "dur": length,
    }
    if external:
        found["args"] = {"External id": external}
    return found


def step(number: int, start: float, length: float) -> dict[str, Any]:
    return {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 10, "tid": 1, "ts": start,
            "dur": length}  # fmt: skip


def call(name: str, start: float, length: float, correlation: int, thread: int = 1) -> dict[str, Any]:
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 10, "tid": thread, "ts": start, "dur": length,
            "args": {"correlation": correlation}}  # fmt: skip


def kernel(
    name: str, start: float, length: float, correlation: int = -1, stream: int = 7, cat: str = "kernel", **more: Any
) -> dict[str, Any]:
    about = {"device": 0, "stream": stream, **({"correlation": correlation} if correlation >= 0 else {}), **more}
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": stream, "ts": start, "dur": length, "args": about}


def write(path: Path, events: list[dict[str, Any]], indent: int | None = None, **head: Any) -> Path:
    """A trace with these events; `.gz` compresses."""
    data = json.dumps(
        {"schemaVersion": 1, **head, "traceEvents": events, "traceName": path.name}, indent=indent
    ).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def imported(folder: Path, events: list[dict[str, Any]], **head: Any) -> Run:
    """The run of a small trace."""
    return import_files([write(folder / "trace.json", events, **head)], folder / "runs")


def table(run: Run) -> list[dict[str, Any]]:
    """Spans as plain rows, words in place of codes, None for missing, in the order of the file."""
    spans = run.spans
    words = {name: spans.words(name).decoded().tolist() for name in ("kind", "name", "device", "clock")}
    numbers = {
        name: spans.number(name).tolist() for name in ("parent", "start", "duration", "stream", "rank", "thread")
    }
    return [
        {**{name: values[row] for name, values in (words | numbers).items()},
         **{column: None if values[row] != values[row] else float(values[row])
            for column, values in spans.metrics.items()}}
        for row in range(len(spans))
    ]  # fmt: skip
