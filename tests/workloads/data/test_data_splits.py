"""Shares of a data set: every image once, sizes as asked for, classes in proportion, the same every time."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonda.record.errors import SondaError
from sonda.workloads.data.splits import share_sizes, split


def sizes_by_class(labels: np.ndarray, shares: list[np.ndarray]) -> list[list[int]]:
    return [np.bincount(labels[share], minlength=labels.max() + 1).tolist() for share in shares]


def test_the_study_s_shares() -> None:
    labels = np.repeat(np.arange(9), 1000)
    shares = split(labels, (0.85, 0.02, 0.13), seed=3)
    assert sizes_by_class(labels, shares) == [[850] * 9, [20] * 9, [130] * 9]


def test_a_small_share_is_spread_over_classes() -> None:
    # 2 % of 9 x 20 are 3.6 images: 4, of 4 classes, though 2 % of each class are 0.4 of an image.
    labels = np.repeat(np.arange(9), 20)
    training, validation, test = sizes_by_class(labels, split(labels, (0.85, 0.02, 0.13)))
    assert (sum(training), sum(validation), sum(test)) == (153, 4, 23)
    assert max(validation) == 1
    assert set(training) == {17}


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=12).filter(sum),
    st.lists(st.integers(1, 50), min_size=1, max_size=4),
    st.integers(0, 100),
)
def test_shares_are_a_partition_in_proportion(counts: list[int], weights: list[int], seed: int) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    fractions = [weight / sum(weights) for weight in weights]
    total = len(labels)
    try:
        shares = split(labels, fractions, seed)
    except SondaError:
        assert min(fractions) * total < 1
        return
    assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(total))
    for share, weight in zip(shares, weights, strict=True):
        assert np.array_equal(share, np.sort(share))
        assert abs(len(share) - Fraction(weight, sum(weights)) * total) < 1
        for kind, count in enumerate(counts):
            # Rounded once for every share that was taken before: never further off than their number.
            assert abs(int((labels[share] == kind).sum()) - count * len(share) / total) < len(shares)
    if len(shares) == 2:
        for kind, count in enumerate(counts):
            assert abs(int((labels[shares[0]] == kind).sum()) - count * len(shares[0]) / total) < 1
    again = split(labels, fractions, seed)
    assert all(np.array_equal(one, other) for one, other in zip(shares, again, strict=True))


def test_another_seed_takes_other_images() -> None:
    labels = np.repeat([0, 1], 50)
    assert not np.array_equal(split(labels, (0.5, 0.5), 0)[0], split(labels, (0.5, 0.5), 1)[0])


def test_fractions_mean_what_is_written() -> None:
    # In binary, 0.29 * 100 is 28.999999999999996.
    assert share_sizes(100, (0.29, 0.71)) == [29, 71]
    assert share_sizes(10, (0.25, 0.25, 0.5)) == [3, 2, 5]
    assert share_sizes(7, (1.0, 0.0)) == [7, 0]
    assert share_sizes(10, [1 / 3] * 3) == [4, 3, 3]


@pytest.mark.parametrize(
    ("fractions", "message"),
    [
        ((0.8, 0.3), "fractions 0.8, 0.3 add up to 1.1"),
        ((1.2, -0.2), "are not all between 0 and 1"),
        ((float("nan"), 1), "are not all between 0 and 1"),
        ((), "are not all between"),
        ((0.98, 0.02), "a share of 0.02 of 20 images holds none"),
    ],
)
def test_wrong_fractions_are_one_line(fractions: tuple[float, ...], message: str) -> None:
    with pytest.raises(SondaError, match=message):
        split(np.zeros(20, np.int64), fractions)
