"""The chain: the modules that a model runs one after the other, and where to cut it into stages of equal work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate, pairwise
from time import perf_counter
from typing import Any

from sonda.frameworks.torch.parallel.calibration import untouched
from sonda.record.errors import SondaError

REPEATS = 3
Link = tuple[str, Any]
"""A module of the chain with its path."""


def chain_of(model: Any, values: Any) -> list[Link]:
    """The modules of the chain, as small as they can be told apart; `values` is what the model is given.

    A module is taken apart where running its children in their order gives its own output, bit for bit: that is tried,
    not guessed, and in training, where a forward may drop or add what no child of it does. Raises SondaError where the
    model is no chain.
    """
    import torch

    training = model.training
    model.train()
    try:
        with torch.no_grad(), untouched(model):
            found, _ = _unfold(model, "", values)
    finally:
        model.train(training)
    if len(found) < 2:
        raise SondaError(
            f"{type(model).__name__} cannot be cut into stages: its forward is no chain of its modules",
            "use ddp= or hybrid=, or a model that is a torch.nn.Sequential",
        )
    return found


def _unfold(module: Any, path: str, values: Any) -> tuple[list[Link], Any]:
    import torch

    found: list[Link] = []
    passed: Any = values.clone()  # a module may work in place
    with torch.random.fork_rng([values.device.index] if values.is_cuda else []):  # both draw the same numbers
        for name, child in module.named_children():
            try:
                links, passed = _unfold(child, f"{path}.{name}" if path else name, passed)
            except Exception:  # whatever it says to values that are not meant for it
                found, passed = [], None
                break
            found += links
    wanted = module(values.clone())
    same = isinstance(passed, torch.Tensor) and isinstance(wanted, torch.Tensor) and torch.equal(passed, wanted)
    return (found, wanted) if found and same else ([(path, module)], wanted)


def measure_chain(
    chain: Sequence[Link],
    values: Any,
    finished: Callable[[], None] = lambda: None,
    calling: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> tuple[list[float], list[Any]]:
    """s that each module takes forward and backward, the least of some repeats; and the output of each. Modules are
    called inside of `calling()`."""
    times, outputs = [], []
    for _, module in chain:
        best = float("inf")
        for _ in range(REPEATS):
            given = values.detach().clone()
            if given.is_floating_point():
                given.requires_grad_()
            begin = perf_counter()
            with calling():
                output = module(given * 1 if given.requires_grad else given)
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
    """s that all modules take forward and backward one after the other, the least of some repeats; waited for once."""
    best = float("inf")
    for _ in range(REPEATS):
        given = values.detach().clone()
        if given.is_floating_point():
            given.requires_grad_()
        finished()
        begin = perf_counter()
        output = given * 1 if given.requires_grad else given
        with calling():
            for _, module in chain:
                output = module(output)
        if output.requires_grad:
            output.backward(output.detach())
        finished()
        best = min(best, perf_counter() - begin)
    return best


def cut_chain(times: Sequence[Sequence[float]]) -> list[int]:
    """Where to cut: the first module of every stage, and the number of modules at the end.

    `times[stage][module]` is what a module costs on that stage's device. Every stage has a module at least, and the
    slowest stage is as fast as can be. Raises SondaError where there are more stages than modules.
    """
    stages, modules = len(times), len(times[0])
    if modules < stages:
        raise SondaError(f"{modules} modules cannot be cut into {stages} stages", "use fewer devices")
    sums = [[0.0, *accumulate(row)] for row in times]
    # best[s][m]: the slowest of the first s stages when they hold the first m modules; cuts[s][m]: where the last began
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
    """Raises SondaError where two stages would have a weight in common: each would train one of its own."""
    stages: dict[int, tuple[int, str]] = {}
    for stage, (begin, end) in enumerate(pairwise(bounds)):
        for path, module in chain[begin:end]:
            for parameter in module.parameters():
                first, other = stages.setdefault(id(parameter), (stage, path))
                if first != stage and parameter.requires_grad:
                    raise SondaError(
                        f"{other} and {path} have weights in common, and are in different stages",
                        "use ddp= or hybrid=, or fewer devices",
                    )
