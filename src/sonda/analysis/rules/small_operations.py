"""Small operations: those that cost their overhead and not their work, and what part of the step they take."""

from __future__ import annotations

from dataclasses import dataclass

from sonda.analysis.rules.evidence import TimedEvidence, TimedGroup, evidence_of
from sonda.analysis.rules.places import CodePlace
from sonda.analysis.rules.work import bound_by, share
from sonda.analysis.summary import Summary

LOOP = 50
"""Operations of one layer in one line, from which on the line stands in a loop: an attention of PyTorch's own, the
layer of most operations, has half as many."""
OFTEN = 4.0
"""Times that the measured cost of an operation may be exceeded: more than that is code around it, not its overhead."""
USUAL_BATCH = 32
"""A smaller batch is seldom chosen without need. From here on the layers are small, not the batch."""
LEAST = 0.20
"""A fifth of the step in overhead: a step has some operations that are small, whatever its batch."""


@dataclass(frozen=True)
class SmallOperations:
    """The small operations of a step."""

    evidence: TimedEvidence
    groups: tuple[TimedGroup, ...]
    overhead: float
    """ns of a step that they cost beyond their work."""
    looped: bool
    """Whether loops call most of them, backward and optimizer left out."""
    few_samples: bool
    """Whether a larger batch would give them work: no loop calls most of them, backward and optimizer left out, and
    the batch is small."""
    place: CodePlace
    """Where most of them are called."""
    here: int
    """How many operations of a step are called there."""

    @property
    def operations(self) -> int:
        return sum(timed.group.operations for timed in self.groups)

    @property
    def time(self) -> float:
        return sum(timed.ns for timed in self.groups)


def small_operations(summary: Summary) -> SmallOperations | None:
    """The small operations; None where they take less than a fifth of the step, or less than work that arithmetic or
    memory limits."""
    evidence = evidence_of(summary)
    ceilings = summary.ceilings
    if evidence is None or "operation" not in ceilings or evidence.part.device is not None:
        return None
    cost = ceilings["training_operation"].value or 0.0
    small = [timed for timed in evidence.groups if _work(timed, ceilings) < cost * timed.group.operations]
    called = [timed for timed in small if timed.group.phase not in ("backward", "optimizer")]
    counts: dict[tuple[str | None, str], int] = {}
    times: dict[tuple[str | None, str], float] = {}
    for timed in called:
        key = timed.group.layer, timed.group.line
        counts[key] = counts.get(key, 0) + timed.group.operations
        times[key] = times.get(key, 0.0) + timed.ns
    if not times:
        return None
    looped = sum(ns for key, ns in times.items() if counts[key] >= LOOP) >= sum(times.values()) / 2
    few_samples = not looped and evidence.step.batch < USUAL_BATCH
    # A larger batch makes updates rarer too; else an optimizer has a rule of its own.
    groups = tuple(timed for timed in small if few_samples or timed.group.phase != "optimizer")
    overhead = sum(
        min(max(timed.ns - _work(timed, ceilings), 0.0), OFTEN * cost * timed.group.operations) for timed in groups
    )
    limited = share([work for bound in ("compute", "memory") for work in bound_by(evidence.part, bound)])
    if evidence.share(overhead) < max(LEAST, limited):
        return None
    layer, line = max(times, key=lambda key: times[key])
    return SmallOperations(
        evidence, groups, overhead, looped, few_samples,
        CodePlace(layer or "", line, "forward" if layer is not None else ""), counts[layer, line],
    )  # fmt: skip


def _work(timed: TimedGroup, ceilings: dict) -> float:  # type: ignore[type-arg]
    """ns that arithmetic and memory traffic of a group take at least."""
    group = timed.group
    arithmetic = 1e9 * float(group.flops) / (ceilings["flops"].value or 1.0)
    return max(arithmetic, 1e9 * float(group.bytes) / (ceilings["dram_bandwidth"].value or 1.0))
