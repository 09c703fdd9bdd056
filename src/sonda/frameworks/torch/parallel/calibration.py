"""Calibration: how long steps of several sizes take on every rank, all ranks working at once, and one of them alone.

At once, because devices of one machine share memory and processors: a processor that also serves a GPU is slower than
alone, and shares have to follow that. Alone, because that is what several devices have to be faster than. The model's
weights, statistics and random numbers are left as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

from sonda.frameworks.torch.parallel.all_reduce import Pieces
from sonda.frameworks.torch.parallel.batches import cut
from sonda.frameworks.torch.parallel.group import TIMEOUT_S, Group
from sonda.frameworks.torch.parallel.shares import Line, fit_line
from sonda.record.protocols import Mark, Task

PARTS = (8, 4, 2)
"""Sizes of the steps: a batch divided by these."""
FEWEST_STEPS, SHORTEST_S = 2, 0.25
"""Of each size at least so many steps, and for so long: a rank with a quota of time runs in bursts."""
EXCHANGES, SMALL_EXCHANGES = 3, 20


def sizes_of(batch: int) -> list[int]:
    """Sizes at which a batch's steps are timed, smallest first. A batch norm needs two samples.

    Of a small batch the whole too: one size does not tell what a step costs whatever its size, and sharing the batch
    would seem to share that as well.
    """
    sizes = {min(batch, max(2, batch // part)) for part in PARTS}
    return sorted(sizes if len(sizes) > 1 else {*sizes, batch})


def measure_line(
    step: Callable[[int], None], batch: int, group: Group, keys: Any, clock: Callable[[], float] = perf_counter,
    timeout_s: float = TIMEOUT_S,
) -> Line:  # fmt: skip
    """This rank's line, by a clock in s. `step(n)` does one step of n samples and waits for its end.

    A rank that has enough goes on until all have, so that all are measured under the same load. `keys` is a store of
    PyTorch's that all ranks see. Raises TimeoutError where one takes `timeout_s` longer.
    """
    sizes, times = sizes_of(batch), []
    step(sizes[0])  # the first step of a program also makes ready
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


def keep_company(step: Callable[[], None], told: Callable[[], int], ranks: int, timeout_s: float) -> int:
    """Step on until so many ranks have told that they have enough; how many steps. Raises TimeoutError where that takes
    too long."""
    limit, done = perf_counter() + timeout_s, 0
    while told() < ranks:
        if perf_counter() > limit:
            raise TimeoutError(f"timed out after {timeout_s:g} s waiting for ranks that are calibrated")
        step()
        done += 1
    return done


def measure_alone(step: Callable[[int], None], samples: int, group: Group, line: Line, batch: int) -> list[float]:
    """s that a step of the batch of all ranks takes each while the others wait for it, in the order of ranks.

    The line was measured with up to `samples`, for a device may be too small for the whole: its largest step is timed,
    and what that takes less than in company is taken off the whole.
    """
    size, own = sizes_of(samples)[-1], 0.0
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
    return [row[0] for row in group.numbers([whole])]


def gather_lines(own: Line, group: Group) -> list[Line]:
    """The lines of all ranks."""
    return [Line(*numbers) for numbers in group.numbers([own.fixed, own.each])]


@dataclass(frozen=True)
class Exchange:
    """What one step has to exchange, and what that took without any work beside it, s."""

    gradients: float
    gradient_bytes: int
    small: float
    """One exchange of a batch norm's statistics."""
    norms: int

    @property
    def seconds(self) -> float:
        """Of a step: gradients once; statistics of every batch norm forward and backward."""
        return self.gradients + 2 * self.norms * self.small


def measure_exchange(model: Any, group: Group, norms: int) -> Exchange:
    """Sum tensors of the size of the model's gradients over all ranks; the slowest rank's time counts."""
    import torch

    wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
    size = sum(parameter.numel() * parameter.element_size() for parameter in wanted)
    if group.size == 1:
        return Exchange(0.0, size, 0.0, norms)
    large = _summing(wanted, group)
    statistics = torch.zeros(512, device=wanted[0].device)

    def once(exchange: Callable[[], Any]) -> float:
        group.barrier()
        begin = perf_counter()
        exchange()
        return perf_counter() - begin

    once(large)
    whole = median(once(large) for _ in range(EXCHANGES))
    small = median(once(lambda: group.sum(statistics)) for _ in range(SMALL_EXCHANGES)) if norms else 0.0
    agreed = group.numbers([whole, small])
    return Exchange(max(row[0] for row in agreed), size, max(row[1] for row in agreed), norms)


def _summing(parameters: Sequence[Any], group: Group) -> Callable[[], Any]:
    """Sums what is as large as these parameters' gradients, in the way in which training does."""
    import torch

    if group.memory is None:
        first = parameters[0]
        flat = torch.zeros(sum(one.numel() for one in parameters), dtype=first.dtype, device=first.device)
        return lambda: group.sum_large(flat)
    pieces = Pieces(parameters, group.memory)
    gradients = [torch.zeros_like(one) for one in parameters]

    def sum_pieces() -> None:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            pieces.write(parameter, gradient, (1.0,) * group.size)
        pieces.finish()
        pieces.release()

    return sum_pieces


def count_norms(model: Any) -> int:
    """Batch norms that would be shared."""
    from torch.nn.modules.batchnorm import _BatchNorm

    return sum(isinstance(module, _BatchNorm) for module in model.modules())


@contextmanager
def untouched(model: Any, modules: Sequence[Any] = ()) -> Iterator[None]:
    """Leave weights, statistics and random numbers as they were before the block.

    Their values only: a model that was moved to another device or type inside stays there.
    """
    import torch

    def tensors_now() -> list[Any]:
        # Where a model is moved, its buffers are other tensors afterwards.
        return [tensor for one in (model, *modules) for tensor in (*one.parameters(), *one.buffers())]

    tensors = tensors_now()
    kept = [tensor.detach().clone() for tensor in tensors]
    devices = sorted({tensor.device.index or 0 for tensor in tensors if tensor.is_cuda})
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        with torch.no_grad():
            for tensor, before in zip(tensors_now(), kept, strict=True):
                tensor.copy_(before)
                tensor.grad = None


# ---- A trial: the task with batches of any size up to its own, for timing steps before the real ones ----------------


class TrialTask:
    """Hands out the first `size` samples of one batch, again and again."""

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
            inputs, target = cut(whole, 0, self.size, self.samples)
            yield tuple(inputs), target
