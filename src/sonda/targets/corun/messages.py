"""What the parent of an experiment with several programs and its participants say to each other, as JSON lines."""

from __future__ import annotations

from typing import Any

import msgspec

from sonda.targets.job import Job

STEPS, RUNS, WINDOW = "steps", "runs", "window"
"""Regions of interest: steps of a workload or of an observed program; whole runs of a command, one after the other; a
command that runs on while a window lasts and is stopped between windows."""


class Participation(msgspec.Struct, kw_only=True):
    """What a participant is told at its beginning."""

    job: Job | None = None
    command: list[str] = []
    """Where there is no job."""
    region: str = ""
    """Of a command: `window`, or empty where it is to be found out."""
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
    """What it says once it is warm."""

    workload: dict[str, Any] = {}
    region: str = STEPS
    stride: int = 1
    """Of so many steps one is observed."""
    process: int = 0
    pmu: str = ""
    """Why the PMU counts nothing here, although it does on this machine."""
    cause: str = ""
    remedy: str = ""


class Order(msgspec.Struct, kw_only=True):
    """A window to take part in, with everybody who does; number 0 ends the participant."""

    window: int = 0
    members: list[int] = []


class WindowReport(msgspec.Struct, kw_only=True):
    """What a participant did in a window. Times are ns of CLOCK_MONOTONIC."""

    window: int
    begin: int = 0
    end: int = 0
    """From the moment when all had lined up until nobody measured any more: it was stepping all the time."""
    slices: list[tuple[int, int, int, int]] = []
    """(begin, duration, steps, CPU time of all threads) of the pieces that were measured; instructions for the steps of
    a command whose region is a window, 0 where nobody counts them."""
    counters: dict[str, float] = {}
    """What was counted over them, see `WindowCounters.since`."""
    cause: str = ""
    remedy: str = ""


def encode_line(message: msgspec.Struct) -> bytes:
    return msgspec.json.encode(message) + b"\n"
