"""Gradients averaged without weights, for comparison: what a rank's loss is multiplied with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sonda.frameworks.torch.parallel.shared_task import SharedTask
from sonda.record.errors import SondaError
from sonda.targets.job import Job
from sonda.targets.ranks.plan import make_plan
from sonda.targets.target import parse_target


def shared(weighted: bool = True) -> SharedTask:
    """One rank of two, with a loss of 8."""
    task: Any = SimpleNamespace(inputs=(), tokens=0, phase_tokens={}, loss=lambda output, target: 8.0)
    group: Any = SimpleNamespace(size=2, me=1)
    balance: Any = SimpleNamespace(batch=16)
    return SharedTask(task, None, group, balance, weighted=weighted)


def test_a_rank_with_4_of_16_samples_counts_a_quarter_or_without_weights_a_half() -> None:
    task = shared()
    task.begin_step(4, 4 / 16)
    assert task.loss(None, None) == 2.0
    task.equal_weights = True
    task.begin_step(4, 4 / 16)
    assert task.loss(None, None) == 4.0
    alone = shared(weighted=False)
    alone.begin_step(4, 4 / 16)
    assert alone.loss(None, None) == 8.0


def test_the_target_says_whether_ranks_are_weighted() -> None:
    job = Job(workload="resnet34", train=True)
    for text, equal in (("", False), ("@weights=samples", False), ("@weights=equal", True)):
        assert make_plan(job, parse_target(f"hybrid=cpu/1+cpu/1{text}")).equal_weights is equal
    with pytest.raises(SondaError, match="weights cannot be 'none'"):
        make_plan(job, parse_target("hybrid=cpu/1+cpu/1@weights=none"))
    with pytest.raises(SondaError, match="ddp has no option 'weights'"):
        make_plan(job, parse_target("ddp=cpu/1+cpu/1@weights=equal"))
