"""A window: participants line up, step for a while unmeasured, are measured, and go on until everybody has measured.

Whoever steps says so by going on with the generator: a loop of Sonda's own after each step, an observed program when a
step of its is over. It runs inside that program.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from time import perf_counter_ns as now
from typing import Any

from .board import Board
from .counters import WindowCounters

SLICES = 20
"""Pieces that a window is measured in; time slicing of a shared core is far shorter than a piece."""
LEAD_SHARE = 10
"""A window begins with a tenth of its length, and at least a step, that is not measured: caches fill meanwhile."""
FEWEST_STEPS = 3


def measure_window(
    board: Board, slot: int, number: int, members: Sequence[int], seconds: float, timeout: float,
    counters: WindowCounters, progress: Callable[[], float] | None = None,
) -> Generator[None, None, dict[str, Any]]:  # fmt: skip
    """Yields where a step is to be made; returns what was measured, times in ns of CLOCK_MONOTONIC.

    `begin` and `end`: from when all had lined up until nobody measured any more. `slices`: (begin, duration, steps, CPU
    time) of each piece. `counters`: what was counted over the pieces. `progress` says how much was done so far, where
    that is not the number of steps. Raises TimeoutError where the others do not come.
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
    # The last piece is finished too: counters and pieces are of the same steps.
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
