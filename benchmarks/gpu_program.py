"""A training program that knows nothing of Sonda's observer, and says on one line how long its later steps took.

    python -m benchmarks.gpu_program WORKLOAD DEVICE STEPS [profiler]

It waits for the device twice: when `SKIPPED` steps have been launched, and at the end. `profiler` puts torch.profiler
around all steps.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from time import perf_counter_ns
from typing import Any

SKIPPED = 20
"""More than the steps that Sonda counts and records of a program: those behind them are what its users time."""
OPTIONS = {"resnet34": {"batch": "128", "image": "197x148", "channels": "1", "classes": "9"}, "mlp": {"batch": "50"}}
SAYS = "ns a step: "


def main(arguments: list[str]) -> None:
    import torch

    from sonda.workloads.catalogue import describe

    workload, device, steps = arguments[0], arguments[1], int(arguments[2])
    task = describe(workload, OPTIONS[workload]).build("torch", True, 0)
    batch, answers = next(task.batches(0))
    task.model.to(device)
    inputs, target = [one.to(device) for one in batch], answers.to(device)
    optimizer = task.optimizer()

    def wait() -> int:
        if device != "cpu":
            torch.cuda.synchronize()
        return perf_counter_ns()

    with _profiler(torch) if "profiler" in arguments[3:] else nullcontext():
        begin = 0
        for number in range(SKIPPED + steps):
            if number == SKIPPED:
                begin = wait()
            optimizer.zero_grad()
            task.loss(task.model(*inputs), target).backward()
            optimizer.step()
        spent = wait() - begin
    print(f"{SAYS}{spent / steps:.0f}", flush=True)


def _profiler(torch: Any) -> Any:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    return torch.profiler.profile(activities=activities, acc_events=True)


if __name__ == "__main__":
    main(sys.argv[1:])
