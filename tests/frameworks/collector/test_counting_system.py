"""Counters with the kernel's own events, for real: known faults, whole programs, waits; how probes are asked for."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic, process_time

import numpy as np
import pytest

from counted_program import Program, column
from fake_kernel import FakeKernel
from observed import Nursery, Outcome
from perf_event_cases import needs_kernel, settled, touch
from sonda.frameworks.collector.counters.perf_event import LINUX, Event, EventGroup
from sonda.frameworks.collector.counters.process import FILE, Counting
from sonda.frameworks.collector.counters.run_queue import RunQueue
from sonda.frameworks.collector.counters.system import EVENTS, OsCounters
from sonda.frameworks.reconstruction.assembly import Assembly, assemble
from sonda.probes.counters.pmu import CountingPlan
from sonda.record.errors import SondaError
from sonda.targets.instruments import counters as asking
from sonda.targets.instruments.registry import instruments_for
from sonda.targets.instruments.second_sources import SecondSourcesInstrument
from sonda.targets.program.launcher import ProgramLauncher, WatchSettings

__all__ = ["settled"]


# ---- what the operating system counts, for real -------------------------------------------------------------------


@needs_kernel
def test_page_faults_of_filling_64_mib_are_exact_from_a_thread_that_was_there_before(tmp_path: Path) -> None:
    # Other numbers of threads, and counters that were opened before them, are what validation tries.
    arguments = (str(tmp_path), "2", "6", "other", "late")
    filled = Nursery().run("filling", *arguments, directory=tmp_path / "bare", observe=False)
    assert filled.code == 0, filled.output
    assembly = assemble(tmp_path, 0, 1 << 62)
    [empty, *faults] = column(assembly.spans, "page_faults", kind="phase")
    assert len(faults) == 6 and set(faults) <= {64 * 256, 64 * 256 + 1}
    assert empty <= 2
    assert column(assembly.spans, "task_clock", kind="phase")[1] > 0


@needs_kernel
@pytest.mark.usefixtures("settled")
def test_phases_and_the_unattributed_equal_a_counter_opened_around_the_whole(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps({"groups": [SOFTWARE_GROUPS[0]]}))
    program = Program(tmp_path, kernel=LINUX)
    around = EventGroup([Event("page_faults", 1, 2, kernel=True)])
    around.enable()
    codes = [program.recorder.define(kind="phase", name=name) for name in ("prefill", "decode")]
    before = own_before = 0
    for turn in range(5):
        if turn == 1:  # the first time, pages of the code itself may come in
            before, own_before = around.read().values[0], program.counting.totals()["page_faults_again"]
        for code, pages in zip(codes, (300, 70), strict=True):
            program.stream.begin(code)
            touch(pages)
            program.stream.end()
            touch(25)
    own, whole = program.counting.totals()["page_faults_again"] - own_before, around.read().values[0] - before
    around.close()
    spans = program.read()
    phases = sum(column(spans, "page_faults_again", kind="phase")[2:])
    # Between the readings of the two counters Python may touch pages of an arena. What would be lost is a phase or what
    # lies between two: 25 pages at least.
    assert 0 <= whole - own < 25
    assert 4 * (300 + 70) <= phases <= 4 * (300 + 70) + 8
    # Between phases Python may open an arena, 256 pages that it touches as it needs them.
    assert 8 * 25 <= whole - phases <= 8 * 25 + 256


@pytest.fixture(scope="module")
def nursery() -> Nursery:
    return Nursery()


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
    try:
        os.sched_setaffinity(0, {min(allowed)})
        rivals = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(2)]
        try:
            limit = monotonic() + 300
            while queue.read(1) - before < 1_000_000 and monotonic() < limit:
                sum(range(20_000))
        finally:
            for rival in rivals:
                rival.kill()
                rival.wait()
    finally:
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


def test_a_process_says_how_long_its_threads_ran_and_waited() -> None:
    counters = OsCounters(5, kernel=FakeKernel())
    if not counters._queue.threads:
        pytest.skip("this kernel keeps no schedstat")
    opened = process_time()
    while process_time() < opened + 0.02:
        pass
    times = counters.thread_times(1_000_005)
    assert times["lasted_ns"] == 1_000_000
    used = resource.getrusage(resource.RUSAGE_SELF)
    whole = 1e9 * (used.ru_utime + used.ru_stime)
    assert times["ran_ns"] >= 0.02e9 and times["ran_before_ns"] > 0
    assert times["ran_ns"] + times["ran_before_ns"] <= whole, "what ran before is none of it"
    assert times["waited_ns"] >= 0
    counters.close()
    assert counters.thread_times(2_000_005) == {}, "where nobody counts, nothing is said"


def test_what_is_asked_for_is_what_the_collector_opens(tmp_path: Path) -> None:
    groups = [[Event("cycles", 0, 100), Event("x", 4, 7, config1=9)]]
    asking.write_request(CountingPlan(groups, [[Event("small", 10, 5)]]), tmp_path, children=True, layers=False)
    kernel = FakeKernel()
    counting = Counting(str(tmp_path), kernel)
    opened = [(one.type, one.config) for one in kernel.asked]
    assert opened == [*((event.type, event.config) for event in EVENTS), (0, 100), (4, 7), (10, 5)]
    assert counting.children and not counting.counts_layers
    assert all(not one.flags & 1 << 35 for one in kernel.asked), "child processes too"


def test_probes_are_asked_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(**_: object) -> CountingPlan:
        raise SondaError("no PMU in this virtual machine", "use another")

    monkeypatch.setattr(asking, "plan_counting", none)
    found = asking.request_counters("pmu", tmp_path)
    assert [(one.name, one.state, one.reason) for one in found.states] == [
        ("pmu", "missing", "no PMU in this virtual machine")
    ]
    assert not (tmp_path / FILE).exists()
    assert (
        asking.request_counters("", tmp_path)
        == asking.request_counters((), tmp_path)
        == asking.request_counters("callgrind:1MiB", tmp_path)
    )
    always = asking.request_counters("os", tmp_path)
    assert not always.states and not always.notes and always.target == {"shown": ["os"]}
    launcher = ProgramLauncher(["true"], WatchSettings())
    with pytest.raises(SondaError, match="no probe 'pnu'"):
        instruments_for("pnu", launcher)
    (sources,) = instruments_for("perf-stat,papi,perf-stat", launcher)
    assert isinstance(sources, SecondSourcesInstrument) and sources.names == ("perf-stat", "papi")
    seen: dict[str, object] = {}

    def found_plan(extra: list[str]) -> CountingPlan:
        seen["extra"] = extra
        return CountingPlan([[Event("cycles", 0, 0)]], notes=["so it is"])

    monkeypatch.setattr(asking, "plan_counting", found_plan)
    asked = asking.request_counters(("pmu:children+branch-misses",), tmp_path)
    assert seen["extra"] == ["branch-misses"] and asked.notes == ["so it is"]
    assert json.loads((tmp_path / FILE).read_text())["children"] is True
