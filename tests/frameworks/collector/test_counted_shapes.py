"""Shapes of inputs are numbered from 1; those that are too many to remember share 0, which no other has."""

from __future__ import annotations

import pytest

from sonda.frameworks.collector.sampling import shapes
from sonda.frameworks.collector.sampling.shapes import CountedShapes


def test_every_shape_has_a_number_of_its_own_until_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "MOST_SHAPES", 3)
    counted = CountedShapes()
    assert [counted.number((size,)) for size in (8, 9, 8, 7)] == [(1, True), (2, True), (1, False), (3, True)]
    assert [counted.number((size,)) for size in (6, 5, 9)] == [(0, False), (0, False), (2, False)]
