"""A power model of the processor, for machines without a counter: an estimate, and only where it is asked for.

P = idle + (full - idle) · busy, with the watts that the user gives for the processor at rest and under full load, and
the busy share of all processors from `/proc/stat`. Linear in the load, as in Fan et al., ISCA 2007. The true shape is
not known, nor what frequency and instructions do to it: the interval is 40 % either way.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from time import perf_counter_ns

from sonda.probes.energy_channel import PACKAGES, Channel, Lack, Sources
from sonda.probes.kernel_files import read_text
from sonda.record.errors import SondaError

UNCERTAIN = 0.4
MODEL = re.compile(r"cpu=(\d+(?:\.\d+)?)\.\.(\d+(?:\.\d+)?)W?")
IDLE_FIELDS = (3, 4)
"""Of the `cpu` line of /proc/stat: idle and iowait."""
BUSY_FIELDS = 7
"""user nice system idle iowait irq softirq; steal is another machine's work, guests are in user already."""


def parse_model(text: str) -> tuple[float, float]:
    """`cpu=20..95`: W of the processor at rest and under full load. Raises SondaError for anything else."""
    match = MODEL.fullmatch(text.strip())
    idle, full = (float(match[1]), float(match[2])) if match else (1.0, 0.0)
    if full <= idle:
        remedy = "give the processor's watts at rest and under full load: cpu=20..95"
        raise SondaError(f"{text!r} is not a power model", remedy)
    return idle, full


class ModelReader:
    """A counter of modelled energy since it was opened, in J."""

    def __init__(self, root: Path, idle: float, full: float, tick: float = 0.0) -> None:
        self._path = root / "proc/stat"
        self._idle = idle
        self._full = full
        self._tick = tick or 1 / os.sysconf("SC_CLK_TCK")
        self._began: tuple[int, float] | None = None
        self.channels = [
            Channel(
                sensor="modelled energy", device="cpu", unit="J", kind="counter", source="estimated",
                origin=f"model: {idle:g} W at rest, {full:g} W under full load, /proc/stat", covers=PACKAGES,
                total=True, update=self._tick, highest=full, uncertain=UNCERTAIN,
            )
        ]  # fmt: skip

    def read(self) -> tuple[int, list[float | None]]:
        moment = perf_counter_ns()
        busy = self._busy()
        if busy is None:
            return moment, [None]
        self._began = self._began or (moment, busy)
        elapsed, worked = (moment - self._began[0]) / 1e9, busy - self._began[1]
        return moment, [self._idle * elapsed + (self._full - self._idle) * worked]

    def close(self) -> None:
        self._began = None

    def _busy(self) -> float | None:
        """s that all processors worked, divided by how many there are."""
        lines = (read_text(self._path) or "").splitlines()
        processors = sum(1 for line in lines if re.match(r"cpu\d", line))
        try:
            fields = [int(word) for word in lines[0].split()[1:]][:BUSY_FIELDS]
            return sum(ticks for at, ticks in enumerate(fields) if at not in IDLE_FIELDS) * self._tick / processors
        except (IndexError, ValueError, ZeroDivisionError):
            return None


def open_model(text: str, root: Path = Path("/")) -> Sources:
    """The model as a source. Raises SondaError where `text` is no model."""
    reader = ModelReader(root, *parse_model(text))
    if reader.read()[1][0] is None:
        return Sources(lacks=[Lack("power model", "/proc/stat cannot be read", "use Linux")])
    return Sources([reader])
