"""The energy of a run as plain data: devices, totals, regions, epochs, steps and phases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sonda.analysis.bounds import BoundedRatio
from sonda.analysis.energy.findings import FinishSooner
from sonda.analysis.findings import Finding
from sonda.analysis.summary import Value

MOSTLY = 0.5
"""Where idling would have taken so much of the energy, time decides about it."""


@dataclass(frozen=True)
class Cost:
    """What a window cost."""

    energy: Value
    """J."""
    power: Value
    """W, mean."""
    idle: Value
    """W, measured before the program."""
    above: Value
    """J that the window took more than idling as long would have."""
    product: Value
    """J·s: time times energy."""


@dataclass(frozen=True)
class Device:
    """One device. A dead or unreadable one has no energy, and a reason."""

    name: str
    model: str
    used: bool
    """Whether the program worked on it."""
    cost: Cost
    counters: dict[str, Value] = field(default_factory=dict)
    """J of every counter, also of those that are parts of others: `package-0/core energy`."""
    integral: Value | None = None
    """J: the integral of the power samples, where there are any."""
    disagreement: Value | None = None
    """Integral over counter, less 1."""
    throttled: dict[str, float] = field(default_factory=dict)
    """Reasons, with the share of the time."""
    states: dict[str, Value] = field(default_factory=dict)
    """Mean clock (Hz), highest temperature (°C), times that a processor was throttled."""


@dataclass(frozen=True)
class Window:
    """A region, epoch, step or phase; costs are of one of them, on average."""

    kind: str
    name: str
    count: int
    time: Value
    """ns, mean."""
    devices: dict[str, Value]
    """J by device."""
    total: Value
    """J of all devices, idle ones too."""
    used: Value
    """J of the devices that the program worked on."""


@dataclass(frozen=True)
class Beneath:
    """What a program did while its power was read, in equal stretches of the time."""

    starts: tuple[float, ...]
    """s since the program began."""
    length: float
    """s."""
    shares: dict[str, tuple[float, ...]]
    """By phase or region: the part of every stretch, 0 to 1."""


@dataclass(frozen=True)
class EnergySummary:
    run: str
    title: str
    time: Value
    """ns."""
    devices: tuple[Device, ...]
    all: dict[str, Cost]
    """All devices, idle ones included, by source: measured and estimated are never added. `derived`, where a GPU has no
    counter, is what was measured and the integral of its power."""
    used: dict[str, Cost]
    """Only the devices that the program worked on."""
    covers: tuple[str, ...]
    """What the measured total covers, `CPU packages (1 of 2)` where a counter of several could not be believed; then
    what it does not."""
    not_covered: tuple[str, ...]
    finding: Finding
    regions: tuple[Window, ...] = ()
    windows: tuple[Window, ...] = ()
    """Epochs, steps and phases."""
    power: dict[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    """By device: (s since the program began, W) between readings."""
    estimated: frozenset[str] = frozenset()
    """The devices of `power` whose values are a model's."""
    modelled: str = ""
    """What the model stands for: `CPU packages and DRAM`; '' where there is none."""
    notes: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()
    parts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Behind `covers`: counters of each part that are in the total, and those that there are."""
    beneath: Beneath | None = None
    """The phases while power was read; None where none is known, and for several nodes."""

    @property
    def remedy(self) -> Finding | None:
        """What to try: None where most of the energy is not that of idling, or where idling was not measured."""
        cost = self.used.get("measured") or self.used.get("derived")
        if cost is None or not cost.energy.value or cost.above.value is None:
            return None
        above, spent = cost.above, cost.energy.value
        low, high = (None if end is None else 1 - end / spent for end in (above.high, above.low))
        idling = BoundedRatio(Value(1 - cost.above.value / spent, "1", "derived", low, high)).value("")
        if idling.value is None or idling.value < MOSTLY:  # more than all of it: idle power was read too high
            return None
        return FinishSooner(idling)
