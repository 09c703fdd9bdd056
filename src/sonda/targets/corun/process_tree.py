"""The tree of processes below a participant: find them, stop them, continue them, end them."""

from __future__ import annotations

import ctypes
import os
import signal
import time

from sonda.targets.processes import ENDED, list_processes, read_stat

PR_SET_CHILD_SUBREAPER = 36
TRIES = 200
"""Attempts at a tree that may be growing while it is being stopped or ended."""
NAP_S = 0.005


def keep_orphans() -> None:
    """Adopt the orphans of this process's children (subreaper), so that they can be found."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def processes_below(process: int) -> dict[int, str]:
    """The living processes below a process, without itself, and the state of each: `R`, `S`, `T` and so on."""
    parents: dict[int, tuple[int, str]] = {}
    for pid in list_processes():
        stat = read_stat(pid)
        if stat is not None:
            parents[pid] = stat.parent, stat.state
    children: dict[int, list[int]] = {}
    for child, (parent_pid, _) in parents.items():
        children.setdefault(parent_pid, []).append(child)
    states: dict[int, str] = {}
    waiting = list(children.get(process, ()))
    while waiting:
        pid = waiting.pop()
        if pid not in states:
            states[pid] = parents[pid][1]
            waiting += children.get(pid, ())
    return {pid: state for pid, state in states.items() if state not in ENDED}


def _send(process: int, number: int) -> None:
    try:
        os.kill(process, number)
    except ProcessLookupError:
        pass


def stop_below(process: int) -> None:
    """Stop all processes below one, also those that are started meanwhile."""
    for _ in range(TRIES):
        moving = [pid for pid, state in processes_below(process).items() if state not in "Tt"]
        if not moving:
            return
        for pid in moving:
            _send(pid, signal.SIGSTOP)
        time.sleep(NAP_S)


def continue_below(process: int) -> None:
    """Continue all processes below one."""
    for pid in processes_below(process):
        _send(pid, signal.SIGCONT)


def end_below(process: int) -> None:
    """Kill all processes below one, also those that are started meanwhile."""
    for _ in range(TRIES):
        left = processes_below(process)
        if not left:
            return
        for pid in left:
            _send(pid, signal.SIGKILL)
        time.sleep(NAP_S)


def end_tree(process: int, reaped: bool = False) -> None:
    """Kill a child that leads a process group, and all below it; where it was `reaped`, the rest of its group.

    It is stopped first, so that it starts no other process.
    """
    if not reaped:
        _send(process, signal.SIGSTOP)
        end_below(process)
    try:
        os.killpg(process, signal.SIGKILL)
    except ProcessLookupError:
        pass
