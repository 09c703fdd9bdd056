"""What sampled stacks say of a program, as plain data: functions and lines of its code, and how each spends its time.

Times are ns of a step (the mean over the timed steps), or of the whole program, as their region says. Shares are of
the same: 0 to 1, with the 95 % interval that so many samples leave open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from sonda.analysis.summary import Value

OTHER, BESIDE, WORKERS, OUTSIDE = "other", "beside", "workers", "outside"
"""Regions that are no phases: in a step and in no phase; what other threads of the process do while it steps; what
workers of a DataLoader do meanwhile; in no step."""


class Doing(Enum):
    """What a thread does at a place."""

    PYTHON = "python"
    """It runs with the interpreter's lock: Python code, or a library's function that does not give up the lock."""
    NATIVE = "native"
    """It runs without that lock."""
    WAITING = "waiting"
    """It does not run: it is in a system call, or in the queue for a lock."""


class Activity(Enum):
    """What code of the user's is for, as the cause is called that it makes."""

    COLLECTION = "garbage_collection"
    WAIT = "waiting"
    LOG = "logging"
    CHECKPOINT = "checkpointing"
    COPY = "copies"
    ALLOCATION = "allocation"
    """Asking for new memory, and filling it."""
    METRIC = "metrics"
    """Computed from what the step has made, and nothing of it reaches a backward or the next forward."""
    LOOP = "per_sample_python"
    """Python code in a loop inside the step."""
    INPUT = "input"
    """Reading and preparing what a forward is given."""
    UNKNOWN = ""


@dataclass(frozen=True)
class CodeTime:
    """The time of a place, ns, by what the thread did there."""

    python: float = 0.0
    native: float = 0.0
    waiting: float = 0.0
    ran: float = 0.0
    """On a processor. What is missing to `python` and `native` was spent in the queue for one."""
    calls: tuple[tuple[str, float], ...] = ()
    """System calls in which it waited, with their ns, most first; '' where that is not known."""
    samples: int = 0
    steps: int = 0
    """Timed steps in which it was sampled."""

    @property
    def total(self) -> float:
        return self.python + self.native + self.waiting

    @property
    def doing(self) -> Doing:
        """What takes most of it."""
        return max(Doing, key=lambda doing: float(getattr(self, doing.value)))

    @property
    def call(self) -> str:
        """The system call in which it waited longest; '' where there is none, or it is not known."""
        return self.calls[0][0] if self.calls else ""


@dataclass(frozen=True)
class CodePlace:
    """A line of the user's code, or the begin of a function."""

    file: str
    """Relative to the directory in which the program began, if below it."""
    function: str
    """Qualified name."""
    line: int

    @property
    def name(self) -> str:
        """`train.py:41 Watch.__call__`."""
        return f"{self.file}:{self.line} {self.function}".rstrip()


@dataclass(frozen=True)
class CodeLine:
    """An expression of the user's code, without the user's functions that it calls."""

    place: CodePlace
    text: str
    """Source of the expression; '' where the file was gone."""
    called: str
    """What it calls of a library: `json.dumps`, `time.sleep`; '' where it calls nothing, or that is not known."""
    time: CodeTime
    share: Value


@dataclass(frozen=True)
class CodeFunction:
    """A function of the user's code."""

    place: CodePlace
    """Where it begins."""
    own: CodeTime
    """Without other functions of the user's that it calls."""
    inclusive: CodeTime
    """With them; of a function that calls itself, once."""
    share: Value
    """Of `inclusive`."""
    called: tuple[tuple[str, float], ...]
    """What it calls of libraries by itself, with ns, most first."""
    phases: dict[str, float] = field(default_factory=dict)
    """ns of `inclusive` by phase; `other` is in none."""
    layers: tuple[tuple[str, float], ...] = ()
    """ns of `inclusive` by the path of the innermost layer that was open, most first; outside of layers nothing."""


@dataclass(frozen=True)
class CodeBranch:
    """A line of the user's code with everything that it calls."""

    place: CodePlace
    text: str
    time: CodeTime
    share: Value
    branches: tuple[CodeBranch, ...] = ()
    """Lines of the user's code that it calls, most time first."""

    def walk(self, depth: int = 0) -> Iterator[tuple[int, CodeBranch]]:
        """This one and all below it, with their depths."""
        yield depth, self
        for branch in self.branches:
            yield from branch.walk(depth + 1)


@dataclass(frozen=True)
class CodeLead:
    """A function of the user's code that takes a worthwhile share by itself, without inner functions that do."""

    place: CodePlace
    """Its line that takes most of it, where one takes half; else where it begins."""
    text: str
    """Source of that line's expression; '' of a whole function, or where it is not known."""
    called: str
    """What of a library takes half of it or more; '' where nothing does."""
    time: CodeTime
    share: Value
    activity: Activity = Activity.UNKNOWN
    phases: tuple[tuple[str, float], ...] = ()
    """ns by phase, most first; `other` is in none."""


@dataclass(frozen=True)
class CodeRegion:
    """The code of a phase, of what is in none, of other threads, of workers, or of what is in no step."""

    name: str
    """Name of a phase, OTHER, BESIDE, WORKERS or OUTSIDE."""
    time: CodeTime
    share: Value
    """Of the step; of workers that of their own time, of OUTSIDE that of the program."""
    lines: tuple[CodeLine, ...]
    """Most time first."""
    functions: tuple[CodeFunction, ...]
    """Most time first."""
    tree: tuple[CodeBranch, ...]
    leads: tuple[CodeLead, ...]
    """Most time first; without what is among the causes of its part."""

    def function(self, name: str) -> CodeFunction | None:
        """The function with this qualified name that takes most."""
        return next((function for function in self.functions if function.place.function == name), None)


@dataclass(frozen=True)
class StepCollections:
    """Garbage collections of a step."""

    count: Value
    """A step, the mean."""
    time: Value
    """ns a step, the mean."""
    share: Value


@dataclass(frozen=True)
class PartCode:
    """The code of one part of a run."""

    part: str
    samples: int
    """Of the thread that steps, inside of timed steps."""
    regions: tuple[CodeRegion, ...]
    """Most time first; those of other threads and processes behind."""
    functions: tuple[CodeFunction, ...]
    """Of the whole step, in the thread that steps; most time first."""
    causes: tuple[CodeLead, ...] = ()
    """Leads of the whole step whose activity is known, each activity by itself; most time first."""
    collections: StepCollections | None = None
    """None where they were not recorded."""
    purposes: Mapping[str, Activity] = field(default_factory=dict)
    """By line (`train.py:41`): what most of its time is for, where that is a cause."""

    def region(self, name: str) -> CodeRegion | None:
        return next((region for region in self.regions if region.name == name), None)


@dataclass(frozen=True)
class CodeSummary:
    """Where in the program time goes."""

    parts: tuple[PartCode, ...]
    """In the order of the summary's parts; those without a sample are left out."""
    outside: CodeRegion | None
    """What its first thread did outside of steps."""
    between: tuple[CodeLead, ...] = ()
    """Functions that take the time between the first step and the last, and are in none; where no step was seen, those
    of the program, without its imports. Shares are of that time, most first."""

    def part(self, name: str) -> PartCode | None:
        return next((part for part in self.parts if part.part == name), None)
