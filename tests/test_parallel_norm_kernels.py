"""Statistics of several ranks combined, against those of all values at once; compiled and as written."""

from __future__ import annotations

import numpy as np
import pytest

from sonda.frameworks.parallel import norm_kernels
from sonda.frameworks.parallel.norm_kernels import Kernels

EPS = 1e-5
COUNTS = (3, 11, 2)


@pytest.fixture(params=["written", "compiled"])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    if request.param == "compiled":
        return norm_kernels.compiled()
    names = norm_kernels.Kernels._fields
    return norm_kernels.Kernels(*(getattr(norm_kernels, name) for name in names))


def parts(offset: float) -> list[np.ndarray]:
    """Values of three ranks, each count x 4 channels."""
    chance = np.random.default_rng(0)
    return [offset + chance.normal(size=(count, 4)) for count in COUNTS]


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_statistics_of_all_ranks(kernels: Kernels, offset: float) -> None:
    """A large mean must not cancel the variance: E[x²] − E[x]² would be off by 1e-4 there."""
    pack, combine = kernels.pack, kernels.combine
    slots = tuple(np.full(16, np.nan) for _ in COUNTS)
    for values, slot in zip(parts(offset), slots, strict=True):
        pack(values.mean(0), values.var(0), float(len(values)), slot)
    found = np.empty((3, 4))
    assert combine(slots, EPS, found) == sum(COUNTS)
    whole = np.concatenate(parts(offset))
    np.testing.assert_allclose(found[0], whole.mean(0), rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(found[1], whole.var(0), rtol=1e-9)
    np.testing.assert_allclose(found[2], 1 / np.sqrt(whole.var(0) + EPS), rtol=1e-9)


@pytest.mark.parametrize("weighted", [True, False])
def test_terms_of_the_inputs_gradient(kernels: Kernels, weighted: bool) -> None:
    """By hand: two ranks, sums 3 + 5 and 1 + 1, 4 values, 1/σ = 2, weight 0.5 or none."""
    pack, terms = kernels.pack, kernels.gradient_terms
    slots = (np.full(8, np.nan), np.full(8, np.nan))
    pack(np.array([3.0]), np.array([1.0]), 0.0, slots[0])
    pack(np.array([5.0]), np.array([1.0]), 0.0, slots[1])
    weight = np.array([0.5]) if weighted else np.empty(0)
    found = np.empty((3, 1))
    terms(slots, 4.0, np.array([2.0]), weight, found)
    factor = 1.0 if weighted else 2.0
    assert found[:, 0].tolist() == [-factor * 8 / 4, -factor * 2 / 4, factor]


def test_running_statistics_follow(kernels: Kernels) -> None:
    """By hand: a quarter of the way from 2 to 10, and from 1 to 6 of 4 values, which is 8 unbiased."""
    mean, variance = np.array([2.0]), np.array([1.0])
    kernels.follow(np.array([[10.0], [6.0], [np.nan]]), 4.0, 0.25, mean, variance)
    assert (mean[0], variance[0]) == (2 + 0.25 * 8, 1 + 0.25 * 7)


def test_the_gradient_of_the_input_in_one_pass(kernels: Kernels) -> None:
    """factor·dy + slope·(x - mean)/σ + shift, channel by channel."""
    chance = np.random.default_rng(1)
    values, gradient = chance.normal(size=(2, 2, 3, 5))
    found, terms = chance.normal(size=(2, 3, 3))
    given = np.full(values.shape, np.nan)
    kernels.input_gradient(values, gradient, found, terms, given)
    normalised = (values - found[0][:, None]) * found[2][:, None]
    wanted = terms[2][:, None] * gradient + terms[0][:, None] * normalised + terms[1][:, None]
    np.testing.assert_allclose(given, wanted, rtol=1e-12)
