"""A window: participants line up, make unmeasured steps for a while, are measured, and go on until all have measured.

The window is a generator that runs inside the participant. It is resumed after every step: by Sonda's own loop, or when
a step of an observed program ends.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from time import perf_counter_ns as now
from typing import Any

from .board import Board
from .counters import WindowCounters

SLICES = 20
"""Slices into which a measured window is cut. The scheduler's time slices on a shared core are far shorter."""
LEAD_SHARE = 10
"""A window begins with a tenth of its length, and at least one step, unmeasured: caches fill meanwhile."""
FEWEST_STEPS = 3


def measure_window(
    board: Board, slot: int, number: int, members: Sequence[int], seconds: float, timeout: float,
    counters: WindowCounters, progress: Callable[[], float] | None = None,
) -> Generator[None, None, dict[str, Any]]:  # fmt: skip
    """Yield where the participant is to make a step; return what was measured, times in ns of CLOCK_MONOTONIC.

    `begin`: when all had lined up; `end`: when all had measured. `slices`: (begin, duration, steps, CPU time) of each.
    `counters`: the counts over all slices. `progress` gives the work done so far, where that is not the number of
    steps. Raises TimeoutError where other participants do not arrive.
    """
    board.line_up(slot, members, number, timeout)
    length = int(seconds * 1e9)
    begin = time = now()
    while time == begin or time - begin < length // LEAD_SHARE:
        yield
        time = now()
    slices = []
    measured = steps = 0
    before = counters.read()
    done = progress() if progress is not None else 0
    spent = counters.cpu_time()
    start = first = time = now()
    # The last slice is completed, so that counters and slices cover the same steps.
    while time - first < length or measured < FEWEST_STEPS or steps:
        yield
        steps += 1
        measured += 1
        time = now()
        if time - start >= length // SLICES:
            used = counters.cpu_time()
            reached = progress() if progress is not None else done + steps
            slices.append((start, time - start, round(reached - done), used - spent))
            start, steps, spent, done = time, 0, used, reached
    counted = counters.count_since(before)
    board.mark_measured(slot, number)
    while board.measuring(members, number):
        yield
    return {"window": number, "begin": begin, "end": now(), "slices": slices, "counters": counted}
