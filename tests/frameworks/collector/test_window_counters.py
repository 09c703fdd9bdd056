"""Counters between two moments: scaled where they took turns, added up over cores, missing where refused."""

from __future__ import annotations

import errno
import mmap
import os
import threading

import pytest

from fake_kernel import FakeKernel
from perf_event_cases import settled
from sonda.frameworks.collector.corun.counters import ENDED, RUNNING, WindowCounters
from sonda.frameworks.collector.counters.perf_event import EXCLUDE_KERNEL, PerfEventError
from sonda.probes.counters.command_counter import KernelCounter
from sonda.probes.counters.pmu_events import Pmu
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState
from sonda.targets.corun import pmu as corun_events
from sonda.targets.corun.pmu import event_groups

__all__ = ["settled"]

GROUPS = [
    {"events": [{"name": "cycles", "type": 0, "config": 0}, {"name": "instructions", "type": 0, "config": 1}]},
    {"events": [{"name": "cache_misses", "type": 0, "config": 3}]},
]


def test_counts_are_those_since_the_reading():
    kernel = FakeKernel()
    counters = WindowCounters(GROUPS, kernel=kernel)
    kernel.happen({0: 7, 1: 9, 3: 2})
    before = counters.read()
    kernel.happen({0: 1000, 1: 1500, 3: 30})
    found = counters.count_since(before)
    assert (found["cycles"], found["instructions"], found["cache_misses"]) == (1000, 1500, 30)
    assert "scaled" not in found and counters.counts_instructions and counters.total_events("instructions") == 1509
    assert found["time"] > 0 and found["cpu_time"] >= 0


def test_what_was_counted_for_a_quarter_of_the_time_is_four_times_as_much_and_says_so():
    kernel = FakeKernel()
    counters = WindowCounters(GROUPS, kernel=kernel)
    kernel.happen({0: 100})
    before = counters.read()
    kernel.happen({0: 4000, 1: 8000, 3: 40}, share=0.25)
    found = counters.count_since(before)
    assert (found["cycles"], found["instructions"], found["cache_misses"]) == (4000, 8000, 40)
    assert found["scaled"] == 0.25


def test_what_never_had_a_counter_is_missing_and_not_0():
    kernel = FakeKernel()
    counters = WindowCounters(GROUPS, kernel=kernel)
    before = counters.read()
    kernel.happen({0: 4000}, share=0.0)
    assert not {"cycles", "instructions", "cache_misses"} & set(counters.count_since(before))


def test_two_kinds_of_core_are_added_up_and_not_scaled():
    """A core of one kind is away from the other kind's counters half of the time."""
    kernel = FakeKernel()
    both = [{"events": [{"name": "instructions", "type": kind, "config": 1}], "whole": False} for kind in (4, 10)]
    counters = WindowCounters(both, kernel=kernel)
    before = counters.read()
    kernel.happen({1: 1000}, share=0.5)
    found = counters.count_since(before)
    assert found["instructions"] == 500 + 500 and "scaled" not in found


def test_refused_counters_leave_the_rest_with_the_reason():
    kernel = FakeKernel(refuse=lambda event: errno.EACCES if event.config == 3 else 0)
    counters = WindowCounters(GROUPS, kernel=kernel)
    assert "cache_misses" in counters.reason and "ermission" in counters.reason and not counters.counts_instructions
    found = counters.count_since(counters.read())
    assert set(found) >= {"time", "cpu_time", "page_faults"} and "cycles" not in found


def test_a_command_that_runs_on_has_no_system_counts_where_perf_is_refused():
    counters = WindowCounters(whose=RUNNING, kernel=FakeKernel(refuse=lambda event: errno.EPERM))
    assert set(counters.count_since(counters.read())) == {"time"} and counters.cpu_time() == 0


def test_an_ordinary_user_has_the_clock_of_a_command_that_runs_on_and_its_hardware_counters():
    """At `perf_event_paranoid` 2 what the kernel does is refused, and only that."""
    kernel = FakeKernel(refuse=lambda event: 0 if event.flags & EXCLUDE_KERNEL else errno.EACCES)
    counters = WindowCounters(GROUPS, RUNNING, kernel)
    assert counters.counts_instructions and not counters.reason
    found = counters.count_since(counters.read())
    assert "cpu_time" in found and "page_faults" not in found and "context_switches" not in found


def touch(pages: int) -> None:
    memory = mmap.mmap(-1, pages * mmap.PAGESIZE)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    for page in range(pages):
        memory[page * mmap.PAGESIZE] = 1
    memory.close()


def in_a_child(pages: int) -> None:
    child = os.fork()
    if not child:
        touch(pages)
        os._exit(0)
    os.waitpid(child, 0)


@pytest.mark.skipif(KernelCounter(children=False).state().state != "ok", reason="the kernel refuses perf events here")
@pytest.mark.usefixtures("settled")
def test_faults_of_threads_and_of_children_are_in_the_accounts_that_ask_for_them():
    faults = [{"events": [{"name": "faults", "type": 1, "config": 2, "kernel": True}]}]
    own, ended = WindowCounters(faults), WindowCounters(faults, ENDED)

    def counted(pages: int, in_child: int) -> tuple[dict[str, float], dict[str, float]]:
        before, before_ended = own.read(), ended.read()
        thread = threading.Thread(target=touch, args=(pages,))
        thread.start()
        thread.join()
        in_a_child(in_child)
        return own.count_since(before), ended.count_since(before_ended)

    # Whoever forks copies what it and its child write afterwards, the more, the larger it is: that is taken off.
    bare, bare_all = counted(1, 1)
    mine, all_of_them = counted(3000, 5000)
    for name in ("faults", "page_faults"):
        assert 2500 <= mine[name] - bare[name] < 3500, "of threads, not of children"
    assert 4500 <= all_of_them["page_faults"] - bare_all["page_faults"] < 5500, "of children only"
    assert 7500 <= all_of_them["faults"] - bare_all["faults"] < 8500
    own.close()
    ended.close()


# ---- which events ------------------------------------------------------------------------------------------------


def test_where_there_is_no_pmu_the_reason_stands_in_its_state(monkeypatch):
    def refused():
        raise SondaError("no PMU in this virtual machine", "use another")

    monkeypatch.setattr(corun_events, "plan_counting", refused)
    assert event_groups() == ([], ProbeState("pmu", "missing", "no PMU in this virtual machine", "use another"))


def test_every_kind_of_core_has_its_groups_and_named_events_are_tried(monkeypatch):
    monkeypatch.setattr(corun_events, "plan_counting", lambda: None)
    tried = []
    groups, state = event_groups(["branch-misses"], lambda: [Pmu("cpu_core", 4), Pmu("cpu_atom", 10)], tried.append)
    names = [[event["name"] for event in group["events"]] for group in groups]
    assert names == 2 * [["cycles", "instructions"], ["cache_misses"], ["branch_misses"]]
    assert all(not group["whole"] for group in groups) and len(tried) == 6 and state.state == "ok"
    assert groups[0]["events"][0]["config"] == 4 << 32 and groups[3]["events"][0]["config"] == 10 << 32

    def no_branches(events):
        if events[0].name == "branch_misses":
            raise PerfEventError(errno.ENOENT, "no such event")

    with pytest.raises(SondaError, match="does not count 'branch-misses'"):
        event_groups(["branch-misses"], lambda: [Pmu("cpu", 4)], no_branches)
