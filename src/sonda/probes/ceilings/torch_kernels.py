"""Torch kernels: matrix products, convolutions, array passes and tiny operations, ready to be timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sonda.probes.ceilings.processor_kernels import (
    LONGEST_CALL,
    MIB,
    CeilingKernel,
    ThreadPoint,
    cache_footprints,
    memory_patterns,
)

SIZES = (128, 256, 512, 1024, 2048, 4096, 8192)
CONVOLUTIONS = ((128, 28), (64, 56), (32, 56))
"""Channels, and results along a side: no shape is the fastest everywhere."""
PRECISIONS = ("float32", "float64", "bfloat16", "float16")


class TorchKernels:
    """Makes the kernels for one number of threads after another over the same memory."""

    def __init__(self, size: int) -> None:
        import torch

        torch.manual_seed(0)
        self.buffer = torch.ones(size // 4)
        self.training = tiny_training()

    def use(self, point: ThreadPoint) -> None:
        import torch

        torch.set_num_threads(point.threads)

    def make(self, point: ThreadPoint) -> tuple[list[CeilingKernel], dict[str, str]]:
        """The kernels, each called already, and what could not be made, with the reason."""
        import torch

        self.use(point)
        missing: dict[str, str] = {}
        kernels: list[CeilingKernel] = []
        with torch.no_grad():
            for precision in PRECISIONS:
                try:
                    kernels += _matrix_products(precision)
                except RuntimeError as error:
                    missing[precision] = str(error).splitlines()[0]
            try:
                kernels += _integer_products()
            except (RuntimeError, AttributeError) as error:
                missing["int8"] = str(error).splitlines()[0]
            kernels += [_convolution(point.threads, channels, side) for channels, side in CONVOLUTIONS]
            kernels += _memory_passes(self.buffer, point)
            kernels.append(tiny_inference())
        kernels.append(self.training)
        return kernels, missing


def _growing_products(make: Callable[[int], tuple[Callable[[], Any], float]], precision: str) -> list[CeilingKernel]:
    """Matrix products of rising size, until one would take too long; the last ones, where the plateau is."""
    kernels: list[CeilingKernel] = []
    for size in SIZES:
        call, amount = make(size)
        call()
        begin = time.perf_counter()
        call()
        took = time.perf_counter() - begin
        kernels.append(CeilingKernel("flops", precision, amount, call, f"matrix product {size}"))
        if 8 * took > LONGEST_CALL:
            break
    return kernels[-3:] if precision == "float32" else kernels[-2:]


def _matrix_products(precision: str) -> list[CeilingKernel]:
    import torch

    kind = getattr(torch, precision)

    def make(size: int) -> tuple[Callable[[], Any], float]:
        left, right = torch.randn(size, size).to(kind), torch.randn(size, size).to(kind)
        out = torch.empty(size, size, dtype=kind)
        return lambda: torch.mm(left, right, out=out), 2.0 * size**3

    return _growing_products(make, precision)


def _integer_products() -> list[CeilingKernel]:
    """int8 x int8 to int32; counted as two operations per multiply-add like the others."""
    import torch

    def make(size: int) -> tuple[Callable[[], Any], float]:
        left = torch.randint(-8, 8, (size, size), dtype=torch.int8)
        return lambda: torch._int_mm(left, left), 2.0 * size**3

    return _growing_products(make, "int8")


def _convolution(threads: int, channels: int, side: int) -> CeilingKernel:
    """A 3x3 convolution without padding, channels last: it can beat the matrix product, being another library's.

    Without padding, so that every counted multiply-add is carried out.
    """
    import torch

    batch = max(4, threads)
    images = torch.randn(batch, channels, side + 2, side + 2).to(memory_format=torch.channels_last)
    weights = torch.randn(channels, channels, 3, 3).to(memory_format=torch.channels_last)

    def call() -> Any:
        return torch.nn.functional.conv2d(images, weights)

    call()
    return CeilingKernel(
        "flops",
        "float32",
        2.0 * batch * channels**2 * 9 * side**2,
        call,
        f"convolution, {channels} channels last, {side} x {side}",
    )


def _memory_passes(buffer: Any, point: ThreadPoint) -> list[CeilingKernel]:
    """Copy, add, triad and update in place, over the whole buffer and over parts of it that fit in the cache."""
    import torch

    def make(touched: int, name: str, elements: int, counted: int) -> CeilingKernel:
        # An update in place uses only the first array and takes all of `touched`.
        a, b, c = (buffer[start * elements : (start + 1) * elements] for start in range(3))
        call = {
            "copy": lambda: b.copy_(a),
            "add": lambda: torch.add(a, b, out=c),
            "triad": lambda: torch.add(a, b, alpha=3.0, out=c),
            "update": lambda: a.mul_(1.0),
        }[name]
        return CeilingKernel("memory", name, counted, call, f"{touched / MIB:.3g} MiB", touched)

    whole = len(buffer) * 4
    return [
        make(touched, name, elements, counted)
        for touched in (*cache_footprints(point), whole)
        for name, (elements, counted) in memory_patterns(touched).items()
        if touched == whole or name in ("copy", "update")
    ]


def tiny_inference() -> CeilingKernel:
    """A forward too small to compute anything, per operation that it dispatches; the modules' Python is included."""
    import torch

    model, inputs = _tiny_network()

    def call() -> None:
        with torch.no_grad():
            model(inputs)

    return CeilingKernel("overhead", "operation_ns", _count_operations(call), call)


def tiny_training() -> CeilingKernel:
    """A training step too small to compute anything, per operation; autograd and optimizer are included."""
    import torch

    model, inputs = _tiny_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    target = torch.randn(4, 8)

    def call() -> None:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), target).backward()
        optimizer.step()

    return CeilingKernel("overhead", "training_operation_ns", _count_operations(call), call)


def _tiny_network() -> tuple[Any, Any]:
    """Two dense layers of 8 and an activation, with a batch of 4."""
    import torch

    layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
    return layers, torch.randn(4, 8)


def _count_operations(call: Callable[[], None]) -> int:
    """How many operations a call dispatches, views included, once it has warmed up."""
    from torch.utils._python_dispatch import TorchDispatchMode

    dispatched = 0

    class DispatchCount(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal dispatched
            dispatched += 1
            return func(*args, **(kwargs or {}))

    for _ in range(10):
        call()
    with DispatchCount():
        call()
    return dispatched
