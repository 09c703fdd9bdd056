"""ResNet-50, whole, on simulated accelerators: from the job to the finished run, after torch is imported.

The model is built, runs once, is seen operation by operation, and every operation is simulated; each measurement is a
process of its own. Bars are on CPU seconds of all threads: an idle machine needs no longer than that, and programs
beside it do not count. Wall seconds stand beside them, and those of the whole command, its start and imports included.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

from benchmarks.bar import Bar, at_most, paired_interval
from benchmarks.process import highest_memory

LIMIT = 5.0
ROUNDS = 5
BARRED = "tpu-128x128"
PUBLISHED = "--batch=1 --image=224x224"
"""The size that ResNet-50 was published with; without words, Sonda's own default."""
CASES = ((BARRED, ""), (BARRED, PUBLISHED), ("tpu-16x16", PUBLISHED), ("maeri-256", PUBLISHED), ("magma-128", ""))


def run() -> list[Bar]:
    """Print time and memory of each case, and hold those on tpu-128x128 against the bar."""
    print(f"{'accelerator':13}{'':27}{'cycles':>15}{'CPU s':>21}{'wall s':>8}{'command s':>11}{'memory':>10}")
    bars = []
    for accelerator, words in CASES:
        rounds = ROUNDS if accelerator == BARRED else 2
        found = [_child(accelerator, words) for _ in range(rounds + 1)][1:]  # the first one compiles
        cpu = paired_interval([one["cpu"] for one in found])
        wall = float(np.median([one["wall"] for one in found]))
        memory = max(one["memory"] for one in found)
        print(f"{accelerator:13}{words:27}{found[0]['cycles']:>15,.0f}{cpu.text():>21}{wall:>8.2f}"
              f"{_command(accelerator, words):>11.2f}{memory:>7.0f} MB")  # fmt: skip
        if accelerator == BARRED:
            bars.append(at_most(f"ResNet-50 on {accelerator} {words}".strip() + ", CPU seconds", cpu, LIMIT, " s"))
    return bars


def _child(accelerator: str, words: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.resnet50", accelerator, *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _command(accelerator: str, words: str) -> float:
    """Wall seconds of what a user writes."""
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-P", "-m", "sonda", "run", "resnet50", "--on", f"sim:{accelerator}", *words.split()]
        began = perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env={**os.environ, "SONDA_HOME": name})
        return perf_counter() - began


def _simulate(accelerator: str, *words: str) -> dict[str, float]:
    import torch  # noqa: F401

    from sonda.targets.job import Job, parse_options
    from sonda.targets.simulated.launcher import simulate_job

    job = Job(workload="resnet50", options=parse_options(words, {}), on=f"sim:{accelerator}")
    with tempfile.TemporaryDirectory() as name:
        began = perf_counter(), process_time()
        target = simulate_job(job, Path(name))["simulation"]["target"]
        ended = perf_counter(), process_time()
    cycles = sum(one["count"] * one["cycles"] for one in target["mapping"])
    return {"wall": ended[0] - began[0], "cpu": ended[1] - began[1], "cycles": cycles, "memory": highest_memory()}


if __name__ == "__main__":
    print(json.dumps(_simulate(*sys.argv[1:])))
