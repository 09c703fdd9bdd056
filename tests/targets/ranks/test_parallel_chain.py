"""Chains of modules: found by trying, timed, and cut where the slowest stage is fastest."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonda.frameworks.torch.parallel.chain import (
    REPEATS,
    check_cut,
    cut_chain,
    find_chain,
    measure_chain,
    measure_whole,
)
from sonda.record.errors import SondaError
from sonda.targets.ranks.stages import expected_speedup

torch = pytest.importorskip("torch")
nn = torch.nn


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def residual() -> object:
    from sonda.workloads.catalogue import describe

    return describe("resnet18", {"batch": "2", "image": "32x32"}).build("torch", True, 0).model


def test_sequences_are_taken_apart_as_far_as_they_are_chains() -> None:
    model = nn.Sequential(
        nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Dropout(0.5)), nn.BatchNorm1d(4), nn.Linear(4, 2)
    )
    found = find_chain(model, torch.randn(3, 4))
    assert [path for path, _ in found] == ["0.0", "0.1", "0.2", "1", "2"]
    assert model.training, "it is left in training"


def test_a_residual_network_is_a_chain_of_its_blocks() -> None:
    paths = [path for path, _ in find_chain(residual(), torch.randn(2, 3, 32, 32))]
    blocks = [f"stages.{stage}.{block}" for stage in range(4) for block in range(2)]
    assert paths == ["stem.0", "stem.1", "stem.2", "stem.3", *blocks, "pool", "flatten", "classifier"]


def test_a_model_that_is_no_chain_is_refused() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, values: object) -> object:
            return self.one(values) + self.two(values)

    with pytest.raises(SondaError, match="Twice cannot be cut into stages: its forward is no chain of its modules"):
        find_chain(Twice(), torch.randn(2, 4))


def test_outputs_of_a_measured_chain_are_those_of_the_model() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 3))
    values = torch.randn(5, 4)
    times, outputs = measure_chain(list(model.named_children()), values)
    assert [tuple(output.shape) for output in outputs] == [(5, 8), (5, 8), (5, 3)]
    assert torch.equal(outputs[-1], model(values))
    assert all(time > 0 for time in times)


def test_a_whole_batch_is_waited_for_once() -> None:
    """Modules that are waited for one by one take longer than the model does, by far where a GPU runs behind its host:
    a prediction against the fastest device needs the model. Every module runs, forward and backward."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    waits: list[bool] = []
    spent = measure_whole(
        list(model.named_children()), torch.ones(3, 4), lambda: waits.append(model[0].weight.grad is not None)
    )
    assert 0 < spent < float("inf") and waits[:2] == [False, True] and len(waits) == 2 * REPEATS


def test_a_cut_lets_the_slowest_stage_be_fastest() -> None:
    assert cut_chain([[1, 1, 1, 1], [1, 1, 1, 1]]) == [0, 2, 4]
    # A second device three times slower: 3 of 4 modules stay on the first.
    assert cut_chain([[1, 1, 1, 1], [3, 3, 3, 3]]) == [0, 3, 4]
    assert cut_chain([[5, 1, 1], [5, 1, 1], [5, 1, 1]]) == [0, 1, 2, 3]
    with pytest.raises(SondaError, match="2 modules cannot be cut into 3 stages"):
        cut_chain([[1, 1]] * 3)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 3), st.integers(3, 7), st.randoms(use_true_random=False))
def test_no_other_cut_is_faster(stages: int, modules: int, chance: object) -> None:
    times = [[chance.random() for _ in range(modules)] for _ in range(stages)]  # type: ignore[attr-defined]

    def slowest(bounds: list[int]) -> float:
        return max(sum(times[stage][bounds[stage] : bounds[stage + 1]]) for stage in range(stages))

    tried = [[0, *inner, modules] for inner in combinations(range(1, modules), stages - 1)]
    found = cut_chain(times)
    assert found in tried
    assert slowest(found) == pytest.approx(min(map(slowest, tried)))


def test_a_pipeline_is_not_said_to_bring_more_than_its_devices() -> None:
    speedup, words = expected_speedup([0.3, 0.4], 0.2)
    assert speedup == pytest.approx(1.5) and words.startswith("predicted 1.5 times the fastest alone (300 ms")
    assert expected_speedup([0.4, 0.5], 0.2)[0] == pytest.approx(2)
    assert "(1.95 s for the whole batch at once)" in expected_speedup([1.95, 2.5], 2.0)[1]
    speedup, words = expected_speedup([0.9, 0.9], 0.2)
    assert speedup is None and "cannot be told" in words and "predicted" not in words
    assert expected_speedup([math.inf, math.inf], 0.2) == (None, "and no device holds the whole batch at once")


class _Dropping(nn.Module):  # type: ignore[misc]
    """Drops values between its layers, in training, by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, values: object) -> object:
        return self.two(nn.functional.dropout(self.one(values), 0.5, self.training))


def test_what_a_forward_does_in_training_only_is_kept() -> None:
    """In evaluation its layers one after the other give the same: taken apart, nothing would be dropped any more."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), _Dropping(), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 2))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    chance = torch.random.get_rng_state()
    for training in (True, False):
        found = find_chain(model.train(training), torch.randn(8, 4, generator=torch.Generator().manual_seed(1)))
        assert [path for path, _ in found] == ["0", "1", "2", "3", "4"]
        assert model.training is training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), chance)


def test_weights_in_common_stay_in_one_stage() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    model[4].weight = model[0].weight
    chain = list(model.named_children())
    with pytest.raises(SondaError, match=r"^0 and 4 have weights in common, and are in different stages; use ddp="):
        check_cut(chain, [0, 2, 5])
    check_cut(chain[:4], [0, 2, 4])
    model[0].weight.requires_grad_(False)
    check_cut(chain, [0, 2, 5])
