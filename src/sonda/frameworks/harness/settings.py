"""How a task is to be driven, in whatever framework: how many steps, in what precision, on what device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

FEWEST_STEPS, MOST_STEPS, MOST_ON_GPU = 6, 20, 100
"""Timed steps where the user did not say how many: as many of these as fit into the seconds given."""
WHOLE = ("float64", "bfloat16", "float16")
"""Precisions in which weights and data are too."""
KERNEL_STEPS = 3
"""Steps of their own in which a GPU's kernels are recorded."""


@dataclass(frozen=True)
class Driving:
    """How a task is to be driven. `seconds` bounds the timed steps where `steps` is None."""

    train: bool
    steps: int | None
    warmup: int
    seconds: float
    precision: str = "float32"
    compile: bool = False
    channels_last: bool = False
    workers: int = 0
    device: str = "cpu"
    """As PyTorch writes it: cpu, cuda:0."""
    replay: bool = False
    """Drive it for a profiler outside that replays kernels: warm-up, then one step, which it is told of."""
    prefetch: int | None = None
    """Batches that all workers together load ahead; None: as many as PyTorch holds right."""
    pin: bool | None = None
    """Batches in memory that a GPU can fetch from; None: on a GPU."""
    deterministic: bool = False
    """Nothing is used whose result may differ from time to time."""
    kernels: bool = False
    """Take the steps in which a GPU's kernels are recorded, also without a GPU: other ranks take them."""
    tell: Callable[[int], None] = lambda done: None
    """Told between steps how many timed ones are done; while it warms up, less than 0 or 0."""

    @property
    def on_gpu(self) -> bool:
        return self.device != "cpu"

    @property
    def whole(self) -> str:
        """The type of weights and data where it is not float32: all arithmetic is in it then."""
        return self.precision if self.precision in WHOLE else ""

    @property
    def mixed(self) -> str:
        """The type of arithmetic where weights stay float32."""
        return self.precision.removeprefix("mixed_") if self.precision.startswith("mixed_") else ""


def weights_type(precision: str) -> str:
    """The type of weights and data in this precision: float32 where only arithmetic is in another."""
    return precision if precision in WHOLE else "float32"


def has_enough_steps(done: int, seconds: float, how: Driving) -> bool:
    """Whether so many timed steps, which took so many seconds, are what was asked for."""
    if how.steps is not None:
        return done >= how.steps
    return done >= (MOST_ON_GPU if how.on_gpu else MOST_STEPS) or (done >= FEWEST_STEPS and seconds > how.seconds)


def time_steps(how: Driving, step: Callable[[], None]) -> int:
    """Run timed steps, as many as were asked for or fit into the seconds given; returns how many."""
    done = 0
    how.tell(done)
    begin = perf_counter()
    while not has_enough_steps(done, perf_counter() - begin, how):
        step()
        done += 1
        how.tell(done)
    return done
