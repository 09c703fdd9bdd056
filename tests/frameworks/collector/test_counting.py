"""Counters per phase, layer and step, on a kernel that counts as told; and everything that can go wrong with them."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from time import perf_counter_ns

import numpy as np
import pytest

from counted_program import CYCLES, INSTRUCTIONS, TWO_GROUPS, Program, column
from fake_kernel import FakeKernel, Opened
from perf_event_cases import touch
from sonda.frameworks.collector.counters.process import FILE, Counting
from sonda.frameworks.collector.phases import WORTH_COUNTING
from sonda.frameworks.reconstruction.assembly import assemble

# ---- phases -------------------------------------------------------------------------------------------------------


def test_a_phase_has_what_was_counted_in_it_and_not_what_was_counted_between(tmp_path: Path) -> None:
    program = Program(tmp_path, groups=[TWO_GROUPS[0]])
    for cycles in (1000, 2000, 3000):
        program.phase("forward", {100: cycles, 101: 3 * cycles, 102: 7}, time=500)
        program.kernel.happen({100: 55_555, 101: 1, 102: 1})
    spans = program.read()
    assert column(spans, "cycles", kind="phase") == [1000, 2000, 3000]
    assert column(spans, "instructions", kind="phase") == [3000, 6000, 9000]
    assert column(spans, "l2_misses", kind="phase") == [7, 7, 7]
    assert column(spans, "counter_enabled", kind="phase") == column(spans, "counter_running", kind="phase") == [500] * 3
    assert not np.isfinite(spans.metric("cycles", "estimated")).any()
    # Phases and what is unattributed are the whole.
    assert column(spans, "cycles", kind="run") == [6000 + 3 * 55_555]


def test_counts_of_a_group_that_ran_a_part_of_the_time_are_estimates(tmp_path: Path) -> None:
    program = Program(tmp_path, groups=[TWO_GROUPS[0]])
    program.phase("data", {100: 1000, 101: 4000, 102: 8})
    program.phase("forward", {100: 1000, 101: 4000, 102: 8}, time=2000, share=0.25)
    program.phase("optimizer", {100: 1000, 101: 4000, 102: 8}, share=0.0)
    spans = program.read()
    assert column(spans, "instructions", kind="phase") == [4000, None, None]
    # A quarter of 4000 was seen in a quarter of the time.
    assert column(spans, "instructions", "estimated", kind="phase") == [None, 4000, None]
    assert column(spans, "counter_running", kind="phase") == [1000, 500, 0]
    assert column(spans, "counter_enabled", kind="phase") == [1000, 2000, 1000]


def test_groups_take_turns_step_by_step_and_share_cycles_and_instructions(tmp_path: Path) -> None:
    program = Program(tmp_path, groups=TWO_GROUPS)
    for step in range(5):
        program.phase("forward", {100: 10 + step, 101: 20, 102: 3, 103: 4})
        program.phase("backward", {100: 30, 101: 40, 102: 5, 103: 6})
        program.kernel.happen({100: 1000, 101: 1000})
        program.counting.note_steps(step + 1)
    spans = program.read()
    assert column(spans, "cycles", kind="phase", name="forward") == [10, 11, 12, 13, 14]
    assert column(spans, "l2_misses", kind="phase", name="forward") == [3, None, 3, None, 3]
    assert column(spans, "branches", kind="phase", name="backward") == [None, 6, None, 6, None]
    # Cycles count all the time, in one group or the other; misses did not, so they have no total.
    assert column(spans, "cycles", kind="run") == [sum(range(10, 15)) + 5 * 30 + 5 * 1000]
    assert column(spans, "l2_misses", kind="run") == [None]
    assert list(program.kernel.enabled.values()).count(True) == 2, "the system's group and one other"


def test_steps_that_the_program_announces_are_the_turns(tmp_path: Path) -> None:
    program = Program(tmp_path, groups=TWO_GROUPS)
    program.counting.end_announced_step()
    program.phase("prefill", {102: 1, 103: 1})
    program.counting.note_steps(1)
    program.phase("decode", {102: 1, 103: 1})
    spans = program.read()
    assert column(spans, "branches", kind="phase") == [1, 1]


def test_a_phase_inside_another_is_taken_off_it(tmp_path: Path) -> None:
    program = Program(tmp_path, groups=[TWO_GROUPS[0]])
    optimizer, forward = (program.recorder.define(kind="phase", name=name) for name in ("optimizer", "forward"))
    for _ in range(2):
        program.stream.begin(optimizer)
        program.kernel.happen({100: 10})
        program.stream.begin(forward)
        program.kernel.happen({100: 7})
        program.stream.end()
        program.kernel.happen({100: 5})
        program.stream.end()
    spans = program.read()
    assert column(spans, "cycles", kind="phase", name="forward") == [7, 7]
    assert [one for one in column(spans, "cycles", kind="phase", name="optimizer") if one is not None] == [15, 15]


def test_the_loss_that_no_module_computes_is_counted_between_its_neighbours(tmp_path: Path) -> None:
    program = Program(tmp_path, groups=[TWO_GROUPS[0]])
    program.phase("forward", {100: 10})
    program.kernel.happen({100: 3})
    program.phase("backward", {100: 20})
    spans = program.read()
    assert column(spans, "cycles", kind="phase", name="loss") == [3]


def test_a_step_has_what_lies_between_its_phases_too(tmp_path: Path) -> None:
    program = Program(tmp_path, groups=TWO_GROUPS)
    step = program.recorder.define(kind="step", name="test")
    for _ in range(2):
        program.stream.push((step, perf_counter_ns()))
        program.phase("prefill", {100: 10, 102: 1, 103: 1})
        program.kernel.happen({100: 3})
        program.phase("decode", {100: 20, 102: 2, 103: 2})
        program.stream.push((step + 1, perf_counter_ns()))
        program.kernel.happen({100: 1000})
        program.counting.end_announced_step()
    spans = program.read()
    assert column(spans, "cycles", kind="step") == [33, 33]
    assert column(spans, "l2_misses", kind="step") == [3, None]
    assert column(spans, "branches", kind="step") == [None, 3]


def test_one_reading_ends_a_layers_backward_and_begins_the_next(tmp_path: Path) -> None:
    program = Program(tmp_path, groups=[TWO_GROUPS[0]])
    define, push, kernel = program.recorder.define, program.stream.push, program.kernel
    backward = define(kind="phase", name="backward")
    first, second = (define(kind="layer", name="M", path=path, root=1, root_name="M", direction="backward")
                     for path in ("a", "b"))  # fmt: skip
    program.stream.begin(backward)
    kernel.happen({100: 1})
    push((first + program.counting.take(program.stream), 10))
    kernel.happen({100: 20})
    push((first + 1 + program.counting.take(program.stream), 20, second + program.counting.reader.again, 21))
    kernel.happen({100: 300})
    push((second + 1 + program.counting.take(program.stream), 30))
    program.stream.end()
    spans = program.read()
    assert column(spans, "cycles", kind="layer") == [20, 300]
    assert column(spans, "cycles", kind="phase") == [321]


def test_groups_of_small_cores_are_read_beside_and_never_scaled(tmp_path: Path) -> None:
    small = [{"name": "cycles_small_cores", "type": 10, "config": 200}]
    program = Program(tmp_path, groups=[TWO_GROUPS[0]], beside=[small])
    program.phase("forward", {100: 10, 101: 20, 102: 1, 200: 6}, share=0.5)
    spans = program.read()
    assert column(spans, "cycles", kind="phase") == [5]
    assert column(spans, "cycles_small_cores", kind="phase") == [3]


def test_several_threads_that_were_there_are_added_up(tmp_path: Path) -> None:
    program = Program(tmp_path, FakeKernel(alive=[[1, 2, 3]]), groups=[[CYCLES, INSTRUCTIONS]])
    program.phase("forward", {100: 10, 101: 4})
    program.phase("forward", {100: 10, 101: 4})
    spans = program.read()
    assert column(spans, "cycles", kind="phase") == [30, 30]


# ---- what goes wrong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.ENOENT, errno.EACCES, errno.EINVAL, errno.EMFILE])
def test_a_refused_group_leaves_phases_and_the_system_counted(tmp_path: Path, code: int) -> None:
    kernel = FakeKernel(refuse=lambda event: code if event.config == 102 else 0)
    program = Program(tmp_path, kernel, groups=TWO_GROUPS)
    program.phase("forward", {2: 12, 100: 10})
    spans = program.read()
    assert column(spans, "page_faults", kind="phase") == [12]
    assert "cycles:counted" not in spans.metrics
    state = assemble(tmp_path, 0, 1).counting["pmu"]
    assert (state["errno"], state["event"]) == (code, "l2_misses")
    assert len(kernel.events) == 0, "everything is closed"


def test_an_ordinary_user_has_the_kernels_clock_and_getrusage_for_the_rest(tmp_path: Path) -> None:
    def refuse(event: Opened) -> int:
        return 0 if event.flags & 1 << 5 else errno.EACCES  # perf_event_paranoid 2: not with the kernel's work

    kernel = FakeKernel(refuse=refuse)
    program = Program(tmp_path, kernel)
    opened = [(one.type, one.config) for one in kernel.events.values()]
    assert opened == [(1, 1)], "in user mode the task clock is right, and nothing else is"
    program.stream.begin(program.phases.codes["forward"])
    touch(3000)
    kernel.happen({1: 7_000_000})
    program.stream.end()
    spans = program.read()
    assert assemble(tmp_path, 0, 1).counting["os"] == {"source": "clock", "errno": errno.EACCES}
    assert 3000 <= column(spans, "page_faults", kind="phase")[0] <= 3200
    assert column(spans, "task_clock", kind="phase") == [7_000_000]
    assert column(spans, "context_switches", kind="phase")[0] >= 0
    assert "cpu_migrations:counted" not in spans.metrics


def test_where_perf_is_refused_altogether_the_system_is_asked_with_getrusage(tmp_path: Path) -> None:
    program = Program(tmp_path, FakeKernel(refuse=lambda event: errno.EACCES))
    program.stream.begin(program.phases.codes["forward"])
    touch(3000)
    program.stream.end()
    spans = program.read()
    assembly = assemble(tmp_path, 0, 1)
    assert assembly.counting["os"] == {"source": "getrusage", "errno": errno.EACCES}
    assert 3000 <= column(spans, "page_faults", kind="phase")[0] <= 3200
    assert column(spans, "task_clock", kind="phase")[0] > 0
    assert "cpu_migrations:counted" not in spans.metrics


def test_a_program_that_closes_our_descriptors_goes_on_uncounted(tmp_path: Path) -> None:
    program = Program(tmp_path, groups=[TWO_GROUPS[0]])
    program.phase("forward", {100: 1})
    program.phase("forward", {100: 2})
    program.stream.begin(program.recorder.define(kind="phase", name="forward"))
    program.kernel.events.clear()
    program.stream.end()
    program.phase("forward", {100: 3})
    asked = []
    program.kernel.read = lambda descriptor, size: asked.append(descriptor) or b"x" * size  # type: ignore[method-assign]
    program.phase("forward", {100: 4})
    assert asked == [], "what the numbers mean now is nobody's to read"
    spans = program.read()
    assert column(spans, "cycles", kind="phase") == [1, 2, None, None, None]


def test_descriptors_closed_inside_a_phase_leave_the_phases_around_it_whole(tmp_path: Path) -> None:
    program = Program(tmp_path, groups=[TWO_GROUPS[0]])
    outer, inner = (program.recorder.define(kind="phase", name=name) for name in ("optimizer", "forward"))
    for code in (outer, inner, outer, inner):
        program.stream.begin(code)
        program.stream.end()
    program.stream.begin(outer)
    program.kernel.events.clear()
    program.stream.begin(inner)
    program.stream.end()
    program.stream.end()
    assert program.stream.phases == []
    spans = program.read()
    # The outer phase is in two pieces, before and after the inner one.
    assert spans.where(kind="phase", name="forward").sum() == 3
    assert spans.where(kind="phase", name="optimizer").sum() == 4


def test_readings_cut_short_are_missing_and_nothing_else(tmp_path: Path) -> None:
    program = Program(tmp_path, groups=[TWO_GROUPS[0]])
    program.phase("forward", {100: 1})
    program.phase("forward", {100: 2})
    program.phase("forward", {100: 3})
    program.stream.counts[2] = program.stream.counts[2][:11]
    spans = program.read()
    assert column(spans, "cycles", kind="phase") == [1, None, 3]


def test_a_damaged_request_counts_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{not json")
    assert Counting(str(tmp_path), FakeKernel()).sets == []
    (tmp_path / FILE).write_text('{"groups": [[{"nom": "x"}]]}')
    counting = Counting(str(tmp_path), FakeKernel())
    assert counting.sets == [] and "nom" in counting.state["message"]


def test_a_forked_child_closes_what_counts_its_parent(tmp_path: Path) -> None:
    program = Program(tmp_path, groups=[TWO_GROUPS[0]])
    child = os.fork()
    if not child:
        program.stream.begin(0)
        program.stream.end()
        os._exit(0 if not program.kernel.events and not program.counting.take(program.stream) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert program.kernel.events, "the parent counts on"


# ---- short phases -------------------------------------------------------------------------------------------------


def test_short_phases_go_without_the_system_but_not_without_what_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = iter(range(0, 10**15, WORTH_COUNTING // 100))
    jump = [0]
    monkeypatch.setattr("sonda.frameworks.collector.phases.now", lambda: next(time) + jump[0])
    program = Program(tmp_path, groups=[[CYCLES, INSTRUCTIONS]])

    def phase(lasting: int) -> None:
        program.stream.begin(program.recorder.define(kind="phase", name="optimizer"))
        program.kernel.happen({2: 5, 100: 1})
        jump[0] += lasting
        program.stream.end()

    for _ in range(3):
        phase(0)
    program.recorder.due = 0  # what was gathered is written, and phases are looked at again
    for _ in range(3):
        phase(2 * WORTH_COUNTING)
    phase(0)
    phase(0)
    spans = program.read()
    # Unknown at first, then short; grown long, which is noticed when it is looked at again; short once more.
    assert column(spans, "page_faults", kind="phase") == [5, None, None, None, None, 5, 5, None]
    assert column(spans, "cycles", kind="phase") == [1] * 8
