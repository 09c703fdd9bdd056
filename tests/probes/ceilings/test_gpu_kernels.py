"""What is run on a GPU to find its ceilings: what is timed, how it is timed, and what each call counts."""

from __future__ import annotations

import math
import weakref

import pytest
import torch

from fake_cuda import FakeCuda, FakeTorch, fail, shrink
from sonda.probes.ceilings import gpu_kernels
from sonda.probes.ceilings.gpu_kernels import (
    SOURCE,
    GpuKernels,
    KernelGroup,
    TimedKernel,
    largest_sizes,
    measure_groups,
    summarise_gpu,
    time_kernel,
)
from sonda.probes.ceilings.processor_kernels import MIB, CeilingKernel

torch.set_num_threads(1)
NO_CLOCK = lambda: math.nan  # noqa: E731


class Clock:
    """Time that passes only while kernels run."""

    def __init__(self, seconds):
        self.now, self.seconds = 0.0, list(seconds)

    def timer(self, call, times):
        took = self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]
        self.now += took * times
        return took

    def read(self):
        return self.now


def kernel(amount=1e9, name="float32", quantity="flops", footprint=0):
    return CeilingKernel(quantity, name, amount, lambda: None, "", footprint)


def test_the_rate_is_the_median_after_it_has_settled():
    # Two calls to begin with, then slow samples while the clock rises, three alike, then what is measured.
    clock = Clock([0.9, 0.1, 0.5, 0.4, 0.1, 0.1, 0.1, 0.1, 0.2, 0.1, 0.1, 0.1])
    found = time_kernel(kernel(), clock.timer, lambda: 1.98e9, clock.read)
    assert found.rate == pytest.approx(1e9 / 0.1)
    assert found.clock == 1.98e9


def test_the_spread_is_how_far_the_median_falls_short_of_the_best():
    clock = Clock([0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.1, 0.2, 0.2, 0.2])
    found = time_kernel(kernel(), clock.timer, NO_CLOCK, clock.read)
    # The median is 0.2 s, the best 0.1 s.
    assert (found.rate, found.spread) == pytest.approx((5e9, 0.5))


def test_short_kernels_are_repeated_between_two_events():
    clock, repeats = Clock([1e-5]), []

    def timer(call, times):
        repeats.append(times)
        return clock.timer(call, times)

    time_kernel(kernel(), timer, NO_CLOCK, clock.read)
    # 3 ms / 10 µs.
    assert max(repeats) == 300


def groups(*made):
    return iter([KernelGroup(name, make) for name, make in made])


def measured(*made, budget=8.0, seconds=0.05):
    clock, released = Clock([seconds]), []
    found = measure_groups(groups(*made), clock.timer, NO_CLOCK, lambda: released.append(1), MemoryError, clock.read,
                           budget)  # fmt: skip
    return (*found, len(released))


def test_what_fails_is_missing_with_its_reason_and_its_memory_is_given_back():
    timed, missing, released = measured(
        ("float32", lambda: [kernel()]),
        ("float64", fail(MemoryError())),
        ("float8", fail(RuntimeError("no such kernel\nsecond line"))),
    )
    assert [one.kernel.name for one in timed] == ["float32"]
    assert missing == {"float64": "the GPU has too little free memory", "float8": "no such kernel"}
    assert released == 3


def test_the_memory_of_a_group_is_free_before_the_next_is_made():
    tensors = []

    def first():
        held = torch.zeros(10)
        tensors.append(weakref.ref(held))
        return [CeilingKernel("flops", "float32", 1.0, lambda: held, "")]

    def second():
        assert tensors[0]() is None
        return [kernel()]

    assert len(measured(("a", first), ("b", second))[0]) == 2


def test_no_group_begins_after_the_time_is_spent():
    timed, missing, _ = measured(("a", lambda: [kernel()]), ("b", lambda: [kernel()]), budget=0.1)
    assert len(timed) == 1
    assert missing == {"b": "not measured within 0.1 s"}


def timed(quantity, name, rate, footprint=0, clock=1.9e9):
    return TimedKernel(kernel(1.0, name, quantity, footprint), rate, 0.01, clock)


def test_the_entry_has_the_best_of_each_figure():
    entry = summarise_gpu(
        [
            timed("flops", "float32", 51e12), timed("flops", "float32", 60e12, clock=1.98e9),
            timed("memory", "copy", 4.0e12, 2 << 30), timed("memory", "reading", 4.4e12, 1 << 30),
            timed("cache", "reading", 7e12, 16 * MIB), timed("cache", "reading", 9e12, 40 * MIB),
            timed("overhead", "operation_ns", 2e5),
        ],
        {"float8": "why"}, 50 * MIB,
    )  # fmt: skip
    assert entry["flops"] == {"float32": 60e12}
    assert entry["clocks"]["float32"] == 1.98e9
    assert (entry["dram_bandwidth"], entry["dram_stream"]) == (4.4e12, 4.0e12)
    # 40 MiB are more than half of the cache: part of the curve, no ceiling.
    assert entry["cache_bandwidth"] == 7e12
    assert entry["bandwidth_curve"] == [[16 * MIB, 7e12], [40 * MIB, 9e12], [1 << 30, 4.4e12]]
    # 2e5 operations a second.
    assert entry["operation_ns"] == 5000
    assert entry["missing"] == {"float8": "why"}


def test_products_are_as_large_as_time_and_memory_allow():
    # 2048 took 0.4 ms: 8192 takes 64 times as long, 26 ms. 3 x 8192² x 4 B are 0.8 GB.
    assert largest_sizes(0.0004, 2048, 4e9, 4) == [4096, 8192]
    assert largest_sizes(0.0004, 2048, 1e9, 4) == [2048, 4096]
    # At 2 ms 8192 would take 128 ms.
    assert largest_sizes(0.002, 2048, 4e9, 4) == [2048, 4096]
    assert largest_sizes(9.0, 2048, 4e9, 4) == [1024]


def test_footprints_rise_within_the_cache():
    assert [size / MIB for size in gpu_kernels.l2_footprints(50 * MIB)] == [6, 12, 16, 25, 37, 50]
    assert gpu_kernels.l2_footprints(1536 * 1024)[0] == 192 * 1024
    assert gpu_kernels.l2_footprints(0) == []


@pytest.fixture
def small(monkeypatch):
    shrink(monkeypatch)


def test_products_compute_what_they_count(small):
    fake = FakeTorch(FakeCuda(tick=1e-4))
    made = GpuKernels(fake, 0, 132, MIB).products("float64")
    assert [one.amount for one in made] == [2 * 32**3, 2 * 64**3]
    result = made[1].call()
    assert result.shape == (64, 64) and result.dtype == torch.float64


def test_tf32_and_float32_set_the_switch_before_they_are_timed(small):
    fake = FakeTorch(FakeCuda(tick=1e-4))
    maker = GpuKernels(fake, 0, 132, MIB)
    maker.products("tf32", least=(8, 0))
    maker.products("float32")
    assert fake.switches == ["high", "highest"]


def test_what_the_hardware_lacks_is_not_measured_on_something_else(small):
    maker = GpuKernels(FakeTorch(FakeCuda(capability=(7, 5))), 0, 40, MIB)
    with pytest.raises(RuntimeError, match=r"needs compute capability 8\.0, this GPU has 7\.5"):
        maker.products("bfloat16", least=(8, 0))


def test_passes_count_bytes_read_plus_written(small):
    made = {one.name: one for one in GpuKernels(FakeTorch(FakeCuda()), 0, 132, MIB).passes()}
    assert {name: one.amount / MIB for name, one in made.items()} == {
        "copy": 16,
        "triad": 24,
        "update": 16,
        "reading": 8,
    }
    for one in made.values():
        one.call()


def test_the_compiled_kernels_get_the_arguments_that_their_source_wants(small):
    cuda = FakeCuda()
    maker = GpuKernels(FakeTorch(cuda), 0, 10, 4 * MIB)
    (chain,) = maker.chain()
    # 4 blocks of 256 threads on each of 10 SMs, 4096 passes of 16 x 8 multiply-adds.
    assert chain.amount == 2 * 16 * 8 * 4096 * 4 * 10 * 256
    chain.call()
    cached = maker.cached()
    assert [one.footprint / MIB for one in cached] == [0.5, 1, 2, 3, 4]
    cached[1].call()
    name, blocks, (_, _, count, passes) = cuda.launches[-1]
    # Each pass reads 1 MiB as float4; 8 passes make 8 MiB.
    assert (name, blocks, 16 * count, passes, cached[1].amount) == ("reading", 80, MIB, 8, 8 * MIB)
    assert cuda.launches[0][0] == "chain" and cuda.launches[0][2][1] == 4096


def test_float64_outside_tensor_cores_is_measured_by_a_chain_of_its_own(small):
    cuda = FakeCuda()
    (chain,) = GpuKernels(FakeTorch(cuda), 0, 10, 4 * MIB).double_chain()
    assert (chain.quantity, chain.name, chain.amount) == ("flops", "float64_cores", 2 * 16 * 8 * 512 * 4 * 10 * 256)
    chain.call()
    name, _, (out, passes, _) = cuda.launches[-1]
    assert (name, out.dtype, passes) == ("chain_double", torch.float64, 512)
    source = SOURCE[SOURCE.index("void chain_double(") : SOURCE.index("void reading(")]
    # Eight multiply-adds, sixteen times, all in double: a float among them would be computed by other units.
    assert source.count(" = fma(") == 8 and "link < 16" in source and "float" not in source and "fmaf" not in source


def test_without_a_compiler_the_cache_is_copied_and_says_so(small):
    cuda = FakeCuda()
    cuda.can_compile = False
    maker = GpuKernels(FakeTorch(cuda), 0, 132, 8 * MIB)
    assert maker.chain() == []
    with pytest.raises(RuntimeError, match="cannot compile"):
        maker.double_chain()
    (copy,) = maker.cached()
    assert (copy.name, copy.amount, copy.detail) == ("copy", 4 * MIB, "in L2, launches included")
    copy.call()
