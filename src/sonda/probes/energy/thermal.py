"""States of the processor that make its energy and time comparable: temperature, and how often it throttled."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from sonda.probes.energy.channels import Channel, EnergySources
from sonda.probes.energy.nvml import open_nvml
from sonda.probes.kernel_files import read_int, read_text

DRIVERS = {"coretemp": "Package id", "k10temp": "Tctl", "zenpower": "Tdie"}
"""Drivers of processors' sensors under `/sys/class/hwmon`, and how the label of the package's own begins."""
THROTTLED = "devices/system/cpu/cpu*/thermal_throttle/package_throttle_count"


class ProcessorReader:
    """Reads temperatures (°C) and counts of throttling, from files that stay open."""

    def __init__(self, channels: list[Channel], files: list[tuple[int, float]]) -> None:
        self.channels = channels
        self._files = files

    def read(self) -> tuple[int, list[float | None]]:
        return perf_counter_ns(), [_read_scaled(descriptor, scale) for descriptor, scale in self._files]

    def close(self) -> None:
        for descriptor, _ in self._files:
            os.close(descriptor)
        self._files = []


def open_processor_states(root: Path = Path("/")) -> EnergySources:
    """The processor's temperatures and counts of throttling that can be read. None is no lack."""
    channels: list[Channel] = []
    files: list[tuple[int, float]] = []
    for sensor, unit, path, scale in [*_find_temperatures(root), *_find_throttle_counts(root)]:
        try:
            files.append((os.open(path, os.O_RDONLY | os.O_CLOEXEC), scale))
        except OSError:
            continue
        origin = f"/{path.relative_to(root)}"
        channels.append(Channel(sensor=sensor, device="cpu", unit=unit, kind="state", origin=origin))
    return EnergySources([ProcessorReader(channels, files)] if channels else [])


def _find_temperatures(root: Path) -> list[tuple[str, str, Path, float]]:
    paths = []
    for folder in sorted((root / "sys/class/hwmon").glob("hwmon*")):
        label = DRIVERS.get(read_text(folder / "name") or "")
        for path in sorted(folder.glob("temp*_label")) if label else ():
            if (read_text(path) or "").startswith(label or ""):
                paths.append(path.with_name(path.name.replace("_label", "_input")))
    return [(f"package-{number} temperature", "°C", path, 1e-3) for number, path in enumerate(paths)]


def _find_throttle_counts(root: Path) -> list[tuple[str, str, Path, float]]:
    """One count for each package: all its processors show the same."""
    paths: dict[str, Path] = {}
    for path in sorted((root / "sys").glob(THROTTLED)):
        package = read_text(path.parent.parent / "topology/physical_package_id") or "0"
        paths.setdefault(package, path)
    return [(f"package-{package} throttle count", "1", path, 1.0) for package, path in paths.items()]


def read_throttle_count(root: Path = Path("/")) -> int | None:
    """How often the processor's packages were throttled since boot, in sum; None where the kernel does not show it."""
    counts = [read_int(path) for _, _, path, _ in _find_throttle_counts(root)]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _read_scaled(descriptor: int, scale: float) -> float | None:
    try:
        return int(os.pread(descriptor, 32, 0)) * scale
    except (OSError, ValueError):
        return None


# ---- How warm the machine is: packages of processors and GPUs, in °C ------------------------------------------------

CELSIUS = "°C"


def read_temperatures(
    root: Path = Path("/"), gpus: bool = True, load: Callable[[str], Any] = importlib.import_module
) -> dict[str, float]:
    """°C by device and sensor (`cpu package-0 temperature`, `cuda:0 temperature`); empty where nothing shows any.

    Sensors are opened and closed again, so that nothing keeps a driver awake between two readings.
    """
    temperatures: dict[str, float] = {}
    for sources in (open_processor_states(root), open_nvml(load) if gpus else None):
        if sources is None:
            continue
        for reader in sources.readers:
            _, values = reader.read()
            for channel, value in zip(reader.channels, values, strict=True):
                if channel.unit == CELSIUS and value is not None:
                    temperatures[f"{channel.device} {channel.sensor}"] = value
        sources.close()
    return temperatures
