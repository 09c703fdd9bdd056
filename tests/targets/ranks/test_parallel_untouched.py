"""What is tried before a training leaves no trace in it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from sonda.frameworks.torch.parallel.calibration import preserve_state


@pytest.mark.parametrize("move", [lambda model: model, lambda model: model.double()], ids=["as it is", "converted"])
def test_weights_statistics_and_random_numbers_are_as_before(move: Any) -> None:
    """Also of a model that is converted on the way: its buffers are other tensors afterwards."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    following = torch.random.get_rng_state()
    with preserve_state(model):
        moved = move(model)
        optimizer = torch.optim.SGD(moved.parameters(), 0.5)
        for _ in range(3):
            values = torch.randn(8, 4, dtype=next(moved.parameters()).dtype) * 100
            moved(values).square().sum().backward()
            optimizer.step()
        assert not torch.equal(moved.state_dict()["1.running_var"], before["1.running_var"].to(values.dtype))
    after = model.state_dict()
    assert after.keys() == before.keys()
    for name, tensor in after.items():
        assert torch.equal(tensor, before[name].to(tensor.dtype)), name
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.random.get_rng_state(), following)
