"""What an ordinary user may count at perf_event_paranoid 2: tried with the rights really given up, in a child."""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import resource
import time
from collections.abc import Callable
from typing import Any

import pytest

from fake_kernel import FakeKernel, Opened
from perf_event_cases import needs_kernel, settled
from sonda.frameworks.collector.counters.perf_event import EXCLUDE_KERNEL, EventGroup, PerfEventError
from sonda.frameworks.collector.counters.system import CLOCK, EVENTS, OsCounters
from sonda.probes.counters.command_counter import KernelCounter, read_account
from sonda.probes.counters.perf_events import explain_refusal, paranoid_level
from sonda.targets.program.process_counts import describe_counts, interval_samples

__all__ = ["settled"]

CAPABILITIES = 0x20080522
"""Version 3 of capset(2)'s header: two words of each set."""
PAGES = 500
needs_paranoia = pytest.mark.skipif(paranoid_level() != 2, reason="needs kernel.perf_event_paranoid 2")


def without_rights(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a forked child answers that has given up every capability."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            header = (ctypes.c_uint32 * 2)(CAPABILITIES, 0)
            ctypes.CDLL(None).syscall({"x86_64": 126}.get(os.uname().machine, 91), header, (ctypes.c_uint32 * 6)())
            os.write(writing, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    answer = os.read(reading, 1 << 16)
    os.close(reading)
    return dict(json.loads(answer))


def memory() -> mmap.mmap:
    found = mmap.mmap(-1, PAGES * mmap.PAGESIZE)
    found.madvise(mmap.MADV_NOHUGEPAGE)
    return found


def touched_by_the_kernel() -> None:
    zeros = os.open("/dev/zero", os.O_RDONLY)
    os.readv(zeros, [memory()])
    os.close(zeros)


def touched() -> None:
    fresh = memory()
    for at in range(0, len(fresh), mmap.PAGESIZE):
        fresh[at] = 1


def counted_in_user_mode() -> dict[str, Any]:
    try:
        EventGroup(EVENTS).close()
        refused = 0
    except PerfEventError as error:
        refused = error.errno or 0
    group = EventGroup([event._replace(kernel=False) for event in EVENTS])
    group.enable()
    for work in (touched, touched_by_the_kernel):
        work()  # a forked child copies what it writes to for the first time
    found: dict[str, Any] = {"refused": refused}
    for work in (touched, touched_by_the_kernel, lambda: [time.sleep(1e-3) for _ in range(10)]):
        usage, before, clock = resource.getrusage(resource.RUSAGE_SELF), group.read().values, time.process_time_ns()
        work()
        spent, after, now = time.process_time_ns() - clock, group.read().values, resource.getrusage(0)
        name = getattr(work, "__name__", "")
        found[name] = {
            "perf": [b - a for a, b in zip(before, after, strict=True)], "faults": now.ru_minflt - usage.ru_minflt,
            "switches": now.ru_nvcsw + now.ru_nivcsw - usage.ru_nvcsw - usage.ru_nivcsw, "clock": spent,
        }  # fmt: skip
    return found


@needs_kernel
@needs_paranoia
def test_in_user_mode_only_the_clock_is_whole() -> None:
    found = without_rights(counted_in_user_mode)
    assert found["refused"] == errno.EACCES
    clock, faults, switches, migrations = found["touched"]["perf"]
    # Meanwhile Python may open an arena, 256 pages that it touches as it needs them.
    assert PAGES <= faults <= PAGES + 256 and PAGES <= found["touched"]["faults"] <= PAGES + 256
    _, faults, _, _ = found["touched_by_the_kernel"]["perf"]
    assert faults <= 256 < PAGES and found["touched_by_the_kernel"]["faults"] >= PAGES, (
        "perf has not what the kernel touched"
    )
    slept = found["<lambda>"]
    assert slept["switches"] >= 8 and slept["perf"][2:] == [0, 0]
    # The clock runs on in the kernel: of a fault most of the time is spent there.
    assert clock >= 0.9 * found["touched"]["clock"]
    assert (switches, migrations) == (0, 0)


@needs_kernel
@needs_paranoia
def test_phases_of_an_ordinary_user_have_all_but_migrations() -> None:
    def opened() -> dict[str, Any]:
        counters = OsCounters(0)
        names = [event.name for event in counters.set.events] if counters.set is not None else []
        counters.close()
        return {**counters.facts(), "events": names}

    assert without_rights(opened) == {"source": "clock", "errno": errno.EACCES, "events": ["task_clock"]}
    assert [event.name for event in CLOCK] == ["task_clock"] and not CLOCK[0].kernel


def user_mode_only(event: Opened) -> int:
    return 0 if event.flags & EXCLUDE_KERNEL else errno.EACCES


def test_a_command_of_an_ordinary_user_is_counted_by_the_kernels_account() -> None:
    counter = KernelCounter(kernel=FakeKernel(refuse=user_mode_only))
    program = "import mmap\nm = mmap.mmap(-1, 4000 * 4096)\nfor p in range(4000): m[p * 4096] = 1"
    sizes = []
    # Before, the interpreter's files may have to come from the disk.
    counter.count(["python3", "-S", "-c", program], ["page-faults"])
    for text in ("pass", program):
        found = counter.count(["python3", "-S", "-c", text], ["task-clock", "page-faults", "context-switches"], 0.01)
        assert set(found.counts) == {"task-clock", "page-faults", "context-switches"} and not found.missing
        assert not found.counts["page-faults"].scaled
        sizes.append(found.counts["page-faults"].value)
        assert {one.sensor for one in interval_samples(found)} == {"task_clock"}, "an account at the end is no series"
        assert describe_counts(found)["outside"]["counts"]["page_faults"]["value"] == sizes[-1]
    # Addresses and hashes differ from run to run, and with them some pages of an interpreter.
    assert 3850 <= sizes[1] - sizes[0] <= 4150
    assert counter.state().state == "ok" and "account" in counter.state().reason


def test_migrations_are_missing_with_the_level_as_the_reason() -> None:
    found = KernelCounter(kernel=FakeKernel(refuse=user_mode_only)).count(["true"], ["cpu-migrations"])
    assert not found.counts and list(found.missing) == ["cpu-migrations"]
    cause, remedy = explain_refusal(errno.EACCES, 2, False, None, kernel=True)
    assert "perf_event_paranoid is 2" in cause and "container" not in cause and remedy.endswith("=1")
    assert "container" in explain_refusal(errno.EACCES, 2, False, None)[0], "the program's own part is anybody's at 2"


def test_the_account_without_children_is_not_theirs() -> None:
    found = KernelCounter(children=False, kernel=FakeKernel(refuse=user_mode_only)).count(["true"], ["page-faults"])
    assert not found.counts and "page-faults" in found.missing


@pytest.mark.usefixtures("settled")
def test_the_account_of_a_process_grows_with_its_faults() -> None:
    touched()  # the first time, pages of the code itself may come in
    before = read_account(os.getpid())
    touched()
    after = read_account(os.getpid())
    assert PAGES <= after.page_faults - before.page_faults <= PAGES + 100
    assert after.context_switches >= before.context_switches
    assert read_account(1 << 30) == (0, 0)
