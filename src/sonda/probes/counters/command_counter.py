"""A command counted from outside, unchanged: its totals and, where asked for, a series over time.

The child stops before it execs; meanwhile the parent opens counters on it. They begin with the exec. Every thread of
the command inherits them and, unless told otherwise, every process that it starts. Nothing runs inside the program.

An ordinary user at `perf_event_paranoid` 2 may count in user mode only. The task clock is right there, all other counts
are too low. Page faults and context switches are then taken from the kernel's account of the process at its end
(`wait4`), less what it had before the exec. The account holds child processes that were waited for. It gives no series.
"""

from __future__ import annotations

import errno
import os
import select
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import NamedTuple, NoReturn, Protocol

from sonda.frameworks.collector.counters.perf_event import (
    LINUX,
    SOFTWARE,
    TYPE_SOFTWARE,
    Event,
    EventGroup,
    KernelCalls,
    PerfEventError,
)
from sonda.probes.counters.perf_events import explain_refusal, paranoid_level
from sonda.record.errors import SondaError, nearest
from sonda.record.run import ProbeState

SYSTEM = {name: Event(name.replace("-", "_"), TYPE_SOFTWARE, config, kernel=True) for name, config in SOFTWARE.items()}
"""What every source can count, by the name that perf gives it."""
CLOCK = "task-clock"
WAITS = b"w"
"""What the child says when it waits at the gate."""
RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores and that a program expects not to be."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that we may handle, and that end a command before its exec as they do after it."""
LONGEST_NAME, LONGEST_REASON = 200, 4096
"""Where a command cannot be started: characters of its name that the user is told, and bytes of the whole sentence."""
REFUSED = (errno.EACCES, errno.EPERM)
NO_COUNTER = "it never had a counter of the PMU while the command ran: others hold them"
MOST_POINTS = 20_000
"""A series that grows longer loses every other point, and its interval doubles."""


@dataclass(frozen=True)
class EventCount:
    """How often an event happened; `running` of `enabled` ns were really counted."""

    value: float
    enabled: int = 0
    running: int = 0

    @property
    def scaled(self) -> bool:
        """Whether the value is an estimate, scaled up to the whole time."""
        return self.running < self.enabled

    def growth_since(self, before: EventCount) -> EventCount | None:
        """What was added since an earlier reading; None where nothing of that time was counted.

        The difference is scaled by its own times, because scaled totals may fall from one reading to the next.
        """
        enabled, running = self.enabled - before.enabled, self.running - before.running
        if not self.scaled:
            return EventCount(self.value - before.value, enabled, running)
        if running <= 0:
            return None if enabled else EventCount(0.0)
        return EventCount((self._unscaled - before._unscaled) * enabled / running, enabled, running)

    @property
    def _unscaled(self) -> float:
        return self.value * self.running / self.enabled if self.scaled else self.value


@dataclass(frozen=True)
class CountedCommand:
    """A command that has ended, and its counts. `code` is its exit code, -n where signal n ended it."""

    code: int
    counts: dict[str, EventCount]
    series: list[tuple[float, dict[str, EventCount]]] = field(default_factory=list)
    """(s since the exec, counts since then), in order of time. An event that did not count yet has `running` 0."""
    missing: dict[str, str] = field(default_factory=dict)
    """Events that could not be counted, with the reason."""
    interval: float = 0.0
    """s between the points of the series; 0 without."""
    begin: int = 0
    """When the command was started and when it had ended, ns on the host's clock; 0 where the source does not say."""
    end: int = 0


class CommandCounter(Protocol):
    """A source that counts a whole command."""

    name: str

    def state(self) -> ProbeState:
        """Whether it is there, and if not, why and what would change that."""

    def count(
        self, command: Sequence[str], events: Sequence[str], interval: float = 0.0,
        environment: Mapping[str, str] | None = None,
    ) -> CountedCommand:  # fmt: skip
        """Run a command to its end; `events` by perf's names, `interval` s between points of the series, 0 for none.

        `environment` is the command's, this process's unless given. Raises SondaError where it cannot be started or
        nothing can be counted.
        """


class ProcessAccount(NamedTuple):
    """What the kernel has counted of a process, with the children that it has waited for."""

    page_faults: int = 0
    context_switches: int = 0


def read_account(pid: int) -> ProcessAccount:
    """The account of a living process so far; zeros where `/proc` does not show it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            # After the name, which may hold anything: the state, then numbers; proc(5), fields 10 and 12.
            fields = file.read().rpartition(")")[2].split()
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            switches = [int(line.split()[1]) for line in file if "ctxt_switches" in line]
        return ProcessAccount(int(fields[7]) + int(fields[9]), sum(switches))
    except (OSError, IndexError, ValueError):
        return ProcessAccount()


class StoppedCommand:
    """A command that has been forked and waits before its exec. `start` lets it run, `discard` ends it."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, output: int | None = None
    ) -> None:
        """`output` is a descriptor for its standard output; unless given, it has ours."""
        self._over = False
        self._before = self.account = ProcessAccount()
        gate, self._gate = os.pipe()
        self._failure, failure = os.pipe()
        # Python loses a signal that reaches the child before the fork is complete.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            self.pid = os.fork()
            if self.pid == 0:
                os.close(self._gate)
                os.close(self._failure)
                _exec_command(command, environment, output, mask, gate, failure)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(gate)
        os.close(failure)

    def start(self) -> None:
        """Let it exec. Raises SondaError where that fails."""
        os.read(self._failure, 1)  # it waits at the gate, or a signal has ended it
        self._before = read_account(self.pid)
        try:
            os.write(self._gate, b"g")
        except BrokenPipeError:
            pass  # a signal has ended it already, which `wait` finds
        os.close(self._gate)
        reason = os.read(self._failure, LONGEST_REASON)
        os.close(self._failure)
        if reason:
            os.waitpid(self.pid, 0)
            raise SondaError(f"cannot start the command: {reason.decode()}", "check the command after --")

    def send(self, number: int) -> None:
        """Pass a signal on, while it lives."""
        if not self._over:
            os.kill(self.pid, number)

    def wait(self) -> int:
        """Its exit code, -n where signal n ended it. `account` is then what the kernel counted since `start`."""
        # Until it is reaped its number is not given to another process, which a signal could reach.
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        self._over = True
        _, status, usage = os.wait4(self.pid, 0)
        before = self._before
        self.account = ProcessAccount(
            usage.ru_minflt + usage.ru_majflt - before.page_faults,
            usage.ru_nvcsw + usage.ru_nivcsw - before.context_switches,
        )
        return os.waitstatus_to_exitcode(status)

    def discard(self) -> None:
        """End a command that was not started, and leave nothing of it behind."""
        os.close(self._gate)
        os.close(self._failure)
        os.waitpid(self.pid, 0)


def _exec_command(
    command: Sequence[str], environment: Mapping[str, str] | None, output: int | None, mask: set[int], gate: int,
    failure: int,
) -> NoReturn:  # fmt: skip
    """In the child: wait for a byte, then become the command. Where the pipe ends, the command is not wanted."""
    code = 127
    try:
        for number in ENDING:
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if output is not None:
            os.dup2(output, 1)
        for number in RESTORED:
            signal.signal(number, signal.SIG_DFL)
        # Only the exec comes after the gate: what happens up to here is not counted.
        words, variables = list(command), dict(environment if environment is not None else os.environ)
        os.write(failure, WAITS)
        if os.read(gate, 1):
            os.execvpe(words[0], words, variables)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        os.write(failure, f"{command[0][:LONGEST_NAME]!r}: {reason}".encode())
    finally:
        os._exit(code)


class KernelCounter:
    """Perf events of our own, opened on the child."""

    name = "perf_event_open"

    def __init__(
        self, children: bool = True, kernel: KernelCalls = LINUX, known: Mapping[str, Event] | None = None
    ) -> None:
        """`children`: count the processes that the command starts too; `known`: more events by name."""
        self.children = children
        self._kernel = kernel
        self._known = {**SYSTEM, **(known or {})}

    def state(self) -> ProbeState:
        try:
            EventGroup([SYSTEM["page-faults"]], kernel=self._kernel).close()
        except PerfEventError as error:
            cause, remedy = explain_refusal(error.errno or 0, paranoid_level(), False, None, kernel=True)
            if self.children:
                return ProbeState(self.name, "ok", f"the kernel's account of the process at its end: {cause}", remedy)
            return ProbeState(self.name, "missing", cause, remedy)
        return ProbeState(self.name, "ok")

    def count(
        self, command: Sequence[str], events: Sequence[str], interval: float = 0.0,
        environment: Mapping[str, str] | None = None, output: int | None = None,
        around: Callable[[StoppedCommand], AbstractContextManager[None]] = lambda child: nullcontext(),
    ) -> CountedCommand:  # fmt: skip
        """See `CommandCounter.count`. `output` is a descriptor for its standard output; `around` is open while it runs.

        Where no event can be counted the command runs all the same, and `missing` says why.
        """
        unknown = [name for name in events if name not in self._known]
        if unknown:
            raise SondaError(f"unknown event {unknown[0]!r}", nearest(unknown[0], self._known))
        child = StoppedCommand(command, environment, output)
        groups: list[tuple[str, EventGroup]] = []
        missing: dict[str, str] = {}
        try:
            for name in events:
                try:
                    groups.append((name, self._open_group(name, child.pid)))
                except PerfEventError as error:
                    system = name in SYSTEM
                    cause, _ = explain_refusal(error.errno or 0, paranoid_level(), not system, None, kernel=system)
                    missing[name] = cause
        except BaseException:
            child.discard()
            for _, group in groups:
                group.close()
            raise
        try:
            with around(child):
                begin = perf_counter_ns()
                child.start()
                series, interval = _sample_series(child.pid, groups, begin, interval)
                code = child.wait()
                end = perf_counter_ns()
            last = _read_groups(groups)
        finally:
            for _, group in groups:
                group.close()
        if interval:
            series.append(((end - begin) / 1e9, last))
        # What never had a counter was not counted: its 0 is no count.
        counts = {name: count for name, count in last.items() if count.running or not count.enabled}
        missing |= dict.fromkeys(last.keys() - counts.keys(), NO_COUNTER)
        if self.children:
            counts |= self._take_from_account(child.account, missing, end - begin)
        return CountedCommand(code, counts, series, missing, interval, begin, end)

    def _open_group(self, name: str, pid: int) -> EventGroup:
        # One group for each event: without phases no events must be counted together. A PMU with too few counters
        # then gives each event a share of the time, which its times show.
        event = self._known[name]
        try:
            return EventGroup([event], pid, self.children, on_exec=True, kernel=self._kernel)
        except PerfEventError as error:
            if name != CLOCK or error.errno not in REFUSED:
                raise
            return EventGroup([event._replace(kernel=False)], pid, self.children, on_exec=True, kernel=self._kernel)

    @staticmethod
    def _take_from_account(account: ProcessAccount, missing: dict[str, str], duration: int) -> dict[str, EventCount]:
        """Counts from the kernel's account for events that perf may not count; takes these out of `missing`."""
        accounted = {name.replace("_", "-"): value for name, value in account._asdict().items()}
        return {name: EventCount(float(value), duration, duration) for name, value in accounted.items()
                if missing.pop(name, None) is not None}  # fmt: skip


def _read_groups(groups: Sequence[tuple[str, EventGroup]]) -> dict[str, EventCount]:
    counts = {}
    for name, group in groups:
        enabled, running, (value,) = group.read()
        scaled = value * enabled / running if 0 < running < enabled else float(value)
        counts[name] = EventCount(scaled, enabled, running)
    return counts


def _sample_series(
    pid: int, groups: Sequence[tuple[str, EventGroup]], begin: int, interval: float
) -> tuple[list[tuple[float, dict[str, EventCount]]], float]:
    """Read the groups on a regular grid from `begin` (ns) until the process ends; the readings and their interval (s).

    A moment that was missed is left out, not made up for. Without an interval nothing is read. In a long series the
    interval doubles.
    """
    series: list[tuple[float, dict[str, EventCount]]] = []
    step = int(interval * 1e9)
    if not step:
        return series, 0.0
    following = begin + step
    ended = os.pidfd_open(pid)
    try:
        while not select.select([ended], [], [], max(0, following - perf_counter_ns()) / 1e9)[0]:
            time = perf_counter_ns()
            series.append(((time - begin) / 1e9, _read_groups(groups)))
            if len(series) == MOST_POINTS:
                del series[::2]
                step *= 2
            following += max(1, -(-(time - following) // step)) * step
    finally:
        os.close(ended)
    return series, step / 1e9
