"""Optimizer-bound: updating the weights takes longer than it need."""

from __future__ import annotations

from sonda.analysis.rules.advice import FusedOptimizer, OptimizerOnDevice, SparseUpdate
from sonda.analysis.rules.cause_findings import Cause, TableUpdated, UnfusedUpdate, UpdateElsewhere
from sonda.analysis.rules.device.device_lines import TO_DEVICE, TO_HOST
from sonda.analysis.rules.operations.denormals import saved_in_phase
from sonda.analysis.rules.operations.evidence import TimedEvidence, evidence_of, layer_row
from sonda.analysis.rules.operations.small_operations import LOOP, operation_work
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.rules.work import WORTH
from sonda.analysis.summary import Remedy, Summary, Value, Verdict
from sonda.record.evidence import UpdatedTable, WeightUpdate

FUSING = 0.20
"""Of the step, that fusing an update has to save: an optimizer's default is no mistake where it takes little."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when updates on another device or of rows without gradients take a tenth of the step or more, or when one
    pass through all weights at once would save a fifth."""
    evidence = evidence_of(summary)
    if evidence is None:
        return None
    spent = sum(row.cost.time.value or 0.0 for row in evidence.part.phases if row.name == "optimizer")
    spent = max(spent - saved_in_phase(summary, "optimizer"), 0.0)
    if not evidence.step.updates:
        return _by_hand(summary, evidence, spent)
    largest = max(evidence.step.updates, key=lambda update: update.elements)
    choices = [_elsewhere(evidence, largest, spent), _tables(evidence, spent), _unfused(summary, evidence, spent)]
    return max((choice for choice in choices if choice is not None), key=lambda verdict: verdict.share, default=None)


def _verdict(finding: Cause, remedy: Remedy) -> Verdict:
    return Verdict(
        kind="optimizer",
        finding=finding,
        evidence={"share": finding.share, "time": finding.time},
        remedies=(remedy,),
        share=finding.share.value or 0.0,
    )


def _saved(evidence: TimedEvidence, ns: float) -> tuple[Value, Value]:
    return Value(evidence.share(ns), "1", "derived"), Value(ns, "ns", "derived")


def _line(evidence: TimedEvidence) -> str:
    return evidence.largest_place(lambda group: group.phase == "optimizer").line


def _elsewhere(evidence: TimedEvidence, update: WeightUpdate, spent: float) -> Verdict | None:
    if not update.elsewhere:
        return None
    spent += _moving(evidence, update)
    if evidence.share(spent) < WORTH:
        return None
    place = StepPlace(line=_line(evidence), phase="optimizer")
    return _verdict(
        UpdateElsewhere(*_saved(evidence, spent), place, update.optimizer), Remedy(OptimizerOnDevice(place))
    )


def _moving(evidence: TimedEvidence, update: WeightUpdate) -> float:
    """ns in which gradients are fetched and weights brought back: their part of all that is copied between devices."""
    copied = [timed.group for timed in evidence.groups if timed.group.family in (TO_DEVICE, TO_HOST)]
    moved = sum(float(group.bytes) for group in copied)
    own = 2 * update.elements * (update.weight_bits // 8 or 4)
    spent = sum(row.cost.time.value or 0.0 for row in evidence.part.phases if row.name == "transfer")
    return spent * min(own / moved, 1.0) if moved else 0.0


def _tables(evidence: TimedEvidence, spent: float) -> Verdict | None:
    """Rows without a gradient: their part of the update, and of the gradient that is made and cleared for them."""
    updates = evidence.step.updates
    elements = sum(update.elements for update in updates)
    tables = [table for update in updates for table in update.tables]
    if not tables or not elements:
        return None
    saved = sum(
        float(table.untouched) * (spent * table.elements / elements + _backward(evidence, table)) for table in tables
    )
    if evidence.share(saved) < WORTH:
        return None
    largest = max(tables, key=lambda table: table.elements * table.untouched)
    place = StepPlace(largest.layer, _line(evidence), "optimizer")
    untouched = Value(float(largest.untouched), "1", "counted")
    return _verdict(TableUpdated(*_saved(evidence, saved), place, largest.rows, untouched), Remedy(SparseUpdate(place)))


def _backward(evidence: TimedEvidence, table: UpdatedTable) -> float:
    row = layer_row(evidence.part, table.layer)
    return (row.backward.value or 0.0) if row is not None else 0.0


def _by_hand(summary: Summary, evidence: TimedEvidence, spent: float) -> Verdict | None:
    """An update that the program computes itself: what it takes beyond the work of its operations, where these are as
    many as a loop over weights makes."""
    groups = [timed.group for timed in evidence.groups if timed.group.phase == "optimizer"]
    if sum(group.operations for group in groups) < LOOP:
        return None
    saved = max(spent - sum(operation_work(group, summary.ceilings) for group in groups), 0.0)
    if evidence.share(saved) < FUSING:
        return None
    place = StepPlace(line=_line(evidence), phase="optimizer")
    operations = Value(float(sum(group.operations for group in groups)), "1", "counted")
    whole = Value(evidence.share(spent), "1", "derived")
    finding = UnfusedUpdate(*_saved(evidence, saved), place, "", 0, operations, whole)
    return _verdict(finding, Remedy(FusedOptimizer(place, "", True)))


def _unfused(summary: Summary, evidence: TimedEvidence, spent: float) -> Verdict | None:
    """What is saved beyond one pass: every weight and state read and written once, every gradient read once."""
    updates = [update for update in evidence.step.updates if (update.can_fuse or update.own) and not update.fused]
    if not updates or "dram_bandwidth" not in summary.ceilings:
        return None
    widths = [(update, update.weight_bits // 8 or 4) for update in updates]
    moved = sum(width * (3 * update.elements + 2 * update.states) for update, width in widths)
    least = 1e9 * moved / (summary.ceilings["dram_bandwidth"].value or 1.0)
    saved = max(spent - least, 0.0)
    if evidence.share(saved) < FUSING:
        return None
    largest = max(updates, key=lambda update: update.tensors)
    place = StepPlace(line=_line(evidence), phase="optimizer")
    operations = sum(timed.group.operations for timed in evidence.groups if timed.group.phase == "optimizer")
    finding = UnfusedUpdate(
        *_saved(evidence, saved), place, largest.optimizer, largest.tensors,
        Value(float(operations), "1", "counted"), Value(evidence.share(spent), "1", "derived"),
    )  # fmt: skip
    return _verdict(finding, Remedy(FusedOptimizer(place, largest.optimizer, largest.own)))
