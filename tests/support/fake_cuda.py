"""A GPU that is not there: PyTorch's CPU under the names of `torch.cuda`, and NVML with figures set by hand."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from sonda.probes.ceilings import gpu_kernels
from sonda.probes.ceilings.gpu_kernels import THREADS
from sonda.probes.ceilings.processor_kernels import MIB

UUID = "5ca1ab1e-0000-0000-0000-000000000001"


class FakeEvent:
    """Reads the clock of its GPU when it is recorded."""

    def __init__(self, gpu: FakeCuda) -> None:
        self.gpu = gpu
        self.moment = 0.0

    def record(self) -> None:
        self.moment = self.gpu.seconds

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: FakeEvent) -> float:
        return 1e3 * (end.moment - self.moment)


class FakeCuda:
    """`torch.cuda` of one H200. Its clock moves only when a test moves it, or by `tick` at every recorded event."""

    class OutOfMemoryError(RuntimeError):
        pass

    def __init__(self, free_bytes: int = 10**9, capability: tuple[int, int] = (9, 0), tick: float = 0.0,
                 l2_bytes: int = 52_428_800) -> None:  # fmt: skip
        self.free_bytes, self.capability, self.tick, self.l2_bytes = free_bytes, capability, tick, l2_bytes
        self.time = 0.0
        self.emptied = 0
        self.launches: list[tuple[str, int, list[Any]]] = []
        self.can_compile = True

    @property
    def seconds(self) -> float:
        self.time += self.tick
        return self.time

    def Event(self, enable_timing: bool) -> FakeEvent:  # noqa: N802
        assert enable_timing
        return FakeEvent(self)

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 2

    def set_device(self, index: int) -> None:
        pass

    def get_device_capability(self, index: int) -> tuple[int, int]:
        return self.capability

    def get_device_properties(self, index: int) -> Any:
        return SimpleNamespace(
            name="NVIDIA H200", major=self.capability[0], minor=self.capability[1], multi_processor_count=132,
            total_memory=150_000_000_000, L2_cache_size=self.l2_bytes, memory_bus_width=6144, uuid=UUID,
            clock_rate=1_980_000, memory_clock_rate=3_201_000,
        )  # fmt: skip

    def mem_get_info(self, device: Any) -> tuple[int, int]:
        return self.free_bytes, 150_000_000_000

    def empty_cache(self) -> None:
        self.emptied += 1

    def _compile_kernel(self, source: str, name: str) -> Any:
        if not self.can_compile:
            raise RuntimeError("libnvrtc is missing")
        assert f"void {name}(" in source

        def run(grid: tuple[int, int, int], block: tuple[int, int, int], args: list[Any]) -> None:
            assert block == (THREADS, 1, 1)
            self.launches.append((name, grid[0], args))

        return run


class FakeTorch:
    """PyTorch with `cuda` replaced; tensors live on the CPU."""

    def __init__(self, cuda: FakeCuda, built: str | None = "13.0") -> None:
        import torch

        self.torch, self.cuda = torch, cuda
        self.version = SimpleNamespace(cuda=built)
        self.__version__ = "2.11.0+cu130"
        self.switches: list[str] = []

    def device(self, kind: Any, index: int = 0) -> Any:
        return self.torch.device("cpu")

    def set_float32_matmul_precision(self, precision: str) -> None:
        self.switches.append(precision)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.torch, name)


class FakeNvml:
    """Cards by name; each answers as an H200 with driver 580 does."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

    def __init__(self, names: tuple[str, ...] = ("NVIDIA H200",), busy: int = 0, pids: tuple[int, ...] = ()) -> None:
        self.names, self.busy, self.pids = names, busy, pids
        self.divided = False
        self.watts = 700_000

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, place: int) -> int:  # noqa: N802
        return place

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:  # noqa: N802
        if uuid != f"GPU-{UUID}":
            raise RuntimeError("Not Found")
        return 0

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802
        return self.names[handle]

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:  # noqa: N802
        return 9, 0

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(total=150_754_820_096)

    def nvmlDeviceGetMaxClockInfo(self, handle: int, kind: int) -> int:  # noqa: N802
        return {1: 1980, 2: 3201}[kind]

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:  # noqa: N802
        return 1830

    def nvmlDeviceGetMemoryBusWidth(self, handle: int) -> int:  # noqa: N802
        return 6144

    def nvmlDeviceGetPowerManagementLimit(self, handle: int) -> int:  # noqa: N802
        return self.watts

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "580.159.04"

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:  # noqa: N802
        return [int(self.divided), int(self.divided)]

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=self.busy)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(pid=pid) for pid in self.pids]


def shrink(monkeypatch: Any) -> None:
    """Kernels small enough for a CPU."""
    monkeypatch.setattr(gpu_kernels, "SIZES", (16, 32, 64))
    monkeypatch.setattr(gpu_kernels, "ARRAY", 8 * MIB)
    for name in ("SLICE_S", "SETTLE_S", "CLOCK_S"):
        monkeypatch.setattr(gpu_kernels, name, 0.0)


def fail(error: Exception) -> Callable[[], Any]:
    """Something to call that raises."""

    def make() -> Any:
        raise error

    return make
