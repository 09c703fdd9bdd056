"""Batch norms that ranks share: gradients as PyTorch's own, however values and gradients lie in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sonda.frameworks.parallel.batchnorm import share_batch_norms


class Alone:
    """A group of one rank that exchanges all the same: what it gathers and sums is its own."""

    size, me, memory = 2, 0, None

    def gather(self, values: Tensor) -> Tensor:
        return values[None]

    def sum(self, values: Tensor) -> Tensor:
        return values


LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "a gradient of its own": lambda output: (output**3).sum(),
    "one number for all": lambda output: output.sum() * 0.5,  # its gradient is expanded: all strides are 0
    "turned round": lambda output: (output.transpose(2, 3) ** 3).contiguous().sum(),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((4, 3, 5, 6), torch.contiguous_format),
        ((4, 3, 5, 6), torch.channels_last),
        ((2, 3, 4, 5, 6), torch.channels_last_3d),
    ],
)
def test_gradients_are_those_of_pytorch_in_every_layout(
    shape: tuple[int, ...], layout: torch.memory_format, loss: Callable[[Tensor], Tensor]
) -> None:
    made = torch.Generator().manual_seed(3)
    values = torch.randn(shape, generator=made, dtype=torch.float64).contiguous(memory_format=layout)
    kind: Any = nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm3d
    own = kind(3).double()
    shared = share_batch_norms(kind(3).double(), Alone())  # type: ignore[arg-type]
    found = []
    for norm in (own, shared):
        given = values.clone(memory_format=torch.preserve_format).requires_grad_()
        loss(norm(given)).backward()
        found.append((given.grad, norm.weight.grad, norm.bias.grad))
    for theirs, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
