"""How a task is driven, in any framework: how many steps, in which precision, on which device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

FEWEST_STEPS, MOST_STEPS, MOST_ON_GPU = 6, 20, 100
"""Limits of the number of timed steps where the user gave none: as many as fit into the given seconds."""
WHOLE = ("float64", "bfloat16", "float16")
"""Precisions in which weights and data are stored too."""
KERNEL_STEPS = 3
"""Extra steps in which a GPU's kernels are recorded."""


@dataclass(frozen=True)
class Driving:
    """How a task is driven. `seconds` limits the timed steps where `steps` is None."""

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
    """Whether an external profiler replays kernels: there is a warm-up, and then one step, marked for the profiler."""
    prefetch: int | None = None
    """Batches that all workers together load ahead; None: PyTorch's default."""
    pin: bool | None = None
    """Whether batches lie in pinned memory, from which a GPU can copy; None: if there is a GPU."""
    deterministic: bool = False
    """Whether only operations are used whose results do not differ from run to run."""
    kernels: bool = False
    """Make the steps in which a GPU's kernels are recorded even without a GPU, because other ranks make them."""
    tell: Callable[[int], None] = lambda done: None
    """Called between steps with the number of timed steps done; 0 or less during the warm-up."""

    @property
    def on_gpu(self) -> bool:
        return self.device != "cpu"

    @property
    def whole(self) -> str:
        """The type of weights, data and all arithmetic where it is not float32; '' otherwise."""
        return self.precision if self.precision in WHOLE else ""

    @property
    def mixed(self) -> str:
        """The type of arithmetic where weights stay float32; '' otherwise."""
        return self.precision.removeprefix("mixed_") if self.precision.startswith("mixed_") else ""


def weights_type(precision: str) -> str:
    """The type of weights and data in this precision: float32 where only arithmetic has another type."""
    return precision if precision in WHOLE else "float32"


def has_enough_steps(done: int, seconds: float, how: Driving) -> bool:
    """Whether `done` timed steps, which took so many `seconds`, are enough."""
    if how.steps is not None:
        return done >= how.steps
    return done >= (MOST_ON_GPU if how.on_gpu else MOST_STEPS) or (done >= FEWEST_STEPS and seconds > how.seconds)


def time_steps(how: Driving, step: Callable[[], None]) -> int:
    """Run the requested number of timed steps, or as many as fit into the given seconds; returns how many."""
    done = 0
    how.tell(done)
    begin = perf_counter()
    while not has_enough_steps(done, perf_counter() - begin, how):
        step()
        done += 1
        how.tell(done)
    return done
