"""The child process of an experiment with several programs: one workload, stepped when it is told to.

`python -m sonda.targets.participant DIRECTORY`: JSON lines on stdin say what to do, JSON lines on stdout what became of
it. What the workload prints goes to stderr.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from math import ceil
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import Any

import msgspec

from sonda.frameworks.collector.run_queue import RunQueue
from sonda.record.errors import MissingExtraError, SondaError
from sonda.targets.barrier import Board
from sonda.targets.job import Job
from sonda.targets.worker import PR_SET_PDEATHSIG, describe_failure

SLICES = 20
"""Pieces that a window is measured in; time slicing of a shared core is far shorter than a piece."""
LEAD_SHARE = 10
"""A window begins with a tenth of its length, and at least a step, that is not measured: caches fill meanwhile."""
FEWEST_STEPS = 3
OBSERVED_STEPS = 200
"""Steps of a window whose phases are kept, evenly spread; the others are counted only."""
NEVER = 1 << 62
"""First step whose layers are recorded."""


class Participation(msgspec.Struct, kw_only=True):
    """What a participant is told at its beginning."""

    job: Job
    slot: int
    slots: int
    board: int
    """Descriptor of the board's memory."""
    cores: list[int]
    seconds: float
    """Length of a window."""
    timeout: float


class Ready(msgspec.Struct, kw_only=True):
    """What it says once it is warm."""

    workload: dict[str, Any] = {}
    stride: int = 1
    """Of so many steps one is observed."""
    process: int = 0
    cause: str = ""
    remedy: str = ""


class Order(msgspec.Struct, kw_only=True):
    """A window to take part in, with everybody who does; number 0 ends the participant."""

    window: int = 0
    members: list[int] = []


class Report(msgspec.Struct, kw_only=True):
    """What a participant did in a window. Times are ns of CLOCK_MONOTONIC."""

    window: int
    begin: int = 0
    end: int = 0
    """From the moment when all had lined up until nobody measured any more: it was stepping all the time."""
    slices: list[tuple[int, int, int, int]] = []
    """(begin, duration, steps, CPU time of all threads) of the pieces that were measured."""
    counters: dict[str, float] = {}
    """What the system counted over them: cpu_time, run_queue_wait (ns), page_faults, context_switches."""
    cause: str = ""
    remedy: str = ""


class _Marks:
    """Passes on phases that the workload announces, while a step is observed."""

    def __init__(self, observer: Any) -> None:
        self.observer = observer
        self.awake = True

    def announced(self, name: str) -> AbstractContextManager[None]:
        return self.observer.announced(name) if self.awake else nullcontext()


class Participant:
    """The workload in this process, built, observed and warm."""

    def __init__(self, what: Participation, directory: Path, board: Board) -> None:
        from sonda.workloads.catalogue import describe

        self.what = what
        self.board = board
        job = what.job
        workload = describe(job.workload, job.options)
        try:
            import torch
        except ImportError:
            raise MissingExtraError("PyTorch", "torch") from None
        from sonda.frameworks.collector.recorder import Recorder
        from sonda.frameworks.collector.schedule import Schedule
        from sonda.frameworks.collector.start import state_versions
        from sonda.frameworks.collector.torch_observer import TorchObserver
        from sonda.frameworks.torch_driver import Driving, loop_of

        if job.threads:
            torch.set_num_threads(job.threads)
        task = workload.build(job.framework, job.train, job.seed)
        self.recorder = Recorder(str(directory))
        self.observer = TorchObserver(self.recorder, torch, Schedule(count=False, first=NEVER))
        state_versions(self.recorder, torch)
        self.observer.install()
        self.marks = _Marks(self.observer)
        how = Driving(
            job.train, None, job.warmup, what.seconds, job.precision, job.compile, job.channels_last, job.workers
        )
        self.loop = loop_of(task, self.marks, how)
        self.facts = {**workload.parameters(), "name": workload.name, "samples": task.samples}
        self.queue = RunQueue()
        self.stride = 1
        self.done = 0
        last = 0
        for _ in range(max(1, job.warmup)):
            begin = perf_counter_ns()
            self.step()
            last = perf_counter_ns() - begin
        # The same in every window: observing costs the same alone and together, and cancels.
        self.stride = max(1, ceil(what.seconds * 1e9 / (OBSERVED_STEPS * max(1, last))))

    def step(self) -> None:
        observed = self.done % self.stride == 0
        self.observer.schedule.over = not observed
        self.marks.awake = observed
        if observed:
            with self.observer.span("step", self.loop.part):
                self.loop.step()
        else:
            self.loop.step()
        self.done += 1
        self.board.step(self.what.slot)

    def measure(self, order: Order) -> Report:
        """Line up, measure, and go on until everybody has."""
        slot, window, members = self.what.slot, order.window, order.members
        # The parent sees earlier who does not come; this is for a parent that does not look any more.
        self.board.line_up(slot, members, window, 60 + 2 * self.what.timeout)
        length = int(self.what.seconds * 1e9)
        begin = now = perf_counter_ns()
        while now == begin or now - begin < length // LEAD_SHARE:
            self.step()
            now = perf_counter_ns()
        before = self._counters()
        slices: list[tuple[int, int, int, int]] = []
        measured = steps = 0
        start = first = now = perf_counter_ns()
        spent = process_time_ns()
        # The last piece is finished too: counters and pieces are of the same steps.
        while now - first < length or measured < FEWEST_STEPS or steps:
            self.step()
            steps += 1
            measured += 1
            now = perf_counter_ns()
            if now - start >= length // SLICES:
                used = process_time_ns()
                slices.append((start, now - start, steps, used - spent))
                start, steps, spent = now, 0, used
        after = self._counters()
        self.board.measured(slot, window)
        while self.board.measuring(members, window):
            self.step()
        end = perf_counter_ns()
        counters = {name: after[name] - before[name] for name in after}
        return Report(window=window, begin=begin, end=end, slices=slices, counters=counters)

    def _counters(self) -> dict[str, float]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        found: dict[str, float] = {
            "cpu_time": 1e9 * (usage.ru_utime + usage.ru_stime),
            "page_faults": usage.ru_minflt + usage.ru_majflt,
            "context_switches": usage.ru_nvcsw + usage.ru_nivcsw,
            "time": perf_counter_ns(),
        }
        time = perf_counter_ns()
        self.queue.open(time)
        if self.queue.threads:
            found["run_queue_wait"] = self.queue.read(time)
        return found

    def close(self) -> None:
        from sonda.frameworks.collector.start import finish

        self.observer.schedule.over = False
        finish(self.observer)
        self.recorder.close()


def main() -> int:
    # When the parent is killed, the kernel ends this process: it must not go on disturbing others.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    messages = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    first = sys.stdin.buffer.readline()
    if not first:
        return 1  # the parent was gone before it could say anything
    what = msgspec.json.decode(first, type=Participation)
    board = Board(what.board, what.slots)
    os.sched_setaffinity(0, what.cores)
    participant = None
    window = 0
    try:
        participant = Participant(what, Path(sys.argv[1]), board)
        ready = Ready(workload=participant.facts, stride=participant.stride, process=os.getpid())
        _say(messages, ready)
        while True:
            line = sys.stdin.buffer.readline()
            order = msgspec.json.decode(line, type=Order) if line else Order()
            window = order.window
            if not window:
                break
            _say(messages, participant.measure(order))
        participant.close()
    except Exception as error:
        cause, remedy = _said(error)
        report = Report(window=window, cause=cause, remedy=remedy)
        _say(messages, report if participant else Ready(cause=cause, remedy=remedy))
        return 1
    return 0


def _say(messages: Any, message: Ready | Report) -> None:
    left = memoryview(msgspec.json.encode(message) + b"\n")
    while left:
        left = left[messages.write(left) :]


def _said(error: Exception) -> tuple[str, str]:
    if isinstance(error, SondaError):
        return error.cause, error.remedy
    if isinstance(error, MemoryError):
        return "not enough memory for this workload", "use a smaller --batch"
    return describe_failure(error), "check the workload's options"


if __name__ == "__main__":
    sys.exit(main())
