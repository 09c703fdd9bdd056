"""What a comparison has to tell: what makes it doubtful, what its intervals mean, what options bring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sonda.analysis.findings import Finding
from sonda.analysis.summary import Value

# ---- Runs that were measured ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DisturbedRuns(Finding):
    """Other programs disturbed some of the runs."""

    kind: ClassVar[str] = "disturbed runs"

    disturbed: int
    runs: int


@dataclass(frozen=True)
class DifferingSetting:
    """Something that differs between runs, with its values, each once."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class DifferingWork(Finding):
    """The runs did not do the same work."""

    kind: ClassVar[str] = "differing work"

    settings: tuple[DifferingSetting, ...]


@dataclass(frozen=True)
class ComparedSetting:
    """A setting that all runs of a side have, with the value of A and that of B."""

    name: str
    a: str
    b: str


@dataclass(frozen=True)
class ComparedSettings(Finding):
    """The sides do the same work in different ways, which is what is compared."""

    kind: ClassVar[str] = "compared settings"

    settings: tuple[ComparedSetting, ...]


@dataclass(frozen=True)
class DifferingThreads(Finding):
    """The runs had different numbers of threads, and that is not what is compared."""

    kind: ClassVar[str] = "differing threads"

    setting: DifferingSetting


@dataclass(frozen=True)
class DifferingLibrary(Finding):
    """The runs had different versions of a library."""

    kind: ClassVar[str] = "differing library"

    setting: DifferingSetting


@dataclass(frozen=True)
class DifferentMachines(Finding):
    """The runs are from different machines."""

    kind: ClassVar[str] = "different machines"

    processors: tuple[str, ...]


@dataclass(frozen=True)
class UnfinishedRuns(Finding):
    """Runs that ended early."""

    kind: ClassVar[str] = "unfinished runs"

    runs: tuple[str, ...]


@dataclass(frozen=True)
class UntimedParts(Finding):
    """Parts that were not timed in every run."""

    kind: ClassVar[str] = "untimed parts"

    parts: tuple[str, ...]


@dataclass(frozen=True)
class NoInterval(Finding):
    """The step of a part has no interval."""

    kind: ClassVar[str] = "no interval"

    part: str
    reason: str


@dataclass(frozen=True)
class NoisyPart(Finding):
    """Differences below this share cannot be seen in a part."""

    kind: ClassVar[str] = "noisy part"

    part: str
    least: float


@dataclass(frozen=True)
class OneProcess(Finding):
    """Intervals come from the steps of one process, on one side or on both."""

    kind: ClassVar[str] = "one process"

    both_sides: bool


@dataclass(frozen=True)
class WidenedIntervals(Finding):
    """Intervals hold for all phases, or all of so many layers, at once."""

    kind: ClassVar[str] = "widened intervals"

    phases: bool
    layers: int
    """0 where there are not several."""


# ---- Runs that were imported ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IncompleteTrace(Finding):
    """An imported run that ends in the middle."""

    kind: ClassVar[str] = "incomplete trace"

    run: str


@dataclass(frozen=True)
class DifferentDevices(Finding):
    """The traces are from different devices."""

    kind: ClassVar[str] = "different devices"


@dataclass(frozen=True)
class DifferentTools(Finding):
    """The runs come from different tools."""

    kind: ClassVar[str] = "different tools"


# ---- Runs that were simulated ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExactCycles(Finding):
    """Cycles are exact: there is nothing to estimate."""

    kind: ClassVar[str] = "exact cycles"


@dataclass(frozen=True)
class OtherEngines(Finding):
    """Engines that only one of two accelerators has, with what they are."""

    kind: ClassVar[str] = "other engines"

    a: tuple[tuple[str, str], ...]
    b: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class DifferingDescriptions(Finding):
    """Fields in which the descriptions of two accelerators differ: name, A's value, B's value."""

    kind: ClassVar[str] = "differing descriptions"

    fields: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class DifferingClocks(Finding):
    """Clocks in Hz, None where there is none."""

    kind: ClassVar[str] = "differing clocks"

    a: float | None
    b: float | None


@dataclass(frozen=True)
class SimulatedEnergies(Finding):
    """J of both sides, with the bounds of their tables."""

    kind: ClassVar[str] = "simulated energies"

    a: Value
    b: Value


@dataclass(frozen=True)
class SimulatedTraffic(Finding):
    """Bytes to and from memory of both sides."""

    kind: ClassVar[str] = "simulated traffic"

    a: float
    b: float


# ---- Options of a study ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OptionEffect:
    """What one option does, or several together: how many times as fast, from least to most where it was seen."""

    names: tuple[str, ...]
    effect: str
    """One of those in `option_effects`."""
    least: float = 1.0
    most: float = 1.0
    low: float | None = None
    high: float | None = None
    """Ends of the interval; of several, what holds all of them."""
    places: tuple[str, ...] = ()
    first: bool = False
    """The best of its place."""
    bound: float | None = None
    """The most times as fast that it can be; None where that is not known."""


@dataclass(frozen=True)
class OptionOutcome(Finding):
    """What one option does at one place: how many times as fast, or why that is not known."""

    kind: ClassVar[str] = "option"

    effect: str
    """One of those in `option_effects`; '' where the speed-up is missing."""
    speedup: Value
    most: float | None
    """The most times as fast that it can be; None where that is not known."""


@dataclass(frozen=True)
class ProductOfParts(Finding):
    """Options at once against the product of what each brings alone."""

    kind: ClassVar[str] = "product of parts"

    relation: str
    """`equal`, `more`, `less`, `unsure`; '' where single measurements tell nothing."""
    product: float


@dataclass(frozen=True)
class OptionsBring(Finding):
    """What options bring against the base, at one place of a study or at so many."""

    kind: ClassVar[str] = "options"

    effects: tuple[OptionEffect, ...]
    places: int = 1


@dataclass(frozen=True)
class RemedyOfRuns(Finding):
    """To try: what runs of a study say themselves, and where."""

    kind: ClassVar[str] = "remedy of runs"

    remedy: Finding
    places: tuple[str, ...]
    configurations: int
    """Of all that were judged."""


@dataclass(frozen=True)
class FoundInRun(Finding):
    """A finding of one run of a study, and the configuration that it ran."""

    kind: ClassVar[str] = "found in run"

    configuration: str
    run: str
    finding: Finding
