"""What ranks have to tell: who is slow, who waits, and what makes that doubtful."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sonda.analysis.findings import Finding

# ---- Ranks of an imported job ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoCollective(Finding):
    """No collective is in the traces of all ranks."""

    kind: ClassVar[str] = "no collective"

    imbalance: float | None
    """The largest compute of a rank over the mean of all; None where nothing computes."""


@dataclass(frozen=True)
class UntoldGroups(Finding):
    """Collectives of different groups of ranks cannot be told apart."""

    kind: ClassVar[str] = "untold groups"

    imbalance: float | None


@dataclass(frozen=True)
class NoSlowRank(Finding):
    """No rank keeps the others waiting most of the time."""

    kind: ClassVar[str] = "no slow rank"

    wait: float
    """ns a step, the mean over ranks."""
    waiting: float
    """The same as a share of the step; more than 1 where clocks make it longer than the step."""
    exposed: float
    """Share of the step that is waited and that no computing hides."""
    sometimes: bool
    """Whether that is worth a word."""
    hidden: bool
    """Whether computing hides enough of the waiting to be worth a word."""
    latest: int
    """The rank that comes last most often."""
    last: int
    """How many collectives it came to as the last; 0: nobody did as far as clocks can tell."""
    collectives: int
    """How many it took part in."""
    imbalance: float | None


@dataclass(frozen=True)
class SlowRanks(Finding):
    """Ranks that keep the others waiting. Times are ns a step."""

    kind: ClassVar[str] = "slow ranks"

    ranks: tuple[int, ...]
    machine: str
    """Where these are all ranks of one; else ''."""
    last: int
    """How many collectives one of them came to as the last."""
    collectives: int
    groups: bool
    """Whether there are several groups of ranks; these collectives are then of their groups."""
    held: float
    exposed: float
    """What of it no computing hides."""
    hidden: bool
    """Whether computing hides enough to be worth a word."""
    share: float
    """Of the exposed time in the step; more than 1 where clocks make it longer than the step."""
    part: str
    """The part of their steps that explains it; '' where none does."""
    theirs: float
    """What the part takes the slow ranks."""
    others: float
    """What it takes the others."""
    operation: str
    """That has most of the difference; '' where none is known."""


@dataclass(frozen=True)
class LookAtRank(Finding):
    """To try: look at what takes slow ranks longer."""

    kind: ClassVar[str] = "look at rank"

    part: str


@dataclass(frozen=True)
class UnmarkedSteps(Finding):
    """No step is marked."""

    kind: ClassVar[str] = "unmarked steps"


@dataclass(frozen=True)
class UnnumberedSteps(Finding):
    """Steps have no numbers of their own."""

    kind: ClassVar[str] = "unnumbered steps"


@dataclass(frozen=True)
class StepsLeftOut(Finding):
    """Steps that are not in the traces of all ranks."""

    kind: ClassVar[str] = "steps left out"

    steps: int


@dataclass(frozen=True)
class MissingRanks(Finding):
    """The job had more ranks than there are traces."""

    kind: ClassVar[str] = "missing ranks"

    world: int
    here: int


@dataclass(frozen=True)
class MatchedOverGroups(Finding):
    """The job has groups of ranks, and collectives do not say theirs."""

    kind: ClassVar[str] = "matched over groups"

    smallest: int
    """Ranks of the smallest group."""


@dataclass(frozen=True)
class PartialGroups(Finding):
    """Groups some of whose ranks have no trace."""

    kind: ClassVar[str] = "partial groups"

    groups: int


@dataclass(frozen=True)
class UnmatchedCollectives(Finding):
    """Collectives without a partner on every rank, or outside steps."""

    kind: ClassVar[str] = "unmatched collectives"

    collectives: int


@dataclass(frozen=True)
class ImpossibleCollectives(Finding):
    """Collectives that somebody would have left before the last rank came."""

    kind: ClassVar[str] = "impossible collectives"

    collectives: int


@dataclass(frozen=True)
class ComparedClocks(Finding):
    """Clocks of machines or processes that were compared by the ends of collectives."""

    kind: ClassVar[str] = "compared clocks"

    clocks: int
    doubt: int
    """ns by which they may still differ."""


@dataclass(frozen=True)
class SeparateClocks(Finding):
    """Sets of ranks that share no collective, whose clocks are not compared."""

    kind: ClassVar[str] = "separate clocks"

    sets: int


# ---- Ranks of a run that was measured -------------------------------------------------------------------------------


@dataclass(frozen=True)
class CriticalRank(Finding):
    """Whose numbers those of a part are, and who waits for it longest."""

    kind: ClassVar[str] = "critical rank"

    part: str
    rank: int
    device: str
    alike: bool = False
    """Ranks work as long as each other."""
    waiting: int | None = None
    """The rank that waits longest; None where that is not known."""
    waiting_device: str = ""
    waited: float = 0.0
    """ns a step."""
    share: float | None = None
    """Of its step, 0 to 1; None where clocks make it longer than the step."""
