"""Explorations and studies on two workers: Dask against two plain processes that do the same, and a million points.

The plain processes are given half of the work each, all at once, and send nothing back: nobody schedules them. Both
crews are warm, and take turns in one run; where others use the cores too, processor seconds of all processes together
say more than the clock.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

from benchmarks.bar import Bar, Interval, at_least, at_most, paired_interval
from benchmarks.cluster_work import explore_parts, measure_points
from benchmarks.process import processor_seconds
from sonda.record.run import SPANS, Run
from sonda.record.store import Store
from sonda.studies.engine.measurement import measuring
from sonda.studies.engine.plan import plan_points
from sonda.studies.engine.remote import measure_elsewhere
from sonda.studies.engine.runner import run_study
from sonda.studies.executors.cluster import LOCAL, Cluster
from sonda.studies.executors.executor import Executor, ExecutorTask
from sonda.studies.executors.processes import ProcessPool
from sonda.studies.explore.exploration import BATCH, explore
from sonda.studies.explore.parts import PartOrder, explore_part
from sonda.studies.explore.search import search
from sonda.studies.explore.space import cut_grid, parse_space
from sonda.studies.file.study import Study
from sonda.targets.job import Job
from sonda.targets.simulated.exploration import make_grid

PAIRS = 15
"""Of explorations: short and many, so that what others do meanwhile meets both alike."""
STUDY_PAIRS = 9
JOB = Job(workload="dlrm", on="sim:dlrm-hybrid", set="clock_GHz=1 memory.dram=hbm2", threads=1)
FIELDS = [
    "embeddings.multipliers=128..1024*2", "perceptrons.dn_bw=8..128*2", "memory.buffer_KiB=16..8192*2",
    "memory.bytes_per_cycle=1..512*2", "memory.latency_cycles=10..258+2", "perceptrons.multipliers=128..1024*2",
]  # fmt: skip
"""1,000,000 points, all of them possible."""
SHORT = ["memory.latency_cycles=10..48+2" if field.startswith("memory.latency") else field for field in FIELDS]
"""160,000 of them: four batches for each of two workers."""
SEARCHED = Job(
    workload="mlp", options={"batch": "32"}, on="sim:maeri-256", set="clock_GHz=1 memory.dram=hbm2", mapping="stonne",
    threads=1,
)  # fmt: skip
DESIGNS = [
    "multipliers=32..1024*2", "read_ports=4..32*2", "write_ports=4..32*2", "memory.buffer_KiB=16..4096*2",
    "memory.bytes_per_cycle=1..256*2",
]  # fmt: skip
"""7,776 points, whose front has several: here the whole grid can be afforded, and tells what a search misses."""
SHARE = 0.1
STUDY = Study(
    "two-workers", {"workload": "dlrm", "preset": "5-1M-20-100", "on": "sim:dlrm-hybrid", "threads": 1},
    {"seed": tuple(range(1, 97))},
)  # fmt: skip
"""Runs of the same length, so that halves are halves."""
Sides = dict[str, Callable[[], None]]


def run() -> list[Bar]:
    plain, dask = ProcessPool(2), Cluster(LOCAL, workers=2)
    try:
        bars = [*_explorations(plain, dask), *_studies(plain, dask)]
    finally:
        plain.close()
        dask.close()
    small, large = (_memory(fields) for fields in (SHORT, FIELDS))
    print(f"a million points on two processes: {large[1]:.0f} s; most memory of the process that collects them "
          f"{large[0]:.0f} MB, of 160,000 points {small[0]:.0f} MB")  # fmt: skip
    flat = large[0] / small[0]
    return [
        *bars,
        _searched(),
        at_most("minutes for a million points of DLRM", Interval(*[large[1] / 60] * 3), 10.0, " min"),
        at_most("memory of a million points / of 160,000", Interval(flat, flat, flat), 1.5, "x"),
    ]


def _explorations(plain: Executor, dask: Executor) -> list[Bar]:
    orders = _orders(SHORT)
    total = sum(int(np.prod([len(values) for values in order.axes.values()])) for order in orders)
    scheduling: list[float] = []

    def spread() -> None:
        began, used = perf_counter(), process_time()
        _checked(dask, explore_part, [ExecutorTask(number, order) for number, order in enumerate(orders)])
        scheduling.append(100 * (process_time() - used) / (perf_counter() - began) / 2)

    def halves() -> None:
        _checked(plain, explore_parts, [ExecutorTask(number, orders[number::2]) for number in range(2)])

    speeds, costs = _paired(f"{total:,} points", {"plain": halves, "Dask": spread}, PAIRS)
    return [
        at_least("exploration on two Dask workers / two plain processes", paired_interval(speeds), 0.9, "x"),
        at_most("the same, processor time of all processes", paired_interval(costs), 1 / 0.9, "x"),
        at_most("scheduling, of the time of the workers", paired_interval(scheduling[1:]), 5.0, " %"),
    ]


def _studies(plain: Executor, dask: Executor) -> list[Bar]:
    """A study of simulated runs; raises SystemExit where two workers do not make the runs that one makes."""
    wanted = plan_points(STUDY)
    with tempfile.TemporaryDirectory(prefix="sonda-studies-") as name:
        alone = Store(Path(name) / "alone")
        begin = perf_counter()
        expected = run_study(STUDY, alone, measuring(alone, STUDY), lambda _: None)
        print(f"{len(wanted)} simulated runs in one process after the other: {perf_counter() - begin:.1f} s")
        stores = iter(range(1_000))
        made: list[list[Run]] = []

        def spread() -> None:
            store = Store(Path(name) / str(next(stores)))
            found = run_study(
                STUDY,
                store,
                measuring(store),
                lambda _: None,
                spread=lambda some: measure_elsewhere(STUDY, store, dask, some),
            )
            made.append([run for _, run in found.runs])

        def halves() -> None:
            place = Path(name) / str(next(stores))
            _checked(plain, measure_points, [ExecutorTask(at, (place, STUDY, wanted[at::2])) for at in range(2)])

        speeds, costs = _paired(f"{len(wanted)} runs", {"plain": halves, "Dask": spread}, STUDY_PAIRS)
        same = [_facts(run) for _, run in expected.runs]
        if any([_facts(run) for run in runs] != same for runs in made):
            raise SystemExit("two workers did not make the runs that one makes")
    return [
        at_most("a study on two Dask workers / two plain processes", paired_interval(1 / np.array(speeds)), 1.15, "x"),
        at_most("the same, processor time of all processes", paired_interval(costs), 1.15, "x"),
    ]


def _searched() -> Bar:
    """How much of the front of the whole grid a search finds that may simulate a tenth of it."""
    with tempfile.TemporaryDirectory() as name:
        whole, found = (_front(run) for run in (
            explore(SEARCHED, parse_space(DESIGNS), Store(Path(name) / "whole")),
            search(SEARCHED, parse_space(DESIGNS), Store(Path(name) / "found"), SHARE),
        ))  # fmt: skip
    share = len(whole[0] & found[0]) / len(whole[0])
    print(f"search: {found[1]:,} of {whole[1]:,} points, {len(whole[0] & found[0])} of {len(whole[0])} on the front")
    return at_least(
        f"part of the front found with {found[1] / whole[1]:.0%} of the points", Interval(*[share] * 3), 0.9
    )


def _front(run: Run) -> tuple[set[tuple[object, ...]], int]:
    """Designs on the front, and how many were simulated."""
    table = run.points
    settings = table.column_names[: table.column_names.index("cycles:simulated")]
    rows = table.filter(table.column("front")).select(settings).to_pylist()
    return {tuple(row.values()) for row in rows}, table.num_rows


def _facts(run: Run) -> tuple[object, ...]:
    """All that a simulated run says but when it was made."""
    import pyarrow.parquet as pq

    table = pq.read_table(run.directory / SPANS)
    steady = [name for name in table.column_names if name not in ("start", "duration")]
    return run.id, run.info.seed, run.info.point, run.info.workload, table.select(steady).to_pydict()


def _paired(what: str, sides: Sides, pairs: int) -> tuple[list[float], list[float]]:
    """The speed of the second side over that of the first, and its processor time over that of the first, of each pair;
    the sides take turns in going first, after one that warms up."""
    first, second = sides
    for side in sides.values():
        side()
    speeds, costs = [], []
    for number in range(pairs):
        times, used = {}, {}
        for name in (first, second) if number % 2 else (second, first):
            began, before = perf_counter(), processor_seconds()
            sides[name]()
            times[name], used[name] = perf_counter() - began, processor_seconds() - before
        speeds.append(times[first] / times[second])
        costs.append(used[second] / used[first])
        said = ", ".join(f"{name} {times[name]:.2f} s ({used[name]:.2f} s of processors)" for name in sides)
        print(f"{what}: {said}; speed {speeds[-1]:.2f}x, processors {costs[-1]:.2f}x")
    return speeds, costs


def _orders(fields: list[str]) -> list[PartOrder]:
    space = parse_space(fields)
    grid = make_grid(JOB, (JOB.on,), space)
    return [
        PartOrder(grid.job, grid.zeros, JOB.on, piece, space, (JOB.on,)) for piece in cut_grid(grid.axes[JOB.on], BATCH)
    ]


def _checked(executor: Executor, work: object, tasks: list[ExecutorTask]) -> None:
    for done in executor.run(work, tasks):  # type: ignore[arg-type]
        if done.failure:
            raise RuntimeError(done.failure)


MEASURED = """
import sys, time
from benchmarks.cluster import JOB
from benchmarks.process import highest_memory
from sonda.record.store import Store
from sonda.studies.executors.processes import ProcessPool
from sonda.studies.explore.exploration import explore
from sonda.studies.explore.space import parse_space
from pathlib import Path
if __name__ == "__main__":
    crew = ProcessPool(2)
    begin = time.perf_counter()
    explore(JOB, parse_space(sys.argv[2:]), Store(Path(sys.argv[1])), executor=crew)
    crew.close()
    print(highest_memory(), time.perf_counter() - begin)
"""


def _memory(fields: list[str]) -> tuple[float, float]:
    """MB at most, and seconds, of a process of its own that explores with two others."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "measured.py"
        script.write_text(MEASURED)
        output = subprocess.run(
            [sys.executable, str(script), f"{folder}/store", *fields], check=True, capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        ).stdout  # fmt: skip
    high, seconds = map(float, output.split())
    return high, seconds
