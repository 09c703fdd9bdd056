"""What a co-run has to tell: who slows whom most, and what to try against it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sonda.analysis.findings import Finding
from sonda.analysis.summary import Value


@dataclass(frozen=True)
class Interfering(Finding):
    """The largest slowdown of two programs, and how all of them fared together."""

    kind: ClassVar[str] = "interference"

    slowed: str
    by: str
    slowdown: Value
    cpu_slowdown: Value
    """Of CPU time."""
    sure: bool
    """Whether the slowdown is beyond doubt."""
    programs: int
    weighted_speedup: Value
    """Of all together."""
    fairness: Value
    all_known: bool
    """Whether the slowdown of every program beside all others is known."""


@dataclass(frozen=True)
class FewRepetitions(Finding):
    """Too few repetitions for intervals."""

    kind: ClassVar[str] = "few repetitions"

    needed: int


@dataclass(frozen=True)
class MeasureAgain(Finding):
    """To try: the largest slowdown is in doubt, and may be worth knowing."""

    kind: ClassVar[str] = "measure again"


@dataclass(frozen=True)
class OwnCores(Finding):
    """To try: two programs take turns on these cores."""

    kind: ClassVar[str] = "own cores"

    shared: tuple[int, ...]


@dataclass(frozen=True)
class OneAfterTheOther(Finding):
    """To try: side by side two programs get less done than one after the other."""

    kind: ClassVar[str] = "one after the other"

    slowed: str
    by: str
    weighted_speedup: Value


@dataclass(frozen=True)
class LookAtWaiting(Finding):
    """To try: the steps of a program last longer beside another, but are not shown to take more CPU time."""

    kind: ClassVar[str] = "waiting"

    slowed: str
    by: str


@dataclass(frozen=True)
class DivideCache(Finding):
    """To try: a partition of the cache that was measured slows the program less."""

    kind: ClassVar[str] = "divide cache"

    slowed: str
    partition: str
    slowdown: Value
    """Under the partition."""


@dataclass(frozen=True)
class SweepWays(Finding):
    """To try: a cache that can be divided, and was not."""

    kind: ClassVar[str] = "sweep ways"


@dataclass(frozen=True)
class KeepApart(Finding):
    """To try: a program is slowed in the caches and the memory that it shares with another."""

    kind: ClassVar[str] = "keep apart"

    slowed: str
    by: str
