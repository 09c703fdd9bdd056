"""A command counted from outside, unchanged: its totals and, where asked for, a series over time.

The child stops before it execs; meanwhile the parent opens counters on it that begin with the exec and are inherited by
every thread and, unless told otherwise, by every process that it starts. Nothing runs inside the program.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import NoReturn, Protocol

from sonda.frameworks.collector.perf_event import LINUX, SOFTWARE, TYPE_SOFTWARE, Event, Group, Kernel, PerfEventError
from sonda.probes.perf_events import explain, paranoid_level
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState

SYSTEM = {name: Event(name.replace("-", "_"), TYPE_SOFTWARE, config, kernel=True) for name, config in SOFTWARE.items()}
"""What every source can count, by the name that perf gives it."""
RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores and that a program expects not to be."""


@dataclass(frozen=True)
class Count:
    """How often an event happened; `running` of `enabled` ns were really counted."""

    value: float
    enabled: int = 0
    running: int = 0

    @property
    def scaled(self) -> bool:
        """Whether the value is an estimate, scaled up to the whole time."""
        return self.running < self.enabled


@dataclass(frozen=True)
class Counted:
    """What became of a command. `code` is its exit code, -n where signal n ended it."""

    code: int
    counts: dict[str, Count]
    series: list[tuple[float, dict[str, Count]]] = field(default_factory=list)
    """(s since the exec, counts since then), in order of time."""
    missing: dict[str, str] = field(default_factory=dict)
    """Events that could not be counted, with the reason."""


class CommandCounter(Protocol):
    """A source that counts a whole command."""

    name: str

    def state(self) -> ProbeState:
        """Whether it is there, and if not, why and what would change that."""

    def count(self, command: Sequence[str], events: Sequence[str], interval: float = 0.0) -> Counted:
        """Run a command to its end; `events` by perf's names, `interval` s between points of the series, 0 for none.

        Raises SondaError where the command cannot be started or nothing can be counted.
        """


class Stopped:
    """A command that has been forked and waits before its exec. `go` lets it run, `end` kills it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        gate, self._gate = os.pipe()
        self._failure, failure = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._gate)
            os.close(self._failure)
            _become(command, environment, gate, failure)
        os.close(gate)
        os.close(failure)

    def go(self) -> None:
        """Let it exec. Raises SondaError where that fails."""
        os.write(self._gate, b"g")
        os.close(self._gate)
        reason = os.read(self._failure, 256)
        os.close(self._failure)
        if reason:
            os.waitpid(self.pid, 0)
            raise SondaError(f"cannot start the command: {reason.decode()}", "check the command after --")

    def end(self) -> None:
        """Leave nothing behind of a command that was not let go."""
        os.close(self._gate)
        os.close(self._failure)
        os.waitpid(self.pid, 0)


def _become(command: Sequence[str], environment: Mapping[str, str] | None, gate: int, failure: int) -> NoReturn:
    """In the child: wait for a byte, then become the command. An end of the pipe means that it is not wanted."""
    code = 127
    try:
        if os.read(gate, 1):
            for number in RESTORED:
                signal.signal(number, signal.SIG_DFL)
            os.execvpe(command[0], list(command), dict(environment if environment is not None else os.environ))
    except OSError as error:
        os.write(failure, f"{command[0]!r}: {error.strerror}".encode())
    finally:
        os._exit(code)


class KernelCounter:
    """Perf events of our own, opened on the child."""

    name = "perf_event_open"

    def __init__(self, children: bool = True, kernel: Kernel = LINUX, known: Mapping[str, Event] | None = None) -> None:
        """`children`: count the processes that the command starts; `known`: events by name beside the system's."""
        self.children = children
        self._kernel = kernel
        self._known = {**SYSTEM, **(known or {})}

    def state(self) -> ProbeState:
        try:
            Group([SYSTEM["page-faults"]], kernel=self._kernel).close()
        except PerfEventError as error:
            return ProbeState(self.name, "missing", *explain(error.errno or 0, paranoid_level(), False, None))
        return ProbeState(self.name, "ok")

    def count(
        self, command: Sequence[str], events: Sequence[str], interval: float = 0.0,
        environment: Mapping[str, str] | None = None,
    ) -> Counted:  # fmt: skip
        """Events that fit into one group are counted together; see `CommandCounter.count`."""
        unknown = [name for name in events if name not in self._known]
        if unknown:
            raise SondaError(f"unknown event {unknown[0]!r}", f"known: {', '.join(self._known)}")
        child = Stopped(command, environment)
        groups: list[tuple[str, Group]] = []
        missing: dict[str, str] = {}
        try:
            for name in events:
                try:
                    groups.append((name, self._group(name, child.pid)))
                except PerfEventError as error:
                    missing[name] = explain(error.errno or 0, paranoid_level(), name not in SYSTEM, None)[0]
        except BaseException:
            child.end()
            for _, group in groups:
                group.close()
            raise
        try:
            begin = perf_counter_ns()
            child.go()
            series: list[tuple[float, dict[str, Count]]] = []
            for time in _moments(child.pid, interval):
                series.append(((time - begin) / 1e9, _read(groups)))
            code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
            counts = _read(groups)
        finally:
            for _, group in groups:
                group.close()
        if interval:
            series.append(((perf_counter_ns() - begin) / 1e9, counts))
        return Counted(code, counts, series, missing)

    def _group(self, name: str, pid: int) -> Group:
        # A group each: without phases there is nothing that events must be counted together for, and a PMU that has
        # too few counters then gives each its share, which the times tell.
        return Group([self._known[name]], pid, self.children, on_exec=True, kernel=self._kernel)


def _read(groups: Sequence[tuple[str, Group]]) -> dict[str, Count]:
    found = {}
    for name, group in groups:
        enabled, running, (value,) = group.read()
        scaled = value * enabled / running if 0 < running < enabled else float(value)
        found[name] = Count(scaled, enabled, running)
    return found


def _moments(pid: int, interval: float) -> list[int] | _Ticks:
    """When to read, ns, until the process has ended; never where there is no interval."""
    return _Ticks(pid, interval) if interval else []


class _Ticks:
    """Moments on a regular grid while a process lives; one that was missed is left out, not made up for."""

    def __init__(self, pid: int, interval: float) -> None:
        self._pid = pid
        self._interval = int(interval * 1e9)

    def __iter__(self) -> _Ticks:
        self._descriptor = os.pidfd_open(self._pid)
        self._next = perf_counter_ns() + self._interval
        return self

    def __next__(self) -> int:
        wait = max(0, self._next - perf_counter_ns()) / 1e9
        ended, _, _ = select.select([self._descriptor], [], [], wait)
        if ended:
            os.close(self._descriptor)
            raise StopIteration
        time = perf_counter_ns()
        self._next += max(1, -(-(time - self._next) // self._interval)) * self._interval
        return time
