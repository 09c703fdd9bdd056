"""Steps that a driver announces: warm-up, timed ones until there are enough, and those whose kernels are recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sonda.frameworks.collector.cuda_profiler import find_profiler_marks
from sonda.frameworks.harness.announcer import AnnouncedObserver
from sonda.frameworks.harness.settings import Driving, time_steps

# ---- Marks for a profiler outside, such as ncu, that replays kernels: where to begin and where to end ---------------


@contextmanager
def mark_replay() -> Iterator[None]:
    """Tell a profiler outside, which replays kernels, where to begin and where to end."""
    start, stop = find_profiler_marks()
    start()
    try:
        yield
    finally:
        stop()


# ----------------------------------------------------------------------------------------------------------------------

PIECES_STEPS = 5
"""Steps of their own in which layers are told apart, where a timed step is one function."""


def warm_up(observer: AnnouncedObserver, how: Driving, step: Callable[[], None]) -> None:
    """Run the planned warm-up steps, in a pass of their own."""
    if how.warmup:
        with observer.span("pass", "warmup"):
            for number in range(how.warmup):
                how.tell(number - how.warmup)
                step()


def run_steps(
    observer: AnnouncedObserver, how: Driving, step: Callable[[], None],
    record: Callable[[Callable[[], None]], None], seen: Callable[[], None] | None = None,
) -> int:  # fmt: skip
    """Warm up, run the timed steps and, on a GPU, those whose kernels `record` records; returns how many are timed.

    For a profiler outside that replays kernels, one step takes the place of all these. `seen` is a step for whoever
    looks at kernels, where it differs.
    """
    warm_up(observer, how, step)
    if how.replay:
        with observer.span("pass", "kernels"), mark_replay():
            (seen or step)()
        return 1
    done = time_steps(how, step)
    if how.on_gpu:
        record(seen or step)
    return done
