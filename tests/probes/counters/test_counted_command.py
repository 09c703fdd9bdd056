"""Commands counted from outside: what they do and nothing else, a series, and every way in which a command can end."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from fake_kernel import FakeKernel
from perf_event_cases import descriptors, needs_kernel
from sonda.frameworks.collector.counters.perf_event import Event
from sonda.probes.counters import command_counter as counted_command
from sonda.probes.counters.command_counter import EventCount, KernelCounter, StoppedCommand
from sonda.record.errors import SondaError
from sonda.targets.program import process_counts as outside

PAGES = 5000
TOUCHING = f"import mmap\nm = mmap.mmap(-1, {PAGES} * 4096)\nfor p in range({PAGES}): m[p * 4096] = 1\n"
PYTHON = [sys.executable, "-S", "-E", "-c"]


def faults(program: str, **how: bool) -> float:
    return KernelCounter(**how).count([*PYTHON, program], ["page-faults"]).counts["page-faults"].value


@needs_kernel
def test_what_a_program_does_is_counted_and_nothing_else() -> None:
    idle = faults("pass")
    # Addresses and hashes differ from run to run, and with them some pages of an interpreter.
    assert faults(TOUCHING) - idle + 150 >= PAGES and faults(TOUCHING) - idle <= PAGES + 150


@needs_kernel
def test_threads_count_and_processes_by_choice() -> None:
    idle = faults("pass")
    threads = f"import threading\ndef f():\n exec({TOUCHING!r})\nt = [threading.Thread(target=f) for _ in range(3)]\n" \
              "[one.start() for one in t]\n[one.join() for one in t]"  # fmt: skip
    assert faults(threads) - idle >= 3 * PAGES
    child = f"import os\nif os.fork():\n os.wait()\nelse:\n exec({TOUCHING!r})"
    assert faults(child) - idle >= PAGES
    assert faults(child, children=False) - idle < PAGES


@needs_kernel
def test_the_series_rises_to_the_total(tmp_path: Path) -> None:
    program = TOUCHING + "import time\ntime.sleep(0.5)\n" + TOUCHING
    found = KernelCounter().count([*PYTHON, program], ["page-faults", "task-clock"], interval=0.01)
    times = [time for time, _ in found.series]
    values = [counts["page-faults"].value for _, counts in found.series]
    assert len(values) >= 3 and times == sorted(times) and values == sorted(values)
    assert values[-1] == found.counts["page-faults"].value > 2 * PAGES
    assert values[0] < values[-1], "something was seen on the way"
    assert found.counts["task-clock"].value > 0 and not found.counts["task-clock"].scaled


@needs_kernel
@pytest.mark.parametrize(("program", "code"), [
    ("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9), ("import os; os._exit(0)", 0),
    ("import os; os.execv('/bin/sh', ['sh', '-c', 'exit 7'])", 7),
])  # fmt: skip
def test_a_command_ends_as_it_ends(program: str, code: int) -> None:
    found = KernelCounter().count([*PYTHON, program], ["page-faults"], interval=0.01)
    assert found.code == code and found.counts["page-faults"].value > 0


@needs_kernel
def test_a_command_that_does_not_exist_leaves_nothing_behind(tmp_path: Path) -> None:
    before, children = descriptors(), set(psutil.Process().children())
    with pytest.raises(SondaError, match="'no-such-program': No such file"):
        KernelCounter().count(["no-such-program"], ["page-faults"])
    locked = tmp_path / "text"
    locked.write_text("not a program")
    with pytest.raises(SondaError, match="Permission denied"):
        KernelCounter().count([str(locked)], ["page-faults"])
    with pytest.raises(SondaError, match=r"'é{200}': [A-Z]"):
        KernelCounter().count(["é" * 300], ["page-faults"])
    with pytest.raises(SondaError, match="embedded null"):
        KernelCounter().count(["a\0b"], ["page-faults"])
    assert descriptors() <= before
    assert set(psutil.Process().children()) <= children


def test_a_command_that_is_not_let_go_never_runs(tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    child = StoppedCommand(["touch", str(witness)])
    child.discard()
    assert not witness.exists()
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, 0)


def test_the_program_finds_its_signals_and_environment_as_they_should_be(tmp_path: Path) -> None:
    said = tmp_path / "said"
    program = f"import os, signal\nopen({str(said)!r}, 'w').write(os.environ['MINE'] + " \
              "open('/proc/self/status').read())"  # fmt: skip
    KernelCounter(kernel=FakeKernel()).count([*PYTHON, program], ["page-faults"], environment={"MINE": "here"})
    text = said.read_text()
    assert text.startswith("here")


def test_events_count_apart_and_refused_ones_are_named() -> None:
    kernel = FakeKernel(refuse=lambda event: errno.ENOENT if event.config == 1 and event.type == 0 else 0)
    known = {"instructions": Event("instructions", 0, 1), "cycles": Event("cycles", 0, 0)}
    found = KernelCounter(kernel=kernel, known=known).count(["true"], ["page-faults", "cycles", "instructions"])
    assert set(found.counts) == {"page-faults", "cycles"}
    assert "PMU" in found.missing["instructions"]
    assert kernel.events == {} and all(one.flags & 1 << 12 for one in kernel.asked), "all begin with the exec"
    with pytest.raises(SondaError, match="unknown event 'flops'"):
        KernelCounter(kernel=kernel).count(["true"], ["flops"])


def test_an_event_that_never_had_a_counter_is_missing_and_not_zero() -> None:
    class Busy(FakeKernel):
        """Others hold the PMU's counters all the time."""

        def read(self, descriptor: int, size: int) -> bytes:  # type: ignore[override]
            hardware = self.events[descriptor].type == 0
            return struct.pack("=4Q", 1, 1000, 0 if hardware else 1000, 0 if hardware else 12)[:size]

    counter = KernelCounter(kernel=Busy(), known={"cycles": Event("cycles", 0, 0)})
    found = counter.count(["sleep", "0.05"], ["page-faults", "cycles"], interval=0.01)
    assert found.counts == {"page-faults": EventCount(12.0, 1000, 1000)}
    assert "never had a counter" in found.missing["cycles"]
    assert "cycles" not in outside.describe_counts(found)["outside"]["counts"]
    assert {one.sensor for one in outside.interval_samples(found)} == {"page_faults"}


def test_a_value_that_was_counted_for_a_part_of_the_time_says_so() -> None:
    assert EventCount(10.0, 100, 50).scaled and not EventCount(10.0, 100, 100).scaled and not EventCount(10.0).scaled


@needs_kernel
@pytest.mark.skipif(shutil.which("setarch") is None, reason="needs setarch, to have the same addresses each time")
def test_the_same_command_counts_the_same_twice() -> None:
    command = ["setarch", "-R", "env", "-i", "PYTHONHASHSEED=0", *PYTHON, TOUCHING]
    # Before, its files may have to come from the disk.
    _, first, second = (KernelCounter().count(command, ["page-faults"]).counts["page-faults"].value for _ in range(3))
    # The kernel maps pages of files in blocks of up to 16, as far as it finds them in memory.
    assert abs(first - second) <= 16


def test_what_was_added_is_scaled_by_its_own_times() -> None:
    assert EventCount(70.0, 200, 200).growth_since(EventCount(30.0, 100, 100)) == EventCount(40.0, 100, 100)
    # 100 events in 50 of 100 ns, then 60 in 30 of 100: the totals are 200 and 400, the second half is 60 x 100/30.
    assert EventCount(400.0, 200, 80).growth_since(EventCount(200.0, 100, 50)) == EventCount(200.0, 100, 30)
    # 90 events in 10 of 100 ns, then 10 in all of 100: the total falls from 900 to 182, the second half has 10.
    added = EventCount(100 * 200 / 110, 200, 110).growth_since(EventCount(900.0, 100, 10))
    assert added is not None and added.value == pytest.approx(10) and not added.scaled
    assert EventCount(400.0, 200, 50).growth_since(EventCount(200.0, 100, 50)) is None, "not counted at all meanwhile"
    assert EventCount(200.0, 100, 50).growth_since(EventCount(200.0, 100, 50)) == EventCount(0.0), "it slept"


@needs_kernel
def test_a_long_series_loses_every_other_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counted_command, "MOST_POINTS", 8)
    found = KernelCounter().count(["sleep", "0.3"], ["page-faults"], interval=0.005)
    # How often it was read, and so doubled, is the machine's affair.
    assert len(found.series) <= 8 and found.interval in [0.005 * 2**times for times in range(12)]
    times = [time for time, _ in found.series]
    assert times == sorted(times) and found.series[-1][1] == found.counts
    assert (found.end - found.begin) / 1e9 == pytest.approx(times[-1]) and times[-1] >= 0.3


def test_the_interval_doubles_with_every_point_that_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that only waiting moves: 0.3 s are 60 intervals of 5 ms. At 8 points 4 stay: at 40, 80, 160 and 320 ms
    it would double, and the program has ended before the last."""
    clock = [0]
    ends = 300_000_000

    def wait(ended: list[int], *rest: object) -> tuple[list[int], ...]:
        clock[0] = min(ends, clock[0] + round(rest[-1] * 1e9))  # type: ignore[operator]
        return (ended if clock[0] == ends else [],)

    monkeypatch.setattr(counted_command, "MOST_POINTS", 8)
    monkeypatch.setattr(counted_command, "perf_counter_ns", lambda: clock[0])
    monkeypatch.setattr(counted_command, "select", SimpleNamespace(select=wait))
    series, interval = counted_command._sample_series(os.getpid(), [], 0, 0.005)
    assert interval == 0.04
    assert [round(1000 * time) for time, _ in series] == [40, 80, 120, 160, 200, 240, 280]


def test_output_goes_where_it_is_told(tmp_path: Path) -> None:
    said = tmp_path / "said"
    with said.open("w") as file:
        found = KernelCounter(kernel=FakeKernel()).count(["echo", "hello"], [], output=file.fileno())
    assert said.read_text() == "hello\n" and found.code == 0 and found.end > found.begin


def test_signals_are_passed_on_from_the_first_moment_and_not_after_the_end() -> None:
    def ended_by(number: int, after: bool) -> int:
        @contextmanager
        def around(child: StoppedCommand) -> Iterator[None]:
            if not after:
                child.send(number)
            yield
            child.send(signal.SIGKILL)  # it is over: nobody else is hit

        return KernelCounter(kernel=FakeKernel()).count(["true"], [], around=around).code

    assert ended_by(signal.SIGTERM, after=False) == -signal.SIGTERM
    # Whoever runs the tests may ignore interrupts.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert {ended_by(signal.SIGINT, after=False) for _ in range(20)} == {-signal.SIGINT}
    finally:
        signal.signal(signal.SIGINT, handler)
    assert ended_by(signal.SIGTERM, after=True) == 0
