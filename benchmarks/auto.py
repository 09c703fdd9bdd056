"""`@auto` on a machine with a GPU: a processor that does not pay is left out, and leaving it out costs nothing.

The GPU alone and the hybrid with `@auto` take turns, each as a run of its own, and their median steps are compared
round by round. Without a GPU there is nothing to measure.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from benchmarks.bar import Bar, Interval, at_most, paired_interval

ROUNDS, STEPS = 5, 60
LIMIT = 1.02
RESNET = {"batch": "64", "image": "64x48", "channels": "1", "classes": "9"}
GPU = "cuda:0"
THREADS = 8
"""Of the processor, as many as a GPU's host has at least."""


def run() -> list[Bar]:
    """Measure, and hold the ratio against the bar; nothing where there is no GPU."""
    from sonda.targets.spec import available_threads, has_gpu

    if not has_gpu():
        print("no GPU on this machine: nothing to measure")
        return []
    several = f"hybrid={GPU}+cpu/{min(THREADS, available_threads())}@auto"
    ratio, shares = compare(GPU, several, RESNET, ROUNDS, STEPS)
    print(f"step of {several} over that of {GPU}: {ratio.text(3, 'x')}; shares {shares}")
    return [at_most(f"{several}: step / step of {GPU} alone", ratio, LIMIT, "x", 3)]


def compare(single: str, several: str, options: dict[str, str], rounds: int, steps: int) -> tuple[Interval, list[int]]:
    """The step on several devices over that on a single one, from interleaved runs, and the shares chosen last."""
    from sonda.record.store import Store

    times: dict[str, list[float]] = {single: [], several: []}
    shares: list[int] = []
    with tempfile.TemporaryDirectory() as directory:
        store = Store(Path(directory))
        for number in range(rounds):
            for target in (single, several) if number % 2 else (several, single):
                step, chosen = _step(target, options, steps, store)
                times[target].append(step)
                shares = chosen or shares
    return paired_interval(np.array(times[several]) / np.array(times[single])), shares


def _step(target: str, options: dict[str, str], steps: int, store: object) -> tuple[float, list[int]]:
    """Median step, ns, and the shares that the outlook chose."""
    from sonda.analysis.summarise import summarise
    from sonda.targets.job import Job
    from sonda.targets.measure import measure

    run = measure(Job(workload="resnet34", options=options, on=target, train=True, steps=steps), store)  # type: ignore[arg-type]
    value = summarise(run).parts[0].step.value
    assert value is not None
    return value, list(run.info.target.get("outlook", {}).get("chosen_shares", []))
