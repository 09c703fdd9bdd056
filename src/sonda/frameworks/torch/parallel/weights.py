"""Weights that ranks of one machine have in common: each is stepped once, by the rank that sums its gradient.

Where an optimizer keeps nothing between steps, it does not matter who takes a step. The weights of all ranks then lie
once, in the first rank's region; every rank's optimizer is shown the gradients that this rank has summed and no others,
and all go on when all have stepped. Else a rank of a third of the speed would take three times as long for steps that
another has taken already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sonda.frameworks.torch.parallel.shared_memory import STEPPED, SharedMemory
from sonda.record.errors import SondaError


def keeps_nothing(optimizer: Any, arguments: Sequence[Any], named: dict[str, Any]) -> bool:
    """Whether a step, called with these arguments, depends on weights and gradients alone: plain SGD."""
    import torch

    closure = (*arguments[1:], named.get("closure"))
    return (
        type(optimizer) is torch.optim.SGD  # whoever derives from it may do anything
        and not any(closure)
        and not any(group["momentum"] or group["differentiable"] for group in optimizer.param_groups)
    )


class CommonWeights:
    """The weights of some parameters, in one place for all ranks."""

    def __init__(self, parameters: Sequence[Any], places: Sequence[Any], memory: SharedMemory) -> None:
        """`places` are tensors in memory that all ranks share, one for each parameter. All ranks call this together,
        with equal weights."""
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
        """Parameters that others step, with their gradients."""
        self._versions = self._now()

    def begin_step(self, mine: Sequence[bool]) -> None:
        """Show the optimizer the gradients that are `mine`. Raises SondaError where weights were changed since the last
        step: all ranks would have changed the same ones, each once more."""
        if self._versions != self._now():
            raise SondaError(
                "weights are changed outside of the optimizer, which ranks that share their memory have in common",
                "use @backend=gloo",
            )
        for parameter, own in zip(self.parameters, mine, strict=True):
            if not own and parameter.grad is not None:
                self._hidden.append((parameter, parameter.grad))
                parameter.grad = None

    def end_step(self) -> None:
        """Give the other gradients back, and wait until all have stepped."""
        for parameter, gradient in self._hidden:
            parameter.grad = gradient
        self._hidden = []
        self.memory.wait(STEPPED, self.memory.announce(STEPPED))
        self._versions = self._now()

    def _now(self) -> list[int]:
        return [parameter._version for parameter in self.parameters]
