"""Calibration: how long steps of several sizes take on every rank, while all ranks work, and on each rank alone.

All ranks work at once because devices of one machine share memory and processors. A processor that also serves a GPU is
slower than alone, and shares have to follow that. Each rank is also timed alone, because several devices have to be
faster than one. The model's weights, statistics and random numbers are left as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

from sonda.frameworks.torch.parallel.all_reduce import GradientPieces
from sonda.frameworks.torch.parallel.batches import cut_batch
from sonda.frameworks.torch.parallel.group import TIMEOUT_S, Communicator
from sonda.frameworks.torch.parallel.shares import Line, fit_line
from sonda.record.protocols import Mark, Task

PARTS = (8, 4, 2)
"""Divisors of the batch that give the sizes of the timed steps."""
FEWEST_STEPS, SHORTEST_S = 2, 0.25
"""Each size is timed for at least so many steps and so many s: a rank with a quota of time runs in bursts."""
EXCHANGES, SMALL_EXCHANGES = 3, 20


def timed_sizes(batch: int) -> list[int]:
    """The sizes of steps to time, smallest first. A batch norm needs at least two samples.

    A small batch is timed whole too. A single size would not show the fixed cost of a step, and sharing the batch would
    seem to share that cost.
    """
    sizes = {min(batch, max(2, batch // part)) for part in PARTS}
    return sorted(sizes if len(sizes) > 1 else {*sizes, batch})


def measure_line(
    step: Callable[[int], None], batch: int, group: Communicator, keys: Any, clock: Callable[[], float] = perf_counter,
    timeout_s: float = TIMEOUT_S,
) -> Line:  # fmt: skip
    """Measure this rank's line with a clock in s. `step(n)` does one step of n samples and waits for its end.

    A rank that has timed enough steps goes on until all ranks have, so that all are measured under the same load.
    `keys` is a store of PyTorch that all ranks see. Raises TimeoutError where another rank takes `timeout_s` longer.
    """
    sizes, times = timed_sizes(batch), []
    step(sizes[0])  # the first step also initialises
    for size in sizes:
        group.barrier()
        step(size)
        begin, measured = perf_counter(), clock()
        done = 0
        while done < FEWEST_STEPS or perf_counter() - begin < SHORTEST_S:
            step(size)
            done += 1
        key = f"calibrated/{size}"
        keys.add(key, 1)
        done += keep_company(partial(step, size), partial(keys.add, key, 0), group.size, timeout_s)
        times.append((clock() - measured) / done)
    return fit_line(sizes, times)


def keep_company(step: Callable[[], None], count_ready: Callable[[], int], ranks: int, timeout_s: float) -> int:
    """Go on stepping until `count_ready()` says that so many ranks are calibrated. Returns the number of steps.

    Raises TimeoutError after `timeout_s`.
    """
    limit, done = perf_counter() + timeout_s, 0
    while count_ready() < ranks:
        if perf_counter() > limit:
            raise TimeoutError(f"timed out after {timeout_s:g} s waiting for ranks that are calibrated")
        step()
        done += 1
    return done


def measure_alone(
    step: Callable[[int], None], samples: int, group: Communicator, line: Line, batch: int
) -> list[float]:
    """Time of a step with the batch of all ranks on each rank while the others wait, s, in the order of ranks.

    A device may be too small for the whole batch, so only the largest size of its line is timed, up to `samples`. The
    line's prediction for the whole batch is scaled by how much faster that step is alone.
    """
    size, own = timed_sizes(samples)[-1], 0.0
    for turn in range(group.size):
        group.barrier()
        if turn == group.me:
            step(size)
            begin, done = perf_counter(), 0
            while done < FEWEST_STEPS or perf_counter() - begin < SHORTEST_S:
                step(size)
                done += 1
            own = (perf_counter() - begin) / done
    whole = line.time(batch) * own / line.time(size)
    return [row[0] for row in group.gather_numbers([whole])]


def gather_lines(own: Line, group: Communicator) -> list[Line]:
    """The lines of all ranks."""
    return [Line(*numbers) for numbers in group.gather_numbers([own.fixed, own.per_sample])]


@dataclass(frozen=True)
class Exchange:
    """The exchanges of one step, and their times without any work beside them, s."""

    gradients: float
    gradient_bytes: int
    small: float
    """Time of one exchange of a batch norm's statistics."""
    norms: int

    @property
    def seconds(self) -> float:
        """Time of all exchanges of a step: gradients once, statistics of every batch norm forward and backward."""
        return self.gradients + 2 * self.norms * self.small


def measure_exchange(model: Any, group: Communicator, norms: int) -> Exchange:
    """Measure how long summing tensors of the size of the model's gradients takes. The slowest rank's time counts."""
    import torch

    wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
    size = sum(parameter.numel() * parameter.element_size() for parameter in wanted)
    if group.size == 1:
        return Exchange(0.0, size, 0.0, norms)
    sum_gradients = _gradient_exchange(wanted, group)
    statistics = torch.zeros(512, device=wanted[0].device)

    def time_once(exchange: Callable[[], Any]) -> float:
        group.barrier()
        begin = perf_counter()
        exchange()
        return perf_counter() - begin

    time_once(sum_gradients)
    large = median(time_once(sum_gradients) for _ in range(EXCHANGES))
    small = median(time_once(lambda: group.sum(statistics)) for _ in range(SMALL_EXCHANGES)) if norms else 0.0
    times = group.gather_numbers([large, small])
    return Exchange(max(row[0] for row in times), size, max(row[1] for row in times), norms)


def _gradient_exchange(parameters: Sequence[Any], group: Communicator) -> Callable[[], Any]:
    """A function that sums tensors as large as these parameters' gradients, in the way that training does."""
    import torch

    if group.memory is None:
        first = parameters[0]
        flat = torch.zeros(sum(parameter.numel() for parameter in parameters), dtype=first.dtype, device=first.device)
        return lambda: group.sum_large(flat)
    pieces = GradientPieces(parameters, group.memory)
    gradients = [torch.zeros_like(parameter) for parameter in parameters]

    def sum_pieces() -> None:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            pieces.write(parameter, gradient, (1.0,) * group.size)
        pieces.finish()
        pieces.release()

    return sum_pieces


def count_norms(model: Any) -> int:
    """The number of batch norms in a model."""
    from torch.nn.modules.batchnorm import _BatchNorm

    return sum(isinstance(module, _BatchNorm) for module in model.modules())


@contextmanager
def preserve_state(model: Any, modules: Sequence[Any] = ()) -> Iterator[None]:
    """Restore weights, statistics and random numbers after the block.

    Only values are restored: a model that was moved to another device or type stays there.
    """
    import torch

    def tensors_now() -> list[Any]:
        # Moving a model replaces its buffers by new tensors.
        return [tensor for module in (model, *modules) for tensor in (*module.parameters(), *module.buffers())]

    tensors = tensors_now()
    saved = [tensor.detach().clone() for tensor in tensors]
    devices = sorted({tensor.device.index or 0 for tensor in tensors if tensor.is_cuda})
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        with torch.no_grad():
            for tensor, before in zip(tensors_now(), saved, strict=True):
                tensor.copy_(before)
                tensor.grad = None


# ---- A trial: the task with batches of any size up to its own, for timing steps before the real ones ----------------


class TrialTask:
    """A task that hands out the first `size` samples of one batch, again and again."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.model = task.model
        self.inputs = task.inputs
        self.samples, self.tokens, self.phase_tokens = task.samples, task.tokens, task.phase_tokens
        self.size = task.samples

    def infer(self, mark: Mark) -> Any:
        return self.task.infer(mark)

    def loss(self, output: Any, target: Any) -> Any:
        return self.task.loss(output, target)

    def optimizer(self) -> Any:
        return self.task.optimizer()

    def batches(
        self, workers: int, pin: bool = False, prefetch: int | None = None
    ) -> Iterator[tuple[tuple[Any, ...], Any]]:
        whole = next(self.task.batches(0))
        while True:
            inputs, target = cut_batch(whole, 0, self.size, self.samples)
            yield tuple(inputs), target
