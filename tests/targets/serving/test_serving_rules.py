"""When a percentile may be quoted, against MLPerf's published counts, LoadGen's own discards and exact binomials."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonda.record.conventions.percentiles import (
    at_percentile,
    early_estimate,
    full_count,
    interval,
    late_allowed,
    least_queries,
)


def below(n: int, t: int, q: Fraction) -> Fraction:
    """P(X ≤ t), X binomial(n, q), in whole numbers."""
    return sum((comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(t + 1)), Fraction(0))


@pytest.mark.parametrize(
    ("percentile", "exact", "rounded"),
    [(0.90, 23_886, 24_576), (0.95, 50_425, 57_344), (0.97, 85_811, 90_112), (0.99, 262_742, 270_336)],
)
def test_full_counts_are_those_of_the_formula(percentile: float, exact: int, rounded: int) -> None:
    # z = 2.5758293 (Abramowitz and Stegun, table 26.5: 99 % two-sided), margin (1-p)/20, multiples of 2^13.
    by_hand = 2.5758293**2 * percentile * (1 - percentile) / ((1 - percentile) / 20) ** 2
    assert round(by_hand) == pytest.approx(exact, abs=1)
    assert full_count(percentile) == rounded == -(-exact // 8192) * 8192


@pytest.mark.parametrize(
    ("percentile", "least"),
    [
        (0.90, (44, 64, 81, 97)),
        (0.95, (90, 130, 165, 198)),
        (0.97, (152, 219, 277, 332)),
        (0.99, (459, 662, 838, 1001)),
    ],
)
def test_early_stopping_needs_the_published_numbers_of_queries(percentile: float, least: tuple[int, ...]) -> None:
    q = 1 - Fraction(str(percentile))
    for late, queries in enumerate(least):
        assert least_queries(late, percentile) == queries
        assert below(queries, late, q) <= Fraction(1, 100) < below(queries - 1, late, q)


@pytest.mark.parametrize(
    ("queries", "discarded"), [(64, 0), (245, 12), (1000, 77), (2048, 172), (2116, 178), (2145, 181)]
)
def test_the_estimate_leaves_out_what_loadgen_says_it_discards(queries: int, discarded: int) -> None:
    # "Would discard N highest latency queries" of real runs of LoadGen 6.0.17, 90th percentile.
    assert early_estimate(np.arange(1.0, queries + 1), 0.9) == queries - discarded


def test_too_few_queries_have_no_estimate() -> None:
    assert early_estimate(np.arange(63.0), 0.9) is None
    assert early_estimate(np.arange(661.0), 0.99) is None
    assert early_estimate(np.array([]), 0.99) is None
    assert late_allowed(43, 0.9) == -1
    assert late_allowed(44, 0.9) == 0


@given(st.integers(1, 300), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_allowed_late_ones_are_exact(queries: int, percentile: float) -> None:
    q = 1 - Fraction(str(percentile))
    allowed = late_allowed(queries, percentile)
    assert allowed < 0 or below(queries, allowed, q) <= Fraction(1, 100)
    assert below(queries, allowed + 1, q) > Fraction(1, 100)


@given(st.integers(1, 300), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_intervals_cover_with_95_percent_and_no_narrower_ones_would(queries: int, percentile: float) -> None:
    p = Fraction(str(percentile))
    ends = interval(np.arange(1.0, queries + 1), percentile)
    if ends is None:
        # Even the smallest or the largest of all values leaves more than 2.5 % on its side.
        assert p**queries > Fraction(1, 40) or (1 - p) ** queries > Fraction(1, 40)
        return
    low, high = int(ends[0]), int(ends[1])
    # The k-th smallest is below the percentile when at least k values are.
    assert below(queries, low - 1, p) <= Fraction(1, 40) < below(queries, low, p)
    assert below(queries, high - 1, p) >= Fraction(39, 40) > below(queries, high - 2, p)


def test_the_textbook_interval_of_a_median() -> None:
    # Conover, Practical Nonparametric Statistics: ranks 40 and 61 of 100, 96.5 %.
    assert interval(np.arange(1.0, 101), 0.5) == (40.0, 61.0)


def test_dependent_queries_widen_the_interval() -> None:
    values = np.arange(1.0, 10_001)
    wide, narrow = interval(values, 0.9, 400), interval(values, 0.9)
    assert wide is not None
    assert narrow is not None
    assert wide[0] < narrow[0] < 9000 < narrow[1] < wide[1]
    # 25 times fewer queries, five times the width.
    assert (wide[1] - wide[0]) / (narrow[1] - narrow[0]) == pytest.approx(5, rel=0.15)


def test_percentiles_are_taken_as_loadgen_takes_them() -> None:
    assert at_percentile(np.arange(10.0), 0.9) == 9.0
    assert at_percentile(np.arange(1000.0), 0.99) == 990.0
    assert at_percentile(np.array([7.0]), 0.999) == 7.0
