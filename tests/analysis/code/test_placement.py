"""Samples stand for the time around them, and tell Python code, native code and waiting apart."""

from __future__ import annotations

import numpy as np
import pytest

from builders import MS, RunBuilder
from sonda.analysis.code.placement import (
    NATIVE,
    PYTHON,
    WAITING,
    Moments,
    find_open,
    find_python,
    find_user_frames,
    weigh_samples,
)
from stack_examples import a_frame, make_frames, make_samples


def ms_by_stack(moments: Moments) -> dict[int, float]:
    return {int(stack): float(moments.weight[moments.stack == stack].sum()) / MS for stack in np.unique(moments.stack)}


def ms_by_doing(moments: Moments) -> dict[int, float]:
    return {int(doing): float(moments.weight[moments.doing == doing].sum()) / MS for doing in np.unique(moments.doing)}


def test_time_between_two_samples_is_shared_by_them() -> None:
    moments = weigh_samples(
        make_samples([{"time": 10, "stack": 0, "lasted": 10}, {"time": 20, "stack": 1, "lasted": 10}])
    )
    # The first one's own half, and half of the time to the second; what lies before the first is not known.
    assert ms_by_stack(moments) == {0: 10, 1: 5}
    assert ms_by_doing(moments) == {NATIVE: 15}


def test_a_call_that_holds_the_lock_has_all_the_time_that_the_sampler_waits() -> None:
    """Due at 20 ms, the sampler came at 220: for 200 ms somebody held the lock, and 5 ms before are nearer to it."""
    moments = weigh_samples(
        make_samples(
            [
                {"time": 10, "stack": 0, "lasted": 10},
                {"time": 220, "stack": 1, "lasted": 210, "late": 200, "waits": 2},
            ]
        )
    )
    assert ms_by_stack(moments)[1] == 205
    assert ms_by_doing(moments) == {PYTHON: 205, NATIVE: 10}


def test_a_thread_that_has_not_run_was_there_all_the_time() -> None:
    moments = weigh_samples(
        make_samples(
            [
                {"time": 10, "stack": 0, "lasted": 10},
                {"time": 510, "stack": 1, "lasted": 500, "ran": 0, "call": "clock_nanosleep"},
            ]
        )
    )
    assert ms_by_stack(moments) == {0: 5, 1: 500}
    assert ms_by_doing(moments) == {NATIVE: 5, WAITING: 500}


def test_being_late_while_the_lock_is_free_is_the_machines_doing() -> None:
    moments = weigh_samples(make_samples([{"time": 30, "stack": 0, "lasted": 30, "late": 20, "waits": 0}]))
    assert ms_by_doing(moments) == {NATIVE: 15}


def test_python_code_that_led_to_a_wait_goes_to_where_the_thread_was_stopped_in_it() -> None:
    """The sampler is due in a loop of Python code (stack 0), and comes when the loop is over and a sleep has begun."""
    samples = make_samples(
        [
            {"time": 10, "stack": 0, "lasted": 10, "late": 5, "waits": 2},
            {"time": 24, "stack": 1, "lasted": 14, "ran": 13, "late": 4, "waits": 1, "call": "clock_nanosleep"},
        ]
    )
    moments = weigh_samples(samples)
    found = find_python(moments, np.zeros(len(moments.time)))
    # 2.5 + 5 ms of the first, 5 ms to the second, then 5 + 4 ms that led to it.
    assert ms_by_stack(found) == {0: 7.5 + 5 + 9, 1: 0}
    in_other_phases = find_python(moments, np.array([0, 1, 0, 1]))
    assert ms_by_stack(in_other_phases) == {0: 7.5 + 5, 1: 9}


def test_python_code_before_the_first_stop_goes_to_the_next_one() -> None:
    samples = make_samples(
        [
            {"time": 10, "stack": 1, "lasted": 10, "ran": 9, "late": 4, "waits": 1, "call": "read"},
            {"time": 20, "stack": 0, "lasted": 10, "late": 5, "waits": 2},
        ]
    )
    moments = weigh_samples(samples)
    assert ms_by_stack(find_python(moments, np.zeros(4)))[0] == 7 + 7.5


def test_a_thread_that_wants_the_lock_back_does_not_wait() -> None:
    ran = {"time": 10, "stack": 0, "lasted": 10, "late": 5, "waits": 2, "call": "interpreter"}
    assert ms_by_doing(weigh_samples(make_samples([ran]))) == {PYTHON: 7.5}
    waited = {**ran, "ran": 0.1}
    assert WAITING in ms_by_doing(weigh_samples(make_samples([waited, {**waited, "time": 20}])))


def test_threads_and_processes_are_weighed_apart() -> None:
    rows = [
        {"time": 10 * turn, "stack": thread, "thread": thread, "process": thread, "lasted": 10}
        for turn in (1, 2)
        for thread in (1, 2)
    ]
    assert ms_by_stack(weigh_samples(make_samples(rows))) == {1: 15, 2: 15}


@pytest.mark.parametrize(
    ("moment", "step", "phase", "layer"),
    [(5, "step", "forward", "a"), (15, "step", "forward", "b"), (25, "step", "forward", "a"), (35, "step", "forward",
     ""), (50, "step", "", ""), (100, "step", "forward", "a"), (250, "", "", "")],
)  # fmt: skip
def test_the_innermost_open_layer_is_found(moment: float, step: str, phase: str, layer: str) -> None:
    builder = RunBuilder()
    part = builder.part("train")
    for _ in range(2):
        rows = builder.step(part, 100, {"forward": 40})
        begin = builder.rows[rows["forward"]]["start"]
        outer = builder.add("layer", "A", rows["forward"], begin, 30 * MS, path="a")
        builder.add("layer", "B", outer, begin + 10 * MS, 10 * MS, path="b")
    order = sorted(range(len(builder.rows)), key=lambda row: (builder.rows[row]["start"], row))
    place = {row: at for at, row in enumerate(order)} | {-1: -1}
    builder.rows = [{**builder.rows[row], "parent": place[builder.rows[row]["parent"]]} for row in order]
    spans = builder.spans()
    opened = find_open(spans, 0, np.array([moment * MS], dtype=np.int64))
    words = {"step": ("kind", step), "phase": ("name", phase), "layer": ("path", layer)}
    for which, (column, expected) in words.items():
        row = int(getattr(opened, which)[0])
        assert (spans.words(column).decoded()[row] if row >= 0 else "") == expected, which


def test_the_users_frames_and_what_they_call_are_found() -> None:
    frames = make_frames(
        [
            a_frame(-1, "main", 9),
            a_frame(0, "Module.__call__", 1, origin="library"),
            a_frame(1, "Net.forward", 5),
            a_frame(2, "dumps", 2, origin="library", module="json"),
            a_frame(3, "encode", 3, origin="library", module="json.encoder"),
        ]
    )
    users = find_user_frames(frames)
    assert users.innermost.tolist() == [0, 0, 2, 2, 2]
    assert users.outer.tolist() == [-1, 0, 0, 2, 2]
    assert users.below.tolist() == [-1, 1, -1, 3, 3], "the library's frame that the user's code called"
