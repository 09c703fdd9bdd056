"""Denormals: the network computes with subnormal numbers, for which a processor has a slow path."""

from __future__ import annotations

from dataclasses import dataclass

from sonda.analysis.rules.advice import FlushDenormals
from sonda.analysis.rules.cause_findings import SubnormalNumbers
from sonda.analysis.rules.operations.evidence import TimedEvidence, evidence_of, layer_row, told_ns
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.rules.work import WORTH, first_part
from sonda.analysis.summary import PartSummary, Remedy, Summary, Value, Verdict
from sonda.record.evidence import DenormalFacts, DenormalTensor

STATE = "state"
OF_AN_UPDATE = 10
"""Operations with which Adam updates a tensor; one of them is a root."""


@dataclass(frozen=True)
class _Slowed:
    """Work on subnormal numbers."""

    place: StepPlace
    what: str
    part: float
    times: float
    """How many times longer it takes with them."""
    ns: float
    """Of a step."""

    @property
    def saved(self) -> float:
        return self.ns * (1 - 1 / self.times)


def rule(summary: Summary) -> Verdict | None:
    """Fires when work on subnormal numbers would take a tenth of the step less without them, by what such numbers were
    measured to cost on this processor."""
    part = first_part(summary)
    if part is None:
        return None
    slowed = slowed_work(summary, part)
    step = told_ns(part)
    saved = min(sum(work.saved for work in slowed), step)
    share = saved / step if step else 0.0
    if share < WORTH:
        return None
    worst = max(slowed, key=lambda work: work.saved)
    of_step, time = Value(share, "1", "derived"), Value(saved, "ns", "derived")
    times = Value(worst.times, "1", "measured")
    return Verdict(
        kind="denormals",
        finding=SubnormalNumbers(of_step, time, worst.place, worst.what, Value(worst.part, "1", "counted"), times),
        evidence={"share": of_step, "time": time, "times": times},
        remedies=(Remedy(FlushDenormals(worst.place)),),
        share=share,
    )


def saved_in_phase(summary: Summary, phase: str) -> float:
    """ns of a step that subnormal numbers cost in a phase: what another cause there cannot save."""
    part = first_part(summary)
    return (
        sum(work.saved for work in slowed_work(summary, part) if work.place.phase == phase) if part is not None else 0.0
    )


def slowed_work(summary: Summary, part: PartSummary) -> list[_Slowed]:
    evidence, found = evidence_of(summary), summary.workload.denormals
    slowed = _operations(evidence) if evidence is not None else []
    known = {work.place.phase for work in slowed}
    tensors = _tensors(part, found) if found is not None else []
    return [*slowed, *(work for work in tensors if work.place.phase not in known)]


def _operations(evidence: TimedEvidence) -> list[_Slowed]:
    """Operations of the counted step, with their part of what their place takes in a timed one."""
    slowed = []
    for operation in evidence.step.subnormal:
        key = operation.phase, operation.layer, operation.line
        here = [timed for timed in evidence.groups if (timed.group.phase, timed.group.layer, timed.group.line) == key]
        counted = sum(timed.group.ns for timed in here)
        ns = operation.ns * sum(timed.ns for timed in here) / counted if counted else 0.0
        place = StepPlace(operation.layer or "", operation.line, operation.phase)
        times = max(float(operation.times), 1.0)
        slowed.append(_Slowed(place, operation.name, float(operation.part), times, ns))
    return slowed


def _tensors(part: PartSummary, found: DenormalFacts) -> list[_Slowed]:
    """Tensors that were looked at later in the program."""
    worst: dict[str, _Slowed] = {}
    for tensor in found.places:
        work = _work_on(part, found, tensor)
        if work is not None and (tensor.layer not in worst or work.saved > worst[tensor.layer].saved):
            worst[tensor.layer] = work
    return list(worst.values())


def _work_on(part: PartSummary, found: DenormalFacts, tensor: DenormalTensor) -> _Slowed | None:
    amount = float(tensor.part)
    if tensor.what == STATE:
        spent = sum(row.cost.time.value or 0.0 for row in part.phases if row.name == "optimizer")
        times = 1 + (_times(float(found.root_times), amount) - 1) / OF_AN_UPDATE
        return _Slowed(StepPlace(phase="optimizer"), tensor.what, amount, times, spent)
    row = layer_row(part, tensor.layer)
    if row is None or not row.cost.time.value:
        return None
    slower = float(found.product_times if tensor.what == "weights" else found.element_times)
    return _Slowed(StepPlace(tensor.layer), tensor.what, amount, _times(slower, amount), row.cost.time.value)


def _times(slower: float, part: float) -> float:
    """How many times longer work takes of which this part is `slower` times slower."""
    return 1 + part * max(slower - 1, 0.0)
