"""Which steps are worth counting, told forward by forward, and what threads know together."""

from __future__ import annotations

import threading

from sonda.frameworks.collector.sampling.schedule import FORWARDS_WITHOUT_BACKWARD, Schedule
from sonda.frameworks.collector.sampling.shapes import COUNTED_SHAPES, MOST_COUNTED

ALL = frozenset({1})


def step(schedule: Schedule, *shapes: str, together: bool = False) -> list[bool]:
    """One optimizer step over these inputs, with a backward after each or after all; for each whether it is counted."""
    counted = []
    for shape in shapes:
        schedule.begin_forward(1, schedule.shape_number(shape)[0], True)
        counted.append(schedule.counting)
        schedule.end_forward(True, 0, 0)
        if not together:
            schedule.begin_backward()
    if together:
        schedule.begin_backward()
    schedule.end_optimizer_step(1, 0, 0, ALL)
    return counted


def test_a_new_shape_in_the_middle_of_a_step_waits_for_the_next_one() -> None:
    schedule = Schedule()
    assert step(schedule, "a", "b") == [True, True]
    assert step(schedule, "a", "b") == [False, False]
    assert step(schedule, "a", "c") == [False, False]
    assert step(schedule, "a", "d") == [True, True]


def test_another_number_of_forwards_is_another_step() -> None:
    schedule = Schedule()
    assert step(schedule, "a", "a") == [True, True]
    assert step(schedule, "a") == [False]
    assert step(schedule, "a") == [True]
    assert [step(schedule, "a"), step(schedule, "a", "a")] == [[False], [False, False]]


def test_what_comes_every_fifth_time_is_met_after_some_steps_in_vain() -> None:
    schedule = Schedule()
    counted = [at for at in range(60) if step(schedule, *("a" if at % 5 == 4 else "aa"))[0]]
    assert any(at % 5 == 4 for at in counted)
    assert len(counted) <= COUNTED_SHAPES + 4
    assert max(counted) < 40, "once it is known nothing more is counted"


def test_a_cell_that_is_called_often_before_a_backward_is_counted_from_the_second_step_on() -> None:
    schedule = Schedule()
    many = ["a"] * (FORWARDS_WITHOUT_BACKWARD + 4)
    assert not all(step(schedule, *many, "head", together=True)), "so many forwards may be no training"
    assert all(step(schedule, *many, "head", together=True))
    assert not any(step(schedule, *many, "head", together=True))


def test_a_frozen_part_and_what_is_trained_are_counted_as_one_step() -> None:
    schedule = Schedule()
    for shape in ("a", "b"):
        schedule.begin_forward(1, schedule.shape_number(shape)[0], True, training=False)
        schedule.end_forward(False, 0, 0)
        schedule.begin_forward(2, schedule.shape_number("head")[0], True)
        assert schedule.counting
        schedule.end_forward(True, 0, 0)
        schedule.begin_backward()
        schedule.end_optimizer_step(1, 0, 0, ALL)
        assert not schedule.counting


def test_an_evaluation_after_gradients_that_nobody_used_is_counted() -> None:
    schedule = Schedule()
    step(schedule, "a")
    schedule.begin_forward(1, schedule.shape_number("a")[0], True)
    schedule.end_forward(True, 0, 0)
    schedule.begin_backward()
    schedule.begin_forward(1, schedule.shape_number("a")[0], False, training=False)
    assert schedule.counting


def test_threads_know_together_what_was_counted_and_how_often_counting_began() -> None:
    first = Schedule()
    assert step(first, "a") == [True]
    assert step(first.for_thread(), "a") == [False]
    assert step(first.for_child(), "a") == [True], "another process counts by itself"
    begun = 0
    for module in range(10 * MOST_COUNTED):
        other = first.for_thread()
        other.begin_forward(module, other.shape_number("b")[0], False)
        begun += other.counting
        other.end_forward(False, 0, 0)
    assert begun == MOST_COUNTED - 1


def test_one_thread_counts_at_a_time_while_it_is_alive() -> None:
    first = Schedule()
    other = first.for_thread()
    thread = threading.Thread(target=lambda: first.begin_forward(1, first.shape_number("a")[0], True))
    thread.start()
    thread.join()
    assert first.counting
    other.begin_forward(1, other.shape_number("b")[0], True)
    assert other.counting and not first.counting, "that thread is gone"
    third = first.for_thread()
    third.begin_forward(1, third.shape_number("c")[0], True)
    assert not third.counting
