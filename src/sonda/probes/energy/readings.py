"""Readings: the sampler's rows as a series for each channel. Wraps are undone; gaps and dead counters are found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec
import numpy as np

from sonda.probes.energy.channels import HIGHEST_PACKAGE, PACKAGES, Channel, Lack
from sonda.probes.energy.regions import Mark
from sonda.probes.energy.sampler import SamplerHeader, SamplerRow
from sonda.record.conventions.counter_series import CounterSeries
from sonda.record.errors import SondaError

GAP = 5
"""A pause of more intervals than this is a gap that the user is told of."""
LONG_ENOUGH = 5
"""Updates that a counter must have had time for before standing still means that it is dead."""
SAME = 0.001
"""Dies of an AMD package that agree within this part all show the whole package."""

State = Literal["ok", "dead", "short", "lost"]


@dataclass(frozen=True)
class ChannelSeries:
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
    def counter_series(self) -> CounterSeries:
        """The same as a counter that can be integrated."""
        return CounterSeries(self.times, self.values, round(self.channel.update * 1e9), self.channel.highest or np.inf)


@dataclass
class EnergyReadings:
    """Everything that the sampler wrote."""

    series: list[ChannelSeries] = field(default_factory=list)
    lacks: list[Lack] = field(default_factory=list)
    about: dict[str, str] = field(default_factory=dict)
    identities: dict[str, str] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    rows: int = 0
    interval: float = 0.0
    """s between readings, the largest that was asked for."""
    largest_gap: float = 0.0
    """s between two readings."""
    cpu: float | None = None
    """s of processor time that sampling took; None where the sampler did not come to its end."""

    def counters(self, source: str = "measured") -> list[ChannelSeries]:
        """The counters that belong into sums, dead ones included."""
        return [series for series in self.series if series.channel.total and series.channel.source == source]


def read_rows(lines: Iterable[bytes], interval: float) -> EnergyReadings:
    """Read the sampler's file. A last line that was cut off is left out. Raises SondaError where the first is missing.

    `interval` (s) is what the sampler was asked for.
    """
    header, rows = _decode_lines(lines)
    readings = EnergyReadings(
        lacks=list(header.lacks), about=header.about, identities=header.identities, interval=interval
    )
    sampled = [row for row in rows if row.readings]
    readings.rows = len(sampled)
    readings.marks = [row.mark for row in rows if row.mark is not None]
    readings.interval = max([interval, *(row.interval for row in rows)])
    readings.cpu = rows[-1].cpu if rows and rows[-1].cpu else None
    for at, channels in enumerate(header.channels):
        table = np.array([row.readings[at] for row in sampled], dtype=np.float64)
        if not channels or not len(table):
            continue
        readings.largest_gap = max([readings.largest_gap, *(np.diff(table[:, 0]) / 1e9).tolist()])
        for number, channel in enumerate(channels, start=1):
            readings.series.append(_make_series(channel, table[:, 0], table[:, number]))
    readings.series = _exclude_die_copies(readings.series, readings.lacks)
    return readings


def _decode_lines(lines: Iterable[bytes]) -> tuple[SamplerHeader, list[SamplerRow]]:
    whole = [line for line in lines if line.endswith(b"\n")]
    try:
        header = msgspec.json.decode(whole[0], type=SamplerHeader)
        decoder = msgspec.json.Decoder(SamplerRow)
        return header, [decoder.decode(line) for line in whole[1:]]
    except (IndexError, msgspec.MsgspecError):
        raise SondaError("the energy sampler wrote nothing that can be read", "run again") from None


def _make_series(channel: Channel, times: np.ndarray, values: np.ndarray) -> ChannelSeries:
    known = np.isfinite(values)
    times, values = times[known].astype(np.int64), values[known]
    if channel.kind != "counter":
        return ChannelSeries(channel, times, values)
    if len(values) < 2:
        return ChannelSeries(channel, times, values, "lost", "it could be read once at most")
    lost = "" if known[-1] else "it could not be read any more"
    unwrapped, wraps, fault = unwrap(times, values, channel.wraps_at, channel.highest)
    state, reason = _judge_movement(channel, times, unwrapped)
    if fault or lost:
        state, reason = "lost", fault or lost
    return ChannelSeries(channel, times, unwrapped - unwrapped[0], state, reason, wraps)


def unwrap(
    times: np.ndarray, values: np.ndarray, wraps_at: float, highest: float = HIGHEST_PACKAGE
) -> tuple[np.ndarray, int, str]:
    """The counter (J) without its wraps, the number of wraps, and a fault: why it cannot be believed, or ''.

    In a pause long enough to pass the whole range at `highest` W, a wrap may have gone unseen: that is a fault.
    `wraps_at` is `max_energy_range_uj`, one unit (61 µJ or less) below the true range; 0 means that it never wraps.
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


def _judge_movement(channel: Channel, times: np.ndarray, values: np.ndarray) -> tuple[State, str]:
    if values[-1] > values[0] or channel.source == "estimated":  # a model may well say 0 W
        return "ok", ""
    watched = (times[-1] - times[0]) / 1e9
    if watched < LONG_ENOUGH * channel.update:
        return "short", (
            f"the program ended before the counter was updated: {watched * 1e3:.0f} ms, and it is updated every "
            f"{channel.update * 1e3:g} ms"
        )
    return "dead", f"the counter stood at the same value for {watched:.1f} s"


def _exclude_die_copies(all_series: list[ChannelSeries], lacks: list[Lack]) -> list[ChannelSeries]:
    """Take dies that show the energy of their whole package out of the sums, all but the first; `lacks` says so.

    Dies are taken for copies where they agree.
    """
    packages: dict[str, list[ChannelSeries]] = {}
    for series in all_series:
        if series.channel.package and series.channel.covers == PACKAGES and series.usable:
            packages.setdefault(series.channel.package, []).append(series)
    copies = set()
    for package, dies in packages.items():
        grown = [die.counter_series.growth() for die in dies]
        if len(dies) > 1 and max(grown) - min(grown) <= SAME * max(grown):
            copies |= {die.channel.sensor for die in dies[1:]}
            lacks.append(Lack(package, "every die shows the energy of the whole package: one is counted"))
    return [
        replace(series, channel=msgspec.structs.replace(series.channel, total=False))
        if series.channel.sensor in copies
        else series
        for series in all_series
    ]
