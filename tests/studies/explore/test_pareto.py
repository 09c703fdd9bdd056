"""The Pareto front: what no point beats, by the definition and on many points."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sonda.studies.explore import pareto
from sonda.studies.explore.pareto import knee_row, least_row, pareto_front


def brute_front(objectives: np.ndarray) -> list[bool]:
    """By the definition: compared with every other row."""
    found = []
    for row in objectives:
        known = not any(math.isnan(one) for one in row)
        beaten = any(
            all(a <= b for a, b in zip(other, row, strict=True)) and any(a < b for a, b in zip(other, row, strict=True))
            for other in objectives
            if not any(math.isnan(one) for one in other)
        )
        found.append(known and not beaten)
    return found


# Few distinct values make many equal coordinates and rows.
FEW_VALUES = st.one_of(st.integers(0, 4).map(float), st.just(math.nan), st.just(math.inf))
OBJECTIVES = st.tuples(st.integers(0, 40), st.integers(1, 3)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=FEW_VALUES)
)


@settings(deadline=None)
@given(OBJECTIVES, st.sampled_from([0, 5, 10_000]))
def test_the_front_is_what_the_definition_finds(objectives: np.ndarray, few: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pareto, "FEW", few)
        assert pareto_front(objectives).tolist() == brute_front(objectives)


def test_the_front_of_many_points_is_found() -> None:
    """On the plane x + y + z = 1 no point beats another; all others are beaten."""
    generator = np.random.default_rng(3)
    plane = generator.dirichlet((1, 1, 1), 3000)
    beaten = plane + generator.random((3000, 1)) + 0.01
    front = pareto_front(np.concatenate([beaten, plane]))
    assert not front[:3000].any()
    assert front[3000:].all()


def test_the_best_in_one_objective_is_the_least_of_the_others_too() -> None:
    objectives = np.array([[2.0, 1.0], [1.0, 9.0], [1.0, 5.0], [np.nan, 0.0]])
    assert least_row(objectives, 0) == 2
    assert least_row(objectives, 1) == 0
    assert knee_row(objectives) == 0, "2 x 1 is less than 1 x 5"
    assert least_row(np.full((2, 2), np.nan), 0) == -1
    assert knee_row(np.full((2, 2), np.nan)) == -1
