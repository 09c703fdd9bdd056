"""Between steps: code that is in no step takes the time of the loop, or of a program in which no step was seen."""

from __future__ import annotations

from sonda.analysis.code.summary import Activity, CodeLead
from sonda.analysis.rules.advice import ChangeLine, LineChange, ValidateLess
from sonda.analysis.rules.code.own_code import place_of, share_of
from sonda.analysis.rules.code_findings import CodeBetween
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.steps import program as stages
from sonda.analysis.summary import Remedy, Summary, Value, Verdict
from sonda.record.spans import PARTS

CODE = "code"
CHANGES = {
    Activity.COLLECTION: LineChange.COLLECT_LESS,
    Activity.WAIT: LineChange.WAIT_LESS,
    Activity.LOG: LineChange.LOG_LESS,
    Activity.CHECKPOINT: LineChange.SAVE_LESS,
    Activity.COPY: LineChange.COPY_LESS,
    Activity.ALLOCATION: LineChange.REUSE_BUFFERS,
    Activity.METRIC: LineChange.FEWER_METRICS,
    Activity.LOOP: LineChange.VECTORISE,
    Activity.INPUT: LineChange.FASTER_INPUT,
}


def rule(summary: Summary) -> Verdict | None:
    """Fires when a function takes a tenth of the time between the first step and the last, in no step, for sure; where
    no step was seen, a tenth of the program without its imports."""
    leads = summary.code.between if summary.code is not None else ()
    if not leads:
        return None
    first = leads[0]
    if first.activity in (Activity.UNKNOWN, Activity.METRIC) and _evaluates(summary, first):
        return Verdict(
            kind="validation",
            finding=CodeBetween((first,), True),
            evidence={"share": first.share, "time": Value(first.time.total, "ns", "measured")},
            remedies=(Remedy(ValidateLess(StepPlace(line=f"{first.place.file}:{first.place.line}"))),),
            share=share_of((first,)),
            place=place_of(first),
        )
    same = tuple(lead for lead in leads if lead.activity is first.activity)
    change = CHANGES.get(first.activity)
    return Verdict(
        kind=first.activity.value or CODE,
        finding=CodeBetween(same, bool(summary.parts)),
        evidence={"share": first.share, "time": Value(first.time.total, "ns", "measured")},
        remedies=(Remedy(ChangeLine(change, place_of(first))),) if change is not None else (),
        share=share_of(same),
        place=place_of(first),
    )


def _evaluates(summary: Summary, lead: CodeLead) -> bool:
    """Whether the function also runs steps that evaluate, and none that train."""
    functions = {
        part.part == "train": {function.place.function for function in part.functions}
        for part in (summary.code.parts if summary.code is not None else ())
    }
    name = lead.place.function
    return name in functions.get(False, set()) and name not in functions.get(True, set())


def share_of_steps(summary: Summary) -> float:
    """Part of the time between the first step and the last that the steps take, 0 to 1; 1 where nobody knows."""
    program = summary.program
    if program is None:
        return 1.0
    shares = {stage.name: stage.share for stage in program.stages}
    steps = sum(shares.get(name, 0.0) for name in PARTS)
    whole = steps + shares.get(stages.BETWEEN, 0.0) + shares.get(stages.CHECKPOINTS, 0.0)
    return steps / whole if whole else 1.0
