"""Batch norms that ranks share: gradients as PyTorch's own, however values and gradients lie in memory."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sonda.frameworks.torch.parallel.batchnorm import share_batch_norms
from sonda.record.errors import MissingExtraError


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


def test_a_norm_that_stands_twice_is_shared_in_both_places() -> None:
    norm = nn.BatchNorm1d(4)
    model = nn.Sequential(nn.Linear(4, 4), norm, nn.Sequential(nn.Linear(4, 4), norm), nn.ReLU(), norm)
    share_batch_norms(model, Alone())  # type: ignore[arg-type]
    assert model[1] is model[4] is model[2][1] is not norm
    assert model[1].weight is norm.weight


@pytest.mark.parametrize("lacking", ["bias", "weight that learns", "bias that learns"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_weight_and_bias_have_a_gradient_where_they_are_and_learn(lacking: str, dtype: torch.dtype) -> None:
    made = torch.Generator().manual_seed(3)
    values = torch.randn((6, 3, 4, 4), generator=made, dtype=torch.float64).to(dtype)
    own = nn.BatchNorm2d(3)
    if lacking == "bias":
        own.bias = None  # as PyTorch makes it with bias=False, from 2.12 on
    elif lacking == "weight that learns":
        own.weight.requires_grad_(False)
    else:
        own.bias.requires_grad_(False)
    own = own.to(dtype)
    shared = share_batch_norms(copy.deepcopy(own), Alone())  # type: ignore[arg-type]
    found = []
    for norm in (own, shared):
        given = values.clone().requires_grad_()
        (norm(given) ** 3).sum().backward()
        found.append([None if one is None else one.grad for one in (given, norm.weight, norm.bias)])
    near = 1e-9 if dtype is torch.float64 else 0.05
    for theirs, ours in zip(*found, strict=True):
        assert (ours is None) == (theirs is None)
        if theirs is not None:
            assert ours.dtype == theirs.dtype
            torch.testing.assert_close(ours, theirs, rtol=near, atol=near)


class InMemory(Alone):
    """A group whose ranks are on one machine."""

    memory = object()


def test_only_norms_of_ranks_that_share_memory_need_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    share_batch_norms(nn.Linear(2, 2), InMemory())  # type: ignore[arg-type]
    share_batch_norms(nn.BatchNorm1d(2), Alone())  # type: ignore[arg-type]
    with pytest.raises(MissingExtraError, match=r"Numba is not installed; .*\[numba\]"):
        share_batch_norms(nn.Sequential(nn.BatchNorm1d(2)), InMemory())  # type: ignore[arg-type]
