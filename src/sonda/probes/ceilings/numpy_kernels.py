"""NumPy kernels: the same ceilings where torch is not installed, as far as NumPy reaches."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, repeat
from typing import Any

import numpy as np

from sonda.probes.ceilings.processor_kernels import (
    LONGEST_CALL,
    MIB,
    CeilingKernel,
    ThreadPoint,
    cache_footprints,
    memory_patterns,
)

SIZES = (128, 256, 512, 1024, 2048, 4096)
TINY_CALLS = 500
LEAST_PASS = 2e-3
"""Seconds of passes between two meetings of the threads, so that waking them does not count."""
GUESSED_BANDWIDTH = 2e10
"""B/s per thread; only decides how often a small array is passed over in one call."""


class NumpyKernels:
    """Makes the kernels for one number of threads; the BLAS takes its own number from the environment at its start."""

    def __init__(self, size: int) -> None:
        self.buffer = np.ones(size // 4, dtype=np.float32)

    def use(self, point: ThreadPoint) -> None:
        """Nothing to do: one process measures one number of threads only."""

    def make(self, point: ThreadPoint) -> tuple[list[CeilingKernel], dict[str, str]]:
        """The kernels, and what could not be made, with the reason."""
        missing = dict.fromkeys(("bfloat16", "float16", "int8"), "NumPy has no fast product in this precision")
        missing["training_operation_ns"] = "torch is not installed"
        kernels = [
            *_matrix_products("float32"),
            *_matrix_products("float64"),
            *_memory_passes(self.buffer, point),
            _tiny_operation(),
        ]
        return kernels, missing


def _matrix_products(precision: str) -> list[CeilingKernel]:
    """Matrix products by the BLAS that NumPy is linked to; its threads are set by the environment."""
    generator = np.random.default_rng(0)
    kernels: list[CeilingKernel] = []
    for size in SIZES:
        left = generator.random((size, size)).astype(precision)
        out = np.empty_like(left)

        def call(left: Any = left, out: Any = out) -> Any:
            return np.matmul(left, left, out=out)

        call()
        begin = time.perf_counter()
        call()
        took = time.perf_counter() - begin
        kernels.append(CeilingKernel("flops", precision, 2.0 * size**3, call, f"matrix product {size}"))
        if 8 * took > LONGEST_CALL:
            break
    return kernels[-3:]


def _memory_passes(buffer: Any, point: ThreadPoint) -> list[CeilingKernel]:
    """NumPy passes are single-threaded but release the interpreter's lock: each thread gets its part of the arrays.

    There is no triad: NumPy would need two passes for it.
    """
    threads = point.threads
    pool = ThreadPoolExecutor(threads)

    def make(touched: int, name: str, elements: int, counted: int) -> CeilingKernel:
        arrays = [buffer[start * elements : (start + 1) * elements] for start in range(3)]
        bounds = [elements * part // threads for part in range(threads + 1)]
        passes = [_pass_call(name, *(array[low:high] for array in arrays)) for low, high in pairwise(bounds)]
        times = max(1, round(LEAST_PASS * GUESSED_BANDWIDTH * threads / counted))

        def work(pass_once: Callable[[], Any]) -> None:
            for _ in repeat(None, times):
                pass_once()

        def call() -> None:
            if threads == 1:
                work(passes[0])
            else:
                list(pool.map(work, passes))

        return CeilingKernel("memory", name, times * counted, call, f"{touched / MIB:.3g} MiB", touched)

    return [
        make(touched, name, elements, counted)
        for touched in (*cache_footprints(point), buffer.nbytes)
        for name, (elements, counted) in memory_patterns(touched).items()
        if name != "triad"
    ]


def _pass_call(name: str, a: Any, b: Any, c: Any) -> Callable[[], Any]:
    factor = np.float32(1)
    return {
        "copy": lambda: np.copyto(b, a),
        "add": lambda: np.add(a, b, out=c),
        "update": lambda: np.multiply(a, factor, out=a),
    }[name]


def _tiny_operation() -> CeilingKernel:
    value, addend = np.zeros(1, dtype=np.float32), np.ones(1, dtype=np.float32)

    def call() -> None:
        for _ in repeat(None, TINY_CALLS):
            np.add(value, addend, out=value)

    return CeilingKernel("overhead", "operation_ns", TINY_CALLS, call)
