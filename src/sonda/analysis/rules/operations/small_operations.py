"""Small operations: those that cost their overhead and not their work, and what part of the step they take."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sonda.analysis.rules.device.device_lines import ASK, TO_HOST
from sonda.analysis.rules.operations.evidence import TimedEvidence, TimedGroup, evidence_of, is_built_in, layer_row
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.rules.work import bound_by, host_share, share
from sonda.analysis.summary import Summary
from sonda.record.evidence import OperationGroup

LOOP = 50
"""Operations of one layer in one line, from which on the line stands in a loop: an attention of PyTorch's own, the
layer of most operations, has half as many."""
OFTEN = 4.0
"""Times that the measured cost of an operation may be exceeded: more than that is code around it, not its overhead."""
USUAL_BATCH = 32
"""A smaller batch is seldom chosen without need. From here on the layers are small, not the batch."""
COPIES = ("Memcpy", "MemcpyAsync")
"""Calls of a GPU's library that launch, as those of kernels do."""
LEAST = 0.20
"""A fifth of the step in overhead: a step has some operations that are small, whatever its batch."""


@dataclass(frozen=True)
class SmallOperations:
    """The small operations of a step."""

    evidence: TimedEvidence
    groups: tuple[TimedGroup, ...]
    overhead: float
    """ns of a step that they cost beyond their work."""
    saved: float
    """The part of it that a batch of usual size saves, where few samples are the cause; else all of it."""
    looped: bool
    """Whether loops call most of them, backward and optimizer left out."""
    few_samples: bool
    """Whether a larger batch would give them work: no loop calls most of them, backward and optimizer left out, and
    the batch is small."""
    place: StepPlace
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
    if evidence is not None and evidence.part.device is not None:
        return _launched_in_loops(summary, evidence)
    if evidence is None or "operation" not in ceilings:
        return None
    cost = ceilings["training_operation"].value or 0.0
    small = [timed for timed in evidence.groups if _work(timed, ceilings) < cost * timed.group.operations]
    called = [timed for timed in small if timed.group.phase not in ("backward", "optimizer")]
    sisters = _count_sisters(called)
    counts: dict[tuple[str | None, str], int] = {}
    times: dict[tuple[str | None, str], float] = {}
    for timed in called:
        key = timed.group.layer, timed.group.line
        counts[key] = counts.get(key, 0) + timed.group.operations
        times[key] = times.get(key, 0.0) + timed.ns
    if not times:
        return None
    in_loops = sum(
        ns for key, ns in times.items()
        if _is_looped(evidence, key[0], counts[key]) or sisters[_sister_key(*key)] >= LOOP
    )  # fmt: skip
    looped = in_loops >= sum(times.values()) / 2
    # A batch of usual size has so many times fewer steps, and their overhead with them.
    spared = max(1 - evidence.step.batch / USUAL_BATCH, 0.0) if evidence.step.batch else 0.0
    few_samples = not looped and evidence.share(_overhead(small, ceilings)) * spared >= LEAST
    # A larger batch makes updates rarer too; else an optimizer has a rule of its own.
    groups = tuple(timed for timed in small if few_samples or timed.group.phase != "optimizer")
    overhead = _overhead(groups, ceilings)
    limited = share([work for bound in ("compute", "memory") for work in bound_by(evidence.part, bound)])
    if evidence.share(overhead) < max(LEAST, limited):
        return None
    layer, line = max(times, key=lambda key: times[key])
    return SmallOperations(
        evidence, groups, overhead, overhead * spared if few_samples else overhead, looped, few_samples,
        StepPlace(layer or "", line, "forward" if layer is not None else ""), counts[layer, line],
    )  # fmt: skip


def _launched_in_loops(summary: Summary, evidence: TimedEvidence) -> SmallOperations | None:
    """Operations of a GPU that loops launch one by one, while it has little to do: its idle time is their overhead.

    Lines that ask the GPU have a rule of their own.
    """
    # While the host waits in the driver it launches nothing.
    called_ns = sum(float(call.ns) for call in summary.workload.device_calls or () if call.name not in COPIES)
    idle = host_share(evidence.part) - called_ns / evidence.step_ns if evidence.step_ns else 0.0
    asking = {timed.group.line for timed in evidence.groups if timed.group.family in (ASK, TO_HOST)}
    called = [
        timed for timed in evidence.groups
        if timed.group.phase not in ("backward", "optimizer") and timed.group.line and timed.group.line not in asking
    ]  # fmt: skip
    counts: dict[str, int] = {}
    for timed in called:
        counts[timed.group.line] = counts.get(timed.group.line, 0) + timed.group.operations
    looped = {line: count for line, count in counts.items() if count >= LOOP}
    everything = sum(
        timed.group.operations for timed in evidence.groups
        if timed.group.line and timed.group.phase not in ("backward", "optimizer")
    )  # fmt: skip
    if idle < LEAST or 2 * sum(looped.values()) < everything:
        return None
    line = max(looped, key=lambda name: looped[name])
    groups = tuple(timed for timed in called if timed.group.line in looped)
    place = max((timed for timed in groups if timed.group.line == line), key=lambda timed: timed.group.operations).group
    return SmallOperations(
        evidence, groups, idle * evidence.step_ns, idle * evidence.step_ns, True, False,
        StepPlace(place.layer or "", line, "forward" if place.layer is not None else ""), looped[line],
    )  # fmt: skip


def _overhead(small: Iterable[TimedGroup], ceilings: dict) -> float:  # type: ignore[type-arg]
    """ns that operations cost beyond their work, and no longer than operations cost."""
    cost = ceilings["training_operation"].value or 0.0
    return sum(min(max(timed.ns - _work(timed, ceilings), 0.0), OFTEN * cost * timed.group.operations)
               for timed in small)  # fmt: skip


def _count_sisters(called: list[TimedGroup]) -> dict[tuple[str, str], int]:
    """How many layers of one list work in a line: a loop calls them, one after the other."""
    layers: dict[tuple[str, str], set[str]] = {}
    for timed in called:
        layers.setdefault(_sister_key(timed.group.layer, timed.group.line), set()).add(timed.group.layer or "")
    return {key: len(names) for key, names in layers.items()}


def _sister_key(layer: str | None, line: str) -> tuple[str, str]:
    return re.sub(r"(?<![^.])[0-9]+(?![^.])", "*", layer or ""), line


def _is_looped(evidence: TimedEvidence, layer: str | None, operations: int) -> bool:
    """Whether so many operations of one layer in one line tell of a loop around the line, other than that over the
    batches whose gradients a step gathers. A recurrent layer of the framework makes as many in a single call."""
    row = layer_row(evidence.part, layer) if layer is not None else None
    calls = row.calls if row is not None and is_built_in(evidence.part, layer) else operations
    least = LOOP * max(evidence.part.backwards, 1)
    return operations >= least and (operations < LOOP * calls or calls >= least)


def _work(timed: TimedGroup, ceilings: dict) -> float:  # type: ignore[type-arg]
    return operation_work(timed.group, ceilings)


def operation_work(group: OperationGroup, ceilings: dict) -> float:  # type: ignore[type-arg]
    """ns that arithmetic and memory traffic of a group take at least."""
    if "flops" not in ceilings or "dram_bandwidth" not in ceilings:
        return 0.0
    arithmetic = 1e9 * float(group.flops) / (ceilings["flops"].value or 1.0)
    return max(arithmetic, 1e9 * float(group.bytes) / (ceilings["dram_bandwidth"].value or 1.0))
