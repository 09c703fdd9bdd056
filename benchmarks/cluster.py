"""Explorations on several workers: Dask against two plain processes that do the same, and a million points.

The plain processes are given half of the batches each, all at once, and send nothing back: nobody schedules them. Both
crews are warm, and take turns in one run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

from benchmarks.bar import Bar, Interval, at_least, at_most, paired_interval
from benchmarks.cluster_work import explore_parts
from sonda.studies.batches import cut
from sonda.studies.executors.cluster import LOCAL, Cluster
from sonda.studies.executors.executor import Executor, Task
from sonda.studies.executors.processes import Processes
from sonda.studies.explore import BATCH
from sonda.studies.explored_part import Order, explore_part
from sonda.studies.space import parse_space, points
from sonda.targets.exploration import grid_of
from sonda.targets.job import Job

ROUNDS = 5
JOB = Job(workload="dlrm", on="sim:dlrm-hybrid", set="clock_GHz=1 memory.dram=hbm2", threads=1)
FIELDS = [
    "embeddings.multipliers=32..512*2", "perceptrons.dn_bw=8..128*2", "memory.buffer_KiB=16..8192*2",
    "memory.bytes_per_cycle=1..512*2", "memory.latency_cycles=10..210+2", "perceptrons.multipliers=64..512*2",
]  # fmt: skip
"""1,010,000 points."""
SHORTER = ["memory.latency_cycles=10..28+2" if field.startswith("memory.latency") else field for field in FIELDS]
"""100,000 of them."""


def run() -> list[Bar]:
    orders = _orders(SHORTER)
    total = sum(int(np.prod([len(values) for values in order.axes.values()])) for order in orders)
    plain = Processes(2)
    dask = Cluster(LOCAL, workers=2)
    try:
        _plain(plain, orders)
        _spread(dask, orders)
        ratios, costs = [], []
        for number in range(ROUNDS):
            times = {}
            for name in ("plain", "dask") if number % 2 else ("dask", "plain"):
                began, used = perf_counter(), process_time()
                _plain(plain, orders) if name == "plain" else _spread(dask, orders)
                times[name] = perf_counter() - began
                if name == "dask":
                    costs.append(100 * (process_time() - used) / times[name] / 2)
            ratios.append(times["plain"] / times["dask"])
            rates = {name: total / seconds for name, seconds in times.items()}
            print(f"{total:,} points: plain {rates['plain']:,.0f}/s, Dask {rates['dask']:,.0f}/s, {ratios[-1]:.2f}x")
    finally:
        plain.close()
        dask.close()
    small, large = (_memory(fields) for fields in (SHORTER, FIELDS))
    print(f"a million points on two processes: {large[1]:.0f} s; most memory of the process that collects them "
          f"{large[0]:.0f} MB, of 100,000 points {small[0]:.0f} MB")  # fmt: skip
    flat = large[0] / small[0]
    return [
        at_least("exploration on two Dask workers / two plain processes", paired_interval(ratios), 0.9, "x"),
        at_most("scheduling, of the time of the workers", paired_interval(costs), 5.0, " %"),
        at_most("minutes for a million points of DLRM", Interval(*[large[1] / 60] * 3), 10.0, " min"),
        at_most("memory of a million points / of 100,000", Interval(flat, flat, flat), 1.5, "x"),
    ]


def _orders(fields: list[str]) -> list[Order]:
    space = parse_space(fields)
    assert points(space)
    grid = grid_of(JOB, (JOB.on,), space)
    return [Order(grid.job, grid.zeros, JOB.on, piece, space, (JOB.on,)) for piece in cut(grid.axes[JOB.on], BATCH)]


def _plain(executor: Executor, orders: list[Order]) -> None:
    halves = [Task(number, orders[number::2]) for number in range(2)]
    _checked(executor, explore_parts, halves)


def _spread(executor: Executor, orders: list[Order]) -> None:
    _checked(executor, explore_part, [Task(number, order) for number, order in enumerate(orders)])


def _checked(executor: Executor, work: object, tasks: list[Task]) -> None:
    for done in executor.run(work, tasks):  # type: ignore[arg-type]
        if done.failure:
            raise RuntimeError(done.failure)


MEASURED = """
import sys, time, resource
from benchmarks.cluster import JOB
from sonda.record.store import Store
from sonda.studies.executors.processes import Processes
from sonda.studies.explore import explore
from sonda.studies.space import parse_space
from pathlib import Path
if __name__ == "__main__":
    crew = Processes(2)
    begin = time.perf_counter()
    explore(JOB, parse_space(sys.argv[2:]), Store(Path(sys.argv[1])), executor=crew)
    crew.close()
    high = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
    print(int(high) / 1000, time.perf_counter() - begin)
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
