"""What a study has to tell: operations out of line and what explains them, what to try, and notes below its table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sonda.analysis.comparison.findings import OptionOutcome
from sonda.analysis.findings import Finding
from sonda.analysis.summary import Value

# ---- Figures that were published ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PublishedElsewhere(Finding):
    """What differs between a published measurement and ours."""

    kind: ClassVar[str] = "published elsewhere"

    hardware: str
    """That of the published one; '' where it is not said."""
    on: str
    """What ours ran on."""
    scale: str
    """That of our study."""
    changed: tuple[tuple[str, str], ...]
    """Settings that the scale changes, without those that say how long is measured."""


# ---- Operations out of line -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MeasuredOperation:
    """An operation of one size, where it ran."""

    name: str
    size: int
    """Bytes of all its matrices."""
    framework: str
    on: str


@dataclass(frozen=True)
class RateFalls(Finding):
    """An operation is slower at a size than at the next smaller one."""

    kind: ClassVar[str] = "rate falls"

    operation: MeasuredOperation
    rate: Value
    """FLOP/s, or B/s of operands and result."""
    smaller: MeasuredOperation
    rate_before: Value
    """Of the smaller one."""
    dips: bool
    """Whether the next larger size is fast again."""
    causes: tuple[Finding, ...]
    disturbed: bool
    """Other programs ran meanwhile."""


@dataclass(frozen=True)
class SlowerFramework(Finding):
    """An operation takes longer in one framework than in another."""

    kind: ClassVar[str] = "slower framework"

    operation: MeasuredOperation
    time: Value
    faster: str
    """The other framework."""
    times: float
    """How many times as long it takes."""
    causes: tuple[Finding, ...]
    disturbed: bool


@dataclass(frozen=True)
class Neighbour:
    """What an operation was held against: another size, or another framework."""

    size: int = 0
    framework: str = ""


@dataclass(frozen=True)
class LeftCache(Finding):
    """The smaller size was found in the cache, and this one is not."""

    kind: ClassVar[str] = "left cache"

    smaller: int
    """Bytes of its matrices."""
    bandwidth: Value
    """B/s that memory gives."""
    cache: Value
    working: Value
    """Bytes that take turns in the process."""


@dataclass(frozen=True)
class ReadRepeatedly(Finding):
    """More bytes of memory were moved than operands and result have."""

    kind: ClassVar[str] = "read repeatedly"

    moved: Value
    needed: Value


@dataclass(frozen=True)
class OtherInstructions(Finding):
    """Another kernel was chosen: the same formula was counted as other instructions."""

    kind: ClassVar[str] = "other instructions"

    counted: float
    """FLOP that are counted for each of the formula."""
    counted_there: float
    neighbour: Neighbour


@dataclass(frozen=True)
class GrownStall:
    """Warps wait for this more than in the neighbour; shares 0 to 1 of their cycles."""

    reason: str
    share: float
    share_there: float
    at_most: bool
    """Whether the neighbour's share is only known not to be larger."""


@dataclass(frozen=True)
class WaitsMore(Finding):
    """What warps wait for more than in the neighbour, the largest growth first."""

    kind: ClassVar[str] = "waits more"

    stalls: tuple[GrownStall, ...]
    neighbour: Neighbour


@dataclass(frozen=True)
class FewLoads(Finding):
    """Warps wait for memory above all, and memory could give more: too few loads are under way."""

    kind: ClassVar[str] = "few loads"

    share: float
    """Of what memory can move, 0 to 1."""
    share_there: float
    neighbour: Neighbour
    odd_row: int
    """Numbers in a row where that may be why: rows of an odd length cannot be loaded in twos; 0 where it is not."""
    row_there: int


@dataclass(frozen=True)
class OnlyOneUsesTensorCores(Finding):
    kind: ClassVar[str] = "only one uses tensor cores"

    framework: str


@dataclass(frozen=True)
class DoesMore(Finding):
    """The slower framework computes more, or moves more."""

    kind: ClassVar[str] = "does more"

    framework: str
    amount: Value
    """FLOP, or bytes of memory."""
    other: str
    """The faster framework."""
    other_amount: Value


@dataclass(frozen=True)
class Unexplained(Finding):
    """No cause was found."""

    kind: ClassVar[str] = "unexplained"

    counted: bool
    """Whether anything was counted that could tell."""


# ---- What to try ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BetterWay:
    """One way is better than another, at one place of a study."""

    best: str
    other: str
    place: str
    times: Value
    """How many times as fast."""
    costs: tuple[tuple[str, float], ...] = ()
    """What is spent besides, and how many times as much."""
    accuracy: tuple[Value, Value] | None = None
    """In percent, of the best and of the other, where it differs."""


@dataclass(frozen=True)
class TakeInstead(Finding):
    """One way is better than another wherever it is named."""

    kind: ClassVar[str] = "take instead"

    ways: tuple[BetterWay, ...]
    """All of the same two; never empty."""
    places: int
    """Of the study, where there is a choice."""


@dataclass(frozen=True)
class StayWith(Finding):
    """No other way is faster than this one."""

    kind: ClassVar[str] = "stay with"

    way: str
    others: int
    at: tuple[str, ...]
    """Places where that is so."""
    places: int
    """Of the study."""


@dataclass(frozen=True)
class LeaveOut(Finding):
    """A way is slower than the base."""

    kind: ClassVar[str] = "leave out"

    way: str
    at: tuple[str, ...]
    places: int
    effects: tuple[OptionOutcome, ...]
    """What it does at each of these places."""


@dataclass(frozen=True)
class RunBeside(Finding):
    """A program suffers less from one neighbour than from another."""

    kind: ClassVar[str] = "run beside"

    program: str
    better: str
    slowdown: float
    """Beside the better one: times as long as alone."""
    worse: str
    worse_slowdown: float


@dataclass(frozen=True)
class SendAtMost(Finding):
    """The highest load under which a bound of latency was found to hold."""

    kind: ClassVar[str] = "send at most"

    workload: str
    on: str
    rate: float
    """Queries a second."""
    bound: str


@dataclass(frozen=True)
class RepeatMore(Finding):
    """So few repetitions do not tell ways apart."""

    kind: ClassVar[str] = "repeat more"

    repetitions: int
    disturbed: bool
    """Whether other programs ran meanwhile."""


# ---- Notes below the table ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OutsidePublished(Finding):
    """Figures of ours that lie outside of a printed range."""

    kind: ClassVar[str] = "outside published"

    figure: str
    low: float
    high: float
    unit: str
    hardware: str
    ours: tuple[tuple[str, float], ...]
    """By configuration."""


@dataclass(frozen=True)
class EnergyCovers(Finding):
    """What the joules of runs are of, and what they leave out."""

    kind: ClassVar[str] = "energy covers"

    covers: tuple[str, ...]
    lacking: tuple[str, ...] = ()
    estimated: bool = False
    """By a power model."""


@dataclass(frozen=True)
class RunsWithoutEnergy(Finding):
    kind: ClassVar[str] = "runs without energy"

    lacking: int
    runs: int
    reason: str


@dataclass(frozen=True)
class UnplacedRows(Finding):
    """Published rows beside which nothing is measured at this scale."""

    kind: ClassVar[str] = "unplaced rows"

    unplaced: int
    rows: int
    scale: str


@dataclass(frozen=True)
class PointsWithoutRun(Finding):
    kind: ClassVar[str] = "points without run"

    lacking: int
    points: int


@dataclass(frozen=True)
class SeveralMachines(Finding):
    """Runs under one name come from several kinds of machine."""

    kind: ClassVar[str] = "several machines"

    name: str
    """A node or a target; '' where there is only one."""
    kinds: tuple[tuple[str, int], ...]
    """Each with the number of its runs, most first."""


@dataclass(frozen=True)
class WaitedToCool(Finding):
    """Time that was waited before runs until the machine was cool again."""

    kind: ClassVar[str] = "waited to cool"

    runs: int
    seconds: float


@dataclass(frozen=True)
class BeganWarm(Finding):
    kind: ClassVar[str] = "began warm"

    warm: int
    runs: int
    reason: str
    """Of the first."""


@dataclass(frozen=True)
class RestedUnseen(Finding):
    """No sensor told when the machine was cool."""

    kind: ClassVar[str] = "rested unseen"

    reason: str
    seconds: float
    """The longest rest before a run."""


@dataclass(frozen=True)
class DisturbedStudy(Finding):
    """Other programs disturbed some of a study's runs."""

    kind: ClassVar[str] = "disturbed study"

    disturbed: int
    runs: int
    signs: tuple[tuple[str, int], ...]
    """What told of it, and in how many runs."""
