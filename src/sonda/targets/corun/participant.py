"""The child process of a co-run: one workload or command, which steps when it is ordered to.

`python -m sonda.targets.corun.participant DIRECTORY` reads orders as JSON lines from stdin and writes reports as JSON
lines to stdout. What the workload prints goes to stderr.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from math import ceil
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Protocol

import msgspec

from sonda.frameworks.collector.corun.board import Board
from sonda.frameworks.collector.corun.counters import WindowCounters
from sonda.frameworks.collector.corun.participation import LAYER_STEPS
from sonda.frameworks.collector.corun.window import measure_window
from sonda.frameworks.collector.sampling.schedule import Schedule
from sonda.record.errors import MissingExtraError, SondaError
from sonda.targets.corun.command import CommandParticipant
from sonda.targets.corun.messages import Order, Participation, Ready, WindowReport, encode_line
from sonda.targets.corun.process_tree import end_below, keep_orphans
from sonda.targets.job import Job
from sonda.targets.local.worker import describe_failure
from sonda.targets.signals import end_with_parent

OBSERVED_STEPS = 200
"""Steps of a window whose phases are kept, evenly spread; the others are counted only."""


class ParticipantProtocol(Protocol):
    """A workload or a command that takes part. It is ready once it is constructed."""

    ready: Ready

    def measure(self, order: Order) -> WindowReport:
        """Line up with the others, measure, and go on stepping until all have measured."""

    def close(self) -> None:
        """Write what was observed, and end."""


class _PhaseMarks:
    """Passes on phases that the workload announces, while a step is observed."""

    def __init__(self, observer: Any) -> None:
        self.observer = observer
        self.awake = True

    def announce_phase(self, name: str) -> AbstractContextManager[None]:
        return self.observer.announce_phase(name) if self.awake else nullcontext()


class _DirectedSchedule(Schedule):
    """A schedule whose steps in detail are chosen by the participant."""

    def end_step(self, now: int, written: int) -> None:
        self.steps += 1


class WorkloadParticipant:
    """The workload in this process, built, observed and warm."""

    def __init__(self, participation: Participation, directory: Path, board: Board) -> None:
        from sonda.workloads.catalogue import describe

        assert participation.job is not None
        self.participation = participation
        self.board = board
        job = participation.job
        # Before PyTorch starts threads, which then inherit the counters.
        self.counters = WindowCounters(participation.groups)
        workload = describe(job.workload, job.options)
        try:
            import torch
        except ImportError:
            raise MissingExtraError("PyTorch", "torch") from None
        from sonda.frameworks.collector.recorder import Recorder
        from sonda.frameworks.harness.settings import Driving
        from sonda.frameworks.torch.drive.steps import make_loop
        from sonda.frameworks.torch.observe.observer import TorchObserver
        from sonda.frameworks.torch.observe.process import state_versions

        if job.threads:
            torch.set_num_threads(job.threads)
        task = workload.build(job.framework, job.train, job.seed)
        self.recorder = Recorder(str(directory))
        self.observer = TorchObserver(self.recorder, torch, _DirectedSchedule(count=False))
        state_versions(self.recorder, torch)
        self.observer.install()
        self.marks = _PhaseMarks(self.observer)
        how = Driving(
            job.train, None, job.warmup, participation.seconds, job.precision, job.compile, job.channels_last,
            job.workers, deterministic=job.deterministic,
        )  # fmt: skip
        self.loop = make_loop(task, self.marks, how)
        self.stride = self.layer_stride = 1
        self.done = 0
        self._warm(job)
        self.ready = Ready(
            workload={**workload.parameters(), "name": workload.name, "samples": task.samples},
            stride=self.stride,
            process=os.getpid(),
            pmu=self.counters.reason,
        )

    def _warm(self, job: Job) -> None:
        last = 0
        for _ in range(max(1, job.warmup)):
            begin = perf_counter_ns()
            self.step()
            last = perf_counter_ns() - begin
        # The same in every window: observing costs the same alone and together, and cancels.
        steps = self.participation.seconds * 1e9 / max(1, last)
        self.stride = max(1, ceil(steps / OBSERVED_STEPS))
        self.layer_stride = self.stride * max(1, round(steps / self.stride / LAYER_STEPS))

    def step(self) -> None:
        observed = self.done % self.stride == 0
        self.observer.schedule.over = not observed
        self.observer.schedule.detail = self.done % self.layer_stride == 0
        self.marks.awake = observed
        if observed:
            with self.observer.span("step", self.loop.part):
                self.loop.step()
        else:
            self.loop.step()
        self.done += 1
        self.board.add_step(self.participation.slot)

    def measure(self, order: Order) -> WindowReport:
        # The parent notices earlier that a participant is missing; this timeout is for a parent that hangs.
        going = measure_window(
            self.board, self.participation.slot, order.window, order.members, self.participation.seconds,
            60 + 2 * self.participation.timeout, self.counters,
        )  # fmt: skip
        while True:
            try:
                next(going)
            except StopIteration as ended:
                return WindowReport(**ended.value)
            self.step()

    def close(self) -> None:
        from sonda.frameworks.torch.observe.process import finish

        self.observer.schedule.over = False
        finish(self.observer)
        self.recorder.close()


def main() -> int:
    messages = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    end_with_parent()
    keep_orphans()
    first = sys.stdin.buffer.readline()
    if not first:
        return 1  # the parent ended before it sent anything
    participation = msgspec.json.decode(first, type=Participation)
    board = Board(participation.board, participation.slots)
    os.sched_setaffinity(0, participation.cores)
    participant: ParticipantProtocol | None = None
    number = 0
    try:
        directory = Path(sys.argv[1])
        if participation.job is not None:
            participant = WorkloadParticipant(participation, directory, board)
        else:
            _end_all_with_parent()
            participant = CommandParticipant(participation, directory, board)
        _send(messages, participant.ready)
        while True:
            line = sys.stdin.buffer.readline()
            order = msgspec.json.decode(line, type=Order) if line else Order()
            number = order.window
            if not number:
                break
            _send(messages, participant.measure(order))
        participant.close()
    except Exception as error:
        cause, remedy = _explain(error)
        _send(
            messages,
            WindowReport(window=number, cause=cause, remedy=remedy)
            if participant
            else Ready(cause=cause, remedy=remedy),
        )
        return 1
    return 0


def _end_all_with_parent() -> None:
    """When the parent is killed, this process ends the command and all that it started, and then itself."""

    def end(_number: int, _frame: object) -> None:
        end_below(os.getpid())
        os._exit(1)

    signal.signal(signal.SIGTERM, end)
    end_with_parent(signal.SIGTERM)


def _send(messages: Any, message: Ready | WindowReport) -> None:
    left = memoryview(encode_line(message))
    while left:
        left = left[messages.write(left) :]


def _explain(error: Exception) -> tuple[str, str]:
    if isinstance(error, SondaError):
        return error.cause, error.remedy
    if isinstance(error, TimeoutError):
        return str(error), "give a longer --timeout"
    if isinstance(error, MemoryError):
        return "not enough memory for this workload", "use a smaller --batch"
    return describe_failure(error), "check the workload's options"


if __name__ == "__main__":
    sys.exit(main())
