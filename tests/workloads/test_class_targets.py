"""Which targets of a model of one's own are classes, so that an accuracy can be told."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from sonda.workloads.in_torch.own_training import _right_share  # noqa: E402


def test_the_share_of_right_classes_is_counted() -> None:
    scores = torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])
    assert float(_right_share(scores, torch.tensor([1, 0, 0]))) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("output", "target"),
    [
        (torch.zeros(3), torch.zeros(3, dtype=torch.int64)),
        (torch.zeros(3, 2), torch.zeros(3)),
        (torch.zeros(3, 2), torch.zeros(4, dtype=torch.int64)),
        ([0.0], torch.zeros(1, dtype=torch.int64)),
        (torch.zeros(3, 2), [0, 0, 0]),
    ],
    ids=["no scores", "numbers", "another length", "no output tensor", "no target tensor"],
)
def test_other_targets_have_no_accuracy(output: object, target: object) -> None:
    assert math.isnan(_right_share(output, target))
