"""A GPU: what observing a training step costs there, and whether add reaches the bandwidth that copying does.

Bare, with Sonda's observer and with torch.profiler, in interleaved rounds on the wall's clock; the device is waited for
at the end of every round and never within one. Without a GPU there is nothing to measure.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter_ns
from typing import Any

import numpy as np

from benchmarks.bar import Bar, Interval, at_least, at_most, paired_interval

LIMIT_PERCENT = 3.0
LEAST_OF_COPY = 0.85
ADD_BYTES = 3 << 30
"""All three matrices together, 1 GiB each."""
RESNET = {"batch": "128", "image": "197x148", "channels": "1", "classes": "9"}
MLP = {"batch": "50"}


def run() -> list[Bar]:
    """Measure, print the table, and hold the figures against the bars; nothing where there is no GPU."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    import torch

    if not torch.cuda.is_available():
        print("no GPU that PyTorch can use: nothing to measure")
        return []
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name(0)}; medians of interleaved rounds, 95 % intervals")
    with tempfile.TemporaryDirectory() as directory:
        observers = _observers(torch, directory)
        resnet = _slowdowns(torch, "ResNet-34, batch 128, 197x148, training", _training("resnet34", RESNET), 10, 20,
                            observers)  # fmt: skip
        _slowdowns(torch, "mlp, batch 50, training (host-bound)", _training("mlp", MLP), 200, 20, observers)
    added = Interval(*(100 * (value - 1) for value in (resnet.median, resnet.low, resnet.high)))
    return [
        at_most("observing a ResNet-34 training step at batch 128 on the GPU", added, LIMIT_PERCENT, " %"),
        at_least("add on 1 GiB matrices / copying", _add_against_copy(torch), LEAST_OF_COPY, "x"),
    ]


def _slowdowns(
    torch: Any,
    name: str,
    step: Callable[[], Any],
    steps: int,
    rounds: int,
    observers: dict[str, Callable[[], AbstractContextManager]],
) -> Interval:
    """Print what every observer adds; returns Sonda's time over the bare one."""
    times: dict[str, list[int]] = {observer: [] for observer in observers}
    for number in range(rounds + 1):
        order = list(observers) if number % 2 else list(reversed(observers))
        for observer in order:
            with observers[observer]():
                step()
                torch.cuda.synchronize()
                begin = perf_counter_ns()
                for _ in range(steps):
                    step()
                torch.cuda.synchronize()
                end = perf_counter_ns()
            if number:  # the first round warms up
                times[observer].append(end - begin)
    bare = np.array(times["bare"], dtype=np.float64)
    print(f"{name}: bare {np.median(bare) / steps / 1e6:.3f} ms a step")
    ratios = {}
    for observer in list(observers)[1:]:
        ratios[observer] = paired_interval(np.array(times[observer]) / bare)
        print(f"  {observer:12} {ratios[observer].text(3, 'x')}")
    return ratios["Sonda"]


def _observers(torch: Any, directory: str) -> dict[str, Callable[[], AbstractContextManager]]:
    from sonda.frameworks.collector.recorder import Recorder
    from sonda.frameworks.collector.schedule import Schedule
    from sonda.frameworks.collector.torch_observer import TorchObserver

    recorder = Recorder(directory)

    @contextmanager
    def sonda() -> Iterator[None]:
        observer = TorchObserver(recorder, torch, Schedule(count=False))
        observer.install()
        try:
            yield
        finally:
            observer.remove()
            recorder.flush()

    def profiler() -> AbstractContextManager:
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        return torch.profiler.profile(activities=activities, acc_events=True)

    # torch.profiler leaves CUPTI behind, so it comes last in the first, warming round and slows all alike after it.
    return {"bare": nullcontext, "Sonda": sonda, "profiler": profiler}


def _training(name: str, options: dict[str, str]) -> Callable[[], Any]:
    from sonda.workloads.catalogue import describe

    task = describe(name, options).build("torch", True, 0)
    inputs, target = next(task.batches(0))
    task.model.cuda()
    inputs, target = [one.cuda() for one in inputs], target.cuda()
    optimizer = task.optimizer()

    def step() -> None:
        optimizer.zero_grad()
        task.loss(task.model(*inputs), target).backward()
        optimizer.step()

    return step


def _add_against_copy(torch: Any) -> Interval:
    """Bytes a second of add over those of a copy of one matrix, round by round."""
    floats = ADD_BYTES // 12
    left, right, result = (torch.ones(floats, device="cuda") for _ in range(3))

    def rate(work: Callable[[], Any], moved: int) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(20):
            work()
        end.record()
        torch.cuda.synchronize()
        return 20 * moved / begin.elapsed_time(end)

    rounds = []
    for number in range(12):
        copy = rate(lambda: result.copy_(left), 8 * floats)
        add = rate(lambda: torch.add(left, right, out=result), 12 * floats)
        if number:
            rounds.append(add / copy)
    print(f"add moves {add / 1e9:.2f} TB/s, copying {copy / 1e9:.2f} TB/s")
    return paired_interval(rounds)
