"""Which steps are counted and which are recorded in detail."""

from __future__ import annotations

from sonda.frameworks.collector.sampling.schedule import (
    FORWARDS_WITHOUT_BACKWARD,
    MOST_BACKWARDS,
    Schedule,
)
from sonda.frameworks.collector.sampling.shapes import COUNTED_LATER, COUNTED_SHAPES, MOST_COUNTED


def call(schedule: Schedule, shape: str, learns: bool, module: int = 1, continues: bool = False) -> None:
    number, _ = schedule.shape_number(shape)
    schedule.begin_forward(module, number, learns, continues=continues)


def train(schedule: Schedule, steps: int, shape: str = "a", written: int = 0, now: int = 0) -> list[tuple[bool, bool]]:
    """Train with one optimizer; for every step whether it was counted and whether it was in detail."""
    found = []
    for _ in range(steps):
        schedule.begin_fetch()
        call(schedule, shape, True)
        found.append((schedule.counting, schedule.detail))
        schedule.end_forward(True, now, written)
        schedule.begin_backward()
        schedule.end_optimizer_step(1, now, written)
    return found


def test_the_first_step_of_a_shape_is_counted() -> None:
    schedule = Schedule()
    assert train(schedule, 3) == [(True, True), (False, True), (False, True)]
    assert train(schedule, 2, shape="b") == [(True, True), (False, True)]
    assert train(schedule, 1, shape="a") == [(False, True)]


def test_the_first_shapes_are_counted_and_then_ever_fewer_over_the_whole_run() -> None:
    schedule = Schedule()
    counted = [train(schedule, 1, shape=str(number))[0][0] for number in range(1000)]
    calls = [at + 1 for at, one in enumerate(counted) if one]
    assert calls == [*range(1, COUNTED_SHAPES + 1), *COUNTED_LATER]


def test_every_outermost_module_and_its_evaluation_have_a_budget_of_their_own() -> None:
    schedule = Schedule()
    for number in range(20):
        call(schedule, f"dry {number}", learns=False, module=1)
        schedule.end_forward(False, 0, 0)
    assert train(schedule, 2) == [(True, True), (False, True)]
    call(schedule, "a", learns=False, module=2)
    assert schedule.counting


def test_counting_begins_only_so_often_whatever_is_called() -> None:
    schedule = Schedule()
    begun = 0
    for module in range(1, 1000):
        call(schedule, "a", learns=False, module=module)
        begun += schedule.counting
        schedule.end_forward(False, 0, 0)
    assert begun == MOST_COUNTED


def test_without_an_optimizer_a_step_is_over_when_the_next_forward_begins() -> None:
    schedule = Schedule()
    counted = []
    for _ in range(5):
        schedule.end_step_by_hand(0, 0, optimizes=False)
        call(schedule, "a", learns=True)
        counted.append(schedule.counting)
        schedule.end_forward(True, 0, 0)
        schedule.begin_backward()
    assert counted == [True, False, False, False, False]
    assert schedule.steps == 4


def test_gradients_that_are_gathered_for_an_optimizer_end_no_step() -> None:
    schedule = Schedule()
    for _ in range(5):
        assert not schedule.end_step_by_hand(0, 0, optimizes=True)
        call(schedule, "a", learns=True)
        schedule.end_forward(True, 0, 0)
        schedule.begin_backward()
        assert schedule.counting
    schedule.end_optimizer_step(1, 0, 0, frozenset({1}))
    assert not schedule.counting and schedule.steps == 1


def test_an_optimizer_that_never_steps_does_not_keep_counting_alive() -> None:
    schedule = Schedule()
    for _ in range(MOST_BACKWARDS + 5):
        schedule.end_step_by_hand(0, 0, optimizes=None)
        call(schedule, "a", learns=True)
        schedule.end_forward(True, 0, 0)
        schedule.begin_backward()
    assert not schedule.counting and schedule.steps == 1


def test_a_teacher_without_gradients_does_not_end_the_counting_of_a_step() -> None:
    schedule = Schedule()
    call(schedule, "a", learns=True, module=1)
    schedule.end_forward(True, 0, 0)
    call(schedule, "a", learns=False, module=2)
    schedule.end_forward(False, 0, 0)
    schedule.begin_backward()
    assert schedule.counting
    schedule.end_optimizer_step(1, 0, 0, frozenset({1}))
    assert not schedule.counting


def test_a_text_is_counted_as_a_whole_and_counting_does_not_begin_in_the_middle_of_one() -> None:
    schedule = Schedule()
    call(schedule, "prompt", learns=False)
    for position in range(20):
        schedule.end_forward(False, 0, 0)
        call(schedule, f"token {position}", learns=False, continues=True)
        assert schedule.counting
    schedule.end_forward(False, 0, 0)
    call(schedule, "prompt", learns=False)
    assert not schedule.counting
    call(schedule, "a longer text", learns=False, continues=True)
    assert not schedule.counting


def test_nothing_is_counted_when_counting_is_off() -> None:
    assert train(Schedule(count=False), 2) == [(False, True), (False, True)]


def test_counting_ends_with_the_last_of_all_known_optimizers() -> None:
    schedule = Schedule()
    both = frozenset({1, 2})
    call(schedule, "a", True)
    schedule.end_optimizer_step(1, 0, 0, both)
    assert schedule.counting
    schedule.end_optimizer_step(2, 0, 0, both)
    assert not schedule.counting


def test_counting_ends_with_an_optimizer_that_steps_again_where_others_are_unknown() -> None:
    schedule = Schedule()
    call(schedule, "a", True)
    schedule.end_optimizer_step(1, 0, 0)
    assert schedule.counting
    schedule.end_optimizer_step(1, 0, 0)
    assert not schedule.counting


def test_a_forward_without_gradients_is_counted_alone() -> None:
    schedule = Schedule()
    call(schedule, "a", learns=False)
    assert schedule.counting
    schedule.end_forward(False, 0, 0)
    assert schedule.steps == 1
    call(schedule, "a", learns=False)
    assert not schedule.counting


def test_forwards_that_no_backward_follows_end_the_counting() -> None:
    schedule = Schedule()
    counted = []
    for _ in range(FORWARDS_WITHOUT_BACKWARD + 2):
        call(schedule, "a", True)
        counted.append(schedule.counting)
    assert counted == [True] * FORWARDS_WITHOUT_BACKWARD + [False] * 2


def test_detail_is_kept_to_the_range_of_steps() -> None:
    detail = [inside for _, inside in train(Schedule(count=False, first=2, last=5), 8)]
    assert detail == [False, False, True, True, True, False, False, False]


def test_counting_waits_for_the_range_of_steps() -> None:
    counted = [counting for counting, _ in train(Schedule(first=2, last=5), 8, shape="a")]
    assert counted[:2] == [False, False]


def test_observing_ends_at_its_time_limit_and_says_so() -> None:
    schedule = Schedule(deadline=100)
    train(schedule, 2, now=100)
    assert not schedule.over
    train(schedule, 1, now=101)
    assert schedule.over
    assert schedule.notes == ["observing ended at its time limit, after 3 steps"]


def test_beyond_the_size_cap_every_tenth_step_is_in_detail_and_beyond_twice_none() -> None:
    schedule = Schedule(count=False, size_cap=1000)
    train(schedule, 5, written=1000)
    assert schedule.detail
    detail = [inside for _, inside in train(schedule, 30, written=1001)]
    # The decision for a step is made when the one before it ends: steps 10, 20, 30 of the program.
    assert [number for number, inside in enumerate(detail, start=5) if inside] == [5, 10, 20, 30]
    assert schedule.notes == ["layers recorded for every tenth step only, from step 6 on: size cap"]
    assert not any(inside for _, inside in train(schedule, 20, written=2001)[1:])
    assert schedule.notes[1:] == ["layers of no step recorded, from step 36 on: twice the size cap"]


def test_another_thread_has_steps_of_its_own() -> None:
    schedule = Schedule(first=2)
    train(schedule, 3)
    other = schedule.for_thread()
    assert other.steps == 0 and not other.detail and other.notes is schedule.notes


def test_the_limits_of_time_and_size_hold_where_no_step_ever_ends() -> None:
    schedule = Schedule(deadline=100, size_cap=1000)
    schedule.apply_limits(100, 2000)
    assert schedule.detail and not schedule.over
    schedule.apply_limits(101, 2001)
    assert schedule.over and not schedule.detail
    assert schedule.notes == [
        "observing ended at its time limit, after 0 steps",
        "layers of no step recorded, from step 0 on: twice the size cap",
    ]


def test_a_forked_child_notes_by_itself() -> None:
    schedule = Schedule(deadline=100)
    schedule.apply_limits(101, 0)
    child = schedule.for_child()
    assert child.notes == []
    child.apply_limits(102, 0)
    assert child.notes == schedule.notes == ["observing ended at its time limit, after 0 steps"]


def call_bare(schedule: Schedule, steps: int) -> list[bool]:
    """Train without a module; whether each step was counted from its begin on."""
    counted = []
    for _ in range(steps):
        counted.append(schedule.counting)
        schedule.begin_backward()
        schedule.end_optimizer_step(1, 0, 0, frozenset({1}))
    return counted


def test_of_a_program_without_modules_one_step_is_counted() -> None:
    """Nothing tells where a step begins but the end of the one before it."""
    assert call_bare(Schedule(), 6) == [False, False, True, False, False, False]
    assert not any(call_bare(Schedule(count=False), 6))


def test_steps_with_modules_are_not_counted_as_bare_ones() -> None:
    schedule = Schedule()
    train(schedule, 3)
    assert not schedule.bare


def test_heads_that_are_updated_one_by_one_after_one_forward_are_steps_with_modules() -> None:
    schedule = Schedule()
    begun = []
    for _ in range(6):
        call(schedule, "a", True)
        begun.append(schedule.counting)
        schedule.end_forward(True, 0, 0)
        for head in (1, 2, 3):
            schedule.begin_backward()
            schedule.end_optimizer_step(head, 0, 0, frozenset({1, 2, 3}))
            assert not schedule.bare
        assert not schedule.counting
    assert begun == [True, False, False, False, False, False]


def test_a_bare_step_is_counted_in_the_range_of_steps_and_of_several_optimizers() -> None:
    schedule, counted = Schedule(first=4), []
    for _ in range(8):
        counted.append(schedule.counting)
        schedule.begin_backward()
        for optimizer in (1, 2):
            schedule.end_optimizer_step(optimizer, 0, 0, frozenset({1, 2}))
    assert sum(counted) == 1 and not any(counted[:4])


def test_counting_that_took_too_long_does_not_begin_again_without_modules() -> None:
    schedule = Schedule()
    schedule.end_counting()
    assert not any(call_bare(schedule, 6))


def test_a_guide_that_is_called_part_by_part_does_not_end_the_counting_for_good() -> None:
    """Ten calls of its parts follow the forward that learns: more than are allowed before the first backward."""
    schedule, parts = Schedule(), range(2, 12)
    whole = []
    for _ in range(4):
        call(schedule, "a", True)
        schedule.end_forward(True, 0, 0)
        for part in parts:
            call(schedule, "b", False, module=part)
            schedule.end_forward(False, 0, 0)
        schedule.begin_backward()
        schedule.end_optimizer_step(1, 0, 0, frozenset({1}))
        whole.append(len(schedule.shapes.steps))
    assert len(parts) > FORWARDS_WITHOUT_BACKWARD
    assert whole[0] == 0 and whole[-1] == 1


def test_a_frozen_network_of_several_parts_before_the_training_forward_is_counted_with_it() -> None:
    """Parts of a target, then those of the network: the step is counted from its first forward to its backward."""
    schedule = Schedule()
    whole = []
    for _ in range(4):
        counted = []
        for part, learns in ((11, False), (12, False), (13, False), (1, True), (2, True)):
            call(schedule, "a", learns, module=part)
            counted.append(schedule.counting)
            schedule.end_forward(learns, 0, 0)
        schedule.begin_backward()
        whole.append(all(counted) and schedule.counting)
        schedule.end_optimizer_step(1, 0, 0, frozenset({1}))
    assert sum(whole[1:]) == 1, "which parts are called in every step is known after the first"
