"""Helpers of `test_ranks.py` that other tests use too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sonda.analysis.ranks.stragglers import ImportedJob, job_of
from sonda.targets.imported.launcher import import_files
from trace_examples import call, kernel, step, write

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


Events = list[dict[str, Any]]


def on_device(compute: float, slowest: float, steps: tuple[int, ...] = (0, 1), later: float = 0.0) -> Events:
    """Steps of 1000 µs: a kernel of `compute` µs from 100 on, then an all-reduce that ends 50 µs after the slowest one
    begins. Two calls of 10 µs launch them."""
    events: Events = []
    for at, number in enumerate(steps):
        begin, pair = later + 1000 * at, 2 * number
        events += [step(number, begin, 1000), call("cudaLaunchKernel", begin + 5, 10, pair),
                   call("cudaLaunchKernel", begin + 20, 10, pair + 1), kernel("gemm", begin + 100, compute, pair),
                   kernel(REDUCE, begin + 100 + compute, slowest + 50 - compute, pair + 1, 20)]  # fmt: skip
    return events


def job(folder: Path, ranks: list[Events], heads: list[dict[str, Any]] | None = None) -> ImportedJob:
    folder.mkdir(exist_ok=True)
    for rank, events in enumerate(ranks):
        head = (heads or [{}] * len(ranks))[rank]
        write(folder / f"{rank}.json", events, distributedInfo={"rank": rank, "world_size": len(ranks)}, **head)
    found = job_of(import_files([folder], folder / "runs"))
    assert found is not None
    return found
