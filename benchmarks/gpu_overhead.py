"""What observing costs a host-bound program on a GPU: ResNet-50, batch 16, bare and observed in turns.

    python -m benchmarks.gpu_overhead [ROUNDS]

Every step ends with a wait for the device, so that its time is known. Prints one JSON document: the times of all steps
of all rounds, s, the ratio of the medians of the later steps, and what Sonda says that observing took.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.bar import paired_interval

STEPS, SKIPPED = 120, 20
"""Steps of a round, and how many of them come before those that are compared: counting, kernels, warm-up."""
SAYS = "STEPS "


def train(waits: bool) -> None:
    """The program. `waits`: it waits for the device in every step; otherwise at the end only, as programs do."""
    import torch

    from sonda.workloads.catalogue import describe

    task = describe("resnet50", {"batch": "16", "image": "224x224"}).build("torch", True, 0)
    batch, answers = next(task.batches(0))
    task.model.to("cuda")
    inputs, target = [tensor.to("cuda") for tensor in batch], answers.to("cuda")
    optimizer = task.optimizer()
    times = [perf_counter()]
    for _ in range(STEPS):
        optimizer.zero_grad()
        task.loss(task.model(*inputs), target).backward()
        optimizer.step()
        if waits:
            torch.cuda.synchronize()
        times.append(perf_counter())
    torch.cuda.synchronize()
    times.append(perf_counter())
    print(SAYS + json.dumps(np.diff(times).tolist()), flush=True)


def measure(rounds: int, waits: bool) -> dict[str, Any]:
    """All steps of so many rounds in turns, and what they show."""
    program = [sys.executable, "-m", "benchmarks.gpu_overhead", "train", str(int(waits))]
    found: dict[str, list[list[float]]] = {"bare": [], "observed": []}
    said = []
    with tempfile.TemporaryDirectory() as home:
        observed = [sys.executable, "-m", "sonda", "run", "--", *program]
        for number in range(rounds):
            for how in ("bare", "observed") if number % 2 else ("observed", "bare"):
                command = observed if how == "observed" else program
                done = subprocess.run(
                    command, capture_output=True, text=True, check=True, env={**os.environ, "SONDA_HOME": home}
                )
                lines = done.stdout.splitlines()
                found[how].append(json.loads(next(line for line in lines if line.startswith(SAYS))[len(SAYS) :]))
                said += [line.strip() for line in lines if "observing took" in line]
    later = {how: np.array([steps[SKIPPED:STEPS] for steps in runs]) for how, runs in found.items()}
    # Without a wait in every step the mean is the step; with it the median is disturbed least.
    step = {how: np.median(times, axis=1) if waits else times.mean(axis=1) for how, times in later.items()}
    ratio = paired_interval(step["observed"] / step["bare"])
    return {"waits": waits, "ratio": ratio.text(4), "said": said, "steps": found}


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        train(sys.argv[2] == "1")
    else:
        asked = int(sys.argv[1]) if len(sys.argv) > 1 else 6
        print(json.dumps([measure(asked, waits) for waits in (True, False)]))
