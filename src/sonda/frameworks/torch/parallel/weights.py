"""Weights that ranks of one machine share: each is stepped once, by the rank that sums its gradient.

A stateless optimizer may take its step in any rank. The weights of all ranks are then stored once, in the first rank's
region. Every rank's optimizer sees only the gradients that this rank has summed, and all ranks continue when all have
stepped. Otherwise every rank would take every step, and a rank of a third of the speed would take three times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sonda.frameworks.torch.parallel.shared_memory import STEPPED, SharedMemory
from sonda.record.errors import SondaError


def is_stateless(optimizer: Any, arguments: Sequence[Any], named: dict[str, Any]) -> bool:
    """Whether a step, called with these arguments, depends on weights and gradients alone, as plain SGD does."""
    import torch

    closure = (*arguments[1:], named.get("closure"))
    return (
        type(optimizer) is torch.optim.SGD  # a derived class may do anything
        and not any(closure)
        and not any(group["momentum"] or group["differentiable"] for group in optimizer.param_groups)
    )


class CommonWeights:
    """The weights of some parameters, stored once for all ranks."""

    def __init__(self, parameters: Sequence[Any], places: Sequence[Any], memory: SharedMemory) -> None:
        """`places` are tensors in shared memory, one for each parameter. All ranks must call this together, with equal
        weights."""
        import torch

        self.parameters, self.memory = parameters, memory
        with torch.no_grad():
            if memory.me == 0:
                for parameter, place in zip(parameters, places, strict=True):
                    place.copy_(parameter)
            memory.wait(STEPPED, memory.announce(STEPPED))
            for parameter, place in zip(parameters, places, strict=True):
                parameter.data = place
        self._hidden: list[tuple[Any, Any]] = []
        """Parameters that other ranks step, with their gradients."""
        self._versions = self._current_versions()

    def begin_step(self, mine: Sequence[bool]) -> None:
        """Hide the gradients that are not `mine` from the optimizer.

        Raises SondaError where weights were changed since the last step: every rank would have changed the same memory.
        """
        if self._versions != self._current_versions():
            raise SondaError(
                "weights are changed outside of the optimizer, which ranks that share their memory have in common",
                "use @backend=gloo",
            )
        for parameter, own in zip(self.parameters, mine, strict=True):
            if not own and parameter.grad is not None:
                self._hidden.append((parameter, parameter.grad))
                parameter.grad = None

    def end_step(self) -> None:
        """Restore the hidden gradients, and wait until all ranks have stepped."""
        for parameter, gradient in self._hidden:
            parameter.grad = gradient
        self._hidden = []
        self.memory.wait(STEPPED, self.memory.announce(STEPPED))
        self._versions = self._current_versions()

    def _current_versions(self) -> list[int]:
        return [parameter._version for parameter in self.parameters]
