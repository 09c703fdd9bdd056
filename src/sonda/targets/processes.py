"""The processes of the program that is measured: a launcher adds those that it starts, instruments ask which live."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
ENDED = "ZX"
"""States of a process that has ended and was not waited for yet."""


class ProcessStat(NamedTuple):
    """What `/proc/PID/stat` says of a process; proc(5)."""

    state: str
    """`R`, `S`, `T` and so on."""
    parent: int
    started: str
    """Clock ticks since the machine started. With the number it names a process; a number alone is given again."""


def read_stat(pid: int, proc: Path = PROC) -> ProcessStat | None:
    """A process as the kernel shows it; None where it is gone."""
    try:
        # The name before the bracket may hold anything.
        fields = (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return ProcessStat(fields[0], int(fields[1]), "".join(fields[19:20]))
    except (OSError, IndexError, ValueError):
        return None


def list_processes(proc: Path = PROC) -> set[int]:
    """The numbers of all processes; none where there is no `/proc`."""
    try:
        return {int(name) for name in os.listdir(proc) if name.isdigit()}
    except OSError:
        return set()


class MeasuredProcesses:
    """The processes of one program. A launcher adds those that it starts; all below them are found in `/proc`.

    Any thread may ask. A process whose parent ended before anybody asked is not found.
    """

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._lock = threading.Lock()
        self._roots: dict[int, str] = {}
        self._members: dict[int, str] = {}
        """Roots and processes below them, with the moments when they started."""
        self._others: dict[int, str] = {}
        """Processes that are none of the program's, with the moments when they started: their parents are not asked
        for again."""

    def add(self, pid: int) -> None:
        """Add a process that has been started, with all that it will start."""
        stat = read_stat(pid, self._proc)
        if stat is None:
            return
        with self._lock:
            self._roots[pid] = self._members[pid] = stat.started
            self._others.clear()  # a child of it may have been looked at before

    def roots(self) -> list[int]:
        """The living processes that were added, in the order in which they were started."""
        with self._lock:
            return [pid for pid, started in self._roots.items() if self._lives(pid, started)]

    def living(self) -> list[int]:
        """The living processes that were added and all below them."""
        with self._lock:
            stats = {pid: read_stat(pid, self._proc) for pid in list_processes(self._proc)}
            alive = {pid: stat for pid, stat in stats.items() if stat is not None and stat.state not in ENDED}
            started = {pid: stat.started for pid, stat in alive.items()}
            self._members = dict(self._members.items() & started.items())
            self._others = dict(self._others.items() & started.items())
            new = {pid: stat for pid, stat in alive.items() if pid not in self._members and pid not in self._others}
            while born := [pid for pid, stat in new.items() if stat.parent in self._members]:
                for pid in born:
                    self._members[pid] = new.pop(pid).started
            self._others |= {pid: stat.started for pid, stat in new.items()}
            return list(self._members)

    def _lives(self, pid: int, started: str) -> bool:
        stat = read_stat(pid, self._proc)
        return stat is not None and stat.state not in ENDED and stat.started == started
