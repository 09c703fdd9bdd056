"""Evidence of the step that verdicts speak of: what its counted step showed, with the time of it in a timed one.

Counting disturbs times, so they are used as ratios only: the time of a layer, or of what a phase does outside of
layers, is shared among its groups of operations as they shared it in the counted step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sonda.analysis.code.summary import Activity
from sonda.analysis.layer_families import BUILT_IN
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.rules.work import first_part
from sonda.analysis.summary import LayerRow, PartSummary, Summary
from sonda.record.evidence import OperationGroup, StepEvidence

OUTSIDE = ("", "loss", "other")
"""Phases in which a program calls operations outside of modules; '' is how a counted step calls them."""


FOR_RECORDS = frozenset({Activity.LOG, Activity.CHECKPOINT})
"""What lines compute for these is told with them, by rules on code."""


@dataclass(frozen=True)
class TimedGroup:
    """A group of operations with its part of a timed step."""

    group: OperationGroup
    ns: float


@dataclass(frozen=True)
class TimedEvidence:
    """The evidence of a part's counted step, beside the part, without what is computed for records."""

    part: PartSummary
    step: StepEvidence
    groups: tuple[TimedGroup, ...]

    @property
    def step_ns(self) -> float:
        return told_ns(self.part)

    def time(self, wanted: Callable[[OperationGroup], bool]) -> float:
        """ns of a timed step in the groups that are wanted."""
        return sum(timed.ns for timed in self.groups if wanted(timed.group))

    def share(self, ns: float) -> float:
        """Part of the step, 0 to 1."""
        return min(ns / self.step_ns, 1.0) if self.step_ns else 0.0

    def largest_place(self, wanted: Callable[[OperationGroup], bool]) -> StepPlace:
        """The layer and line that take most of the groups that are wanted. A backward is called in one line, whatever
        it computes, so its line says nothing where others are known."""
        times: dict[tuple[str, str, str], float] = {}
        for timed in self.groups:
            if wanted(timed.group):
                group = timed.group
                line = "" if group.phase == "backward" and group.layer is not None else group.line
                key = group.layer or "", line, group.phase
                times[key] = times.get(key, 0.0) + timed.ns
        if not times:
            return StepPlace()
        layer, line, phase = max(times, key=lambda key: times[key])
        if not line:
            lines = {key[1]: ns for key, ns in times.items() if key[0] == layer and key[1]}
            line = max(lines, key=lambda name: lines[name], default="")
        return StepPlace(layer, line, phase)


def evidence_of(summary: Summary, part: PartSummary | None = None) -> TimedEvidence | None:
    """The evidence of a part, the judged one unless another is given; None where none was gathered."""
    part = part or first_part(summary)
    steps = [step for step in summary.workload.evidence or () if part is not None and step.part == part.name]
    if part is None or not steps or not part.step.value:
        return None
    step = max(steps, key=lambda step: step.start)
    code = summary.code.part(part.name) if summary.code is not None else None
    purposes = code.purposes if code is not None else {}
    timed = _timed(part, step)
    return TimedEvidence(part, step, tuple(row for row in timed if purposes.get(row.group.line) not in FOR_RECORDS))


def _timed(part: PartSummary, step: StepEvidence) -> tuple[TimedGroup, ...]:
    rows = {row.path: row for row in part.layers}
    sums: dict[tuple[str, str], float] = {}
    for group in step.groups:
        place = _pool(group, rows)
        sums[place] = sums.get(place, 0.0) + group.ns
    spent = _pool_times(part, sums)
    return tuple(
        TimedGroup(group, group.ns * spent[place] / sums[place] if sums[place] else 0.0)
        for group in step.groups
        for place in (_pool(group, rows),)
    )


def _pool(group: OperationGroup, rows: dict[str, LayerRow]) -> tuple[str, str]:
    """The time that a group has a part of: that of a layer itself, or of what a phase does outside of layers."""
    row = rows.get(group.layer) if group.layer is not None else None
    if row is not None and row.own.value:
        return "layer", row.path
    return "phase", "" if group.phase in OUTSIDE else group.phase


def _pool_times(part: PartSummary, sums: dict[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """ns of a timed step in each of these places. Outside of phases other code runs too, so operations have no more of
    it than they took."""
    own = {row.path: row.own.value or 0.0 for row in part.layers}
    phases = {row.name: row.cost.time.value or 0.0 for row in part.phases}
    spent: dict[tuple[str, str], float] = {}
    for place, ns in sums.items():
        kind, name = place
        if kind == "layer":
            spent[place] = own[name]
        elif name:
            outside = part.outside.get(name)
            spent[place] = (outside.value or 0.0) if outside is not None else phases.get(name, 0.0)
        else:
            spent[place] = min(ns, sum(phases.get(phase, 0.0) for phase in OUTSIDE))
    return spent


def told_ns(part: PartSummary) -> float:
    """ns of a step as far as its phases tell: where other programs interrupt now this phase and now that, medians of
    phases add up to less than the median step, and what is left is no part of the program."""
    phases = sum(row.cost.time.value or 0.0 for row in part.phases)
    return min(part.step.value or 0.0, phases) if phases else part.step.value or 0.0


def layer_row(part: PartSummary, path: str) -> LayerRow | None:
    return next((row for row in part.layers if row.path == path), None)


def is_built_in(part: PartSummary, path: str | None) -> bool:
    """Whether the layer at a path is one of the framework, in which no line can be changed."""
    row = layer_row(part, path) if path is not None else None
    return row is not None and row.name in BUILT_IN


def outermost(paths: Iterable[str]) -> list[str]:
    """These paths without those that lie below another of them."""
    known = list(dict.fromkeys(paths))
    return [
        path for path in known
        if not any(other != path and (other == "" or path.startswith(f"{other}.")) for other in known)
    ]  # fmt: skip
