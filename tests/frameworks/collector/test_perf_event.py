"""Groups of counters: how they are asked for, on a kernel that answers as told; and that the real one counts right."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from fake_kernel import FakeKernel, Opened
from perf_event_cases import FAULTS, PAGES, descriptors, needs_kernel, settled, touch
from sonda.frameworks.collector.counters.perf_event import (
    SOFTWARE,
    TYPE_SOFTWARE,
    Event,
    EventGroup,
    KernelCalls,
    PerfEventError,
    attach,
)

__all__ = ["settled"]

CLOCK = Event("task_clock", TYPE_SOFTWARE, SOFTWARE["task-clock"], kernel=True)
CYCLES, INSTRUCTIONS = Event("cycles", 0, 0), Event("instructions", 0, 1)
# Bits as include/uapi/linux/perf_event.h has them, written out here a second time.
DISABLED, INHERIT, EXCLUDE_KERNEL, EXCLUDE_HV, ON_EXEC, INHERIT_THREAD = (
    1 << bit for bit in (0, 1, 5, 6, 12, 35)
)  # fmt: skip


def refusing(code: int, when: Callable[[Opened], bool]) -> FakeKernel:
    return FakeKernel(refuse=lambda event: code if when(event) else 0)


# ---- how it is asked for ------------------------------------------------------------------------------------------


def test_a_group_is_opened_disabled_as_a_whole_and_then_enabled() -> None:
    kernel = FakeKernel()
    group = EventGroup([CYCLES, INSTRUCTIONS, FAULTS], thread=42, kernel=kernel)
    leader, second, third = kernel.asked
    assert leader.flags == DISABLED | INHERIT | INHERIT_THREAD | EXCLUDE_KERNEL | EXCLUDE_HV
    assert second.flags == INHERIT | INHERIT_THREAD | EXCLUDE_KERNEL | EXCLUDE_HV
    assert third.flags == INHERIT | INHERIT_THREAD
    assert [one.group for one in kernel.asked] == [-1, group.leader, group.leader]
    assert {one.read_format for one in kernel.asked} == {1 | 2 | 8}
    assert {one.size for one in kernel.asked} == {112} and {one.thread for one in kernel.asked} == {42}
    assert kernel.controls == []
    group.enable()
    group.disable()
    assert kernel.controls == [(group.leader, 0x2400), (group.leader, 0x2401)]


def test_child_processes_count_when_they_are_wanted() -> None:
    kernel = FakeKernel()
    EventGroup([CYCLES], children=True, on_exec=True, kernel=kernel)
    assert kernel.asked[0].flags == DISABLED | INHERIT | ON_EXEC | EXCLUDE_KERNEL | EXCLUDE_HV


def test_an_old_kernel_is_asked_with_smaller_attributes() -> None:
    kernel = refusing(errno.E2BIG, lambda event: event.size > 72)
    EventGroup([CYCLES], kernel=kernel)
    assert [one.size for one in kernel.asked] == [112, 96, 72]
    kernel = refusing(errno.E2BIG, lambda event: True)
    with pytest.raises(PerfEventError) as caught:
        EventGroup([CYCLES], kernel=kernel)
    assert caught.value.errno == errno.E2BIG and [one.size for one in kernel.asked] == [112, 96, 72, 64]


def test_a_kernel_that_cannot_tell_threads_from_processes_counts_both() -> None:
    kernel = refusing(errno.EINVAL, lambda event: bool(event.flags & INHERIT_THREAD))
    EventGroup([CYCLES], kernel=kernel)
    assert [bool(one.flags & INHERIT_THREAD) for one in kernel.asked] == [True, False]
    assert kernel.asked[1].flags & INHERIT


@pytest.mark.parametrize("code", [errno.ENOENT, errno.EACCES, errno.EINVAL, errno.EOPNOTSUPP, errno.EMFILE])
def test_a_refusal_names_the_event_and_leaves_nothing_open(code: int) -> None:
    kernel = refusing(code, lambda event: event.config == 1)
    with pytest.raises(PerfEventError) as caught:
        EventGroup([CYCLES, INSTRUCTIONS], kernel=kernel)
    assert (caught.value.errno, caught.value.event) == (code, "instructions")
    assert kernel.events == {} and len(kernel.closed) == 1


def test_a_reading_has_times_and_values_in_opening_order() -> None:
    kernel = FakeKernel()
    group = EventGroup([CYCLES, INSTRUCTIONS], kernel=kernel)
    kernel.happen({0: 5, 1: 9})
    assert group.read() == (0, 0, (0, 0)), "nothing counts before it is enabled"
    group.enable()
    kernel.happen({0: 100, 1: 250}, time=1000, share=0.5)
    assert group.read() == (1000, 500, (50, 125))


def test_counters_that_somebody_else_took_are_an_error() -> None:
    kernel = FakeKernel()
    group = EventGroup([CYCLES], kernel=kernel)
    kernel.read = lambda descriptor, size: b""  # type: ignore[method-assign]
    with pytest.raises(PerfEventError, match="taken by somebody else"):
        group.read()


def test_a_reading_waits_for_a_thread_that_is_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    # The kernel refuses a group's reading with ECHILD while a thread that inherited the group ends.
    answers: list[bytes | OSError] = [ChildProcessError(errno.ECHILD, "no child")] * 3 + [b"counts"]

    def answer(descriptor: int, size: int) -> bytes:
        given = answers.pop(0)
        if isinstance(given, OSError):
            raise given
        return given

    monkeypatch.setattr("os.read", answer)
    assert KernelCalls.read(7, 6) == b"counts" and not answers
    answers[:] = [ChildProcessError(errno.ECHILD, "no child")] * 1000
    with pytest.raises(ChildProcessError):
        KernelCalls.read(7, 6)
    answers[:] = [OSError(errno.EIO, "gone"), b"counts"]
    with pytest.raises(OSError, match="gone"):
        KernelCalls.read(7, 6)
    assert answers == [b"counts"], "other refusals are not repeated"


def test_a_refused_reading_is_a_perf_event_error() -> None:
    def refuse(descriptor: int, size: int) -> bytes:
        raise ChildProcessError(errno.ECHILD, "no child")

    kernel = FakeKernel()
    group = EventGroup([CYCLES], kernel=kernel)
    kernel.read = refuse  # type: ignore[method-assign]
    with pytest.raises(PerfEventError) as caught:
        group.read()
    assert caught.value.errno == errno.ECHILD


def test_every_thread_is_attached_to_once_the_list_is_stable() -> None:
    # A thread that appears on the way may have inherited a group: everything is opened again.
    kernel = FakeKernel(alive=[[1, 2], [1, 2, 3], [1, 2, 3], [1, 2, 3]])
    groups, stable = attach([CYCLES], kernel=kernel)
    assert stable and [event.thread for event in kernel.events.values()] == [1, 2, 3]
    assert len(groups) == 3 and len(kernel.closed) == 2
    endless = FakeKernel(alive=[list(range(1, 2 + look)) for look in range(40)])
    groups, stable = attach([CYCLES], kernel=endless)
    assert not stable and len(endless.events) == len(groups)


def test_a_thread_that_has_ended_meanwhile_is_left_out() -> None:
    kernel = FakeKernel(refuse=lambda event: errno.ESRCH if event.thread == 2 else 0, alive=[[1, 2]])
    groups, stable = attach([CYCLES], kernel=kernel)
    assert stable and len(groups) == 1
    kernel = FakeKernel(refuse=lambda event: errno.EMFILE if event.thread == 2 else 0, alive=[[1, 2]])
    with pytest.raises(PerfEventError):
        attach([CYCLES], kernel=kernel)
    assert kernel.events == {}


# ---- what the real kernel counts ----------------------------------------------------------------------------------


@needs_kernel
@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_threads_made_later_are_counted_by_the_group_of_their_maker(threads: int) -> None:
    group = EventGroup([CLOCK, FAULTS])
    group.enable()
    touch(1)
    before = group.read()
    made = [threading.Thread(target=touch) for _ in range(threads)]
    for one in made:
        one.start()
    for one in made:
        one.join()
    after = group.read()
    group.close()
    assert after.enabled == after.running
    # Stacks and arenas of new threads fault too, some tens of pages each.
    assert threads * PAGES <= after.values[1] - before.values[1] <= threads * (PAGES + 100)
    assert after.values[0] > before.values[0]


@needs_kernel
@pytest.mark.usefixtures("settled")
def test_every_event_of_a_group_counts_from_its_first_moment() -> None:
    # Opened enabled, event by event, the last ones stay inactive until the next context switch.
    counted = []
    for _ in range(21):
        group = EventGroup([CLOCK, Event("switches", TYPE_SOFTWARE, 3, kernel=True), FAULTS])
        group.enable()
        before = group.read().values[2]
        touch()
        counted.append(group.read().values[2] - before)
        group.close()
    # The first time, pages of the code itself may come in.
    assert min(counted) >= PAGES and max(counted[1:]) <= PAGES + 5


@needs_kernel
@pytest.mark.parametrize("children", [False, True])
def test_child_processes_are_in_or_out_by_choice(children: bool) -> None:
    group = EventGroup([FAULTS], children=children)
    group.enable()
    before = group.read().values[0]
    touching = "import mmap\nm = mmap.mmap(-1, 20000 * 4096)\nfor p in range(20000): m[p * 4096] = 1"
    subprocess.run([sys.executable, "-S", "-c", touching], check=True)
    counted = group.read().values[0] - before
    group.close()
    assert (counted > 20000) == children


@needs_kernel
@pytest.mark.usefixtures("settled")
def test_threads_that_are_there_already_are_attached_to() -> None:
    go, done = threading.Event(), threading.Event()

    def wait_and_touch() -> None:
        go.wait()
        touch()
        done.set()

    early = threading.Thread(target=wait_and_touch)
    early.start()
    alone = EventGroup([FAULTS])
    groups, _ = attach([FAULTS])
    for group in (alone, *groups):
        group.enable()
    go.set()
    done.wait()
    early.join()
    missed = alone.read().values[0]
    found = sum(group.read().values[0] for group in groups)
    for group in (alone, *groups):
        group.close()
    assert missed < PAGES <= found <= PAGES + 200


@needs_kernel
def test_every_descriptor_is_closed() -> None:
    before = descriptors()
    for _ in range(3):
        for group in attach([CLOCK, FAULTS])[0]:
            group.enable()
            group.read()
            group.close()
            assert group.leader == -1
    with pytest.raises(PerfEventError):
        EventGroup([CLOCK, Event("none", TYPE_SOFTWARE, 9999)])
    assert descriptors() <= before


def test_no_perf_events_outside_linux_on_known_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(PerfEventError) as caught:
        EventGroup([CLOCK], kernel=KernelCalls())
    assert caught.value.errno == errno.ENOSYS
