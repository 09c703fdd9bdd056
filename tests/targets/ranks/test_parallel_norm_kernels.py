"""Statistics of several ranks combined, against those of all values at once; compiled and as written."""

from __future__ import annotations

import numpy as np
import pytest

from sonda.frameworks.torch.parallel import norm_kernels
from sonda.frameworks.torch.parallel.norm_kernels import NormKernels

EPS = 1e-5
COUNTS = (3, 11, 2)


@pytest.fixture(params=["written", "compiled"])
def kernels(request: pytest.FixtureRequest) -> NormKernels:
    return norm_kernels.compile_kernels() if request.param == "compiled" else norm_kernels.PYTHON_KERNELS


def parts(offset: float) -> list[np.ndarray]:
    """Values of three ranks, each count x 4 channels."""
    chance = np.random.default_rng(0)
    return [offset + chance.normal(size=(count, 4)) for count in COUNTS]


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_statistics_of_all_ranks(kernels: NormKernels, offset: float) -> None:
    """A large mean must not cancel the variance: E[x²] − E[x]² would be off by 1e-4 there."""
    pack, combine = kernels.pack, kernels.combine
    slots = tuple(np.full(16, np.nan) for _ in COUNTS)
    for values, slot in zip(parts(offset), slots, strict=True):
        pack(values.mean(0), values.var(0), float(len(values)), slot)
    moments = np.empty((3, 4))
    assert combine(slots, EPS, moments) == sum(COUNTS)
    whole = np.concatenate(parts(offset))
    np.testing.assert_allclose(moments[0], whole.mean(0), rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(moments[1], whole.var(0), rtol=1e-9)
    np.testing.assert_allclose(moments[2], 1 / np.sqrt(whole.var(0) + EPS), rtol=1e-9)


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_ranks_own_statistics_in_one_pass(kernels: NormKernels, dtype: type, offset: float) -> None:
    """As NumPy finds them in double precision, of the same values; a slot of float32 holds seven digits."""
    values = (offset + np.random.default_rng(2).normal(size=(3, 2, 5))).astype(dtype)
    slot = np.full(8, np.nan, dtype)
    kernels.statistics(values, slot)
    exact = values.astype(np.float64)
    near = 1e-6 if dtype is np.float32 else 1e-12
    np.testing.assert_allclose(slot[:2], exact.mean((0, 2)), rtol=near)
    np.testing.assert_allclose(slot[2:4], exact.var((0, 2)), rtol=near)
    assert slot[4] == 15


@pytest.mark.parametrize("affine", [True, False])
def test_values_are_normalised_in_one_pass(kernels: NormKernels, affine: bool) -> None:
    """By hand: mean 3, 1/σ = 2, weight 0.5 and bias 7, or none."""
    values, moments = np.array([[[3.0, 4.0]], [[1.0, 3.5]]]), np.array([[3.0], [0.25], [2.0]])
    result = np.full(values.shape, np.nan)
    numbers = (np.array([0.5]), np.array([7.0])) if affine else (np.empty(0), np.empty(0))
    kernels.normalise(values, moments, *numbers, result)
    assert result.ravel().tolist() == ([7.0, 8.0, 5.0, 7.5] if affine else [0.0, 2.0, -4.0, 1.0])


def test_a_ranks_own_sums_of_gradients(kernels: NormKernels) -> None:
    """By hand: mean 3, 1/σ = 2; normalised 0, 2, -4, 1 times gradients 5, 1, 1, 2 is 0 + 2 - 4 + 2."""
    values, gradient = np.array([[[3.0, 4.0]], [[1.0, 3.5]]]), np.array([[[5.0, 1.0]], [[1.0, 2.0]]])
    slot = np.full(8, np.nan)
    kernels.gradient_sums(values, gradient, np.array([[3.0], [0.25], [2.0]]), slot)
    assert slot[:3].tolist() == [0.0, 9.0, 0.0]


@pytest.mark.parametrize("weighted", [True, False])
def test_terms_of_the_inputs_gradient(kernels: NormKernels, weighted: bool) -> None:
    """By hand: two ranks, sums 3 + 5 and 1 + 1, 4 values, 1/σ = 2, weight 0.5 or none."""
    pack, terms = kernels.pack, kernels.gradient_terms
    slots = (np.full(8, np.nan), np.full(8, np.nan))
    pack(np.array([3.0]), np.array([1.0]), 0.0, slots[0])
    pack(np.array([5.0]), np.array([1.0]), 0.0, slots[1])
    weight = np.array([0.5]) if weighted else np.empty(0)
    rows = np.empty((3, 1))
    terms(slots, 4.0, np.array([2.0]), weight, rows)
    factor = 1.0 if weighted else 2.0
    assert rows[:, 0].tolist() == [-factor * 8 / 4, -factor * 2 / 4, factor]


def test_running_statistics_follow(kernels: NormKernels) -> None:
    """By hand: a quarter of the way from 2 to 10, and from 1 to 6 of 4 values, which is 8 unbiased."""
    mean, variance = np.array([2.0]), np.array([1.0])
    kernels.update_running(np.array([[10.0], [6.0], [np.nan]]), 4.0, 0.25, mean, variance)
    assert (mean[0], variance[0]) == (2 + 0.25 * 8, 1 + 0.25 * 7)


def test_the_gradient_of_the_input_in_one_pass(kernels: NormKernels) -> None:
    """factor·dy + slope·(x - mean)/σ + shift, channel by channel."""
    chance = np.random.default_rng(1)
    values, gradient = chance.normal(size=(2, 2, 3, 5))
    moments, terms = chance.normal(size=(2, 3, 3))
    result = np.full(values.shape, np.nan)
    kernels.input_gradient(values, gradient, moments, terms, result)
    normalised = (values - moments[0][:, None]) * moments[2][:, None]
    wanted = terms[2][:, None] * gradient + terms[0][:, None] * normalised + terms[1][:, None]
    np.testing.assert_allclose(result, wanted, rtol=1e-12)
