"""From the sampler's rows to counters that can be believed: wraps undone, gaps known, the dead called dead."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import numpy as np

from sonda.probes.energy.channels import HIGHEST_PACKAGE, MEMORY, PACKAGES, Channel, Lack
from sonda.probes.energy.regions import Mark
from sonda.probes.energy.sampler import Header, Row
from sonda.record.conventions.counter_series import CounterSeries
from sonda.record.errors import SondaError

GAP = 5
"""A pause of more intervals than this is a gap worth saying."""
LONG_ENOUGH = 5
"""Updates that a counter must have had time for before standing still means that it is dead."""
SAME = 0.001
"""Dies of an AMD package that agree within this part show the whole package each."""

State = Literal["ok", "dead", "short", "lost"]


@dataclass(frozen=True)
class Reading:
    """One channel over time. `state` is `ok`, `dead` (it did not move), `short` (too short to tell) or `lost`."""

    channel: Channel
    times: np.ndarray
    """ns."""
    values: np.ndarray
    state: State = "ok"
    reason: str = ""
    wraps: int = 0

    @property
    def usable(self) -> bool:
        return self.state == "ok"

    @property
    def series(self) -> CounterSeries:
        return CounterSeries(self.times, self.values, round(self.channel.update * 1e9), self.channel.highest or np.inf)


@dataclass
class Readings:
    """Everything that the sampler wrote."""

    readings: list[Reading] = field(default_factory=list)
    lacks: list[Lack] = field(default_factory=list)
    about: dict[str, str] = field(default_factory=dict)
    identities: dict[str, str] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    rows: int = 0
    interval: float = 0.0
    """s, the largest that was asked for."""
    largest_gap: float = 0.0
    """s between two readings."""
    cpu: float | None = None
    """s of processor time that sampling took; None where the sampler did not come to its end."""

    def counters(self, source: str = "measured") -> list[Reading]:
        """Those that sums are made of, dead ones included."""
        return [one for one in self.readings if one.channel.total and one.channel.source == source]


def read_rows(lines: Iterable[bytes], interval: float) -> Readings:
    """The sampler's file. A last line that was cut off is left out; raises SondaError where there is no first."""
    header, rows = _decoded(lines)
    found = Readings(lacks=list(header.lacks), about=header.about, identities=header.identities, interval=interval)
    taken = [row for row in rows if row.readings]
    found.rows = len(taken)
    found.marks = [row.mark for row in rows if row.mark is not None]
    found.interval = max([interval, *(row.interval for row in rows)])
    found.cpu = rows[-1].cpu if rows and rows[-1].cpu else None
    for at, channels in enumerate(header.channels):
        table = np.array([row.readings[at] for row in taken], dtype=np.float64)
        if not channels or not len(table):
            continue
        found.largest_gap = max([found.largest_gap, *(np.diff(table[:, 0]) / 1e9).tolist()])
        for number, channel in enumerate(channels, start=1):
            found.readings.append(_reading(channel, table[:, 0], table[:, number]))
    found.readings = _without_copies(found.readings, found.lacks)
    return found


def _decoded(lines: Iterable[bytes]) -> tuple[Header, list[Row]]:
    whole = [line for line in lines if line.endswith(b"\n")]
    try:
        header = msgspec.json.decode(whole[0], type=Header)
        decoder = msgspec.json.Decoder(Row)
        return header, [decoder.decode(line) for line in whole[1:]]
    except (IndexError, msgspec.MsgspecError):
        raise SondaError("the energy sampler wrote nothing that can be read", "run again") from None


def _reading(channel: Channel, times: np.ndarray, values: np.ndarray) -> Reading:
    known = np.isfinite(values)
    times, values = times[known].astype(np.int64), values[known]
    if channel.kind != "counter":
        return Reading(channel, times, values)
    if len(values) < 2:
        return Reading(channel, times, values, "lost", "it could be read once at most")
    lost = "" if known[-1] else "it could not be read any more"
    unwrapped, wraps, fault = unwrap(times, values, channel.wraps_at, channel.highest)
    state, reason = _judged(channel, times, unwrapped)
    if fault or lost:
        state, reason = "lost", fault or lost
    return Reading(channel, times, unwrapped - unwrapped[0], state, reason, wraps)


def unwrap(
    times: np.ndarray, values: np.ndarray, wraps_at: float, highest: float = HIGHEST_PACKAGE
) -> tuple[np.ndarray, int, str]:
    """The counter without its wraps, how many there were, and why it cannot be believed, where it cannot.

    A pause in which it could have passed its whole range at `highest` W may hold a wrap that nobody saw. `wraps_at` is
    `max_energy_range_uj`, one unit (61 µJ or less) below the true range; 0 means that it never wraps.
    """
    steps = np.diff(values)
    falls = steps < 0
    if not falls.any() and not wraps_at:
        return values, 0, ""
    if falls.any() and not wraps_at:
        return values, 0, "the counter fell: it was reset while the program ran"
    pauses = np.diff(times) / 1e9
    if (pauses * highest > wraps_at).any():
        longest = f"it was not read for {pauses.max():,.0f} s"
        return values, 0, f"{longest}, and may have wrapped more than once meanwhile (at {wraps_at:,.0f} J)"
    added = np.concatenate(([0.0], np.cumsum(np.where(falls, steps + wraps_at, steps))))
    return values[0] + added, int(falls.sum()), ""


def _judged(channel: Channel, times: np.ndarray, values: np.ndarray) -> tuple[State, str]:
    if values[-1] > values[0] or channel.source == "estimated":  # a model may well say 0 W
        return "ok", ""
    watched = (times[-1] - times[0]) / 1e9
    if watched < LONG_ENOUGH * channel.update:
        return "short", (
            f"the program ended before the counter was updated: {watched * 1e3:.0f} ms, and it is updated every "
            f"{channel.update * 1e3:g} ms"
        )
    return "dead", f"the counter stood at the same value for {watched:.1f} s"


def _without_copies(readings: list[Reading], lacks: list[Lack]) -> list[Reading]:
    """Dies that show the whole package each are one: on AMD, and only where they agree."""
    amd = any(lack.what == MEMORY and "AMD" in lack.reason for lack in lacks)
    dies: dict[str, list[Reading]] = {}
    for one in readings:
        name = one.channel.sensor.removesuffix(" energy")
        if amd and one.channel.covers == PACKAGES and "-die-" in name and one.state == "ok":
            dies.setdefault(name.partition("-die-")[0], []).append(one)
    copies = set()
    for package, found in dies.items():
        grown = [one.series.growth() for one in found]
        if len(found) > 1 and max(grown) - min(grown) <= SAME * max(grown):
            copies |= {one.channel.sensor for one in found[1:]}
            lacks.append(Lack(package, "every die shows the energy of the whole package: one is counted"))
    return [
        Reading(msgspec.structs.replace(one.channel, total=False), one.times, one.values, one.state, one.reason)
        if one.channel.sensor in copies
        else one
        for one in readings
    ]
