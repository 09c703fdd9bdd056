"""A million spans from a collector's file to a finished run and back, against bare pyarrow with the same columns.

Each measurement is a process of its own: its time without imports, and its highest resident memory with everything.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.bar import Bar, Interval, at_most, paired_interval
from benchmarks.events_file import write_events
from benchmarks.process import highest_memory

STEPS, LAYERS = 5_000, 100
ROUNDS = 7
LIMIT_RATIO = 5.0
LIMIT_MB = 500.0


def run() -> list[Bar]:
    """Measure, print the stages, and hold time and memory against the bars."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        begin, end, total = write_events(directory, STEPS, LAYERS)
        job = [str(directory), str(begin), str(end), str(total)]
        _child("sonda", job)  # leaves the table that bare pyarrow is given
        found: dict[str, list[dict[str, float]]] = {"sonda": [], "pyarrow": []}
        for number in range(ROUNDS):
            for which in ("sonda", "pyarrow") if number % 2 else ("pyarrow", "sonda"):
                found[which].append(_child(which, job))
    bare = np.array([one["total"] for one in found["pyarrow"]])
    print(
        f"{found['sonda'][0]['spans']:,.0f} spans, {2 * STEPS * LAYERS:,} of them layers, in {STEPS:,} training steps\n"
    )
    for which, stages in (("sonda", ("assemble", "write", "read", "total")), ("pyarrow", ("write", "read", "total"))):
        for stage in stages:
            seconds = np.array([one[stage] for one in found[which]])
            print(f"{which:8} {stage:9} {paired_interval(seconds / bare).text(2, 'x'):>22} of bare pyarrow's total"
                  f"   ({np.median(seconds):.2f} s)")  # fmt: skip
    memory = {which: max(one["memory"] for one in ones) for which, ones in found.items()}
    print(f"highest resident memory: {memory['sonda']:.0f} MB, bare pyarrow {memory['pyarrow']:.0f} MB")
    ratio = paired_interval(np.array([one["total"] for one in found["sonda"]]) / bare)
    peak = Interval(memory["sonda"], memory["sonda"], memory["sonda"])
    return [
        at_most("a million spans to a run and back / bare pyarrow", ratio, LIMIT_RATIO, "x"),
        at_most("resident memory meanwhile", peak, LIMIT_MB, " MB", 0),
    ]


def _child(which: str, job: list[str]) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-m", "benchmarks.spans", which, *job], capture_output=True, text=True,
                          check=True)  # fmt: skip
    result: dict[str, float] = json.loads(done.stdout)
    return result


def _sonda(directory: Path, begin: int, end: int, total: int) -> dict[str, float]:
    import pyarrow.parquet  # noqa: F401

    from sonda.frameworks.reconstruction.assembly import assemble
    from sonda.record.run import Run, RunInfo, new_id, now, write_run

    store = directory / "store"
    started = perf_counter()
    assembly = assemble(directory, begin, end)
    assembled = perf_counter()
    run = write_run(store, RunInfo(id=new_id(), created=now(), status="complete"), assembly.spans)
    del assembly
    written = perf_counter()
    spans = Run.load(run.directory).spans
    finished = perf_counter()
    memory = highest_memory()
    layers = spans.where(kind="layer")
    if int(layers.sum()) != 2 * STEPS * LAYERS or int(spans.number("duration")[layers].sum()) != total:
        raise SystemExit("what was read is not what was recorded")
    (run.directory / "spans.parquet").replace(directory / "same.parquet")
    shutil.rmtree(store)
    return {
        "spans": len(spans),
        "assemble": assembled - started,
        "write": written - assembled,
        "read": finished - written,
        "total": finished - started,
        "memory": memory,
    }


def _pyarrow(directory: Path) -> dict[str, float]:
    import pyarrow.parquet as pq

    table = pq.read_table(directory / "same.parquet")
    path = directory / "bare.parquet"
    started = perf_counter()
    pq.write_table(table, path, compression="zstd", compression_level=1)
    written = perf_counter()
    pq.read_table(path)
    finished = perf_counter()
    return {
        "write": written - started,
        "read": finished - written,
        "total": finished - started,
        "memory": highest_memory(),
    }


if __name__ == "__main__":
    which, place, *numbers = sys.argv[1:]
    first, last, sum_ns = map(int, numbers)
    print(json.dumps(_sonda(Path(place), first, last, sum_ns) if which == "sonda" else _pyarrow(Path(place))))
