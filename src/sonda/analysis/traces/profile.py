"""The summary of an imported profile: its steps, what they are spent on, its operations."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field, replace

import numpy as np

from sonda.analysis import reasons
from sonda.analysis.device.kernels import LATENCY
from sonda.analysis.summary import Value
from sonda.analysis.traces.operations import OperationTable, OperationTotals
from sonda.analysis.traces.step_breakdown import (
    CLASSES,
    COMPUTE,
    OPERATIONS,
    PARTS,
    Breakdown,
    HostClasses,
    Steps,
    as_operations,
    classes,
)
from sonda.record.files.tables import read_blocks
from sonda.record.run import Run
from sonda.record.workload import ProfileFacts

COLUMNS = ("id", "path", "rank", "thread", "stream", "device", "clock", LATENCY)
DEVICE_PARTS = ("compute", "communication", "transfer", "launch")
"""Parts of a step that only a device makes."""


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
        placement: dict[str, tuple[int, int, int]] = {}
        for operation in self.operations:
            kinds, calls, own = placement.get(operation.place, (0, 0, 0))
            placement[operation.place] = kinds + 1, calls + operation.calls, own + operation.own
        return placement


def is_profile(run: Run) -> bool:
    """Whether a run was imported from an XSpace file."""
    return run.info.workload.imported == "xplane"


def summarise_profile(run: Run) -> ProfileSummary:
    """Steps and operations of an imported profile, or of a trace, with memory that does not grow with it."""
    ranks: dict[int, Breakdown] = {}
    host: dict[int, HostClasses] = {}
    table = OperationTable()
    for spans in read_blocks(run, COLUMNS):
        rank = int(spans.number("rank")[0]) if len(spans) else 0  # a block holds one rank
        kinds = classes(spans) if is_profile(run) else host.setdefault(rank, HostClasses()).of(spans)
        breakdown = ranks.setdefault(rank, Breakdown(rank))
        breakdown.feed(spans, kinds, innermost=not is_profile(run))
        listed = kinds if is_profile(run) else as_operations(kinds, spans)
        table.feed(spans, listed, breakdown.in_step(spans.number("start")))
    steps = [
        step_times for rank in ranks.values() for step_times in _step_times(*_of_kind(run, rank.result(), rank.seen))
    ]
    facts = run.info.workload.profile or ProfileFacts()
    traced = {name: (counts.calls, counts.traced) for name, counts in (facts.traced or {}).items()}
    only = {name: tuple(counts.ranks) for name, counts in (facts.traced or {}).items() if counts.ranks}
    return ProfileSummary(
        tuple(sorted(steps, key=lambda times: (-times.median * len(times.durations), times.rank, times.name))),
        table.rows(), facts.steps or "", traced, only,
    )  # fmt: skip


def _of_kind(run: Run, steps: Steps, seen: np.ndarray) -> tuple[Steps, np.ndarray]:
    """Steps and classes as they are shown: steps of a trace are numbered by their names, `ProfilerStep#7`, and all of
    one kind; what its host computes are operations."""
    if is_profile(run):
        return steps, seen
    parts, seen = steps.parts.copy(), seen.copy()
    parts[:, OPERATIONS] += parts[:, COMPUTE]
    seen[OPERATIONS] |= seen[COMPUTE]
    parts[:, COMPUTE], seen[COMPUTE] = 0, False
    return replace(steps, names=tuple(name.partition("#")[0] for name in steps.names), parts=parts), seen


def _step_times(steps: Steps, seen: np.ndarray) -> list[StepTimes]:
    known = {name: bool(seen[at]) for at, name in enumerate(CLASSES)}
    on_device = known["compute"] or known["launch"]
    times = []
    for name in dict.fromkeys(steps.names):
        mine = np.array([step_name == name for step_name in steps.names])
        parts = {}
        for at, part in enumerate(PARTS):
            missing = part in DEVICE_PARTS and not on_device and not known[part]
            total = None if missing else float(steps.parts[mine, at].sum())
            parts[part] = Value(total, "ns", "derived", reason=reasons.NO_DEVICE if missing else "")
        device = tuple(steps.device[mine].tolist()) if on_device else ()
        times.append(StepTimes(steps.rank, name, tuple(steps.durations[mine].tolist()), parts, device))
    return times
