"""The energy counters that a run keeps, and what they say of a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sonda.analysis import reasons
from sonda.analysis.summary import MODEL, READINGS, Value
from sonda.record.conventions.counter_series import CounterSeries
from sonda.record.readings import EnergyCounter, StoredEnergy
from sonda.record.samples import Sample

BOARD = "GPU boards with their memory"
DERIVED = "derived"
"""The source of energy that is an integral of power: of a GPU without a counter."""
INTEGRAL = "by the integral of its power"
POWER_UPDATE_S = 0.1
"""Power, as energy counters of the same GPUs, is updated about ten times a second."""


@dataclass(frozen=True)
class Meter:
    """The believed counters of one device, all of one source."""

    device: str
    source: str
    counters: tuple[tuple[EnergyCounter, CounterSeries], ...]
    used: bool = True
    """Whether the program worked on the device."""

    def between(self, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """J in every window, with bounds; NaN where a counter does not cover it."""
        sums = np.zeros((3, len(begin)))
        for counter, series in self.counters:
            value, low, high = series.between(begin, end)
            sums += (value, low * (1 - counter.uncertain), high * (1 + counter.uncertain))
        return sums[0], sums[1], sums[2]

    @property
    def name(self) -> str:
        """The device, and where the numbers come from if not from a sensor."""
        return self.device if self.source == "measured" else f"{self.device} ({self.source})"

    def value(self, joules: float, low: float, high: float) -> Value:
        """J; an integral of power has no bounds: what was spent between two samples is not known."""
        if self.source == DERIVED:
            return Value(joules, "J", self.source)
        return Value(joules, "J", self.source, low, high, bounds=self.bounds)

    @property
    def resolution(self) -> float:
        """ns: the shortest window that the counters resolve."""
        return max(
            max(float(np.median(np.diff(series.times))), counter.update * 1e9) for counter, series in self.counters
        )

    @property
    def bounds(self) -> str:
        """What the bounds of its joules are."""
        return MODEL if self.source == "estimated" else READINGS

    def energy(self, begin: float, end: float) -> Value:
        value, low, high = (float(column[0]) for column in self.between(np.array([begin]), np.array([end])))
        if np.isnan(value):
            return Value(None, "J", self.source, reason=reasons.COUNTER_READ_IN_PART)
        return self.value(value, low, high)


def meters_of(stored: StoredEnergy, samples: Sequence[Sample]) -> list[Meter]:
    """The devices whose counters can be believed, and those without one whose power was sampled."""
    counters: dict[tuple[str, str], list[tuple[EnergyCounter, CounterSeries]]] = {}
    for counter in stored.counters:
        if counter.total and counter.state == "ok":
            series = counter_series(samples, counter)
            if len(series.times) > 1:
                counters.setdefault((counter.device, counter.source), []).append((counter, series))
    for device in dict.fromkeys(sample.device for sample in samples if sample.sensor == "power" and sample.unit == "W"):
        if (device, "measured") not in counters and len((power := series_of(samples, device, "power")).times) > 1:
            integral = EnergyCounter(
                sensor="power", device=device, source=DERIVED, covers=BOARD, total=True, update=POWER_UPDATE_S
            )
            counters[device, DERIVED] = [(integral, _integrated(power))]
    used = set(stored.used) or {device for device, _ in counters}
    return [Meter(device, source, tuple(of), device in used) for (device, source), of in counters.items()]


def _integrated(power: CounterSeries) -> CounterSeries:
    """J since the first sample: the samples (W), joined by straight lines."""
    joules = np.diff(power.times) / 1e9 * (power.values[1:] + power.values[:-1]) / 2
    return CounterSeries(power.times, np.concatenate(([0.0], np.cumsum(joules))))


def common_source(meters: Sequence[Meter]) -> str:
    """The source of their sum."""
    sources = {meter.source for meter in meters}
    return sources.pop() if len(sources) == 1 else DERIVED


def by_integral(meters: Sequence[Meter]) -> list[str]:
    """`cuda:0 by the integral of its power`, for those without a counter."""
    return [f"{meter.device} {INTEGRAL}" for meter in meters if meter.source == DERIVED]


def counter_series(samples: Sequence[Sample], counter: EnergyCounter) -> CounterSeries:
    """The samples of a counter in order of time."""
    series = series_of(samples, counter.device, counter.sensor)
    return replace(series, update=round(counter.update * 1e9), highest=counter.highest or np.inf)


def series_of(samples: Sequence[Sample], device: str, sensor: str) -> CounterSeries:
    """The samples of one sensor in order of time."""
    mine = sorted(
        (sample.time, sample.value) for sample in samples if sample.device == device and sample.sensor == sensor
    )
    times = np.array([time for time, _ in mine], dtype=np.int64)
    return CounterSeries(times, np.array([value for _, value in mine], dtype=np.float64))


def bounds_of(values: Sequence[Value]) -> str:
    """What the ends of their sum are: as soon as one has bounds, the sum has no interval."""
    return next((value.bounds for value in values if value.bounds), "")


def add_values(values: Sequence[Value], source: str) -> Value:
    """The sum; missing where any part is."""
    lost = next((value for value in values if value.value is None), None)
    if lost is not None:
        return Value(None, lost.unit, source, reason=lost.reason)
    low = high = None
    if all(value.low is not None and value.high is not None for value in values):
        low, high = sum(value.low or 0.0 for value in values), sum(one.high or 0.0 for one in values)
    return Value(
        sum(value.value or 0.0 for value in values), values[0].unit, source, low, high, bounds=bounds_of(values)
    )


def scaled(value: Value, factor: float, unit: str) -> Value:
    """`derived`, unless it is a model's."""
    source = "estimated" if value.source == "estimated" else "derived"
    if value.value is None:
        return Value(None, unit, source, reason=value.reason)
    low, high = (None if end is None else end * factor for end in (value.low, value.high))
    return Value(value.value * factor, unit, source, low, high, few=value.few, bounds=value.bounds)
