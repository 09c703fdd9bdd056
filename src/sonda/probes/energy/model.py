"""A power model of processor, memory and GPUs, for machines without a counter: an estimate, only where it is asked for.

P = idle + (full - idle) · busy, with the watts that the user gives for a device at rest and under full load. How busy a
processor is comes from `/proc/stat`, a GPU from its driver. Linear in the load, as in Fan et al., ISCA 2007. The true
shape is not known, nor what frequency and instructions do to it: the interval is 40 % either way. How busy the memory
is nobody says, nor of some GPUs (MIG): their power is known to lie between rest and full load, which is the interval.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter_ns

from sonda.probes.energy.channels import BOARD, MEMORY, PACKAGES, Channel, Lack, Sources
from sonda.probes.kernel_files import read_text
from sonda.probes.machine.contamination import parse_stat
from sonda.record.errors import SondaError

UNCERTAIN = 0.4
MODELLED, MODELLED_MEMORY = "modelled energy", "modelled memory energy"
PARTS = ("cpu", "ram", "gpu")
WATTS = re.compile(rf"({'|'.join(PARTS)})=(\d+(?:\.\d+)?)\.\.(\d+(?:\.\d+)?)W?")
UTILISATION_S = 1.0
"""NVML's utilisation is that of the last period, which is a second at most."""

Watts = tuple[float, float]
"""At rest and under full load."""


def parse_model(text: str) -> dict[str, Watts]:
    """`cpu=20..95+ram=4..12+gpu=60..700`: W of each at rest and under full load; a GPU's are those of every GPU.

    Raises SondaError for anything else.
    """
    found: dict[str, Watts] = {}
    for piece in text.strip().split("+"):
        match = WATTS.fullmatch(piece)
        rest, full = (float(match[2]), float(match[3])) if match else (1.0, 0.0)
        if match is None or full <= rest or match[1] in found:
            remedy = "give watts at rest and under full load: cpu=20..95, or cpu=20..95+ram=4..12+gpu=60..700"
            raise SondaError(f"{text!r} is not a power model", remedy)
        found[match[1]] = rest, full
    return found


def _channel(sensor: str, device: str, watts: Watts, by: str, covers: str, update: float, uncertain: float) -> Channel:
    return Channel(
        sensor=sensor, device=device, unit="J", kind="counter", source="estimated",
        origin=f"model: {watts[0]:g} W at rest, {watts[1]:g} W under full load, {by}", covers=covers,
        total=True, update=update, highest=watts[1], uncertain=uncertain,
    )  # fmt: skip


def _between(sensor: str, device: str, watts: Watts, covers: str) -> Channel:
    """Of something whose load nobody knows: rest and full load are the ends of its interval."""
    uncertain = (watts[1] - watts[0]) / (watts[1] + watts[0])
    return _channel(sensor, device, watts, "the load is not known", covers, 0.0, uncertain)


class ModelReader:
    """A counter of the processor's modelled energy since it was opened, in J; with `memory` one of that beside it, read
    at the same moment."""

    def __init__(self, root: Path, idle: float, full: float, ticks: int = 0, memory: Watts | None = None) -> None:
        self._path = root / "proc/stat"
        self._idle = idle
        self._full = full
        self._memory = memory
        self._ticks = ticks or os.sysconf("SC_CLK_TCK")
        self._began: tuple[int, float] | None = None
        self.channels = [_channel(MODELLED, "cpu", (idle, full), "/proc/stat", PACKAGES, 1 / self._ticks, UNCERTAIN)]
        if memory:
            self.channels.append(_between(MODELLED_MEMORY, "cpu", memory, MEMORY))

    def read(self) -> tuple[int, list[float | None]]:
        moment = perf_counter_ns()
        busy = self._busy()
        if busy is None:
            return moment, [None] * len(self.channels)
        self._began = self._began or (moment, busy)
        elapsed, worked = (moment - self._began[0]) / 1e9, busy - self._began[1]
        joules: list[float | None] = [self._idle * elapsed + (self._full - self._idle) * worked]
        return moment, [*joules, sum(self._memory) / 2 * elapsed] if self._memory else joules

    def close(self) -> None:
        self._began = None

    def _busy(self) -> float | None:
        """s that all processors worked, divided by how many there are."""
        stat = parse_stat(read_text(self._path) or "", self._ticks)
        return stat["busy"] / stat["cores"] if {"busy", "cores"} <= stat.keys() else None


class BetweenReader:
    """A counter of something whose load nobody knows, in J: halfway between rest and full load."""

    def __init__(self, sensor: str, device: str, watts: Watts, covers: str) -> None:
        self._watts = sum(watts) / 2
        self._began: int | None = None
        self.channels = [_between(sensor, device, watts, covers)]

    def read(self) -> tuple[int, list[float | None]]:
        moment = perf_counter_ns()
        self._began = moment if self._began is None else self._began
        return moment, [self._watts * (moment - self._began) / 1e9]

    def close(self) -> None:
        self._began = None


class BusyReader:
    """A counter of a GPU's modelled energy since it was opened, in J, by the load that its driver tells (0 to 100)."""

    def __init__(self, device: str, watts: Watts, load: Callable[[], float]) -> None:
        self._watts, self._load = watts, load
        self._last: tuple[int, float] | None = None
        self._joules = 0.0
        by = "the driver's utilisation"
        self.channels = [_channel(MODELLED, device, watts, by, BOARD, UTILISATION_S, UNCERTAIN)]

    def read(self) -> tuple[int, list[float | None]]:
        moment = perf_counter_ns()
        try:
            busy = float(self._load()) / 100
        except Exception:
            return moment, [None]
        if math.isnan(busy):
            return moment, [None]
        rest, full = self._watts
        power = rest + (full - rest) * busy
        if self._last is not None:
            # What it tells is of the time before, which is the time since the last reading.
            self._joules += power * (moment - self._last[0]) / 1e9
        self._last = (moment, power)
        return moment, [self._joules]

    def close(self) -> None:
        self._last = None


def open_model(
    text: str, root: Path = Path("/"), loads: Mapping[str, Callable[[], float] | None] | None = None
) -> Sources:
    """The model as a source. `loads` are the machine's GPUs with what tells their load, or None for those that do not.

    Raises SondaError where `text` is no model.
    """
    watts = parse_model(text)
    found = Sources()
    if "cpu" in watts:
        reader = ModelReader(root, *watts["cpu"], memory=watts.get("ram"))
        if reader.read()[1][0] is None:
            found.lacks.append(Lack("power model", "/proc/stat cannot be read", "use Linux"))
        else:
            found.readers.append(reader)
    elif "ram" in watts:
        found.readers.append(BetweenReader(MODELLED_MEMORY, "cpu", watts["ram"], MEMORY))
    if "gpu" in watts:
        for device, load in (loads or {}).items():
            known = BusyReader(device, watts["gpu"], load) if load else None
            found.readers.append(known or BetweenReader(MODELLED, device, watts["gpu"], BOARD))
        if not loads:
            found.lacks.append(Lack("power model of GPUs", "NVML shows no GPU", "leave out gpu="))
    return found
