"""How the mesh puts results in the order of their cycles: as Python sorts, close together or far apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonda.accelerators.engines import mesh
from sonda.record.jit import compiled


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.integers(2, 60), st.integers(2, 10**9)), min_size=1, max_size=80))
def test_keys_ascend_and_what_stands_beside_them_goes_along(keys: list[int]) -> None:
    for ascend in (mesh._ascend, compiled(mesh._ascend)):
        found, beside = np.array(keys), np.arange(len(keys))
        ascend(found, beside)
        assert found.tolist() == sorted(keys)
        assert [keys[at] for at in beside] == found.tolist() and sorted(beside) == list(range(len(keys)))


@pytest.mark.parametrize("writable", [True, False])
def test_compiled_lengths_are_those_of_the_plain_function(writable: bool) -> None:
    """Sixteen results and more on one line of the bus, each of which waits: an order that was once wrong."""
    shapes = np.array([(rows, columns, 3) for rows in range(1, 9) for columns in range(1, 9)], np.int64)
    shapes.flags.writeable = writable
    for lines in (1, 2, 64):
        found, plain = np.zeros((2, len(shapes), 2), np.int64)
        compiled(mesh._lengths, mesh._ascend)(8, 8, 16, lines, shapes, found)
        mesh._lengths(8, 8, 16, lines, shapes, plain)
        assert np.array_equal(found, plain)
