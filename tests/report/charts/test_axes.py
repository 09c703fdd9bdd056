"""Axes: where they end, where their ticks stand, and that counts have whole numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonda.report.charts.axes import ends_of, linear_ticks, log_ends, log_ticks, part, ticks_of
from sonda.report.charts.chart import Axis


@pytest.mark.parametrize(
    ("ends", "whole", "texts"),
    [
        ((0, 10), False, ["0", "2", "4", "6", "8", "10"]),
        ((0, 0.9), False, ["0.0", "0.2", "0.4", "0.6", "0.8"]),
        ((0, 1), True, ["0", "1"]),
        ((0.5, 3.5), True, ["1", "2", "3"]),
        ((0, 4000), True, ["0", "1,000", "2,000", "3,000", "4,000"]),
        ((0, 0.04), False, ["0.00", "0.01", "0.02", "0.03", "0.04"]),
    ],
)
def test_ticks_stand_at_round_numbers_and_counts_at_whole_ones(
    ends: tuple[float, float], whole: bool, texts: list[str]
) -> None:
    assert [text for _, text in linear_ticks(ends, 5, whole)] == texts


@given(st.floats(1e-9, 1e9), st.floats(1.5, 1e6), st.integers(2, 12))
def test_ticks_lie_between_the_ends_in_order_and_are_not_too_many(low: float, span: float, most: int) -> None:
    ends = (low, low * span)
    values = [value for value, _ in linear_ticks(ends, most)]
    assert values == sorted(set(values)) and len(values) <= most + 1
    assert all(ends[0] * (1 - 1e-6) <= value <= ends[1] * (1 + 1e-6) for value in values)


def test_few_decades_have_ticks_between_and_many_have_not() -> None:
    assert [value for value, _ in log_ticks((1, 100))] == [1, 2, 5, 10, 20, 50, 100]
    assert [value for value, _ in log_ticks((1, 1e5))] == [1, 10, 100, 1000, 1e4, 1e5]
    assert [text for _, text in log_ticks((1e9, 1e11), "FLOP/s")][:2] == ["1 GFLOP/s", "2 GFLOP/s"]


@given(st.lists(st.floats(1e-6, 1e12), min_size=1, max_size=20))
def test_a_logarithmic_axis_holds_its_values_and_is_a_decade_long(values: list[float]) -> None:
    low, high = log_ends(values)
    assert low < min(values) and max(values) < high and high / low >= 10 * (1 - 1e-9)


def test_a_linear_axis_begins_at_nought_and_leaves_out_what_is_no_number() -> None:
    assert ends_of(Axis(), [2.0, float("nan"), 5.0, float("inf")]) == (0, pytest.approx(5.2))
    assert ends_of(Axis(), []) == (0, 1)
    assert ends_of(Axis(), [-1.0, 1.0])[0] < -1
    assert ends_of(Axis(names=("a", "b", "c")), []) == (-0.5, 2.5)


def test_what_lies_beyond_the_ends_is_at_them() -> None:
    assert [part(value, (0, 10), False) for value in (-5, 0, 5, 10, 50)] == [0, 0, 0.5, 1, 1]
    assert [part(value, (1, 100), True) for value in (0.1, 1, 10, 100)] == [0, 0, 0.5, 1]


def test_own_ticks_of_an_axis_are_those_between_its_ends() -> None:
    axis = Axis(ends=(1, 3), ticks=((0.5, "half"), (2, "two"), (3, "three")))
    assert [text for _, text in ticks_of(axis, (1, 3), 5)] == ["two", "three"]
