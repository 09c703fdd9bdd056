"""Messages between the parent of a co-run and its participants, as JSON lines."""

from __future__ import annotations

from typing import Any

import msgspec

from sonda.targets.job import Job

STEPS, RUNS, WINDOW = "steps", "runs", "window"
"""Regions of interest: steps of a workload or of an observed program; whole runs of a command, one after the other; or
a window, during which a command runs on. It is stopped between windows."""


class Participation(msgspec.Struct, kw_only=True):
    """The first message to a participant: what to run, and how."""

    job: Job | None = None
    command: list[str] = []
    """Where there is no job."""
    region: str = ""
    """Of a command: `window`, or '' where the participant is to find it out."""
    slot: int
    slots: int
    board: int
    """Descriptor of the board's memory."""
    cores: list[int]
    seconds: float
    """Length of a window."""
    timeout: float
    groups: list[dict[str, Any]] = []
    """Events of the PMU to count, as `WindowCounters` takes them."""


class Ready(msgspec.Struct, kw_only=True):
    """The answer of a participant once it is warm."""

    workload: dict[str, Any] = {}
    region: str = STEPS
    stride: int = 1
    """One of so many steps is observed."""
    process: int = 0
    pmu: str = ""
    """Why the PMU counts nothing of this participant although it works on this machine."""
    cause: str = ""
    remedy: str = ""


class Order(msgspec.Struct, kw_only=True):
    """A window to take part in, and the slots of all who do. Number 0 ends the participant."""

    window: int = 0
    members: list[int] = []


class WindowReport(msgspec.Struct, kw_only=True):
    """What a participant did in a window. Times are ns of CLOCK_MONOTONIC."""

    window: int
    begin: int = 0
    end: int = 0
    """`begin` is when all had lined up, `end` when none measured any more. The participant stepped all that time."""
    slices: list[tuple[int, int, int, int]] = []
    """(begin, duration, steps, CPU time of all threads) of the slices that were measured. A command whose region is a
    window has instructions in place of steps, 0 where they are not counted."""
    counters: dict[str, float] = {}
    """What was counted over them, see `WindowCounters.count_since`."""
    cause: str = ""
    remedy: str = ""


def encode_line(message: msgspec.Struct) -> bytes:
    return msgspec.json.encode(message) + b"\n"
