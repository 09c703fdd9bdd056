"""Steps that a driver announces: warm-up, then timed ones until there are enough."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from sonda.frameworks.announced import AnnouncedObserver
from sonda.frameworks.torch_driver import Driving, enough


def warm_up(observer: AnnouncedObserver, how: Driving, step: Callable[[], None]) -> None:
    """Run the planned warm-up steps, in a pass of their own."""
    if how.warmup:
        with observer.span("pass", "warmup"):
            for _ in range(how.warmup):
                step()


def time_steps(how: Driving, step: Callable[[], None]) -> int:
    """Run timed steps, as many as were asked for or fit into the seconds given; returns how many."""
    done, begin = 0, perf_counter()
    while not enough(done, perf_counter() - begin, how):
        step()
        done += 1
        how.tell(done)
    return done
