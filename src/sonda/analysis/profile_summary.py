"""The summary of an imported profile: its steps, what they are spent on, its operations."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sonda.analysis.kernels import LATENCY
from sonda.analysis.operation_table import OperationTable, OperationTotals
from sonda.analysis.step_breakdown import CLASSES, PARTS, Breakdown, Steps, classes
from sonda.analysis.summary import Value
from sonda.record.run import Run
from sonda.record.span_file import read_blocks

COLUMNS = ("id", "path", "rank", "thread", "stream", "device", "clock", LATENCY)
DEVICE_PARTS = ("compute", "communication", "transfer", "launch")
"""Parts of a step that only a device makes."""
NO_DEVICE = "the profile has no device"


@dataclass(frozen=True)
class StepTimes:
    """Steps of one name on one rank."""

    rank: int
    name: str
    durations: tuple[int, ...]
    """ns, in order."""
    parts: dict[str, Value]
    """ns in all steps together, by `PARTS`: they add up to the sum of the durations."""
    device: tuple[int, ...] = ()
    """ns of every step from the first activity launched in it to the end of the last; empty without a device."""

    @property
    def total(self) -> int:
        return sum(self.durations)

    @property
    def median(self) -> float:
        return statistics.median(self.durations)

    @property
    def on_device(self) -> float | None:
        """ns: the median of `device`; None without one."""
        return statistics.median(self.device) if self.device else None

    def share(self, part: str) -> float:
        """0 to 1; 0 where it is missing."""
        return (self.parts[part].value or 0.0) / self.total if self.total else 0.0


@dataclass(frozen=True)
class ProfileSummary:
    """A profile, as plain data."""

    steps: tuple[StepTimes, ...]
    """Those with the largest product of number and median time first: a step that compiles is no measure."""
    operations: tuple[OperationTotals, ...]
    """Longest own time first."""
    how: str
    """What a step is: marked, or how it was found; '' where none was."""
    traced: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Calls of functions that were traced or compiled meanwhile, and how many of the calls were."""
    traced_on: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Ranks that traced a function, where not all did."""

    @property
    def placement(self) -> dict[str, tuple[int, int, int]]:
        """By host and device: different operations, calls, own ns."""
        found: dict[str, tuple[int, int, int]] = {}
        for one in self.operations:
            kinds, calls, own = found.get(one.place, (0, 0, 0))
            found[one.place] = kinds + 1, calls + one.calls, own + one.own
        return found


def is_profile(run: Run) -> bool:
    """Whether a run was imported from an XSpace file."""
    return run.info.workload.get("imported") == "xplane"


def summarise_profile(run: Run) -> ProfileSummary:
    """Steps and operations of an imported profile, or of a trace, with memory that does not grow with it."""
    ranks: dict[int, Breakdown] = {}
    table = OperationTable()
    for spans in read_blocks(run, COLUMNS):
        found = classes(spans, is_profile(run))
        rank = int(spans.number("rank")[0]) if len(spans) else 0  # a block holds one rank
        breakdown = ranks.setdefault(rank, Breakdown(rank))
        breakdown.feed(spans, found)
        table.feed(spans, found, breakdown.in_step(spans.number("start")))
    steps = [one for rank in ranks.values() for one in _step_times(_named(run, rank.result()), rank.seen)]
    about: dict[str, Any] = run.info.workload.get("profile") or {}
    traced = {str(name): (int(one["calls"]), int(one["traced"])) for name, one in (about.get("traced") or {}).items()}
    only = {str(name): tuple(one["ranks"]) for name, one in (about.get("traced") or {}).items() if one.get("ranks")}
    return ProfileSummary(
        tuple(sorted(steps, key=lambda one: (-one.median * len(one.durations), one.rank, one.name))), table.rows(),
        str(about.get("steps") or ""), traced, only,
    )  # fmt: skip


def _named(run: Run, steps: Steps) -> Steps:
    """Steps of a trace are numbered by their names, `ProfilerStep#7`: they are all of one kind."""
    return steps if is_profile(run) else replace(steps, names=tuple(name.partition("#")[0] for name in steps.names))


def _step_times(steps: Steps, seen: np.ndarray) -> list[StepTimes]:
    known = {name: bool(seen[at]) for at, name in enumerate(CLASSES)}
    on_device = known["compute"] or known["launch"]
    found = []
    for name in dict.fromkeys(steps.names):
        mine = np.array([one == name for one in steps.names])
        parts = {}
        for at, part in enumerate(PARTS):
            missing = part in DEVICE_PARTS and not on_device and not known[part]
            total = None if missing else float(steps.parts[mine, at].sum())
            parts[part] = Value(total, "ns", "derived", reason=NO_DEVICE if missing else "")
        device = tuple(steps.device[mine].tolist()) if on_device else ()
        found.append(StepTimes(steps.rank, name, tuple(steps.durations[mine].tolist()), parts, device))
    return found
