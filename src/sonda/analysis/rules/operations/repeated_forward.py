"""Repeated forward: a module computes once more what it has computed before in the same step."""

from __future__ import annotations

from sonda.analysis.rules.advice import ReuseResult
from sonda.analysis.rules.cause_findings import ForwardsAgain, RepeatedForward
from sonda.analysis.rules.operations.evidence import TimedEvidence, evidence_of, layer_row, outermost
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.rules.work import WORTH
from sonda.analysis.summary import Remedy, Summary, Value, Verdict
from sonda.record.evidence import RepeatedCall


def rule(summary: Summary) -> Verdict | None:
    """Fires when calls of modules with the same inputs and weights as before take a tenth of the step or more, or in an
    inference a tenth of the time."""
    evidence = evidence_of(summary)
    if evidence is None:
        return None
    return _in_step(evidence) or _across_steps(summary, evidence)


def _across_steps(summary: Summary, evidence: TimedEvidence) -> Verdict | None:
    """Of an inference: forwards that are steps of their own."""
    seen = summary.workload.repeated_forwards
    if seen is None or not seen.lasted or evidence.part.name == "train":
        return None
    spent = sum(again.ns for again in seen.forwards)
    share = min(spent / seen.lasted, 1.0)
    if share < WORTH:
        return None
    largest = max(seen.forwards, key=lambda again: again.ns)
    place = StepPlace(largest.layer, largest.line, "forward")
    of_time, time = Value(share, "1", "measured"), Value(float(spent), "ns", "measured")
    return Verdict(
        kind="repeated_forward",
        finding=ForwardsAgain(of_time, time, place, seen.looked, sum(again.times for again in seen.forwards)),
        evidence={"share": of_time, "time": time},
        remedies=(Remedy(ReuseResult(place)),),
        share=share,
    )


def _in_step(evidence: TimedEvidence) -> Verdict | None:
    calls = {call.layer: call for call in evidence.step.repeated}
    times = {path: _time(evidence, calls[path]) for path in outermost(calls)}
    spent = sum(times.values())
    share = evidence.share(spent)
    if share < WORTH:
        return None
    largest = calls[max(times, key=lambda path: times[path])]
    place = StepPlace(largest.layer, largest.line, "forward")
    of_step, time = Value(share, "1", "derived"), Value(spent, "ns", "derived")
    return Verdict(
        kind="repeated_forward",
        finding=RepeatedForward(
            of_step, time, place, largest.calls, largest.repeated, _has_backward(evidence, largest)
        ),
        evidence={"share": of_step, "time": time},
        remedies=(Remedy(ReuseResult(place)),),
        share=share,
    )


def _time(evidence: TimedEvidence, call: RepeatedCall) -> float:
    """ns a step of the repeated calls, with their backward where that runs for each of them."""
    row = layer_row(evidence.part, call.layer)
    if row is None:
        return 0.0
    spent = row.forward.value or 0.0
    if _has_backward(evidence, call):
        spent += row.backward.value or 0.0
    return spent * call.repeated / call.calls


def _has_backward(evidence: TimedEvidence, call: RepeatedCall) -> bool:
    """Whether a backward runs through the repeated calls too: not where the graph of any call is unused."""
    row = layer_row(evidence.part, call.layer)
    unused = {graph.layer for graph in evidence.step.graphs}
    whole = any(outermost([path, call.layer]) == [path] for path in unused)
    return row is not None and bool(row.backward.value) and call.layer not in unused and not whole
