"""`@auto` on a machine with a GPU: never slower than the best single device, whichever that is.

Three networks: one so small that the processor wins, one that the GPU wins by far, and one between. Of each the GPU
alone, the processor alone and both with `@auto` take turns, each as a run of its own; the median step with `@auto` is
held against that of the faster single device of the same round. Without a GPU there is nothing to measure.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from benchmarks.bar import Bar, at_most, paired_interval

STEPS = 60
FEWEST, MOST = 2, 5
"""Rounds of each network; after the fewest no round begins when the time is up."""
BUDGET_S = 130.0
LIMIT = 1.02
HOPELESS = 1.3
"""A single device this many times slower than the other one is not tried again."""
GPU = "cuda:0"
THREADS = 8
"""Of the processor, as many as a GPU's host has at least."""
NETWORKS = {
    "mlp, batch 4": ("mlp", {"layers": "784-64-10", "batch": "4"}),
    "cnn, batch 16": ("cnn", {"image": "32x32", "batch": "16"}),
    "resnet34, batch 64": ("resnet34", {"batch": "64", "image": "64x48", "channels": "1", "classes": "9"}),
}


@dataclass
class Turns:
    """What the rounds of one network gave: the step with `@auto` over that of the best single device."""

    singles: list[str]
    ratios: list[float] = field(default_factory=list)
    said: str = ""


def run() -> list[Bar]:
    """Measure, and hold the ratios against the bar; nothing where there is no GPU."""
    from sonda.targets.target import available_threads, has_gpu

    if not has_gpu():
        print("no GPU on this machine: nothing to measure")
        return []
    processor = f"cpu/{min(THREADS, available_threads())}"
    found = compare([GPU, processor], f"hybrid={GPU}+{processor}@auto", BUDGET_S)
    bars = []
    for name, turns in found.items():
        ratio = paired_interval(turns.ratios)
        print(f"  {name:20} {turns.said}; {ratio.text(3, 'x')} in {len(turns.ratios)} rounds")
        bars.append(at_most(f"@auto, {name}: step / step of the best single device", ratio, LIMIT, "x", 3))
    return bars


def compare(singles: list[str], several: str, budget: float) -> dict[str, Turns]:
    """Rounds of every network, interleaved, until the time (s) is up."""
    from sonda.record.store import Store

    found = {name: Turns(list(singles)) for name in NETWORKS}
    limit = monotonic() + budget
    with tempfile.TemporaryDirectory() as directory:
        store = Store(Path(directory))
        for number in range(MOST):
            for name, turns in found.items():
                if number < FEWEST or monotonic() < limit:
                    _round(name, turns, several, store, number % 2 == 1)
    return found


def _round(name: str, turns: Turns, several: str, store: object, reverse: bool) -> None:
    targets = [*turns.singles, several]
    steps, chosen = {}, ""
    for target in reversed(targets) if reverse else targets:
        steps[target], left_out = _step(target, *NETWORKS[name], store)
        if target == several:
            chosen = left_out
    alone = {target: steps[target] for target in turns.singles}
    best = min(alone.values())
    turns.ratios.append(steps[several] / best)
    times = ", ".join(f"{target} {step / 1e6:.3g} ms" for target, step in steps.items())
    turns.said = f"{times} ({chosen or 'all take part'})"
    turns.singles = [target for target in turns.singles if alone[target] <= HOPELESS * best]


def _step(target: str, workload: str, options: dict[str, str], store: object) -> tuple[float, str]:
    """Median step, ns, and which device `@auto` left out."""
    from sonda.analysis.run_summary import summarise
    from sonda.targets.job import Job
    from sonda.targets.pipeline import measure

    run = measure(Job(workload=workload, options=options, on=target, train=True, steps=STEPS), store)  # type: ignore[arg-type]
    value = summarise(run).parts[0].step.value
    assert value is not None
    left = [rank.device for rank in run.info.target.ranks if rank.left_out]
    return value, f"{' and '.join(left)} left out" if left else ""
