"""What there is to tell about energy: how much was spent and what that covers, how it was read, what is doubtful."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sonda.analysis.findings import Finding
from sonda.analysis.summary import Value


@dataclass(frozen=True)
class NoEnergy(Finding):
    """No energy is known."""

    kind: ClassVar[str] = "no energy"

    reason: str


@dataclass(frozen=True)
class SourceEnergy:
    """What was spent as one source has it: measured, derived or estimated."""

    energy: Value
    """J."""
    integrated: tuple[str, ...] = ()
    """Devices without a counter, whose power was integrated."""


@dataclass(frozen=True)
class SpentEnergy(Finding):
    """What one machine spent."""

    kind: ClassVar[str] = "energy"

    totals: tuple[SourceEnergy, ...]
    time: float
    """ns."""
    whole_run: bool
    """The time is that of a run with steps, which are only a part of it."""
    covers: tuple[str, ...]
    """What the measured total covers."""
    lacking: tuple[str, ...]
    modelled: str
    """What the power model stands for."""


@dataclass(frozen=True)
class NodesEnergy(Finding):
    """What several nodes spent together."""

    kind: ClassVar[str] = "energy of nodes"

    totals: tuple[SourceEnergy, ...]
    time: float
    """ns of the whole run on the first node."""
    nodes: int
    machines: int
    """Fewer than nodes where some share one."""
    covers: tuple[str, ...]
    lacking: tuple[str, ...]
    modelled: str


@dataclass(frozen=True)
class NodeFindings(Finding):
    """What is to be told of each node, where there is nothing of all together."""

    kind: ClassVar[str] = "nodes"

    nodes: tuple[tuple[str, Finding], ...]


@dataclass(frozen=True)
class OnNode(Finding):
    """A finding of one node."""

    kind: ClassVar[str] = "on a node"

    node: str
    finding: Finding


@dataclass(frozen=True)
class SharedMachine(Finding):
    """Nodes that are processes of one machine, whose energy counts once."""

    kind: ClassVar[str] = "shared machine"

    nodes: tuple[str, ...]


@dataclass(frozen=True)
class ReadingRate(Finding):
    """How often counters were read."""

    kind: ClassVar[str] = "energy readings"

    count: int
    interval: float
    """s."""
    share: float | None
    """Of one processor's time that reading took, 0 to 1; None where that is not known."""


@dataclass(frozen=True)
class UnreadCounter(Finding):
    """A counter that could not be read."""

    kind: ClassVar[str] = "unread counter"

    counter: str
    reason: str
    remedy: str


@dataclass(frozen=True)
class WholeMachine(Finding):
    """Sensors do not tell programs apart."""

    kind: ClassVar[str] = "whole machine"


@dataclass(frozen=True)
class LostCounters(Finding):
    """Counters that belong into the measured total and are not in it."""

    kind: ClassVar[str] = "lost counters"

    counters: tuple[str, ...]


@dataclass(frozen=True)
class IntegralOff(Finding):
    """The integral of a device's power differs from its energy counter."""

    kind: ClassVar[str] = "integral off"

    device: str
    share: float
    """Integral over counter, less 1."""


@dataclass(frozen=True)
class ThrottledTimes(Finding):
    """A device was throttled so many times, because it was too hot."""

    kind: ClassVar[str] = "throttled times"

    device: str
    times: float


@dataclass(frozen=True)
class ThrottledShare(Finding):
    """A device was throttled for a share of the time."""

    kind: ClassVar[str] = "throttled"

    device: str
    share: float
    reason: str


@dataclass(frozen=True)
class FinishSooner(Finding):
    """To try: most of the energy is that of idling."""

    kind: ClassVar[str] = "finish sooner"

    idling: Value
    """Share of the energy, 0 to 1."""
