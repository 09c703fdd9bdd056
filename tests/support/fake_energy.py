"""Energy sensors that stand in for a machine's: a powercap tree, a power PMU, and NVML."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

INTEL_RANGE = 262_143_328_850
"""max_energy_range_uj of an Intel package: (2^32 - 1) x 61.035 µJ."""
FOLDER = "sys/class/powercap"


@dataclass
class Powercap:
    """`/sys/class/powercap` under a root: zones by number (`0`, `0:1`, `mmio:0`), counters in µJ."""

    root: Path

    def zone(self, number: str, name: str, energy: int = 0, most: int | None = INTEL_RANGE) -> Path:
        kind = "intel-rapl-mmio" if number.startswith("mmio:") else "intel-rapl"
        folder = self.root / FOLDER / f"{kind}:{number.removeprefix('mmio:')}"
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "energy_uj").write_text(f"{energy}\n")
        if most is not None:
            (folder / "max_energy_range_uj").write_text(f"{most}\n")
        return folder / "energy_uj"

    def server(self) -> dict[str, Path]:
        """Two packages with core and dram, as an Intel server shows them."""
        found = {}
        for package in (0, 1):
            found[f"package-{package}"] = self.zone(str(package), f"package-{package}", 1_000_000)
            found[f"package-{package}/core"] = self.zone(f"{package}:0", "core", 500_000)
            found[f"package-{package}/dram"] = self.zone(f"{package}:1", "dram", 2_000_000)
        return found


def processor(root: Path, vendor: str) -> None:
    (root / "proc").mkdir(parents=True, exist_ok=True)
    (root / "proc/cpuinfo").write_text(f"processor\t: 0\nvendor_id\t: {vendor}\n")


def power_pmu(root: Path, events: Mapping[str, int], cpus: str = "0") -> None:
    """The `power` PMU with these events and their codes; processor 0 is in package 0, 18 in package 1."""
    pmu = root / "sys/bus/event_source/devices/power"
    (pmu / "events").mkdir(parents=True)
    (pmu / "type").write_text("24\n")
    (pmu / "cpumask").write_text(f"{cpus}\n")
    for name, code in events.items():
        (pmu / "events" / name).write_text(f"event=0x{code:02x}\n")
        (pmu / "events" / f"{name}.scale").write_text("2.3283064365386962890625e-10\n")
        (pmu / "events" / f"{name}.unit").write_text("Joules\n")
    for cpu, package in ((0, 0), (18, 1)):
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{package}\n")


class FakeEvent:
    """A counter of perf whose reads a test gives."""

    opened: list[FakeEvent] = []  # noqa: RUF012 (a test empties it)

    def __init__(self, kind: int, config: int, process: int, cpu: int, user: bool = True) -> None:
        self.asked = (kind, config, process, cpu, user)
        self.count = 0
        self.closed = False
        FakeEvent.opened.append(self)

    def read(self) -> int:
        return self.count

    def close(self) -> None:
        self.closed = True


class NvmlError(Exception):
    """As the binding raises it."""


@dataclass
class FakeGpu:
    """One GPU: readings by name, an exception where it refuses."""

    name: str = "NVIDIA H200"
    uuid: str = "GPU-0a"
    energy: int | Exception = 0
    """mJ."""
    instant: int | Exception = 0
    """mW."""
    average: int | Exception = 0
    usage: int | Exception = 0
    clock: int | Exception = 1980
    memory_clock: int | Exception = 3201
    temperature: int | Exception = 41
    reasons: int | Exception = 0
    utilisation: int | Exception = 0


@dataclass
class FakeNvml:
    """The part of `pynvml` that the probe uses."""

    gpus: Sequence[FakeGpu] = field(default_factory=list)
    refuses: Exception | None = None
    running: int = 0

    def load(self, name: str) -> Any:
        assert name == "pynvml"
        return self

    def nvmlInit(self) -> None:  # noqa: N802 (NVML's names)
        if self.refuses is not None:
            raise self.refuses
        self.running += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.running -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:  # noqa: N802
        return self.gpus[index]

    def nvmlDeviceGetFieldValues(self, gpu: FakeGpu, fields: list[int]) -> list[Any]:  # noqa: N802
        found = []
        for number in fields:
            value = {186: gpu.instant, 185: gpu.average}[number]
            refused = isinstance(value, Exception)
            found.append(SimpleNamespace(nvmlReturn=3 if refused else 0, value=SimpleNamespace(uiVal=value)))
        return found

    def nvmlDeviceGetClockInfo(self, gpu: FakeGpu, clock: int) -> int:  # noqa: N802
        return _given({1: gpu.clock, 2: gpu.memory_clock}[clock])

    def nvmlDeviceGetTemperature(self, gpu: FakeGpu, sensor: int) -> int:  # noqa: N802
        assert sensor == 0
        return _given(gpu.temperature)

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=_given(gpu.utilisation))

    def __getattr__(self, name: str) -> Callable[[FakeGpu], Any]:
        attribute = {
            "nvmlDeviceGetName": "name",
            "nvmlDeviceGetUUID": "uuid",
            "nvmlDeviceGetTotalEnergyConsumption": "energy",
            "nvmlDeviceGetPowerUsage": "usage",
            "nvmlDeviceGetCurrentClocksEventReasons": "reasons",
        }[name]
        return lambda gpu: _given(getattr(gpu, attribute))


def _given(value: Any) -> Any:
    if isinstance(value, Exception):
        raise value
    return value


def deny(path: Path, monkeypatch: Any) -> None:
    """Make opening this file fail as it does for an ordinary user, whoever runs the test."""
    real = os.open

    def refusing(name: Any, *rest: Any, **more: Any) -> int:
        if Path(name) == path:
            raise PermissionError(13, "Permission denied", str(name))
        return real(name, *rest, **more)

    monkeypatch.setattr(os, "open", refusing)
