"""RAPL through powercap: the energy counters under `/sys/class/powercap`.

Zones go by name, not by number. `package-N` (`package-N-die-D`) holds `core` and `uncore`; `dram` stands below a
package but is not in it; `psys` holds all of them. `intel-rapl-mmio` shows zones of `intel-rapl` a second time. AMD
uses the same names, and has no `dram`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns

from sonda.probes.energy.channels import (
    HIGHEST_PACKAGE,
    HIGHEST_PLATFORM,
    MEMORY,
    PACKAGES,
    Channel,
    EnergySources,
    Lack,
)
from sonda.probes.kernel_files import read_int, read_text

FOLDER = "sys/class/powercap"
ZONE = re.compile(r"intel-rapl(-mmio)?:(\d+)(?::(\d+))?(?::\d+)*")
UPDATE_S = 0.001
"""RAPL's time unit is 0.976 ms."""
NAME = "RAPL (powercap)"
OPEN_TO_ALL = "run as root, or: chmod a+r /sys/class/powercap/intel-rapl*/energy_uj"
LOAD_AGAIN = "load intel_rapl_msr again"
NO_AMD_MEMORY = "AMD processors have no energy counter for memory"


@dataclass(frozen=True)
class Zone:
    """A counter: its name and its folder."""

    name: str
    """`package-0`, or below it: `package-0/dram`."""
    path: Path

    @property
    def domain(self) -> str:
        return self.name.rpartition("/")[2]

    @property
    def covers(self) -> str:
        """What its joules are spent by, where it belongs into sums; '' where it is a part of another zone."""
        return PACKAGES if self.domain.startswith("package") else MEMORY if self.domain == "dram" else ""


class PowercapReader:
    """Reads the counters of all zones, in J; the files stay open, because opening costs more than reading."""

    def __init__(self, channels: list[Channel], descriptors: list[int]) -> None:
        self.channels = channels
        self._descriptors = descriptors

    def read(self) -> tuple[int, list[float | None]]:
        before = perf_counter_ns()
        values = [_read_joules(descriptor) for descriptor in self._descriptors]
        return (before + perf_counter_ns()) // 2, values

    def close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []


def open_powercap(root: Path = Path("/")) -> EnergySources:
    """The zones that can be read, and what cannot, with the reason: no folder, no permission, no DRAM counter."""
    sources = EnergySources()
    zones = read_zones(root)
    if not zones:
        sources.lacks.append(
            Lack(NAME, f"no RAPL zones under /{FOLDER}", "use a bare-metal machine with the intel_rapl_msr module")
        )
        return sources
    channels: list[Channel] = []
    descriptors: list[int] = []
    for zone in zones:
        file = zone.path / "energy_uj"
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError:
            sources.lacks.append(_unreadable_zone(zone, "only root may read energy_uj", OPEN_TO_ALL))
            continue
        except OSError as error:
            sources.lacks.append(_unreadable_zone(zone, f"energy_uj: {error.strerror}", LOAD_AGAIN))
            continue
        if _read_joules(descriptor) is None:
            os.close(descriptor)
            sources.lacks.append(_unreadable_zone(zone, "energy_uj holds no number", LOAD_AGAIN))
            continue
        descriptors.append(descriptor)
        channels.append(_zone_channel(zone, package_of_die(zone.name, root)))
    if channels:
        sources.readers.append(PowercapReader(channels, descriptors))
    if not any(zone.domain == "dram" for zone in zones):
        sources.lacks.append(memory_lack(root, "this processor shows no dram zone"))
    return sources


def _unreadable_zone(zone: Zone, reason: str, remedy: str) -> Lack:
    what = f"{NAME} {zone.name}"
    return Lack(what, reason, remedy, zone.covers, *(("cpu", f"{zone.name} energy") if zone.covers else ()))


def memory_lack(root: Path, otherwise: str) -> Lack:
    """That no counter covers memory, with the reason: AMD has none; `otherwise` is the reason on other processors."""
    return Lack(MEMORY, NO_AMD_MEMORY if _is_amd(root) else otherwise, "a meter at the socket has it")


def package_of_die(name: str, root: Path) -> str:
    """Of a die's counter on AMD (`package-0-die-1`) the package, whose whole energy it may show; '' for any other."""
    package, die, _ = name.partition("-die-")
    return package if die and _is_amd(root) else ""


def _is_amd(root: Path) -> bool:
    return "AuthenticAMD" in (read_text(root / "proc/cpuinfo") or "")[:4096]


def read_zones(root: Path) -> list[Zone]:
    """Every zone once, by name. `intel-rapl-mmio` repeats zones of `intel-rapl`, which are taken instead."""
    zones: dict[str, Zone] = {}
    for path in sorted((root / FOLDER).glob("intel-rapl*:*"), key=_zone_order):
        match = ZONE.fullmatch(path.name)
        name = read_text(path / "name")
        if not match or not name:
            continue
        if match[3] is not None:
            parent = read_text(path.parent / f"intel-rapl{match[1] or ''}:{match[2]}" / "name") or f"zone-{match[2]}"
            name = f"{parent}/{name}"
        zones.setdefault(name, Zone(name, path))
    return list(zones.values())


def _zone_order(path: Path) -> tuple[bool, list[int]]:
    return "-mmio" in path.name, [int(number) for number in re.findall(r"\d+", path.name)]


def _zone_channel(zone: Zone, package: str) -> Channel:
    # Where nothing says at what the counter wraps, a fall is a fault and not a wrap.
    most = read_int(zone.path / "max_energy_range_uj") or 0
    return Channel(
        sensor=f"{zone.name} energy",
        device="cpu",
        unit="J",
        kind="counter",
        origin=f"/{FOLDER}/{zone.path.name}/energy_uj",
        covers=zone.covers,
        total=bool(zone.covers),
        wraps_at=most / 1e6,
        update=UPDATE_S,
        highest=HIGHEST_PLATFORM if zone.domain == "psys" else HIGHEST_PACKAGE,
        package=package,
    )


def _read_joules(descriptor: int) -> float | None:
    try:
        return int(os.pread(descriptor, 32, 0)) / 1e6
    except (OSError, ValueError):
        return None
