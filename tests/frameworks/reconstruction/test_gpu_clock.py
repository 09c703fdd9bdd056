"""The clock of a GPU is tied to the host's: no mark is reached before it was made, and one at least at once."""

from __future__ import annotations

import numpy as np

from sonda.frameworks.reconstruction.thread import DEVICE_BEGIN, DEVICE_END, DEVICE_TIME, _device_times


def test_the_largest_distance_between_the_clocks_is_the_true_one() -> None:
    """Three phases that the host begins at 1000, 1010 and 1020 ns.

    The GPU, whose clock is 990 behind, has nothing to do at first, then 40 ns of each: it begins at 1000, 1040, 1080.
    """
    start = np.array([1000, 1010, 1020])
    facts = {"device_begin": {0: 0, 1: 2, 2: 4}, "device_end": {0: 1, 1: 3, 2: 5}}
    marks = {0: 10, 1: 50, 2: 50, 3: 90, 4: 90, 5: 130}
    found = _device_times(start, facts, marks, [])
    assert found[DEVICE_BEGIN].tolist() == [1000, 1040, 1080]
    assert found[DEVICE_END].tolist() == [1040, 1080, 1120]
    assert found[DEVICE_TIME].tolist() == [40, 40, 40]


def test_a_loss_between_two_phases_does_not_tie_clocks() -> None:
    """The host notes the end of a phase after its mark was made, so that end may lie behind the GPU's."""
    start = np.array([1000, 1010, 1009])
    facts = {"device_begin": {0: 0, 1: 2}, "device_end": {0: 1, 1: 3}}
    found = _device_times(start, facts, {0: 10, 1: 12, 2: 20, 3: 30}, [(0, 1)])
    assert found[DEVICE_BEGIN].tolist() == [1000, 1010, 1002]
    assert found[DEVICE_END].tolist() == [1002, 1020, 1010]


def test_without_a_mark_nothing_is_known() -> None:
    found = _device_times(np.array([5]), {"device_begin": {}, "device_end": {}}, {7: 1}, [])
    assert np.isnan(found[DEVICE_BEGIN]).all()
