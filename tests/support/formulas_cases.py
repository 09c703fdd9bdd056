"""Helpers of `test_formulas.py` that other tests use too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sonda.frameworks.torch.observe.formulas.cost import CallCost, cost


class CountingMode(TorchDispatchMode):
    """Keeps (name, cost) of every operation; composite ones are taken apart first, as autograd does."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[str, CallCost]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # PyTorch's own taking apart, not `func.decompose`, which prefers other decompositions, written in Python.
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            with self:
                return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        out = func(*args, **kwargs)
        name = str(func._overloadpacket)
        self.operations.append((name, cost(name, args, kwargs, out)))
        return out

    @property
    def flops(self) -> int:
        assert not self.unknown, self.unknown
        return sum(entry.flops or 0 for _, entry in self.operations)

    @property
    def unknown(self) -> list[str]:
        return [name for name, entry in self.operations if not entry.known or entry.bytes is None]

    def costs_of(self, name: str) -> list[CallCost]:
        return [entry for operation, entry in self.operations if operation == name]


def run_counted(work: Callable[[], Any]) -> tuple[Any, CountingMode]:
    """The result of `work` and what was counted meanwhile."""
    with CountingMode() as mode:
        result = work()
    return result, mode


def cost_of(work: Callable[[], Any], name: str) -> CallCost:
    """The cost of the only operation called `name`."""
    _, mode = run_counted(work)
    (entry,) = mode.costs_of(name)
    return entry
