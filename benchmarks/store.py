"""A store of 100,000 constructed runs: listing the newest 20, streaming all of them, making the index anew.

Times are processor time of the whole command, interpreter included: these machines are shared.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter

import msgspec

from benchmarks.bar import Bar, Interval, at_most, paired_interval
from sonda.record.run import RunInfo, directory_name, new_id
from sonda.record.span import Spans, Words

RUNS = 100_000
LINKS = 20_000
"""Runs that share one file of spans on disk: file systems bound the links of a file."""
ROUNDS = 9
WAITED_S = 20
FIRST_ROWS = 200
"""With which everything that a row needs is loaded."""


def run() -> list[Bar]:
    root = Path(tempfile.mkdtemp(prefix="sonda-store-"))
    try:
        _fill(root)
        cold, _ = _listing(root)
        print(f"first listing of the newest 20 of {RUNS:,} runs: {cold:.2f} CPU s, with reading 20 runs")
        newest = paired_interval([_listing(root)[0] for _ in range(ROUNDS)])
        print(f"listing them again: {newest.text(2, ' CPU s')}")
        rebuilt, wall = _listing(root, "--rebuild")
        print(f"the index made anew and 20 listed: {rebuilt:.1f} CPU s, {wall:.1f} s")
        first, after, growth = _stream(root)
        print(f"--all --json: first row after {first:.2f} s, {after:,} rows in the {WAITED_S} s that were waited for")
        return [
            at_most("sonda ls, newest 20 of 100,000, with index", newest, 1.0, " s"),
            at_most("index of 100,000 runs made anew", Interval(rebuilt, rebuilt, rebuilt), 60.0, " s", 1),
            at_most(
                "memory of --all --json at the end / at its first rows", Interval(growth, growth, growth), 1.2, "x"
            ),
        ]
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _fill(root: Path) -> None:
    """Constructed runs, a minute apart: three steps of 2 ms each."""
    import pyarrow.parquet as pq

    begin = datetime(2026, 1, 1, tzinfo=UTC)
    source = Path()
    for number in range(RUNS):
        identity, made = new_id(), (begin + timedelta(minutes=number)).isoformat(timespec="milliseconds")
        info = RunInfo(
            id=identity, created=made, status="complete", workload={"name": "mlp", "train": True, "batch": 50},
            target={"spec": "cpu", "device": "cpu", "threads": 1},
        )  # fmt: skip
        directory = root / directory_name(made, identity)
        directory.mkdir()
        (directory / "run.json").write_bytes(msgspec.json.encode(info))
        if number % LINKS == 0:
            source = directory / "spans.parquet"
            pq.write_table(_spans().to_arrow(), source)
        else:
            os.link(source, directory / "spans.parquet")


def _spans() -> Spans:
    import numpy as np

    return Spans(
        {"parent": np.array([-1, 0, 1, 1, 1]), "start": np.array([0, 0, 0, 2_000_000, 4_000_000]),
         "duration": np.array([6_000_000, 6_000_000, 2_000_000, 2_000_000, 2_000_000])},
        {"kind": Words.of(["run", "part", "step", "step", "step"]),
         "name": Words.of(["run", "train", "step", "step", "step"]), "pass": Words.constant("timed", 5)},
        {},
    )  # fmt: skip


def _listing(root: Path, *options: str) -> tuple[float, float]:
    """Processor and wall seconds of a listing."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    _sonda(root, *options).communicate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, perf_counter() - began


def _stream(root: Path) -> tuple[float, int, float]:
    """Seconds to the first row of all, how many came while it was waited, and how much memory grew meanwhile."""
    began = perf_counter()
    process = _sonda(root, "--all", "--json")
    assert process.stdout is not None
    to_first, rows, small, large, seen = 0.0, 0, 0, 0, b" "
    while seen and (not rows or perf_counter() - began < to_first + WAITED_S):
        seen = os.read(process.stdout.fileno(), 1 << 16)
        rows += seen.count(b'"run":')
        if rows:
            to_first = to_first or perf_counter() - began
            large = _peak(process.pid) or large
            small = small or (large if rows >= FIRST_ROWS else 0)
    process.kill()
    process.communicate()
    return to_first, rows, large / (small or large)


def _peak(process: int) -> int:
    """Most KiB that a process had; 0 where it is gone."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def _sonda(root: Path, *options: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "sonda", "ls", *options], env={**os.environ, "SONDA_HOME": str(root)},
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
