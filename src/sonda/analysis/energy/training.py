"""The energy of a training: of its walks, from the first epoch to the end of the test, and to the end of every epoch.

What lies between walks, which is mostly the writing of checkpoints, is in none of these and stands apart: it is in no
time either. All with and without devices that stood idle. Measured and estimated joules are never added: where
anything was measured, that counts. With a GPU that has no counter, the integral of its power is added, and all is
`derived`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from sonda.analysis import reasons
from sonda.analysis.energy.coverage import Counts, counted_on, coverage, covered, covered_on
from sonda.analysis.energy.meters import (
    INTEGRAL,
    Meter,
    add_values,
    by_integral,
    common_source,
    meters_of,
    scaled,
)
from sonda.analysis.energy.nodes import sum_of_nodes
from sonda.analysis.summary import Value
from sonda.record.nodes import by_machine
from sonda.record.readings import StoredEnergy
from sonda.record.run import Run

LEAST_READINGS = 2
"""Times between readings that a window must last for its energy to be believed."""


@dataclass(frozen=True)
class Spent:
    """Joules of a training with their bounds; missing with a reason."""

    time: float
    """ns of all walks."""
    devices: dict[str, Value]
    """By device."""
    used: Value
    """Of the devices that trained."""
    all: Value
    """Of all devices, idle ones too."""
    used_to: tuple[Value, ...]
    """Of the devices that trained, from the beginning to the end of each epoch."""
    all_to: tuple[Value, ...]
    covers: tuple[str, ...]
    """What the counters cover: CPU packages, DRAM, GPU boards with their memory."""
    between: Value
    """J of the devices that trained, spent between the walks on checkpoints; `derived` where one took less than lies
    between two readings: then it is a part of what was spent between these."""
    between_time: float
    """ns."""
    parts: Counts = field(default_factory=dict)
    """Behind `covers`."""

    @property
    def product(self) -> Value:
        """J·s: energy of the devices that trained times the time of all walks."""
        return scaled(self.used, self.time / 1e9, "J·s")

    @property
    def product_with_idle(self) -> Value:
        """J·s: the same with idle devices."""
        return scaled(self.all, self.time / 1e9, "J·s")


Window = tuple[float, float]
"""ns: begin and end."""
Moments = tuple[Sequence[Window], Sequence[float]]
"""The walks in order, those that follow each other at once as one; ns of the end of every epoch."""


def spent_by_nodes(run: Run, moments: Callable[[Run], Moments]) -> Spent | None:
    """What all nodes of a run spent, each between the `moments` of its own spans; None where no energy was read."""
    there, lost = by_machine(run)
    parts = [*((node, training_energy(part, *moments(part))) for node, part in there), *((node, None) for node in lost)]
    known = [(node, part) for node, part in parts if part is not None]
    if len(parts) == 1 or not known:
        return parts[0][1]

    def total(value: Callable[[Spent], Value]) -> Value:
        values = [(node, value(part) if part is not None else None) for node, part in parts]
        return sum_of_nodes(values, "J", value(known[0][1]).source, reasons.NO_ENERGY_READ)

    def to(name: str) -> tuple[Value, ...]:
        count = min(len(getattr(part, name)) for _, part in known)
        return tuple(total(lambda part, at=at: getattr(part, name)[at]) for at in range(count))  # type: ignore[misc]

    return Spent(
        known[0][1].time,
        {f"{node} {device}": value for node, part in known for device, value in part.devices.items()},
        total(lambda part: part.used),
        total(lambda part: part.all),
        to("used_to"),
        to("all_to"),
        (
            *covered_on([(node, part.parts) for node, part in known]),
            *(f"{node} {word}" for node, part in known for word in part.covers if word.endswith(INTEGRAL)),
        ),
        total(lambda part: part.between),
        known[0][1].between_time,
        counted_on([(node, part.parts) for node, part in known]),
    )


def training_energy(run: Run, walks: Sequence[Window], ends: Sequence[float]) -> Spent | None:
    """What was spent in these walks, and until the end of each epoch; None where no energy was read."""
    stored = run.info.target.metered
    if stored is None:
        return None
    meters = meters_of(stored, run.samples)
    of_used = [meter for meter in meters if meter.used]
    sensed = any(meter.source != "estimated" for meter in of_used or meters)
    used = [meter for meter in of_used if (meter.source != "estimated") == sensed]
    apart = not sensed and any(meter.source != "estimated" for meter in meters)
    everything = [] if apart else [meter for meter in meters if (meter.source != "estimated") == sensed]
    reason = "; ".join(f"{lack.what}: {lack.reason}" for lack in stored.missing) or reasons.NO_COUNTER_BELIEVED
    mixed = reasons.SOURCES_MIXED if apart else reason
    begin, end = walks[0][0], walks[-1][1]
    pauses = [(before, after) for (_, before), (after, _) in pairwise(walks)]
    paused = sum(after - before for before, after in pauses)
    parts = _parts(stored, used, sensed)

    def until(meters: Sequence[Meter], moment: float, otherwise: str) -> Value:
        return _energy(meters, begin, moment, [pause for pause in pauses if pause[1] <= moment], otherwise)

    return Spent(
        end - begin - paused,
        # What a sensor said wins over what a model says of the same device.
        {
            one.device: until([one], end, reason)
            for one in sorted(meters, key=lambda meter: meter.source != "estimated")
        },
        until(used, end, reason),
        until(everything, end, mixed),
        tuple(until(used, moment, reason) for moment in ends),
        tuple(until(everything, moment, mixed) for moment in ends),
        (*covered(parts), *by_integral(used)),
        _between(used, pauses, reason),
        paused,
        parts,
    )


def _parts(stored: StoredEnergy, used: Sequence[Meter], sensed: bool) -> Counts:
    """By part: counters that are in the sum, and counters that there are; a model has one for each."""
    if sensed:
        return coverage(stored, used, used_only=True).parts
    return dict.fromkeys((counter.covers for meter in used for counter, _ in meter.counters), (1, 1))


def _energy(meters: Sequence[Meter], begin: float, end: float, pauses: Sequence[Window], otherwise: str) -> Value:
    """J from one moment to another without those of the pauses in between, which shorten the bounds at both ends."""
    if not meters:
        return Value(None, "J", "measured", reason=otherwise)
    needed = LEAST_READINGS * max(meter.resolution for meter in meters)
    lasted = end - begin - sum(after - before for before, after in pauses)
    if lasted < needed:
        reason = reasons.TOO_SHORT_TO_READ.format(lasted / 1e9, needed / 2e9)
        return Value(None, "J", common_source(meters), reason=reason)
    whole = add_values([meter.energy(begin, end) for meter in meters], common_source(meters))
    paused = _between(meters, pauses, otherwise)
    if whole.value is None or paused.value is None:
        return whole
    low = high = None
    if whole.low is not None and whole.high is not None:
        low, high = max(0.0, whole.low - (paused.high or 0.0)), whole.high - (paused.low or 0.0)
    return Value(whole.value - paused.value, "J", whole.source, low, high, bounds=whole.bounds)


def _between(meters: Sequence[Meter], pauses: Sequence[Window], otherwise: str) -> Value:
    if not meters:
        return Value(None, "J", "measured", reason=otherwise)
    if not pauses:
        return Value(0.0, "J", common_source(meters), 0.0, 0.0)
    paused = add_values([meter.energy(*pause) for pause in pauses for meter in meters], common_source(meters))
    shortest = min(after - before for before, after in pauses)
    resolved = paused.source != "measured" or shortest >= max(meter.resolution for meter in meters)
    return paused if resolved else replace(paused, source="derived")
