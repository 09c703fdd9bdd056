"""Checkpointing: saving weights, or copies of them, takes a large part of the training."""

from __future__ import annotations

from sonda.analysis.code.summary import Activity
from sonda.analysis.rules.advice import LineChange, SaveLess
from sonda.analysis.rules.cause_findings import SavesOften
from sonda.analysis.rules.code.own_code import causes_of, code_verdict
from sonda.analysis.rules.code_findings import SavesState
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.rules.work import WORTH
from sonda.analysis.steps.program import BETWEEN, CHECKPOINTS
from sonda.analysis.summary import Remedy, Summary, Value, Verdict
from sonda.record.spans import PARTS

FEWEST = 3
"""Files: what is done once or twice is not done too often."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when functions that save take a tenth of the step each, for sure; or when files of weights take a tenth of
    the time of the steps and what lies between them, or more."""
    if leads := causes_of(summary, Activity.CHECKPOINT):
        return code_verdict(Activity.CHECKPOINT, SavesState(leads), LineChange.SAVE_LESS)
    program = summary.program
    stage = program.stage(CHECKPOINTS) if program is not None else None
    if program is None or stage is None or stage.count < FEWEST or not program.steps:
        return None
    running = [other for other in program.stages if other.name in (*PARTS, CHECKPOINTS, BETWEEN)]
    whole = sum(other.time.value or 0.0 for other in running)
    share = (stage.time.value or 0.0) / whole if whole else 0.0
    if share < WORTH:
        return None
    place = StepPlace(line=stage.line)
    of_time = Value(share, "1", "derived")
    steps = Value(program.steps / stage.count, "1", "derived")
    return Verdict(
        kind="checkpointing",
        finding=SavesOften(of_time, stage.time, place, stage.count, steps),
        evidence={"share": of_time, "time": stage.time, "files": Value(float(stage.count), "1", "counted")},
        remedies=(Remedy(SaveLess(place)),),
        share=share,
    )
