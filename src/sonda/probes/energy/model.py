"""A power model of processor, memory and GPUs, for machines without a counter: an estimate, only where it is asked for.

P = idle + (full - idle) · busy, with the watts that the user gives for a device at rest and under full load. How busy a
processor is comes from `/proc/stat`, a GPU from its driver. The model is linear in the load, as in Fan et al., ISCA
2007. The true shape is not known, nor what frequency and instructions do to it: the interval is 40 % either way.
Nothing tells how busy the memory is, or some GPUs (MIG): for those the interval goes from rest to full load.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter_ns

from sonda.probes.energy.channels import BOARD, MEMORY, PACKAGES, Channel, EnergySources, Lack
from sonda.probes.kernel_files import read_text
from sonda.probes.machine.contamination import parse_stat
from sonda.record.errors import SondaError

UNCERTAIN = 0.4
MODELLED, MODELLED_MEMORY = "modelled energy", "modelled memory energy"
PARTS = ("cpu", "ram", "gpu")
WATTS = re.compile(rf"({'|'.join(PARTS)})=(\d+(?:\.\d+)?)\.\.(\d+(?:\.\d+)?)W?")
UTILISATION_S = 1.0
"""NVML gives the utilisation of the last period, which is a second at most."""

Watts = tuple[float, float]
"""At rest and under full load."""


def parse_model(text: str) -> dict[str, Watts]:
    """`cpu=20..95+ram=4..12+gpu=60..700`: W of each at rest and under full load; a GPU's are those of every GPU.

    Raises SondaError for anything else.
    """
    watts: dict[str, Watts] = {}
    for piece in text.strip().split("+"):
        match = WATTS.fullmatch(piece)
        rest, full = (float(match[2]), float(match[3])) if match else (1.0, 0.0)
        if match is None or full <= rest or match[1] in watts:
            remedy = "give watts at rest and under full load: cpu=20..95, or cpu=20..95+ram=4..12+gpu=60..700"
            raise SondaError(f"{text!r} is not a power model", remedy)
        watts[match[1]] = rest, full
    return watts


def _modelled_channel(
    sensor: str, device: str, watts: Watts, by: str, covers: str, update: float, uncertain: float
) -> Channel:
    return Channel(
        sensor=sensor, device=device, unit="J", kind="counter", source="estimated",
        origin=f"model: {watts[0]:g} W at rest, {watts[1]:g} W under full load, {by}", covers=covers,
        total=True, update=update, highest=watts[1], uncertain=uncertain,
    )  # fmt: skip


def _bounded_channel(sensor: str, device: str, watts: Watts, covers: str) -> Channel:
    """A channel of a device whose load is not known: its interval goes from rest to full load."""
    uncertain = (watts[1] - watts[0]) / (watts[1] + watts[0])
    return _modelled_channel(sensor, device, watts, "the load is not known", covers, 0.0, uncertain)


class ProcessorModelReader:
    """A counter of the processor's modelled energy since it was opened, in J.

    With the `memory`'s watts it has a second channel for the memory, read at the same moment.
    """

    def __init__(self, root: Path, idle: float, full: float, ticks: int = 0, memory: Watts | None = None) -> None:
        self._path = root / "proc/stat"
        self._idle = idle
        self._full = full
        self._memory = memory
        self._ticks = ticks or os.sysconf("SC_CLK_TCK")
        self._began: tuple[int, float] | None = None
        self.channels = [
            _modelled_channel(MODELLED, "cpu", (idle, full), "/proc/stat", PACKAGES, 1 / self._ticks, UNCERTAIN)
        ]
        if memory:
            self.channels.append(_bounded_channel(MODELLED_MEMORY, "cpu", memory, MEMORY))

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
        """s that the processors worked, on average over all of them."""
        stat = parse_stat(read_text(self._path) or "", self._ticks)
        return stat["busy"] / stat["cores"] if {"busy", "cores"} <= stat.keys() else None


class MidpointReader:
    """A counter of a device whose load is not known, in J: halfway between rest and full load."""

    def __init__(self, sensor: str, device: str, watts: Watts, covers: str) -> None:
        self._watts = sum(watts) / 2
        self._began: int | None = None
        self.channels = [_bounded_channel(sensor, device, watts, covers)]

    def read(self) -> tuple[int, list[float | None]]:
        moment = perf_counter_ns()
        self._began = moment if self._began is None else self._began
        return moment, [self._watts * (moment - self._began) / 1e9]

    def close(self) -> None:
        self._began = None


class UtilisationReader:
    """A counter of a GPU's modelled energy since it was opened, in J, by the load that its driver tells (0 to 100)."""

    def __init__(self, device: str, watts: Watts, load: Callable[[], float]) -> None:
        self._watts, self._load = watts, load
        self._last: tuple[int, float] | None = None
        self._joules = 0.0
        by = "the driver's utilisation"
        self.channels = [_modelled_channel(MODELLED, device, watts, by, BOARD, UTILISATION_S, UNCERTAIN)]

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
            # The driver gives the load of the time before, which is the time since the last reading.
            self._joules += power * (moment - self._last[0]) / 1e9
        self._last = (moment, power)
        return moment, [self._joules]

    def close(self) -> None:
        self._last = None


def open_model(
    text: str, root: Path = Path("/"), loads: Mapping[str, Callable[[], float] | None] | None = None
) -> EnergySources:
    """The model as a source. `loads` has a function for every GPU that gives its load (%), or None where nothing does.

    Raises SondaError where `text` is no model.
    """
    watts = parse_model(text)
    sources = EnergySources()
    if "cpu" in watts:
        reader = ProcessorModelReader(root, *watts["cpu"], memory=watts.get("ram"))
        if reader.read()[1][0] is None:
            sources.lacks.append(Lack("power model", "/proc/stat cannot be read", "use Linux"))
        else:
            sources.readers.append(reader)
    elif "ram" in watts:
        sources.readers.append(MidpointReader(MODELLED_MEMORY, "cpu", watts["ram"], MEMORY))
    if "gpu" in watts:
        for device, load in (loads or {}).items():
            sources.readers.append(
                UtilisationReader(device, watts["gpu"], load)
                if load
                else MidpointReader(MODELLED, device, watts["gpu"], BOARD)
            )
        if not loads:
            sources.lacks.append(Lack("power model of GPUs", "NVML shows no GPU", "leave out gpu="))
    return sources
