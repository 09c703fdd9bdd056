"""What counters say of a part: counts per step, Top-Down, and how both went over time, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from sonda.analysis.change_points import Change, Drift
from sonda.analysis.findings import Finding
from sonda.analysis.summary import Value
from sonda.record.conventions.topdown import TopDownDefinition


@dataclass(frozen=True)
class Counted:
    """Counters of a step, phase or layer. A layer's are without the layers inside, forward and backward together."""

    counters: dict[str, Value]
    """Per step by quantity, median over the steps that counted it. Scaled values have the source `estimated`."""
    ipc: Value
    """Instructions per cycle."""
    per_thousand: dict[str, Value]
    """Every other event per 1,000 instructions of the same steps: of misses, MPKI."""


@dataclass(frozen=True)
class CounterSummary:
    """Hardware counters of one part."""

    step: Counted
    phases: dict[str, Counted]
    layers: dict[str, Counted]
    """By path."""
    groups: tuple[tuple[str, ...], ...]
    """Events that counted together; a step counts one group."""
    stationary: bool | None
    """Whether the groups agree on cycles and instructions; None where that cannot be told."""
    findings: tuple[Finding, ...]
    """What a reader of the numbers must know."""
    warnings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class SystemRow:
    """What the operating system counted in a phase, per step."""

    name: str
    time: Value
    """ns."""
    busy: Value
    """Processors that were kept busy, on average."""
    values: dict[str, Value]
    """`clock`, `faults`, `switches`, `migrations`, `wait` and `memory`; what was not counted has its reason."""


@dataclass(frozen=True)
class SystemSummary:
    """The operating system's counts of one part: phases that are long enough to be read, then the step."""

    rows: tuple[SystemRow, ...]
    asked: bool
    """Whether the reader asked for them."""
    remarks: tuple[Finding, ...]
    """What should not be overlooked."""

    @property
    def shown(self) -> bool:
        """Whether they deserve a table."""
        return self.asked or bool(self.remarks)


@dataclass(frozen=True)
class SourceRow:
    """One quantity of a whole program, as several sources counted it."""

    quantity: str
    ours: Value
    others: dict[str, Value]
    """By source."""
    apart: dict[str, Value]
    """By source: its count over ours, less 1."""


@dataclass(frozen=True)
class SecondSources:
    """A whole program counted by others too."""

    sources: tuple[str, ...]
    rows: tuple[SourceRow, ...]
    findings: tuple[Finding, ...]
    """What a reader of the differences must know."""


@dataclass(frozen=True)
class Share:
    """One category in one place."""

    value: Value
    """0 to 1; `estimated` where an event of it was scaled."""
    counts: bool
    """Over its threshold, and so is every category above it."""
    across: bool = False
    """Made of events that no step counted together: rates per cycle, joined by the cycles of all steps."""


@dataclass(frozen=True)
class Slots:
    """Where the slots of one place go."""

    shares: dict[str, Share]
    """By category, in the order of the definition."""
    residual: Value
    """What level 1 lacks of 1; below 0 where it has more."""
    residuals: dict[str, Value]
    """By category that has children: what these lack of it."""
    leading: tuple[str, ...]
    """The largest category of level 1 that counts, then its largest child that counts; empty where none does."""


@dataclass(frozen=True)
class TopDown:
    """Top-Down of one part."""

    definition: TopDownDefinition
    step: Slots
    phases: dict[str, Slots]
    layers: dict[str, Slots]
    """By path; without the layers inside."""
    over_steps: dict[str, tuple[float, ...]]
    """Level 1 by category for stretches of steps that count every group once; NaN where it is not known."""
    stretches: tuple[tuple[int, int], ...]
    """First and last step of each, counting from 1."""
    findings: tuple[Finding, ...]

    @property
    def level_one(self) -> list[str]:
        return [category.name for category in self.definition.categories if not category.parent]


def is_share(unit: str) -> bool:
    """Whether values of this unit are parts of a whole, which the unit names: `of slots`, `of time`."""
    return unit.startswith("of ")


@dataclass(frozen=True)
class Series:
    """One quantity, step after step."""

    name: str
    """In words: `step time`, `IPC`, `page faults`."""
    unit: str
    source: str
    steps: tuple[int, ...]
    """Numbers of the steps, from 1."""
    values: tuple[float, ...]
    changes: tuple[Change, ...] = ()
    """Their places count from the first value after warm-up."""
    drift: Drift | None = None
    first: int = 0
    """Values before this one are warm-up."""

    def step_of(self, change: Change) -> int:
        """The step from which on the new level holds."""
        return self.steps[self.first + change.at]


@dataclass(frozen=True)
class Intervals:
    """The same per fixed interval of time."""

    length: float
    """ns."""
    starts: tuple[float, ...]
    """ns since the part began."""
    rates: dict[str, tuple[float, ...]]
    """By quantity in words; what adds up is a rate per second, a level the mean over the interval."""
    units: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Stretch:
    """Neighbouring intervals together, so that few rows show a whole program."""

    start: float
    """ns since the program began."""
    end: float
    rates: dict[str, Value]
    """By the name of the series."""
    phase: str
    """The phase that took most of it; '' where no phase was seen."""
    share: float
    """Part of the stretch that it took, 0 to 1."""


@dataclass(frozen=True)
class Outside:
    """A whole program with its child processes, counted from outside."""

    duration: Value
    """ns from its start to its end."""
    busy: Value
    """Processors that it kept busy, on average."""
    totals: dict[str, Value]
    """By quantity; what could not be counted has its reason."""
    ipc: Value
    interval: float = 0.0
    """ns between readings; 0 where only totals were counted."""
    starts: tuple[float, ...] = ()
    """Of every interval, ns since the program began."""
    ends: tuple[float, ...] = ()
    series: tuple[Series, ...] = ()
    """What was counted per interval, as rates; `steps` are the numbers of the intervals, from 1."""
    phases: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Part of every interval that each phase took, 0 to 1, with `other`; empty where no phase was seen."""
    stretches: tuple[Stretch, ...] = ()
    """The same in at most a dozen rows."""
    findings: tuple[Finding, ...] = ()
    """Changes and drifts, in the order of time."""


@dataclass(frozen=True)
class OverTime:
    """How a part went on."""

    series: tuple[Series, ...]
    findings: tuple[Finding, ...]
    """Changes and drifts, in the order of time."""
    intervals: Intervals | None = None
