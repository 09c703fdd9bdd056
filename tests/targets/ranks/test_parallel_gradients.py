"""Unequal ranks give what one process gives on the same batch: gradients, weights, statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import parallel_cases as cases
from parallel_ranks import on_ranks

EXACT = 1e-12


def error(found: Any, wanted: Any) -> float:
    """Relative, over all numbers together."""
    one, other = np.array(found), np.array(wanted)
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


@pytest.mark.parametrize(
    ("shares", "kind", "how"),
    [((12, 4), "plain", "exact"), ((12, 4), "norms", "exact"), ((3, 11, 2), "norms", "exact"),
     ((12, 4), "frozen", "exact"), ((12, 4), "frozen", "memory"), ((1, 15), "norms", "memory"),
     ((3, 11, 2), "norms", "memory")],
)  # fmt: skip
def test_unequal_ranks_train_as_one_process_does(shares: tuple[int, ...], kind: str, how: str) -> None:
    ranks = on_ranks(len(shares), cases.train, shares, kind, 3, how)
    single = cases.alone(kind, 3)
    for rank in ranks:
        assert error(rank["gradients"], single["gradients"]) < EXACT
        assert error(rank["weights"], single["weights"]) < EXACT
        assert error(rank["evaluated"], single["evaluated"]) < EXACT
        if kind == "norms":
            assert error(rank["buffers"], single["buffers"]) < EXACT
        assert rank["weights"] == ranks[0]["weights"]
    waited = [rank["waited"] for rank in ranks]
    # Through memory, whoever comes last every time waits for nobody.
    assert max(waited) > 0 if how == "memory" else min(waited) > 0


def test_without_weights_or_with_local_statistics_the_gradient_is_another() -> None:
    single = cases.alone("norms", 1)
    unweighted = on_ranks(2, cases.train, (12, 4), "norms", 1, "unweighted")[0]
    local = on_ranks(2, cases.train, (12, 4), "norms", 1, "local norms")[0]
    assert error(unweighted["gradients"], single["gradients"]) > 0.1
    assert error(local["gradients"], single["gradients"]) > 1e-3


def test_averaging_weights_after_every_step_is_averaging_gradients() -> None:
    ranks = on_ranks(2, cases.local_sgd, (11, 5), 1, 4)
    single = cases.alone("plain", 4)
    assert error(ranks[0], single["weights"]) < EXACT
    assert ranks[0] == ranks[1]


def test_averaging_now_and_then_is_not() -> None:
    ranks = on_ranks(2, cases.local_sgd, (11, 5), 2, 5)
    assert ranks[0] != ranks[1], "the fifth step has not been averaged yet"
    assert 1e-6 < error(ranks[0], cases.alone("plain", 5)["weights"]) < 0.5


@pytest.mark.parametrize(("bounds", "parts"), [((0, 3, 10), 4), ((0, 7, 10), 3), ((0, 2, 7, 10), 5)])
def test_stages_train_as_one_process_does(bounds: tuple[int, ...], parts: int) -> None:
    ranks = on_ranks(len(bounds) - 1, cases.pipeline, bounds, parts, 3)
    weights = [value for rank in ranks for values in rank.values() for value in values]
    assert error(weights, cases.alone("plain", 3)["weights"]) < EXACT


def test_a_stage_that_has_nothing_to_learn_passes_on_what_others_need() -> None:
    """The first stage is frozen: no gradient would lead back to it."""
    ranks = on_ranks(2, cases.pipeline, (0, 3, 10), 4, 3, (cases.BATCH,), "frozen")
    weights = [value for rank in ranks for values in rank.values() for value in values]
    assert error(weights, cases.alone("frozen", 3)["weights"]) < EXACT


def test_stages_scale_a_loss_alike() -> None:
    """Where the gradients of one stage are too large for float16, none steps: a single process does not either."""
    stages, whole = on_ranks(2, cases.scaled), cases.scaled()
    for step in range(2):
        assert [stage[step][0] for stage in stages] == [whole[step][0]] * 2 == [32768.0] * 2
        weights = [value for stage in stages for value in stage[step][1:]]
        np.testing.assert_allclose(weights, whole[step][1:], rtol=1e-3, atol=1e-5)
    assert whole[0][1:] != whole[1][1:], "the second step is taken"


def test_averages_are_of_complex_weights_too() -> None:
    """0.75 (1 + 0i) + 0.25 (2 - 1i)."""
    assert on_ranks(2, cases.averaged) == [[1.25, -0.25]] * 2


def test_pipelines_side_by_side_train_as_one_process_does() -> None:
    """Two stages, twice, with unequal shares of the batch."""
    ranks = on_ranks(4, cases.pipeline, (0, 3, 10), 3, 3, (9, 7))
    single = cases.alone("plain", 3)["weights"]
    for first, second in (ranks[:2], ranks[2:]):
        weights = [value for rank in (first, second) for values in rank.values() for value in values]
        assert error(weights, single) < EXACT


def test_three_ranks_sum_in_one_order_also_after_a_restart() -> None:
    """In float32, where the order shows: DDP arranges gradients anew after its first step unless it is told not to."""
    undisturbed, restarted = on_ranks(3, cases.in_order)[0]
    assert undisturbed == restarted
