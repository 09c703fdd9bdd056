"""What a measured total covers: the parts of a machine, how many counters of each could be believed, which could not.

A machine with two packages of which one may not be read has half a total, and says so: `CPU packages (1 of 2)`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sonda.analysis.energy.meters import BOARD, Meter
from sonda.record.readings import StoredEnergy

PARTS = ("CPU packages", "DRAM", BOARD)
NEVER = "disks, network, fans, power supply"
"""What no counter of ours ever covers."""
PLATFORM = "platform"
"""A counter of the platform holds all others of the processor."""


@dataclass(frozen=True)
class Lost:
    """A counter that belongs into totals and is in none."""

    name: str
    """`package-1`, or the GPU: `cuda:1`."""
    device: str
    covers: str


@dataclass(frozen=True)
class EnergyCoverage:
    """Of some devices of one machine."""

    parts: Mapping[str, tuple[int, int]]
    """By part: counters that are in the total, and counters that there are."""
    lost: tuple[Lost, ...] = ()
    """Those that are not, of parts that are covered otherwise."""

    @property
    def covers(self) -> tuple[str, ...]:
        return covered(self.parts)

    @property
    def lacking(self) -> tuple[str, ...]:
        """Parts without any counter, then counters of the others."""
        whole = any(PLATFORM in part for part in self.parts)
        return (
            *(part for part in PARTS if part not in self.parts and not whole),
            *(lost_counter.name for lost_counter in self.lost),
        )

    def without(self, devices: Collection[str] = ()) -> list[str]:
        """Names of the counters that a total of these devices lacks, or of all devices."""
        return [lost_counter.name for lost_counter in self.lost if not devices or lost_counter.device in devices]


def covered(parts: Mapping[str, tuple[int, int]]) -> tuple[str, ...]:
    """The parts in their order, with their counts where some are not in: `CPU packages (1 of 2)`."""
    return tuple(part + _count(*parts[part]) for part in in_order(parts))


def in_order(parts: Collection[str]) -> list[str]:
    """Parts as they are listed."""
    return [*(part for part in PARTS if part in parts), *sorted(set(parts) - set(PARTS) - {""})]


Counts = Mapping[str, tuple[int, int]]
"""By part: counters that are in a total, and counters that there are."""


def covered_on(nodes: Sequence[tuple[str, Counts]]) -> tuple[str, ...]:
    """What a sum over nodes covers, which is all that any of them adds to it; a part that not all of them have is said
    with the names of those that do: `GPU boards with their memory (on alpha)`."""
    parts = counted_on(nodes)
    names = []
    for part, words in zip(in_order(parts), covered(parts), strict=True):
        having = [node for node, counts in nodes if part in counts]
        names.append(words if len(having) == len(nodes) else f"{words} (on {', '.join(having)})")
    return tuple(names)


def counted_on(nodes: Sequence[tuple[str, Counts]]) -> dict[str, tuple[int, int]]:
    """The counters of all nodes together."""
    by_part: dict[str, tuple[int, int]] = {}
    for _, counts in nodes:
        for part, (inside, there) in counts.items():
            before = by_part.get(part, (0, 0))
            by_part[part] = before[0] + inside, before[1] + there
    return by_part


def lacking_on(nodes: Sequence[tuple[str, Sequence[str]]]) -> tuple[str, ...]:
    """What a sum over nodes lacks: what all of them lack, and with its name what only some do."""
    plain = [part for part in nodes[0][1] if all(part in lacking for _, lacking in nodes) and part in (*PARTS, NEVER)]
    apart = [f"{node} {part}" for node, lacking in nodes for part in lacking if part not in plain]
    return (*plain, *dict.fromkeys(apart))


def coverage(stored: StoredEnergy, meters: Sequence[Meter], used_only: bool = False) -> EnergyCoverage:
    """What the measured total of these devices covers; with `used_only`, of those that the program worked on."""
    believed = [counter for meter in meters if meter.source == "measured" and (meter.used or not used_only)
                for counter, _ in meter.counters]  # fmt: skip
    parts = {counter.covers: (0, 0) for counter in believed}
    known = {(counter.device, counter.sensor) for counter in believed}
    lost: dict[tuple[str, str], Lost] = {}
    for device, sensor, covers in _all(stored):
        wanted = not used_only or not stored.used or device in stored.used
        if wanted and (device, sensor) not in known and covers in parts:
            name = sensor.removesuffix(" energy") if device == "cpu" else device
            lost[device, sensor] = Lost(name, device, covers)
    for covers in parts:
        inside = sum(counter.covers == covers for counter in believed)
        parts[covers] = inside, inside + sum(lost_counter.covers == covers for lost_counter in lost.values())
    return EnergyCoverage(parts, tuple(lost.values()))


def _count(inside: int, there: int) -> str:
    return "" if inside == there else f" ({inside} of {there})"


def _all(stored: StoredEnergy) -> list[tuple[str, str, str]]:
    """Device, sensor and part of every counter that belongs into measured totals, also of those that are refused."""
    there = [
        (counter.device, counter.sensor, counter.covers)
        for counter in stored.counters
        if counter.total and counter.source == "measured"
    ]
    refused = [(lack.device, lack.sensor, lack.covers)
               for lack in stored.missing if lack.covers]  # fmt: skip
    return [*there, *refused]
