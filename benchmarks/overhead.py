"""What observing costs: bare, with Sonda's observer and with torch.profiler, interleaved, on one thread.

torch.profiler sees operations, not modules. Where a row says `layers`, every module is a `record_function` range that
PyTorch's global module hooks enter and leave, so that it sees what Sonda sees; `operations` is torch.profiler as it
comes. `added` is what the steps themselves take longer; `with its end` adds what the program waits for when observing
ends (torch.profiler gathers its events, Sonda writes its last ones), spread over the steps. Times are CPU times of the
process, which other programs disturb less than the clock on the wall.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from time import process_time_ns
from typing import Any

import numpy as np

from benchmarks.bar import Bar, Interval, at_most, paired_interval, ratio_interval

MODULES = 1_000
LIMIT_US = 3.0
LIMIT_SLOWDOWN = 0.02


@dataclass(frozen=True)
class Case:
    """Something to run: `step` is repeated `steps` times in each of `rounds` rounds, under every observer."""

    name: str
    step: Callable[[], Any]
    steps: int
    rounds: int
    observers: tuple[str, ...] = ("bare", "Sonda", "profiler operations", "profiler layers")


@dataclass(frozen=True)
class Times:
    """ns of every round under every observer: its steps, and the end of observing."""

    steps: dict[str, np.ndarray]
    ends: dict[str, np.ndarray]


def run() -> list[Bar]:
    """Measure, print the table, and hold the figures against the bars."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch.profiler tells of every start and stop otherwise
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        observers = _observers(torch, directory)
        cases = _cases(torch)
        times = {case.name: _interleaved(case, observers) for case in cases}
    print(f"torch {torch.__version__}, 1 thread, CPU time; medians of interleaved rounds, 95 % bootstrap intervals")
    print(f"{'':28}{'observer':>20}{'added µs/step':>28}{'slowdown':>24}{'with its end':>24}")
    for case in cases:
        for name in case.observers[1:]:
            added, slowdown, ended = _against_bare(case, times[case.name], name)
            print(f"{case.name:28}{name:>20}{added.text(1):>28}{slowdown.text(3):>24}{ended.text(3):>24}")
    return _bars(cases, times)


def _bars(cases: list[Case], times: dict[str, Times]) -> list[Bar]:
    chain, chain_grad, inference, training, resnet = cases
    bars = []
    for case in (chain, chain_grad):
        found = times[case.name].steps
        per_layer = (found["Sonda"] - found["bare"]) / case.steps / MODULES / 1e3
        bars.append(at_most(f"one layer span, {case.name}", paired_interval(per_layer), LIMIT_US, " µs"))
    # An identity has no operation: torch.profiler as it comes sees nothing of the chain.
    peers = {chain: ("profiler layers",), chain_grad: ("profiler layers",),
             inference: ("profiler layers", "profiler operations"),
             training: ("profiler layers", "profiler operations")}  # fmt: skip
    for case, names in peers.items():
        for name in names:
            found = times[case.name].steps
            ratio = ratio_interval(found["Sonda"] - found["bare"], found[name] - found["bare"])
            bars.append(at_most(f"added by Sonda / added by {name}, {case.name}", ratio, 1.0, "x"))
            ends = times[case.name].ends
            whole = ratio_interval(
                found["Sonda"] + ends["Sonda"] - found["bare"], found[name] + ends[name] - found["bare"]
            )
            bars.append(at_most(f"the same with the end of observing, {name}, {case.name}", whole, 1.0, "x"))
    _, slowdown, _ = _against_bare(resnet, times[resnet.name], "Sonda")
    percent = Interval(*(100 * (value - 1) for value in (slowdown.median, slowdown.low, slowdown.high)))
    bars.append(at_most("slowdown of a ResNet-34 training step", percent, 100 * LIMIT_SLOWDOWN, " %"))
    return bars


def _against_bare(case: Case, times: Times, observer: str) -> tuple[Interval, Interval, Interval]:
    """µs added per step; time with over time without; the same with the end of observing."""
    with_it, without, end = times.steps[observer], times.steps["bare"], times.ends[observer]
    added = paired_interval((with_it - without) / case.steps / 1e3)
    return added, paired_interval(with_it / without), paired_interval((with_it + end) / without)


def _interleaved(case: Case, observers: dict[str, Callable[[], AbstractContextManager]]) -> Times:
    """The order turns from round to round, so that drift hits all alike."""
    names = list(case.observers)
    steps: dict[str, list[int]] = {name: [] for name in names}
    ends: dict[str, list[int]] = {name: [] for name in names}
    for number in range(case.rounds):
        turned = names[number % len(names) :] + names[: number % len(names)]
        for name in turned if number % 2 else reversed(turned):
            with observers[name]():
                case.step()
                begin = process_time_ns()
                for _ in range(case.steps):
                    case.step()
                end = process_time_ns()
            steps[name].append(end - begin)
            ends[name].append(process_time_ns() - end)
    return Times(
        *({name: np.array(values, dtype=np.float64) for name, values in both.items()} for both in (steps, ends))
    )


# ---- observers --------------------------------------------------------------------------------------------------


def _observers(torch: Any, directory: str) -> dict[str, Callable[[], AbstractContextManager]]:
    from sonda.frameworks.collector.recorder import Recorder
    from sonda.frameworks.collector.sampling.schedule import Schedule
    from sonda.frameworks.torch.observe.observer import TorchObserver

    recorder = Recorder(directory)
    observer = TorchObserver(recorder, torch, Schedule(count=False))

    @contextmanager
    def sonda() -> Iterator[None]:
        observer.install()
        try:
            yield
        finally:
            observer.remove()
            recorder.flush()

    def operations() -> AbstractContextManager:
        return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True)

    @contextmanager
    def layers() -> Iterator[None]:
        module = torch.nn.modules.module
        opened: list[Any] = []

        def enter(layer: Any, _inputs: Any) -> None:
            opened.append(torch.profiler.record_function(type(layer).__name__))
            opened[-1].__enter__()

        def leave(_layer: Any, _inputs: Any, _output: Any) -> None:
            opened.pop().__exit__(None, None, None)

        hooks = [module.register_module_forward_pre_hook(enter), module.register_module_forward_hook(leave)]
        try:
            with operations():
                yield
        finally:
            for hook in hooks:
                hook.remove()

    return {"bare": nullcontext, "Sonda": sonda, "profiler operations": operations, "profiler layers": layers}


# ---- cases ------------------------------------------------------------------------------------------------------


def _cases(torch: Any) -> list[Case]:
    chain = torch.nn.Sequential(*(torch.nn.Identity() for _ in range(MODULES)))
    weight = torch.ones(1, requires_grad=True)

    def without_gradients() -> None:
        with torch.no_grad():
            chain(weight)

    def with_gradients() -> None:
        chain(2 * weight).backward()

    return [
        Case(f"{MODULES} identities, no_grad", without_gradients, 25, 12),
        Case(f"{MODULES} identities, gradients", with_gradients, 25, 12),
        Case("mlp, batch 1, inference", _inference("mlp", {"batch": "1"}), 200, 16),
        Case("mlp, batch 1, training", _training("mlp", {"batch": "1"}), 50, 16),
        Case(
            "ResNet-34, 64x48, training", _training("resnet34", RESNET), 1, 24, ("bare", "Sonda", "profiler operations")
        ),
    ]


RESNET = {"batch": "16", "image": "64x48", "channels": "1"}


def _inference(name: str, options: dict[str, str]) -> Callable[[], Any]:
    from sonda.workloads.catalogue import describe

    task = describe(name, options).build("torch", False, 0)
    return lambda: task.infer(lambda _name: nullcontext())


def _training(name: str, options: dict[str, str]) -> Callable[[], Any]:
    from sonda.workloads.catalogue import describe

    task = describe(name, options).build("torch", True, 0)
    batches = task.batches(0)
    optimizer = task.optimizer()

    def step() -> None:
        inputs, target = next(batches)
        optimizer.zero_grad()
        task.loss(task.model(*inputs), target).backward()
        optimizer.step()

    return step
