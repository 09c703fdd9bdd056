"""The sampler: a process of its own that reads energy sources on a regular grid until its parent closes its input.

Started as `python -m sonda.probes.energy.sampler` with its settings as one line of JSON on standard input. It writes
lines of JSON to a file: what can be read, then the readings. It ends with its parent, however that ends: the input
closes.
"""

from __future__ import annotations

import os
import resource
import select
import signal
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns, sleep
from typing import Any

import msgspec

from sonda.probes.energy.channels import Channel, EnergySources, Lack
from sonda.probes.energy.regions import Mark, RegionFile
from sonda.probes.energy.sources import open_sources

READY, READ = b"ready\n", b"read\n"
"""What it says after its first reading, and after one that its parent asked for."""
MOST_ROWS = 20_000
"""Readings after which the interval doubles, so that a program that runs for days does not fill the disk."""
SOONEST = 5_000_000
"""ns. Marks closer than this share a reading: reading a GPU takes about as long."""
LONGEST_INTERVAL = 10.0
"""s. A counter that wraps must be read often enough to see each wrap."""


class SamplerSettings(msgspec.Struct, kw_only=True):
    """How the sampler is to read, and where it finds and leaves its files."""

    interval: float
    """s between readings."""
    file: str
    regions: str
    root: str = "/"
    gpus: bool = True
    model: str = ""


class SamplerHeader(msgspec.Struct, kw_only=True):
    """The first line: the channels of every reader, what is missing, the devices' names and identities."""

    channels: list[list[Channel]]
    lacks: list[Lack] = []
    about: dict[str, str] = {}
    identities: dict[str, str] = {}


class SamplerRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Any other line: a reading of every reader (its moment in ns, then its values), a mark, or the end."""

    readings: list[list[float | None]] = []
    mark: Mark | None = None
    interval: float = 0.0
    """s, where it changes here."""
    cpu: float = 0.0
    """s of processor time that the sampler took from its first reading on; in the last line."""


class Sampler:
    """Reads sources and writes rows."""

    def __init__(self, sources: EnergySources, interval: float, write: Callable[[Any], None]) -> None:
        self.sources = sources
        self._step = max(1, round(interval * 1e9))
        self._write = write
        self._rows = 0
        self._next = 0
        self._last = 0

    def begin(self) -> None:
        """Say what can be read, and read it once."""
        sources = self.sources
        channels = [list(reader.channels) for reader in sources.readers]
        self._write(
            SamplerHeader(channels=channels, lacks=sources.lacks, about=sources.about, identities=sources.identities)
        )
        self.read()
        self._next = perf_counter_ns() + self._step

    def read(self) -> None:
        readings: list[list[float | None]] = []
        for reader in self.sources.readers:
            moment, values = reader.read()
            readings.append([moment, *values])
        self._write(SamplerRow(readings=readings))
        self._rows += 1
        if self._rows % MOST_ROWS == 0 and 2 * self._step <= LONGEST_INTERVAL * 1e9:
            self._step *= 2
            self._write(SamplerRow(interval=self._step / 1e9))

    def mark(self, mark: Mark) -> None:
        self._write(SamplerRow(mark=mark if mark.time else mark._replace(time=perf_counter_ns())))

    def run(self, wait: Callable[[int], list[Mark] | None], now: Callable[[], int] = perf_counter_ns) -> None:
        """Read on a regular grid and at every mark, until `wait` gives None. A moment that was missed is left out.

        `wait` sleeps until a moment (ns) or until a program marks a region, and gives the new marks.
        """
        while (marks := wait(self._next)) is not None:
            for mark in marks:
                self.mark(mark)
            moment = now()
            if moment >= self._next:
                self._next += (1 + (moment - self._next) // self._step) * self._step
            elif moment - self._last < SOONEST:
                continue
            self._last = moment
            self.read()

    def end(self, rest: Callable[[float], None] = sleep) -> None:
        """Read once more, and again when the slowest counter has had time for an update."""
        self.read()
        updates = [channel.update for reader in self.sources.readers for channel in reader.channels]
        rest(max(updates, default=0.0))
        self.read()


def main() -> None:
    # A terminal's interrupt goes to the program that is measured; we end when our parent does.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parent = os.getppid()
    line = b""
    while not line.endswith(b"\n"):  # unbuffered, because what follows is waited for by `select`
        line += os.read(0, 65536) or b"\n"
    settings = msgspec.json.decode(line, type=SamplerSettings)
    encoder = msgspec.json.Encoder()
    output = os.open(settings.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(row: Any) -> None:
        os.write(output, encoder.encode(row) + b"\n")

    sources = open_sources(Path(settings.root), settings.gpus, settings.model)
    regions = RegionFile(settings.regions)
    sampler = Sampler(sources, settings.interval, write)
    sampler.begin()
    before = _processor_time()
    os.write(1, READY)
    watched = [0, regions.changed] if regions.changed >= 0 else [0]

    def wait(moment: int) -> list[Mark] | None:
        timeout = max(0, moment - perf_counter_ns()) / 1e9
        woken = select.select(watched, [], [], timeout)[0]
        # A fork of our parent may hold our input open after it has gone.
        asked = os.read(0, len(READ)) if 0 in woken else b""
        if (0 in woken and not asked) or os.getppid() != parent:
            return None
        if asked:
            sampler.read()
            os.write(1, READY)
        return regions.read_marks()

    sampler.run(wait)
    for mark in regions.read_marks():
        sampler.mark(mark)
    sampler.end()
    write(SamplerRow(cpu=_processor_time() - before))
    sources.close()


def _processor_time() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
