"""The energy of a training: from its first epoch to the end of its test, and to the end of every epoch before.

Both with and without devices that stood idle. Measured and estimated joules are never added: where anything was
measured, that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sonda.analysis.energy_meters import Metered, added, kept_energy, metered
from sonda.analysis.energy_nodes import sum_of_nodes
from sonda.analysis.summary import Value
from sonda.record.nodes import by_node
from sonda.record.run import Run

LEAST_READINGS = 2
"""Times between readings that a window must last for its energy to be believed."""


@dataclass(frozen=True)
class Spent:
    """Joules of a training with their bounds; missing with a reason."""

    time: float
    """ns from the beginning of the first epoch to the end of the test, with all that lies between."""
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


Moments = tuple[float, Sequence[float], float]
"""ns: the beginning of the first epoch, the end of every epoch, the end of the test."""


def spent_by_nodes(run: Run, moments: Callable[[Run], Moments]) -> Spent | None:
    """What all nodes of a run spent, each between the `moments` of its own spans; None where no energy was read."""
    parts = [(node, spent(part, *moments(part))) for node, part in by_node(run)]
    known = [(node, part) for node, part in parts if part is not None]
    if len(parts) == 1 or not known:
        return parts[0][1]

    def total(value: Callable[[Spent], Value]) -> Value:
        values = [(node, value(part) if part is not None else None) for node, part in parts]
        return sum_of_nodes(values, "J", value(known[0][1]).source, "no energy was read")

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
        tuple(dict.fromkeys(covered for _, part in known for covered in part.covers)),
    )


def spent(run: Run, begin: float, ends: Sequence[float], end: float) -> Spent | None:
    """What was spent between two moments (ns), and until the end of each epoch; None where no energy was read."""
    kept = kept_energy(run)
    if kept is None:
        return None
    meters = metered(kept, run.samples)
    of_used = [one for one in meters if not kept.used or one.device in kept.used]
    source = "measured" if any(one.source == "measured" for one in of_used or meters) else "estimated"
    used = [one for one in of_used if one.source == source]
    apart = source == "estimated" and any(one.source == "measured" for one in meters)
    everything = [] if apart else [one for one in meters if one.source == source]
    reason = "; ".join(f"{one['what']}: {one['reason']}" for one in kept.missing) or "no counter could be believed"
    mixed = "devices that trained are estimated and others measured, which is never added" if apart else reason
    return Spent(
        end - begin,
        {one.device: _energy([one], begin, end, reason) for one in meters},
        _energy(used, begin, end, reason),
        _energy(everything, begin, end, mixed),
        tuple(_energy(used, begin, moment, reason) for moment in ends),
        tuple(_energy(everything, begin, moment, mixed) for moment in ends),
        tuple(dict.fromkeys(counter.covers for one in used for counter, _ in one.counters)),
    )


def _energy(meters: Sequence[Metered], begin: float, end: float, otherwise: str) -> Value:
    if not meters:
        return Value(None, "J", "measured", reason=otherwise)
    needed = LEAST_READINGS * max(one.resolution for one in meters)
    if end - begin < needed:
        reason = f"{(end - begin) / 1e9:.2g} s are too short for counters that are read every {needed / 2e9:.2g} s"
        return Value(None, "J", meters[0].source, reason=reason)
    return added([one.energy(begin, end) for one in meters], meters[0].source)
