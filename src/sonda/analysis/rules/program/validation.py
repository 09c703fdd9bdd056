"""Validation too often: evaluating the network takes a large part of its training."""

from __future__ import annotations

from sonda.analysis.rules.advice import ValidateLess
from sonda.analysis.rules.cause_findings import ValidatesOften
from sonda.analysis.rules.operations.evidence import evidence_of
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.summary import Remedy, Summary, Value, Verdict

LEAST = 0.20
"""A fifth of the time: a validation on a fifth of the data after every epoch takes some 7 %, for a forward takes a
third of a training step."""
FEWEST = 3
"""Validations: what is done once or twice is not done too often."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when validations take a fifth of the time of all steps or more, and there were several."""
    parts = {part.name: part for part in summary.parts}
    train = parts.get("train")
    total = sum((part.total.value or 0.0) for part in summary.parts if part.total is not None)
    rest = [part for part in summary.parts if part.name != "train" and part.total is not None]
    longest = max(rest, key=lambda part: part.total.value or 0.0 if part.total else 0.0, default=None)
    if train is None or longest is None or longest.total is None or not total or longest.walks < FEWEST:
        return None
    share = (longest.total.value or 0.0) / total
    if share < LEAST:
        return None
    evidence = evidence_of(summary, longest)
    place = StepPlace(line=_find_call(summary, longest.name) or (evidence.step.line if evidence is not None else ""))
    of_steps, time = Value(share, "1", "derived"), Value(longest.total.value, "ns", "measured")
    between = Value(train.steps / longest.walks, "1", "derived")
    return Verdict(
        kind="validation",
        finding=ValidatesOften(of_steps, time, place, longest.walks, between),
        evidence={"share": of_steps, "time": time, "validations": Value(float(longest.walks), "1", "counted")},
        remedies=(Remedy(ValidateLess(place)),),
        share=share,
    )


def _find_call(summary: Summary, part: str) -> str:
    """The line from which the evaluation is called, in the function that also trains; '' where no stacks tell."""
    code = summary.code.part(part) if summary.code is not None else None
    train = summary.code.part("train") if summary.code is not None else None
    regions = [region for region in code.regions if region.tree] if code is not None else []
    if not regions or train is None:
        return ""
    shared = {(function.place.file, function.place.function) for function in train.functions}
    line, branches = "", max(regions, key=lambda region: region.time.total).tree
    while branches and (branches[0].place.file, branches[0].place.function) in shared:
        line = f"{branches[0].place.file}:{branches[0].place.line}"
        branches = branches[0].branches
    # Where all that was sampled lies in functions that train too, the line tells nothing.
    return line if branches else ""
