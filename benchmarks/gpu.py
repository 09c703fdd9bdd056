"""A GPU: what observing a training step costs there, during and after, and whether what is reported of it is right.

Three figures, none of which a profiler that ran before can flatter:

* Marks and layers alone: bare and with Sonda's observer, in interleaved rounds of one process in which no profiler ever
  runs; the device is waited for at the end of every round and never within one.
* A whole program: its steps behind those whose kernels Sonda records, bare and under `sonda run`, by the program's own
  clock, a process each, taking turns. torch.profiler around the same program stands beside it.
* What `sonda run ops --json` says (`gpu_reported`), and add against copying by PyTorch alone as a second source.

Without a GPU there is nothing to measure.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from benchmarks.bar import Bar, Interval, at_least, at_most, paired_interval
from benchmarks.gpu_program import OPTIONS, SAYS
from benchmarks.gpu_reported import reported_bars

LIMIT_PERCENT = 3.0
LEAST_OF_COPY = 0.85
ADD_BYTES = 3 << 30
"""All three matrices together, 1 GiB each."""
PROGRAM_ROUNDS = 6
PROGRAM_STEPS = {"resnet34": 200, "mlp": 5_000}
ROOT = Path(__file__).parent.parent


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
        resnet = _slowdowns(torch, "ResNet-34, batch 128, 197x148, training", _training("resnet34"), 10, 20, observers)
        _slowdowns(torch, "mlp, batch 50, training (host-bound)", _training("mlp"), 200, 20, observers)
    torch.cuda.empty_cache()
    after = _programs("resnet34")
    _programs("mlp")
    return [
        at_most("observing a ResNet-34 training step at batch 128 on the GPU", _added(resnet), LIMIT_PERCENT, " %"),
        at_most("steps of a ResNet-34 program after the recorded ones", _added(after), LIMIT_PERCENT, " %"),
        at_least("add on 1 GiB matrices / copying", _add_against_copy(torch), LEAST_OF_COPY, "x"),
        *reported_bars(),
    ]


def _added(ratio: Interval) -> Interval:
    return Interval(*(100 * (value - 1) for value in (ratio.median, ratio.low, ratio.high)))


def _programs(workload: str) -> Interval:
    """Print what Sonda and torch.profiler add to the later steps of a program; returns Sonda's time over the bare."""
    plain = [sys.executable, "-m", "benchmarks.gpu_program", workload, "cuda", str(PROGRAM_STEPS[workload])]
    sonda = [sys.executable, "-m", "sonda", "run", "--"]
    commands = {"bare": plain, "Sonda": [*sonda, *plain], "profiler": [*plain, "profiler"]}
    times: dict[str, list[float]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as store:  # one for all: what the devices can do is measured once
        for number in range(PROGRAM_ROUNDS):
            for name in list(commands) if number % 2 else reversed(commands):
                times[name].append(_later_steps(commands[name], store))
    ratios = later_ratios(times)
    print(f"{workload}, a program's steps after the recorded ones: bare {np.median(times['bare']) / 1e6:.3f} ms a step")
    for name, ratio in ratios.items():
        print(f"  {name:12} {ratio.text(3, 'x')}")
    return ratios["Sonda"]


def _later_steps(command: list[str], store: str) -> float:
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"SONDA_HOME": store}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return said_ns(done.stdout)


def said_ns(output: str) -> float:
    """ns a step that the program said, whatever else was printed."""
    return next(float(line.removeprefix(SAYS)) for line in output.splitlines() if line.startswith(SAYS))


def later_ratios(times: dict[str, list[float]]) -> dict[str, Interval]:
    """Every way over the bare one, round by round."""
    bare = np.array(times["bare"], dtype=np.float64)
    return {name: paired_interval(np.array(spent) / bare) for name, spent in times.items() if name != "bare"}


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
    from sonda.frameworks.collector.sampling.schedule import Schedule
    from sonda.frameworks.torch.observe.observer import TorchObserver

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

    return {"bare": nullcontext, "Sonda": sonda}


def _training(name: str) -> Callable[[], Any]:
    from sonda.workloads.catalogue import describe

    task = describe(name, OPTIONS[name]).build("torch", True, 0)
    batch, answers = next(task.batches(0))
    task.model.cuda()
    inputs, target = [one.cuda() for one in batch], answers.cuda()
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
