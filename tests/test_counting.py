"""Counters per phase, layer and step: with the kernel's own events for real, and on a kernel that counts as told."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
import pytest

from fake_kernel import FakeKernel, Opened
from observed import Nursery, Outcome
from sonda.frameworks.assembly import Assembly, assemble
from sonda.frameworks.collector.counting import FILE, Counting
from sonda.frameworks.collector.os_counters import EVENTS
from sonda.frameworks.collector.perf_event import LINUX, Event, Group
from sonda.frameworks.collector.phases import WORTH_COUNTING, Phases
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.collector.run_queue import RunQueue
from sonda.probes.pmu import Plan
from sonda.record.errors import SondaError
from sonda.record.span import Spans
from sonda.targets import counting as asking
from test_perf_event import needs_kernel, touch

PROGRAMS = Path(__file__).parent / "programs"
CYCLES = {"name": "cycles", "type": 0, "config": 100}
INSTRUCTIONS = {"name": "instructions", "type": 0, "config": 101}
MISSES = {"name": "l2_misses", "type": 4, "config": 102}
BRANCHES = {"name": "branches", "type": 4, "config": 103}
TWO_GROUPS = [[CYCLES, INSTRUCTIONS, MISSES], [CYCLES, INSTRUCTIONS, BRANCHES]]


class Program:
    """A program whose phases and layers a test opens itself, on a kernel that counts as told."""

    def __init__(self, directory: Path, kernel: Any = None, **asked: Any) -> None:
        self.directory = directory
        if asked:
            (directory / FILE).write_text(json.dumps(asked))
        self.kernel: Any = kernel or FakeKernel()
        self.counting = Counting(str(directory), self.kernel)
        self.recorder = Recorder(str(directory))
        self.counting.define(self.recorder)
        self.phases = Phases(self.recorder)
        self.phases.open(self.counting)
        self.stream = self.recorder.stream()

    def phase(self, name: str, counts: dict[int, int], **how: Any) -> None:
        self.stream.begin(self.recorder.define(kind="phase", name=name))
        self.kernel.happen(counts, **how)
        self.stream.end()

    def read(self) -> Spans:
        self.recorder.state(finished=True, **self.counting.facts())
        self.recorder.close()
        self.counting.close()
        return assemble(self.directory, 0, 1 << 62).spans


def column(spans: Spans, quantity: str, source: str = "counted", **where: str) -> list[float]:
    return [None if np.isnan(one) else one for one in spans.metric(quantity, source)[spans.where(**where)].tolist()]


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
        program.counting.steps_done(step + 1)
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
    program.counting.step_announced()
    program.phase("prefill", {102: 1, 103: 1})
    program.counting.steps_done(1)
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
        program.counting.step_announced()
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


def test_without_permission_the_system_is_asked_with_getrusage(tmp_path: Path) -> None:
    def refuse(event: Opened) -> int:
        return 0 if event.flags & 1 << 5 else errno.EACCES  # perf_event_paranoid 2: not with the kernel's work

    program = Program(tmp_path, FakeKernel(refuse=refuse))
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


# ---- what the operating system counts, for real -------------------------------------------------------------------


@needs_kernel
@pytest.mark.parametrize(("threads", "where", "when"), [
    (1, "main", "early"), (2, "main", "early"), (8, "main", "early"), (2, "other", "early"),
    (8, "main", "late"), (2, "other", "late"),
])  # fmt: skip
def test_page_faults_of_filling_64_mib_are_exact(tmp_path: Path, threads: int, where: str, when: str) -> None:
    program = [sys.executable, str(PROGRAMS / "filling.py"), str(tmp_path), str(threads), "6", where, when]
    subprocess.run(program, check=True, env={**os.environ, "MKL_NUM_THREADS": "1"})
    assembly = assemble(tmp_path, 0, 1 << 62)
    [empty, *faults] = column(assembly.spans, "page_faults", kind="phase")
    assert len(faults) == 6 and set(faults) <= {64 * 256, 64 * 256 + 1}
    assert empty <= 2
    assert column(assembly.spans, "task_clock", kind="phase")[1] > 0


@needs_kernel
def test_phases_and_the_unattributed_equal_a_counter_opened_around_the_whole(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps({"groups": [SOFTWARE_GROUPS[0]]}))
    program = Program(tmp_path, kernel=LINUX)
    around = Group([Event("page_faults", 1, 2, kernel=True)])
    around.enable()
    codes = [program.recorder.define(kind="phase", name=name) for name in ("prefill", "decode")]
    touch(10)
    before, own_before = around.read().values[0], program.counting.totals()["page_faults_again"]
    for _ in range(4):
        for code, pages in zip(codes, (300, 70), strict=True):
            program.stream.begin(code)
            touch(pages)
            program.stream.end()
            touch(25)
    own, whole = program.counting.totals()["page_faults_again"] - own_before, around.read().values[0] - before
    around.close()
    spans = program.read()
    phases = sum(column(spans, "page_faults_again", kind="phase"))
    # What is kept of the events is the only other memory that this program may touch for the first time; a page of it
    # may come between the readings of the two counters.
    assert 0 <= whole - own <= 2
    assert 4 * (300 + 70) <= phases <= 4 * (300 + 70) + 8
    assert 8 * 25 <= whole - phases <= 8 * 25 + 8


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


SOFTWARE_GROUPS = [
    [{"name": "page_faults_again", "type": 1, "config": 2, "kernel": True},
     {"name": "clock_again", "type": 1, "config": 1, "kernel": True}],
    [{"name": "page_faults_again", "type": 1, "config": 2, "kernel": True},
     {"name": "switches_again", "type": 1, "config": 3, "kernel": True}],
]  # fmt: skip


def train(nursery: Nursery, directory: Path) -> tuple[Outcome, list[int]]:
    directory.mkdir()
    (directory / FILE).write_text(json.dumps({"groups": SOFTWARE_GROUPS}))
    said = directory / "said.json"
    outcome = nursery.run("counted_training", str(said), directory=directory, observe=True, count=False)
    assert outcome.code == 0, outcome.output
    return outcome, json.loads(said.read_text())


@needs_kernel
def test_phases_and_what_lies_between_are_what_a_counter_around_the_whole_says(
    nursery: Nursery, tmp_path: Path
) -> None:
    outcome, (faults, _) = train(nursery, tmp_path / "run")
    assert isinstance(outcome.assembly, Assembly)
    spans = outcome.assembly.spans
    in_phases = np.nansum(spans.metric("page_faults_again", "counted")[spans.where(kind="phase")])
    steps = spans.metric("page_faults_again", "counted")[spans.where(kind="step")]
    assert len(steps) == 6 and np.isfinite(steps).all()
    # The program touches 256 pages of its own before each step, outside of every phase.
    assert in_phases <= steps.sum() <= faults - 6 * 256
    whole = spans.metric("page_faults_again", "counted")[0]
    assert whole >= faults, "the collector's counters were open before and after"
    rotated = spans.metric("switches_again", "counted")[spans.where(kind="step")]
    assert np.isfinite(rotated).tolist() == [False, True] * 3


@needs_kernel
def test_layers_are_counted_and_lie_within_their_phases(nursery: Nursery, tmp_path: Path) -> None:
    outcome, _ = train(nursery, tmp_path / "run")
    assert outcome.assembly is not None
    spans = outcome.assembly.spans
    values = spans.metric("page_faults_again", "counted")
    layers = np.flatnonzero(spans.where(kind="layer"))
    assert len(layers) and np.isfinite(values[layers]).all()
    paths = spans.words("path").decoded()
    # 4096 x 512 floats are 8 MiB: 2048 pages, new the first time; so is the code that multiplies matrices.
    first = next(row for row in layers if paths[row] == "0")
    assert values[first] >= 2048
    parents = spans.number("parent")
    for row in layers:
        assert values[row] <= values[parents[row]]


def test_waiting_for_a_processor_is_counted_while_it_lasts() -> None:
    queue = RunQueue()
    queue.open(0)
    before = queue.read(1)
    allowed = os.sched_getaffinity(0)
    stop = threading.Event()
    try:
        os.sched_setaffinity(0, {min(allowed)})
        rivals = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(2)]
        try:
            total = 0
            while queue.read(1) - before < 1_000_000 and total < 3000:
                total += 1
                sum(range(20_000))
        finally:
            for rival in rivals:
                rival.kill()
                rival.wait()
    finally:
        stop.set()
        os.sched_setaffinity(0, allowed)
    assert queue.read(1) - before >= 1_000_000
    queue.close()
    assert queue.threads == 0


def test_threads_that_have_ended_keep_their_wait() -> None:
    queue = RunQueue()
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    queue.open(0)
    assert queue.threads >= 2
    before = queue.read(1)
    done.set()
    other.join()
    assert queue.read(1) >= before
    queue.close()


# ---- asking -------------------------------------------------------------------------------------------------------


def test_what_is_asked_for_is_what_the_collector_opens(tmp_path: Path) -> None:
    groups = [[Event("cycles", 0, 100), Event("x", 4, 7, config1=9)]]
    asking.write(Plan(groups, [[Event("small", 10, 5)]]), tmp_path, children=True, layers=False)
    kernel = FakeKernel()
    counting = Counting(str(tmp_path), kernel)
    opened = [(one.type, one.config) for one in kernel.asked]
    assert opened == [*((event.type, event.config) for event in EVENTS), (0, 100), (4, 7), (10, 5)]
    assert counting.children and not counting.counts_layers
    assert all(not one.flags & 1 << 35 for one in kernel.asked), "child processes too"


def test_probes_are_asked_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(**_: object) -> Plan:
        raise SondaError("no PMU in this virtual machine", "use another")

    monkeypatch.setattr(asking, "plan", none)
    found = asking.ask("pmu", tmp_path)
    assert [(one.name, one.state, one.reason) for one in found.states] == [
        ("pmu", "missing", "no PMU in this virtual machine")
    ]
    assert not (tmp_path / FILE).exists()
    assert asking.ask("", tmp_path) == asking.ask((), tmp_path) == asking.ask("callgrind:1MiB", tmp_path)
    always = asking.ask("os", tmp_path)
    assert not always.states and not always.target and "always recorded" in always.notes[0]
    with pytest.raises(SondaError, match="no probe 'pnu'"):
        asking.ask("pnu", tmp_path)
    with pytest.raises(SondaError, match="whole command"):
        asking.ask("perf-stat", tmp_path)
    seen: dict[str, object] = {}

    def found_plan(extra: list[str]) -> Plan:
        seen["extra"] = extra
        return Plan([[Event("cycles", 0, 0)]], notes=["so it is"])

    monkeypatch.setattr(asking, "plan", found_plan)
    asked = asking.ask(("pmu:children+branch-misses",), tmp_path)
    assert seen["extra"] == ["branch-misses"] and asked.notes == ["so it is"]
    assert json.loads((tmp_path / FILE).read_text())["children"] is True
