"""The chain of modules that a model runs one after the other, and where to cut it into stages of equal work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate, pairwise
from time import perf_counter
from typing import Any

from sonda.frameworks.torch.parallel.calibration import preserve_state
from sonda.record.errors import SondaError

REPEATS = 3
Link = tuple[str, Any]
"""A path and the module of the chain at it."""


def find_chain(model: Any, values: Any) -> list[Link]:
    """The modules of the model's chain, as small as possible. `values` are an input of the model.

    A module is replaced by its children where running them in order gives its own output, bit for bit. This is tried on
    the model in training mode, where a forward may do things that none of its children does. Raises SondaError where
    the model is not a chain.
    """
    import torch

    training = model.training
    model.train()
    try:
        with torch.no_grad(), preserve_state(model):
            links, _ = _unfold(model, "", values)
    finally:
        model.train(training)
    if len(links) < 2:
        raise SondaError(
            f"{type(model).__name__} cannot be cut into stages: its forward is no chain of its modules",
            "use ddp= or hybrid=, or a model that is a torch.nn.Sequential",
        )
    return links


def _unfold(module: Any, path: str, values: Any) -> tuple[list[Link], Any]:
    """The smallest links that compute what `module` computes from `values`, and its output."""
    import torch

    links: list[Link] = []
    passed: Any = values.clone()  # a module may work in place
    with torch.random.fork_rng([values.device.index] if values.is_cuda else []):  # both draw the same numbers
        for name, child in module.named_children():
            try:
                below, passed = _unfold(child, f"{path}.{name}" if path else name, passed)
            except Exception:  # a child that is no link may refuse the values of its predecessor
                links, passed = [], None
                break
            links += below
    output = module(values.clone())
    same = isinstance(passed, torch.Tensor) and isinstance(output, torch.Tensor) and torch.equal(passed, output)
    return (links, output) if links and same else ([(path, module)], output)


def measure_chain(
    chain: Sequence[Link],
    values: Any,
    finished: Callable[[], None] = lambda: None,
    calling: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> tuple[list[float], list[Any]]:
    """Time of each module forward and backward, s, and the output of each.

    The shortest of `REPEATS` counts. `finished()` waits for the device; modules are called inside of `calling()`.
    """
    times, outputs = [], []
    for _, module in chain:
        best = float("inf")
        for _ in range(REPEATS):
            module_input = values.detach().clone()
            if module_input.is_floating_point():
                module_input.requires_grad_()
            begin = perf_counter()
            with calling():
                output = module(module_input * 1 if module_input.requires_grad else module_input)
            if output.requires_grad:
                output.backward(output.detach())
            finished()
            best = min(best, perf_counter() - begin)
        times.append(best)
        outputs.append(output.detach())
        values = output.detach()
    return times, outputs


def measure_whole(
    chain: Sequence[Link],
    values: Any,
    finished: Callable[[], None] = lambda: None,
    calling: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> float:
    """Time of the whole chain forward and backward, s; the shortest of `REPEATS` counts.

    Unlike `measure_chain` it waits for the device once, at the end of the chain.
    """
    best = float("inf")
    for _ in range(REPEATS):
        module_input = values.detach().clone()
        if module_input.is_floating_point():
            module_input.requires_grad_()
        finished()
        begin = perf_counter()
        output = module_input * 1 if module_input.requires_grad else module_input
        with calling():
            for _, module in chain:
                output = module(output)
        if output.requires_grad:
            output.backward(output.detach())
        finished()
        best = min(best, perf_counter() - begin)
    return best


def cut_chain(times: Sequence[Sequence[float]]) -> list[int]:
    """The index of the first module of every stage, followed by the number of modules.

    `times[stage][module]` is the time of a module on that stage's device. Every stage gets at least one module, and the
    slowest stage is as fast as possible. Raises SondaError where there are more stages than modules.
    """
    stages, modules = len(times), len(times[0])
    if modules < stages:
        raise SondaError(f"{modules} modules cannot be cut into {stages} stages", "use fewer devices")
    sums = [[0.0, *accumulate(row)] for row in times]
    # best[s][m]: time of the slowest of the first s stages when they hold the first m modules.
    # begins[s][m]: the first module of the last of these stages.
    best = [[float("inf")] * (modules + 1) for _ in range(stages + 1)]
    begins = [[0] * (modules + 1) for _ in range(stages + 1)]
    best[0][0] = 0.0
    for stage in range(1, stages + 1):
        own = sums[stage - 1]
        for end in range(stage, modules + 1):
            for begin in range(stage - 1, end):
                slow = max(best[stage - 1][begin], own[end] - own[begin])
                if slow < best[stage][end]:
                    best[stage][end], begins[stage][end] = slow, begin
    bounds = [modules]
    for stage in range(stages, 0, -1):
        bounds.append(begins[stage][bounds[-1]])
    return bounds[::-1]


def check_cut(chain: Sequence[Link], bounds: Sequence[int]) -> None:
    """Raises SondaError where two stages share a trained weight: each stage would train its own copy."""
    stages: dict[int, tuple[int, str]] = {}
    for stage, (begin, end) in enumerate(pairwise(bounds)):
        for path, module in chain[begin:end]:
            for parameter in module.parameters():
                first, first_path = stages.setdefault(id(parameter), (stage, path))
                if first != stage and parameter.requires_grad:
                    raise SondaError(
                        f"{first_path} and {path} have weights in common, and are in different stages",
                        "use ddp= or hybrid=, or fewer devices",
                    )
