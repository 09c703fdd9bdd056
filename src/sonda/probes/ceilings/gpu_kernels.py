"""GPU kernels: what is run on a GPU to find its ceilings, and how it is timed.

FLOP/s: matrix products in every precision, as large as time and memory allow up to 8192; in float32 also a chain of
multiply-adds, because no library's product keeps all cores busy, and in float64 a chain alone for the cores, because
products run on tensor cores where these can. B/s of the memory: copy, triad, update in place and
reading, over arrays of 1 GiB. B/s of the L2 cache: a kernel that reads a small array again and again, past the L1
caches; launching a kernel for each pass would measure the launches. Bytes count as a program counts them, read plus
written.

Times are those between two events in the device's own queue, long enough for the launch not to show; the median of
several, after the rate has settled. A ceiling is thus what lasts: under its power limit a card's clock falls after some
milliseconds of dense products. The clock is read meanwhile and kept beside each figure.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from sonda.probes.ceilings.processor_kernels import MIB, STREAM, CeilingKernel
from sonda.record.errors import first_line

SIZES = (1024, 2048, 4096, 8192)
LONGEST_S = 0.06
"""Seconds that one product may take."""
ARRAY = 1024 * MIB
LARGEST_CACHED = 16 * MIB
SAMPLE_S = 0.003
"""Seconds between two events at least: their clock ticks in half microseconds."""
SLICE_S = 0.12
"""Seconds of samples, five at least."""
SETTLE_S = 0.3
SETTLED = 0.01
"""Three samples in a row within 1 %."""
CLOCK_S = 0.04
"""Seconds of work that are under way while the clock is read."""
BUDGET_S = 8.0
"""Seconds after which no group begins; all of them together take about six."""
CHAIN_LINKS = 128
THREADS = 256

CHAIN = """
extern "C" __global__ void NAME(REAL* out, int passes, int seed) {
    REAL term = (REAL)1e-6 * seed, factor = (REAL)1 - term;
    REAL a = threadIdx.x, b = a + 1, c = a + 2, d = a + 3, e = a + 4, f = a + 5, g = a + 6, h = a + 7;
    for (int pass = 0; pass < passes; ++pass) {
        #pragma unroll
        for (int link = 0; link < 16; ++link) {
            a = FMA(a, factor, term); b = FMA(b, factor, term); c = FMA(c, factor, term);
            d = FMA(d, factor, term); e = FMA(e, factor, term); f = FMA(f, factor, term);
            g = FMA(g, factor, term); h = FMA(h, factor, term);
        }
    }
    REAL sum = a + b + c + d + e + f + g + h;
    if (sum == (REAL)-1) out[0] = sum;
}
"""
"""Eight chains of multiply-adds in every thread, independent of one another."""
CHAINS = {"float32": ("chain", "float", "fmaf", 4096), "float64_cores": ("chain_double", "double", "fma", 512)}
"""By precision: the kernel's name, its type and its multiply-add in CUDA C, and passes. float64 has fewer, because some
cards do a 64th of float32's FLOPs in it."""


def _chain_source(name: str, real: str, fma: str) -> str:
    return CHAIN.replace("NAME", name).replace("REAL", real).replace("FMA", fma)


SOURCE = (
    "".join(_chain_source(*words[:3]) for words in CHAINS.values())
    + """
extern "C" __global__ void reading(const float4* data, float* out, int count, int passes) {
    float sum = 0.0f;
    for (int pass = 0; pass < passes; ++pass) {
        #pragma unroll 4
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
            float x, y, z, w;
            asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(x), "=f"(y), "=f"(z), "=f"(w) : "l"(data + i));
            sum += x + y + z + w;
        }
    }
    if (sum == -1.0f) out[0] = sum;
}
"""
)
"""`cg` reads from L2 and keeps nothing in L1. The tests at the end keep the compiler from leaving the work out."""

Timer = Callable[[Callable[[], Any], int], float]
"""(call, how often) to seconds per call on the device."""


class TimedKernel(NamedTuple):
    """A kernel and the rate that it reached."""

    kernel: CeilingKernel
    rate: float
    """Amount per second, median."""
    spread: float
    """How far the median falls short of the best sample, 0 to 1."""
    clock: float
    """Hz of the SMs meanwhile; NaN where it could not be read."""


class KernelGroup(NamedTuple):
    """Kernels that share memory. They are made when their turn comes, and their memory is free again afterwards."""

    name: str
    make: Callable[[], list[CeilingKernel]]


def event_timer(torch: Any) -> Timer:
    """Times by CUDA events on the current stream."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def measure(call: Callable[[], Any], times: int) -> float:
        begin.record()
        for _ in range(times):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / times

    return measure


def time_kernel(
    kernel: CeilingKernel, timer: Timer, clock: Callable[[], float], now: Callable[[], float]
) -> TimedKernel:
    """The median rate of a kernel once it has settled."""
    timer(kernel.call, 1)
    single = max(timer(kernel.call, 1), 1e-9)
    times = min(1000, max(1, math.ceil(SAMPLE_S / single)))
    recent: list[float] = []
    patient_until = now() + SETTLE_S
    while now() < patient_until:
        recent = [*recent[-2:], timer(kernel.call, times)]
        if len(recent) == 3 and max(recent) <= (1 + SETTLED) * min(recent):
            break
    samples: list[float] = []
    slice_until = now() + SLICE_S
    while len(samples) < 5 or (now() < slice_until and len(samples) < 50):
        samples.append(max(timer(kernel.call, times), 1e-9))
    middle, best = statistics.median(samples), min(samples)
    for _ in range(min(20_000, math.ceil(CLOCK_S / middle))):
        kernel.call()
    hertz = clock()
    timer(kernel.call, 1)
    # Without its call, which holds the memory that the next group needs.
    return TimedKernel(kernel._replace(call=_do_nothing), kernel.amount / middle, 1 - best / middle, hertz)


def _do_nothing() -> None:
    """What is left of a call that was timed."""


def measure_groups(
    groups: Iterator[KernelGroup],
    timer: Timer,
    clock: Callable[[], float],
    release: Callable[[], None],
    no_memory: type[BaseException],
    now: Callable[[], float] = time.perf_counter,
    budget_s: float = BUDGET_S,
) -> tuple[list[TimedKernel], dict[str, str]]:
    """Time the kernels of all groups; and why groups are missing: no memory, not supported, no time left."""
    timed: list[TimedKernel] = []
    missing: dict[str, str] = {}
    deadline = now() + budget_s
    for group in groups:
        if now() > deadline:
            missing[group.name] = f"not measured within {budget_s:g} s"
            continue
        try:
            timed += [time_kernel(kernel, timer, clock, now) for kernel in group.make()]
        except no_memory:
            missing[group.name] = "the GPU has too little free memory"
        except (RuntimeError, AttributeError, TypeError, ValueError) as error:
            missing[group.name] = first_line(error)
        finally:
            release()
    return timed, missing


def summarise_gpu(timed_kernels: list[TimedKernel], missing: dict[str, str], l2_bytes: int) -> dict[str, Any]:
    """An entry as the CPU's ceilings have it: FLOP/s, B/s, ns; `clocks` in Hz beside them."""
    entry: dict[str, Any] = {"flops": {}, "kernels": {}, "spread": {}, "clocks": {}, "missing": dict(missing)}

    def best(name: str, choices: list[TimedKernel]) -> float | None:
        if not choices:
            return None
        winner = max(choices, key=lambda timed: timed.rate)
        entry["kernels"][name] = f"{winner.kernel.name} {winner.kernel.detail}".strip()
        entry["spread"][name] = round(winner.spread, 4)
        if not math.isnan(winner.clock):
            entry["clocks"][name] = winner.clock
        return winner.rate

    products = [timed for timed in timed_kernels if timed.kernel.quantity == "flops"]
    for precision in dict.fromkeys(timed.kernel.name for timed in products):
        entry["flops"][precision] = best(precision, [timed for timed in products if timed.kernel.name == precision])
    memory = [timed for timed in timed_kernels if timed.kernel.quantity == "memory"]
    cached = [timed for timed in timed_kernels if timed.kernel.quantity == "cache"]
    small = [timed for timed in cached if timed.kernel.footprint <= min(LARGEST_CACHED, l2_bytes // 2)]
    for name, choices in (
        ("dram_bandwidth", memory),
        ("dram_stream", [timed for timed in memory if timed.kernel.name in STREAM]),
        ("cache_bandwidth", small),
    ):
        rate = best(name, choices)
        if rate is not None:
            entry[name] = rate
    entry["bandwidth_curve"] = sorted([timed.kernel.footprint, timed.rate] for timed in (*cached, *memory)
                                      if timed.kernel.name == "reading")  # fmt: skip
    for timed in timed_kernels:
        if timed.kernel.quantity == "overhead":
            entry[timed.kernel.name] = 1e9 / timed.rate
            entry["spread"][timed.kernel.name] = round(timed.spread, 4)
    return entry


def largest_sizes(seconds_at: float, tried: int, free_bytes: float, element: int) -> list[int]:
    """The two largest sizes of products that fit in half of the free memory and take no longer than allowed.

    `seconds_at` is what a product of size `tried` took.
    """
    fitting = [
        size
        for size in SIZES
        if 3 * size * size * element <= free_bytes / 2 and seconds_at * (size / tried) ** 3 <= LONGEST_S
    ]
    return (fitting or [SIZES[0]])[-2:]


def l2_footprints(l2_bytes: int) -> list[int]:
    """Bytes that the cache kernels read again and again, rising; none where the size of the cache is not known."""
    parts = {l2_bytes // 8, l2_bytes // 4, l2_bytes // 2, l2_bytes * 3 // 4, l2_bytes, LARGEST_CACHED}
    return sorted({part // MIB * MIB or part // 4096 * 4096 for part in parts if 4096 <= part <= l2_bytes})


class GpuKernels:
    """Makes the kernels of one device."""

    def __init__(self, torch: Any, index: int, sms: int, l2_bytes: int) -> None:
        self.torch, self.sms, self.l2_bytes = torch, sms, l2_bytes
        self.device = torch.device("cuda", index)
        self.capability: tuple[int, int] = tuple(torch.cuda.get_device_capability(index))
        self.timer = event_timer(torch)
        self._compiled: dict[str, Any] = {}

    def groups(self) -> Iterator[KernelGroup]:
        """The most important first, for the case that time runs out."""
        yield KernelGroup("float32", lambda: [*self.products("float32"), *self.chain()])
        yield KernelGroup("bfloat16", lambda: self.products("bfloat16", least=(8, 0)))
        yield KernelGroup("dram_bandwidth", self.passes)
        yield KernelGroup("cache_bandwidth", self.cached)
        yield KernelGroup("tf32", lambda: self.products("tf32", least=(8, 0)))
        yield KernelGroup("float16", lambda: self.products("float16", least=(5, 3)))
        yield KernelGroup("float64", lambda: self.products("float64"))
        yield KernelGroup("float64_cores", self.double_chain)
        yield KernelGroup("float8", lambda: self.products("float8", least=(8, 9)))
        yield KernelGroup("operation_ns", self.overheads)

    def release(self) -> None:
        """Give back the memory of the last group."""
        self.torch.cuda.empty_cache()

    def free_bytes(self) -> int:
        return int(self.torch.cuda.mem_get_info(self.device)[0])

    def products(self, precision: str, least: tuple[int, int] = (0, 0)) -> list[CeilingKernel]:
        """Matrix products of one precision, the two largest that are possible."""
        if self.capability < least:
            has = ".".join(map(str, self.capability))
            raise RuntimeError(f"needs compute capability {least[0]}.{least[1]}, this GPU has {has}")
        torch = self.torch
        # TF32 or not is one switch for all products, so groups set it as they begin.
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        tried = SIZES[1]
        call = self._product(precision, tried)
        self.timer(call, 1)
        element = {"float64": 8, "float32": 4, "tf32": 4, "float8": 2}.get(precision, 2)
        sizes = largest_sizes(self.timer(call, 1), tried, self.free_bytes(), element)
        return [
            CeilingKernel("flops", precision, 2.0 * size**3, self._product(precision, size), f"matrix product {size}")
            for size in sizes
        ]

    def _product(self, precision: str, size: int) -> Callable[[], Any]:
        torch = self.torch
        kind = {"tf32": torch.float32, "float8": torch.bfloat16}.get(precision) or getattr(torch, precision)
        # Numbers as networks have them: products of zeros draw less power and run at a higher clock.
        left, right = (torch.randn(size, size, device=self.device, dtype=torch.float32).to(kind) for _ in range(2))
        if precision == "float8":
            left, right = left.to(torch.float8_e4m3fn), right.to(torch.float8_e4m3fn).t()
            scale = torch.ones((), device=self.device)
            return lambda: torch._scaled_mm(left, right, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)
        out = torch.empty(size, size, device=self.device, dtype=kind)
        return lambda: torch.mm(left, right, out=out)

    def chain(self, precision: str = "float32") -> list[CeilingKernel]:
        """Independent chains of multiply-adds in every thread; none where kernels cannot be compiled."""
        name, _, _, passes = CHAINS[precision]
        run = self._compile(name)
        if run is None:
            return []
        kind = getattr(self.torch, precision.removesuffix("_cores"))
        out, blocks = self.torch.zeros(1, device=self.device, dtype=kind), 4 * self.sms
        amount = 2.0 * CHAIN_LINKS * passes * blocks * THREADS
        return [
            CeilingKernel(
                "flops", precision, amount, _launcher(run, blocks, [out, passes, 1]), "chain of multiply-adds"
            )
        ]

    def double_chain(self) -> list[CeilingKernel]:
        """float64 outside tensor cores. Raises RuntimeError where kernels cannot be compiled: no product is for sure
        there."""
        made = self.chain("float64_cores")
        if not made:
            raise RuntimeError("this PyTorch cannot compile the kernel that measures it")
        return made

    def passes(self) -> list[CeilingKernel]:
        """Copy, triad, update and reading over arrays far larger than any cache."""
        torch = self.torch
        size = int(min(ARRAY, self.free_bytes() // 8)) // MIB * MIB
        if size < 4 * max(self.l2_bytes, MIB):
            raise torch.cuda.OutOfMemoryError(f"{size} bytes")
        a, b, c = (torch.ones(size // 4, device=self.device) for _ in range(3))
        detail = f"{size // MIB} MiB an array"
        made = [
            CeilingKernel("memory", "copy", 2 * size, lambda: b.copy_(a), detail, 2 * size),
            CeilingKernel("memory", "triad", 3 * size, lambda: torch.add(a, b, alpha=3.0, out=c), detail, 3 * size),
            CeilingKernel("memory", "update", 2 * size, lambda: a.mul_(1.0), detail, size),
        ]
        return made + self._reading("memory", a, [size])

    def cached(self) -> list[CeilingKernel]:
        """Reading arrays that fit in L2; copies of 16 MiB where kernels cannot be compiled, launches included."""
        torch = self.torch
        if not self.l2_bytes:
            raise RuntimeError("the size of the L2 cache is not known")
        data = torch.ones(max(self.l2_bytes, MIB) // 4, device=self.device)
        reading = self._reading("cache", data, l2_footprints(self.l2_bytes))
        if reading:
            return reading
        half = min(LARGEST_CACHED, self.l2_bytes // 2) // 8
        a, b = data[:half], data[half : 2 * half]
        detail = "in L2, launches included"
        return [CeilingKernel("cache", "copy", 8 * half, lambda: b.copy_(a), detail, 8 * half)]

    def _reading(self, quantity: str, data: Any, sizes: list[int]) -> list[CeilingKernel]:
        run = self._compile("reading")
        if run is None:
            return []
        out, blocks = self.torch.zeros(1, device=self.device), 8 * self.sms
        made = []
        for size in sizes:
            # Enough passes for the launch not to show: at least as much as the large arrays hold.
            passes = max(1, ARRAY // size)
            call = _launcher(run, blocks, [data, out, size // 16, passes])
            made.append(CeilingKernel(quantity, "reading", float(size) * passes, call, f"{size / MIB:g} MiB", size))
        return made

    def overheads(self) -> list[CeilingKernel]:
        """Steps of a network too small to compute anything, per operation: what launching costs."""
        from sonda.probes.ceilings.torch_kernels import tiny_inference, tiny_training

        with self.torch.device(self.device):
            return [tiny_inference(), tiny_training()]

    def _compile(self, name: str) -> Any:
        """A kernel of `SOURCE`; None where this PyTorch cannot compile, which is tried once."""
        if name not in self._compiled:
            try:
                self._compiled[name] = self.torch.cuda._compile_kernel(SOURCE, name)
            except Exception:
                self._compiled[name] = None
        return self._compiled[name]


def _launcher(run: Any, blocks: int, arguments: list[Any]) -> Callable[[], Any]:
    return lambda: run(grid=(blocks, 1, 1), block=(THREADS, 1, 1), args=arguments)
