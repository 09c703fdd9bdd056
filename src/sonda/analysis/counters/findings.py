"""What counters have to tell: how numbers were counted, what is doubtful, what changes over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sonda.analysis.findings import Finding

# ---- Hardware counters ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GroupsInTurn(Finding):
    """Groups of events took turns, one a step."""

    kind: ClassVar[str] = "groups in turn"

    part: str
    groups: int
    least: int
    """Steps that a group counted."""
    most: int


@dataclass(frozen=True)
class UnjudgedStationarity(Finding):
    """Too few steps a group to tell whether the program is stationary."""

    kind: ClassVar[str] = "unjudged stationarity"

    part: str
    needed: int


@dataclass(frozen=True)
class ScaledCounters(Finding):
    """Counters shared the PMU with others."""

    kind: ClassVar[str] = "scaled counters"

    part: str


@dataclass(frozen=True)
class RefusedCounters(Finding):
    """Counters that counted too short a part of the time to be scaled."""

    kind: ClassVar[str] = "refused counters"

    part: str
    share: float
    """Of the time, 0 to 1."""


@dataclass(frozen=True)
class NotStationary(Finding):
    """Groups of events that took turns saw different amounts of what all of them count."""

    kind: ClassVar[str] = "not stationary"

    part: str
    place: str
    """The phase; '' for the whole step."""
    quantity: str
    low: float
    high: float


# ---- Top-Down -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SlotsDefined(Finding):
    """The definition that slots were counted by."""

    kind: ClassVar[str] = "slots defined"

    name: str
    of: str
    """What the shares are of."""
    approximate: bool


@dataclass(frozen=True)
class NoLevelTwo(Finding):
    """Categories below the first level are missing."""

    kind: ClassVar[str] = "no level two"

    part: str
    reason: str


@dataclass(frozen=True)
class JoinedEvents(Finding):
    """Categories made of events that were counted in different steps."""

    kind: ClassVar[str] = "joined events"

    part: str


# ---- A step under callgrind -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelledBy(Finding):
    """What a step was modelled with."""

    kind: ClassVar[str] = "modelled by"

    tool: str
    caches: tuple[tuple[str, str], ...]
    """By name: size and ways."""
    isa: str
    threads: int
    step: int
    """From 1."""


@dataclass(frozen=True)
class OtherIsa(Finding):
    """Natively the machine runs other instructions."""

    kind: ClassVar[str] = "other isa"

    native: str


@dataclass(frozen=True)
class StandInCache(Finding):
    """A cache that callgrind cannot simulate, and what stands for it."""

    kind: ClassVar[str] = "stand-in cache"

    cache: str
    geometry: str
    simulated: str


@dataclass(frozen=True)
class MarkersTakenOff(Finding):
    """Instructions of observing that were taken off at each boundary, and at the end of a phase."""

    kind: ClassVar[str] = "markers taken off"

    boundary: float
    phase: float


@dataclass(frozen=True)
class BudgetBasis(Finding):
    """What a budget of cycles is made from; penalties are cycles."""

    kind: ClassVar[str] = "budget basis"

    width: float
    """Instructions a cycle."""
    core: str
    mispredicted: float
    last_level: float
    memory: float
    hertz: float


@dataclass(frozen=True)
class SharedTime(Finding):
    """Native cycles are those of the time that threads took side by side."""

    kind: ClassVar[str] = "shared time"

    threads: int


# ---- Second sources -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunsOfTheirOwn(Finding):
    """Each source counted a run of its own."""

    kind: ClassVar[str] = "runs of their own"


@dataclass(frozen=True)
class OnlyOursObserved(Finding):
    """What observing costs is in the difference."""

    kind: ClassVar[str] = "only ours observed"


@dataclass(frozen=True)
class PapiCountsKernel(Finding):
    """PAPI counts the kernel too."""

    kind: ClassVar[str] = "papi counts kernel"


# ---- The operating system -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WaitedForProcessor(Finding):
    """Threads waited for a processor."""

    kind: ClassVar[str] = "waited for processor"

    part: str
    phases: tuple[tuple[str, float], ...]
    """By phase: ns in every step."""


@dataclass(frozen=True)
class ManyFaults(Finding):
    """First touches of memory take a good part of a phase."""

    kind: ClassVar[str] = "many faults"

    part: str
    phase: str
    faults: float
    time: float
    """ns of the phase."""


# ---- Changes over time ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SeriesChange:
    """A quantity changes its level."""

    name: str
    unit: str
    before: float
    after: float
    relative: float
    """0.3 is 30 % more."""


@dataclass(frozen=True)
class PhaseChange:
    """The phase that changes most where the time of a step does."""

    name: str
    difference: float
    """ns."""
    mostly: bool
    """It makes at least half of the change."""


@dataclass(frozen=True)
class LevelChange(Finding):
    """What changes at one step, or at one interval of a program."""

    kind: ClassVar[str] = "level change"

    of: str
    """The part; '' for a whole program."""
    at: int
    """Number of the step or interval, from 1."""
    time: float | None
    """ns since the program began; None for steps."""
    lead: SeriesChange
    phase: PhaseChange | None
    others: tuple[SeriesChange, ...]


@dataclass(frozen=True)
class SeriesDrift(Finding):
    """A quantity follows a straight line."""

    kind: ClassVar[str] = "drift"

    of: str
    name: str
    unit: str
    first: float
    last: float
    count: int
    """Steps, or intervals of a whole program."""


@dataclass(frozen=True)
class MoreChanges(Finding):
    """Changes of a program that are not listed."""

    kind: ClassVar[str] = "more changes"

    count: int
