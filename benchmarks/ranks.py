"""Traces of eight ranks on two workers, against two plain processes that read four each; memory of a worker.

The plain processes are given their files at once and put nothing together: nobody schedules them. All crews are warm,
and take turns in one run; where others use the cores too, processor seconds of all processes together say more than the
clock. $SONDA_RANK_MB makes the traces smaller or larger.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.bar import Bar, Interval, at_most, paired_interval
from benchmarks.process import processor_seconds
from benchmarks.rank_work import import_share, peak_memory
from benchmarks.trace_maker import TraceMaker
from sonda.record.run import SPANS
from sonda.studies.executors.choice import spread_over
from sonda.studies.executors.cluster import LOCAL, Cluster
from sonda.studies.executors.executor import Executor, ExecutorTask
from sonda.studies.executors.processes import ProcessPool
from sonda.targets.imported.launcher import import_files

MEGABYTES = "SONDA_RANK_MB"
RANKS, WORKERS, ROUNDS, LARGER = 8, 2, 7, 4
SECOND, SECOND_ROUNDS = 3, 3
"""Files of this many times the size, too: of still larger ones a plain process has a second one read the half."""


def run() -> list[Bar]:
    size = int(os.environ.get(MEGABYTES) or 16) * 10**6
    bars = []
    with tempfile.TemporaryDirectory(prefix="sonda-ranks-") as name:
        place = Path(name)
        plain, processes = ProcessPool(WORKERS), ProcessPool(WORKERS)
        dask = Cluster(LOCAL, workers=WORKERS)
        crews: dict[str, Executor] = {"two processes": processes, "two Dask workers": dask}
        try:
            bars += _held(plain, crews, place, size, ROUNDS)
            small = max(_peaks(processes))
            # What a scheduler costs does not grow with the files: traces of real steps are larger than 16 MB.
            bars += _held(plain, crews, place, SECOND * size, SECOND_ROUNDS)
        finally:
            for crew in (plain, processes, dask):
                crew.close()
        larger = _written(place / "larger", WORKERS, LARGER * size)
        crew = ProcessPool(WORKERS)
        try:
            _spread(crew, larger, place)
            large = max(_peaks(crew))
        finally:
            crew.close()
    print(f"most memory of a worker: {small:.0f} MB, with traces {LARGER} times as large {large:.0f} MB")
    growth = large / small
    return [
        *bars,
        at_most(f"memory of a worker, traces {LARGER} times as large", Interval(growth, growth, growth), 1.1),
    ]


def _held(plain: Executor, crews: dict[str, Executor], place: Path, size: int, rounds: int) -> list[Bar]:
    """Time and processor time of every crew against plain processes, with traces of so many bytes."""
    files = _written(place / "ranks", RANKS, size)
    ratios: dict[str, list[float]] = {name: [] for name in crews}
    costs: dict[str, list[float]] = {name: [] for name in crews}
    spans = _plain(plain, files)
    for name, crew in crews.items():
        if (found := _spread(crew, files, place)) != spans:
            raise SystemExit(f"{name} made {found:,} spans, plain processes {spans:,}")
    for number in range(rounds):
        times, used = {}, {}
        for name in ("plain", *crews) if number % 2 else (*crews, "plain"):
            began, before = perf_counter(), processor_seconds()
            _plain(plain, files) if name == "plain" else _spread(crews[name], files, place)
            times[name], used[name] = perf_counter() - began, processor_seconds() - before
        for name in crews:
            ratios[name].append(times[name] / times["plain"])
            costs[name].append(used[name] / used["plain"])
        said = ", ".join(f"{who} {times[who]:.2f} s ({used[who]:.2f} s of processors)" for who in times)
        print(f"{RANKS} ranks of {size / 1e6:.0f} MB, {spans:,} spans: {said}")
    shutil.rmtree(place / "ranks")
    bars = []
    for name in crews:
        what = f"{RANKS} ranks of {size / 1e6:.0f} MB on {name} / two plain processes"
        bars.append(at_most(what, paired_interval(ratios[name]), 1.15, "x"))
        bars.append(at_most(f"{what}, processor time", paired_interval(costs[name]), 1.15, "x"))
    return bars


def _written(place: Path, count: int, size: int) -> list[Path]:
    place.mkdir()
    maker = TraceMaker()
    files = [place / f"rank{rank}.json" for rank in range(count)]
    for path in files:
        maker.write(path, size)
    return files


def _plain(executor: Executor, files: list[Path]) -> int:
    shares = [ExecutorTask(number, files[number::WORKERS]) for number in range(WORKERS)]
    return sum(_values(executor, import_share, shares))


def _spread(executor: Executor, files: list[Path], place: Path) -> int:
    import pyarrow.parquet as pq

    found = import_files(files, place / "runs", spread=spread_over(executor))
    count = int(pq.read_metadata(found.directory / SPANS).num_rows)
    shutil.rmtree(place / "runs")
    return count


def _peaks(executor: Executor) -> list[float]:
    asked = [ExecutorTask(number, number) for number in range(2 * WORKERS)]
    return _values(executor, peak_memory, asked)


def _values(executor: Executor, work: object, tasks: list[ExecutorTask]) -> list[Any]:
    found = []
    for done in executor.run(work, tasks):  # type: ignore[arg-type]
        if done.failure:
            raise SystemExit(done.failure)
        found.append(done.value)
    return found
