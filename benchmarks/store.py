"""A store of 100,000 constructed runs: listing the newest 20, streaming all of them, making the index anew. A store of
2,000 runs of ordinary size that was never listed: all of them.

Times are of the whole command, interpreter included: processor time, for these machines are shared, and beside it what
somebody waits, of which others have their part.
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
from sonda.record.index import FOLDER, Index
from sonda.record.run import RunInfo, directory_name, new_id
from sonda.record.spans import Spans, Words
from sonda.record.store import Store
from sonda.record.target import WorkloadTarget
from sonda.record.workload import Workload
from sonda.version import VERSION

RUNS = 100_000
LINKS = 20_000
"""Runs that share one file of spans on disk: file systems bound the links of a file."""
NEWEST = "sonda ls, newest 20 of 100,000, with index"
REBUILT = "index of 100,000 runs made anew"
STREAMED = "memory of --all --json at the end / at its first rows"
ROUNDS = 9
ORDINARY = 2_000
"""Runs as `sonda run` makes them."""
FIRST = f"first sonda ls --all of {ORDINARY:,} ordinary runs, CPU time a run"
ROW = b'"run":'
FIRST_ROWS = 200
"""With which everything that a row needs is loaded."""


def run() -> list[Bar]:
    return [*_constructed(), _never_listed()]


def _never_listed() -> Bar:
    """Processor time of the first listing, without that of an empty store, by run."""
    root = Path(tempfile.mkdtemp(prefix="sonda-store-"))
    try:
        _ended(_command(root / "made", "run", "mlp", "--train", "--steps", "50"))
        _multiply(root / "made", root / "copies")
        rounds = []
        for _ in range(ROUNDS):
            shutil.rmtree(root / "copies" / FOLDER, ignore_errors=True)
            rounds.append((_listing(root / "copies", "--all")[0] - _listing(root / "empty", "--all")[0]) / ORDINARY)
        return at_most(FIRST, paired_interval([1000 * seconds for seconds in rounds]), 1.0, " ms")
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _multiply(made: Path, copies: Path) -> None:
    """The run of a store many times over, each with an id of its own."""
    (run,) = Store(made).runs()
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(ORDINARY):
        identity, moment = new_id(), (begin + timedelta(minutes=number)).isoformat(timespec="milliseconds")
        directory = copies / directory_name(moment, identity)
        directory.mkdir(parents=True)
        for path in run.directory.iterdir():
            os.link(path, directory / path.name)
        (directory / "run.json").unlink()
        info = msgspec.structs.replace(run.info, id=identity, created=moment)
        (directory / "run.json").write_bytes(msgspec.json.encode(info))


def _constructed() -> list[Bar]:
    root = Path(tempfile.mkdtemp(prefix="sonda-store-"))
    try:
        _fill(root)
        cold, _ = _listing(root)
        print(f"first listing of the newest 20 of {RUNS:,} runs: {cold:.2f} CPU s, with reading 20 runs")
        rebuilt, rebuilt_wall = _listing(root, "--rebuild")
        print(f"the index made anew and 20 listed: {rebuilt:.1f} CPU s, {rebuilt_wall:.1f} s")
        first, whole, rows, growth = _stream(root)
        print(f"--all --json: first row after {first:.2f} s, the last of {rows:,} after {whole:.0f} s, each run read")
        if rows != RUNS:
            raise RuntimeError(f"--all --json ended after {rows:,} of {RUNS:,} rows")
        # Now the index has a row of every run, as in a store that is in use.
        rounds = [_listing(root) for _ in range(ROUNDS)]
        newest, newest_wall = (paired_interval([one[at] for one in rounds]) for at in (0, 1))
        print(f"newest 20, {_indexed(root):,} runs in the index: {newest.text(2, ' CPU s')}")
        return [
            at_most(f"{NEWEST}, CPU time", newest, 1.0, " s"),
            at_most(f"{NEWEST}, as waited for", newest_wall, 1.0, " s"),
            at_most(f"{REBUILT}, CPU time", Interval(rebuilt, rebuilt, rebuilt), 60.0, " s", 1),
            at_most(f"{REBUILT}, as waited for", Interval(rebuilt_wall, rebuilt_wall, rebuilt_wall), 60.0, " s", 1),
            at_most(STREAMED, Interval(growth, growth, growth), 1.2, "x"),
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
            id=identity, created=made, status="complete",
            workload=Workload(name="mlp", train=True, parameters={"batch": 50}),
            target=WorkloadTarget(spec="cpu", device="cpu", threads=1),
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
    _ended(_sonda(root, *options))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, perf_counter() - began


def _ended(process: subprocess.Popen[bytes]) -> None:
    """Wait for a listing; one that failed is no figure."""
    process.communicate()
    if process.returncode:
        raise RuntimeError(f"a listing ended with {process.returncode}")


def _indexed(root: Path) -> int:
    """How many runs the index of a store has rows of."""
    return len(Index(root, VERSION).known(Store(root).names()))


def _stream(root: Path) -> tuple[float, float, int, float]:
    """Seconds to the first row of all and to the last, how many there were, and how much memory grew meanwhile."""
    began = perf_counter()
    process = _sonda(root, "--all", "--json")
    assert process.stdout is not None
    to_first, rows, small, large, rest = 0.0, 0, 0, 0, b""
    while seen := os.read(process.stdout.fileno(), 1 << 16):
        rows += (rest + seen).count(ROW)
        rest = (rest + seen)[1 - len(ROW) :]  # a row's mark may be cut in two
        if rows:
            to_first = to_first or perf_counter() - began
            large = _peak(process.pid) or large
            small = small or (large if rows >= FIRST_ROWS else 0)
    _ended(process)
    return to_first, perf_counter() - began, rows, large / (small or large)


def _peak(process: int) -> int:
    """Most KiB that a process had; 0 where it is gone."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def _sonda(root: Path, *options: str) -> subprocess.Popen[bytes]:
    return _command(root, "ls", *options)


def _command(root: Path, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "sonda", *words], env={**os.environ, "SONDA_HOME": str(root)},
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
