"""The time of phases and layers: medians, and shares of what many steps lack."""

from __future__ import annotations

import numpy as np
import pytest

from sonda.analysis.steps.costs import ceiling_ratio, times
from sonda.analysis.summary import Value


def test_the_median_of_what_every_step_has() -> None:
    table = np.array([[10.0, 11.0, 12.0, 13.0, 90.0] * 10])
    assert times(table, 50, "")[0].value == 12
    assert times(table, 50, "", steps=2 * table[0])[0].value == 12


@pytest.mark.parametrize("kind", [np.float64, np.int64])
def test_a_layer_of_one_network_of_four_has_the_mean_over_all_steps(kind: type) -> None:
    rng = np.random.default_rng(0)
    table = np.zeros((2, 400), dtype=kind)
    table[0, ::4] = 100 + rng.integers(-5, 6, 100)
    table[1] = 7
    seldom, always = times(table, 400, "", steps=np.full(400, 200))
    assert seldom.value == pytest.approx(25, rel=0.01)
    assert seldom.low is not None and seldom.high is not None
    # 100 of 400 steps: the standard error of the mean is 100 * sqrt(0.25 * 0.75 / 400).
    assert seldom.high - seldom.low == pytest.approx(2 * 1.96 * 100 * (0.25 * 0.75 / 400) ** 0.5, rel=0.02)
    assert always.value == 7


def test_a_layer_of_rare_long_steps_takes_no_more_than_the_whole_step() -> None:
    """Three short steps and one that is ten times as long, nearly all of it this layer."""
    steps = np.array([1.0, 1.0, 1.0, 10.0] * 20)
    layer = np.where(steps > 1, 9.0, 0.0)
    (value,) = times(layer[None, :], 80, "", steps=steps)
    assert value.value == pytest.approx(9 / 13)


def test_a_layer_of_slightly_more_than_half_of_the_steps_is_no_exception() -> None:
    table = np.zeros((1, 100))
    table[0, :51] = np.linspace(50, 150, 51)
    assert times(table, 100, "", steps=np.full(100, 200.0))[0].value == pytest.approx(51)


def test_what_no_step_has_takes_no_time() -> None:
    assert times(np.zeros((1, 10)), 10, "", steps=np.ones(10))[0].value == 0


def test_operations_below_the_usual_cost_of_one_are_small_all_the_more() -> None:
    """That cost is a mean over kinds, no bound as a peak is: nine thousand at 2 µs are no error where a usual one
    takes 5."""
    spent = Value(18e6, "ns", "measured", 17.9e6, 18.1e6)
    assert ceiling_ratio("overhead", 45e6, spent).value("").value == 1
    assert ceiling_ratio("compute", 45e6, spent).broken
