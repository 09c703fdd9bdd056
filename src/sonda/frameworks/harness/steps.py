"""Steps that a driver announces: the warm-up, the timed steps, and those whose kernels are recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sonda.frameworks.collector.cuda_profiler import find_profiler_marks
from sonda.frameworks.harness.announcer import AnnouncedObserver
from sonda.frameworks.harness.settings import Driving, time_steps

# ---- Marks for an external profiler, such as ncu, that replays kernels: where to begin and where to end -------------


@contextmanager
def mark_replay() -> Iterator[None]:
    """Tell an external profiler, which replays kernels, where to begin and where to end."""
    start, stop = find_profiler_marks()
    start()
    try:
        yield
    finally:
        stop()


# ----------------------------------------------------------------------------------------------------------------------

PIECES_STEPS = 5
"""Extra steps in which layers are timed one by one, where a timed step is one function."""


def warm_up(observer: AnnouncedObserver, how: Driving, step: Callable[[], None]) -> None:
    """Run the warm-up steps, in the pass `warmup`."""
    if how.warmup:
        with observer.span("pass", "warmup"):
            for number in range(how.warmup):
                how.tell(number - how.warmup)
                step()


def run_steps(
    observer: AnnouncedObserver, how: Driving, step: Callable[[], None],
    record: Callable[[Callable[[], None]], None], kernel_step: Callable[[], None] | None = None,
) -> int:  # fmt: skip
    """Warm up, run the timed steps and, on a GPU, steps whose kernels `record` records; returns how many are timed.

    For an external profiler that replays kernels, one step replaces all these. `kernel_step`: the step whose kernels
    are recorded, where it differs from `step`.
    """
    warm_up(observer, how, step)
    if how.replay:
        with observer.span("pass", "kernels"), mark_replay():
            (kernel_step or step)()
        return 1
    done = time_steps(how, step)
    if how.on_gpu:
        record(kernel_step or step)
    return done
