"""Steps that a driver announces: warm-up, timed ones until there are enough, and those whose kernels are recorded."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from sonda.frameworks.announced import AnnouncedObserver
from sonda.frameworks.replayed import replayed
from sonda.frameworks.torch_driver import Driving, enough

PIECES_STEPS = 5
"""Steps of their own in which layers are told apart, where a timed step is one function."""


def warm_up(observer: AnnouncedObserver, how: Driving, step: Callable[[], None]) -> None:
    """Run the planned warm-up steps, in a pass of their own."""
    if how.warmup:
        with observer.span("pass", "warmup"):
            for number in range(how.warmup):
                how.tell(number - how.warmup)
                step()


def time_steps(how: Driving, step: Callable[[], None]) -> int:
    """Run timed steps, as many as were asked for or fit into the seconds given; returns how many."""
    done = 0
    how.tell(done)
    begin = perf_counter()
    while not enough(done, perf_counter() - begin, how):
        step()
        done += 1
        how.tell(done)
    return done


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
        with observer.span("pass", "kernels"), replayed():
            (seen or step)()
        return 1
    done = time_steps(how, step)
    if how.on_gpu:
        record(seen or step)
    return done
