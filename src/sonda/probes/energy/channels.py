"""Channels: each is one sensor of an energy source and gives one value per reading. Lacks: what cannot be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

import msgspec

Kind = Literal["counter", "power", "state"]


class Channel(msgspec.Struct, frozen=True, omit_defaults=True):
    """One sensor. A counter grows (J), a power is that of a moment (W), a state holds until it changes."""

    sensor: str
    """`package-0 energy`, `power`, `temperature`."""
    device: str
    """`cpu`, or a GPU as programs name it: `cuda:0`."""
    unit: str
    kind: Kind
    origin: str
    """The file, event or call that it is read from."""
    source: str = "measured"
    covers: str = ""
    """What a counter's joules are spent by: `CPU packages`, `DRAM`."""
    total: bool = False
    """Whether it belongs into sums. A counter that is a part of another one does not."""
    wraps_at: float = 0.0
    """J at which a counter begins again at 0; 0 where it does not."""
    update: float = 0.0
    """s between two updates of the sensor itself."""
    highest: float = 0.0
    """W that the counter cannot grow faster than; 0 where that is not known."""
    uncertain: float = 0.0
    """The part, 0 to 1, by which the value may be wrong either way; for a model."""
    package: str = ""
    """Of a die on AMD: the package that it belongs to (`package-0`), whose whole energy it may show."""


class Lack(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that cannot be read: which, why, and what would change that."""

    what: str
    reason: str
    remedy: str = ""
    covers: str = ""
    """Of a counter that belongs into sums: what the sums lack without it, as `Channel.covers`."""
    device: str = ""
    """Of such a counter: its device and its name."""
    sensor: str = ""


class EnergyReader(Protocol):
    """Reads all channels of one source at one moment."""

    channels: list[Channel]

    def read(self) -> tuple[int, list[float | None]]:
        """The moment (ns, `perf_counter_ns`) and a value for every channel; None where it cannot be read now."""

    def close(self) -> None: ...


@dataclass
class EnergySources:
    """The readers that could be opened on a machine, and what cannot be read there."""

    readers: list[EnergyReader] = field(default_factory=list)
    lacks: list[Lack] = field(default_factory=list)
    about: dict[str, str] = field(default_factory=dict)
    """Names of devices: `{"cuda:0": "NVIDIA H200"}`."""
    identities: dict[str, str] = field(default_factory=dict)
    """The same devices as the driver knows them: `{"cuda:0": "GPU-..."}`."""

    def add(self, other: EnergySources) -> None:
        self.readers += other.readers
        self.lacks += other.lacks
        self.about |= other.about
        self.identities |= other.identities

    def close(self) -> None:
        for reader in self.readers:
            reader.close()


HIGHEST_PACKAGE, HIGHEST_PLATFORM, HIGHEST_BOARD = 1000.0, 8000.0, 2800.0
"""W: twice what the largest processors (500 W) and GPUs (1.4 kW) are specified for; a platform has up to 8 packages."""
PACKAGES, MEMORY, BOARD = "CPU packages", "DRAM", "GPU boards with their memory"
"""What counters cover, as coverage says it."""
