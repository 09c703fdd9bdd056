"""Ceiling kernels: the child process that measures what this machine can do with given numbers of threads.

`python -m sonda.probes.ceilings.processor_kernels JOB` reads a job (JSON) and writes one JSON object to stdout: for
each number of threads an entry of `threads` in the ceilings of a machine. It is a process of its own so that measuring
leaves neither memory nor threads behind in the program that asked, and finds no threads of that program's.

Every kernel is called in several rounds, all kernels in each round, so that a disturbance of a second cannot hit all
measurements of one quantity; numbers of threads take turns as well. The best call is the ceiling; `spread` says how far
the median round fell short. While other programs are in the way there are more rounds.

Bytes are counted as a program would count them: read plus written. A store to a line that is not cached makes the CPU
read that line first (write-allocate), so a copy moves 3 bytes over the bus for 2 that count, a sum of two arrays 4
for 3. An update in place has no such hidden read, nor has a copy with non-temporal stores. Hence two figures:
`dram_bandwidth`, the best of all patterns, which nothing exceeds, and `dram_stream`, the best of copy, add and triad,
which is what operations that write a new result can reach. `cache_bandwidth` and `cache_stream` likewise.

How this compares with theory, on a virtual machine of two Ice Lake-SP cores (2.75 GHz under AVX-512, found with a
hand-written loop of independent FMAs that reached 176 GFLOP/s a core, 64 FLOP a cycle): float32 151 to 155 GFLOP/s a
core, 86 to 88 % of that; OpenBLAS 119 to 125. int8 is 4.0 times float32, as VNNI promises; float64 0.42 to 0.50 times,
theory 0.5. DRAM: update 20, NumPy's copy with non-temporal stores 21, plain copy 11 GB/s with one thread; 36, 38 and
22 GB/s with two. Last-level cache: 2.5 to 2.8 times DRAM, up to a footprint of a quarter of its nominal size; beyond
that DRAM's speed, because other virtual machines share it. `bandwidth_curve` shows where that happens.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from sonda.probes.machine.contamination import find_disturbances, read_conditions

STREAM = ("copy", "add", "triad")
MIB = 1 << 20
PAGE = 4096
BUFFER = 256 * MIB
"""Bytes of the DRAM kernels' buffer where the size of the cache is not known."""
BEYOND_CACHE = 6
"""The buffer, which every DRAM kernel passes over whole, is this many times the last-level cache."""
LARGEST_BUFFER = 3072 * MIB
PATIENCE_S = 4.0
"""Seconds after which no more rounds are added to the planned ones, however much other programs disturb."""
CALLS_DIFFER = 0.05
"""How far the best calls of two kernels that are equally fast may be apart, as a part."""
LONGEST_CALL = 0.06
"""Seconds. Matrix products that would take longer are left out: smaller ones have reached the plateau by then."""


class ThreadPoint(msgspec.Struct, frozen=True):
    """One number of threads, and the caches that so many threads reach together; bytes, 0 where unknown."""

    threads: int
    cache_bytes: int = 0
    """Last level."""
    inner_bytes: int = 0
    """The level before."""


class CeilingJob(msgspec.Struct, frozen=True):
    """What to measure, with which library (`torch` or `numpy`)."""

    library: str
    points: list[ThreadPoint]
    memory_bytes: int = 0
    """Memory that may be used at all, 0 where unknown; the buffer takes an eighth at most."""
    rounds: int = 3
    slice_s: float = 0.006
    """Seconds that one kernel gets in each round; at least one call."""


class CeilingKernel(NamedTuple):
    """Something to call, and what one call accomplishes."""

    quantity: str
    """`flops`, `memory` or `overhead`."""
    name: str
    """Precision, pattern, or the name of the overhead."""
    amount: float
    """FLOP, bytes or operations of one call."""
    call: Callable[[], Any]
    detail: str = ""
    """Size of the matrices; what the convolution is."""
    footprint: int = 0
    """Bytes the call touches; for memory kernels."""


class KernelMaker(Protocol):
    """A library's kernels."""

    def use(self, point: ThreadPoint) -> None:
        """Compute with this number of threads from now on."""

    def make(self, point: ThreadPoint) -> tuple[list[CeilingKernel], dict[str, str]]:
        """The kernels for this number of threads, and what could not be made, with the reason."""


class MeasuredKernel(NamedTuple):
    """The best rate of a kernel's calls, and how far the median round fell short of it (0 to 1)."""

    kernel: CeilingKernel
    rate: float
    spread: float


def buffer_bytes(job: CeilingJob) -> int:
    """Bytes of the buffer of the memory kernels: well beyond the cache, within the memory there is."""
    wanted = BEYOND_CACHE * max((point.cache_bytes for point in job.points), default=0) or BUFFER
    limit = job.memory_bytes // 8 if job.memory_bytes else LARGEST_BUFFER
    return max(PAGE, _whole_pages(min(wanted, limit, LARGEST_BUFFER)))


def cache_footprints(point: ThreadPoint) -> list[int]:
    """Bytes touched by the cache kernels, rising: within the inner caches, then parts of the last level."""
    if not point.cache_bytes:
        return []
    inside = [point.inner_bytes // 2] if point.inner_bytes else []
    quarter = point.cache_bytes // 4
    outside = [size for size in (quarter // 2, quarter) if size >= 2 * point.inner_bytes]
    return sorted({_whole_pages(size) for size in (*inside, *outside, 2 * quarter)} - {0})


def _whole_pages(size: int) -> int:
    return size // PAGE * PAGE


def memory_patterns(touched: int, element: int = 4) -> dict[str, tuple[int, int]]:
    """For each pattern that touches this many bytes in all: elements of an array, and bytes that one call counts."""
    return {
        name: (touched // arrays // element, counted * (touched // arrays // element) * element)
        for name, arrays, counted in (("copy", 2, 2), ("add", 3, 3), ("triad", 3, 3), ("update", 1, 2))
    }


def run_round(
    kernels: list[CeilingKernel], slice_s: float, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """The best rate of each kernel, amount per second, within its slice of time."""
    rates = []
    for kernel in kernels:
        shortest = float("inf")
        begin = now = clock()
        while now - begin < slice_s or shortest == float("inf"):
            start = clock()
            kernel.call()
            now = clock()
            if now > start:
                shortest = min(shortest, now - start)
        rates.append(kernel.amount / shortest)
    return rates


def best_of_rounds(kernels: list[CeilingKernel], rounds: list[list[float]]) -> list[MeasuredKernel]:
    """The best of each kernel's rounds, with the spread."""
    return [
        MeasuredKernel(kernel, max(rates), 1 - statistics.median(rates) / max(rates))
        for kernel, rates in zip(kernels, zip(*rounds, strict=True), strict=True)
    ]


def summarise_kernels(point: ThreadPoint, measurements: list[MeasuredKernel]) -> dict[str, Any]:
    """The entry of `threads` in a machine's ceilings, from these measurements: FLOP/s, B/s, ns."""
    entry: dict[str, Any] = {"flops": {}, "kernels": {}, "spread": {}, "missing": {}}

    def best(quantity: str, choices: list[MeasuredKernel]) -> float | None:
        if not choices:
            return None
        winner = max(choices, key=lambda measured: measured.rate)
        entry["spread"][quantity] = round(winner.spread, 4)
        entry["kernels"][quantity] = f"{winner.kernel.name} {winner.kernel.detail}".strip()
        return winner.rate

    products = [measured for measured in measurements if measured.kernel.quantity == "flops"]
    for precision in dict.fromkeys(measured.kernel.name for measured in products):
        choices = [measured for measured in products if measured.kernel.name == precision]
        entry["flops"][precision] = best(precision, choices)
    memory = [measured for measured in measurements if measured.kernel.quantity == "memory"]
    largest = max((measured.kernel.footprint for measured in memory), default=0)
    dram = [measured for measured in memory if measured.kernel.footprint == largest]
    quarter, half = _whole_pages(point.cache_bytes // 4), _whole_pages(point.cache_bytes // 4 * 2)
    inside = [measured for measured in memory if measured not in dram and measured.kernel.footprint <= half]
    cached = [measured for measured in inside if 2 * point.inner_bytes <= measured.kernel.footprint <= quarter]
    # Where the inner caches together are nearly as large as the last level (Sapphire Rapids with all cores), half of
    # the last level is what 'fits in the cache' means.
    cached = cached or [measured for measured in inside if measured.kernel.footprint == half]
    for level, choices in (("dram", dram), ("cache", cached)):
        rate = best(f"{level}_bandwidth", choices)
        stream = best(f"{level}_stream", [measured for measured in choices if measured.kernel.name in STREAM])
        if rate is None or stream is None:
            entry["missing"][f"{level}_bandwidth"] = "the size of the last-level cache is not known"
            continue
        entry[f"{level}_bandwidth"], entry[f"{level}_stream"] = rate, stream
    entry["bandwidth_curve"] = [
        [size, max(measured.rate for measured in memory if measured.kernel.footprint == size)]
        for size in sorted({measured.kernel.footprint for measured in memory})
    ]
    for measured in measurements:
        if measured.kernel.quantity == "overhead":
            entry[measured.kernel.name] = 1e9 / measured.rate
            entry["spread"][measured.kernel.name] = round(measured.spread, 4)
    return entry


def measure_job(job: CeilingJob) -> dict[str, Any]:
    """Measure what a job asks for: entries by number of threads. Numbers of threads take turns, round by round."""
    maker = _choose_maker(job)
    points = sorted(job.points, key=lambda point: point.threads)
    made = {point.threads: maker.make(point) for point in points}
    rounds: dict[int, list[list[float]]] = {point.threads: [] for point in points}
    disturbed: dict[int, list[str]] = {point.threads: [] for point in points}
    patient_until = time.perf_counter() + PATIENCE_S
    for turn in range(2 * job.rounds):
        for point in points:
            spare = turn >= job.rounds
            if spare and not _is_disturbed(disturbed[point.threads], rounds[point.threads]):
                continue
            if spare and time.perf_counter() > patient_until:
                break
            maker.use(point)
            before = read_conditions()
            rounds[point.threads].append(run_round(made[point.threads][0], job.slice_s))
            flags = find_disturbances(before, read_conditions(), point.threads)
            disturbed[point.threads] += [flag.sentence for flag in flags if flag.contaminated][:1]
    entries: dict[str, Any] = {}
    for point in points:
        kernels, missing = made[point.threads]
        entry = summarise_kernels(point, best_of_rounds(kernels, rounds[point.threads]))
        entry["missing"].update(missing)
        signs = disturbed[point.threads]
        entry["disturbed"] = signs[:1] if _is_disturbed(signs, rounds[point.threads]) else slow_cache(entry)
        if point.cache_bytes:
            entry["cache_bytes"] = point.cache_bytes
        entries[str(point.threads)] = entry
    return entries


def _is_disturbed(signs: list[str], rounds: list[list[float]]) -> bool:
    """Whether more than half of the rounds were disturbed: the best round counts, so fewer do no harm."""
    return 2 * len(signs) > len(rounds)


def slow_cache(entry: dict[str, Any]) -> list[str]:
    """A sign that other programs disturbed an entry: its last-level cache seemed to be slower than DRAM."""
    cache, dram = entry.get("cache_bandwidth"), entry.get("dram_bandwidth")
    slower = cache is not None and dram is not None and cache < (1 - CALLS_DIFFER) * dram
    return ["the last-level cache was slower than DRAM: stop other programs"] if slower else []


def _choose_maker(job: CeilingJob) -> KernelMaker:
    if job.library == "torch":
        from sonda.probes.ceilings.torch_kernels import TorchKernels

        return TorchKernels(buffer_bytes(job))
    from sonda.probes.ceilings.numpy_kernels import NumpyKernels

    return NumpyKernels(buffer_bytes(job))


def main() -> None:
    job = msgspec.json.decode(sys.argv[1], type=CeilingJob)
    json.dump(measure_job(job), sys.stdout)


if __name__ == "__main__":
    main()
