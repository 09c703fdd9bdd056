"""Which devices a training on several counts as its own, where energy with and without idle ones is told apart."""

from __future__ import annotations

from typing import Any

import pytest

from sonda.targets.ranks.launcher import devices_used
from sonda.targets.ranks.outcomes import RankOutcome, RankParts


def rank(number: int, device: str, **about: Any) -> RankOutcome:
    return RankOutcome(rank=number, device=device, threads=1, about=RankParts(**about))


@pytest.mark.parametrize(
    ("trained", "used"),
    [
        # A pair of which auto left the second GPU out: its rank is not among those that trained.
        ([rank(0, "cuda:0")], ["cpu", "cuda:0"]),
        ([rank(0, "cuda:1"), rank(1, "cpu/4")], ["cpu", "cuda:1"]),
        ([rank(0, "cpu/1"), rank(1, "cpu/1")], ["cpu"]),
        # DataParallel has one rank and several devices.
        ([rank(0, "cuda:0", devices=["cuda:1", "cuda:0"])], ["cpu", "cuda:0", "cuda:1"]),
    ],
)
def test_only_devices_that_trained_are_in_use(trained: list[RankOutcome], used: list[str]) -> None:
    assert devices_used(trained) == used
