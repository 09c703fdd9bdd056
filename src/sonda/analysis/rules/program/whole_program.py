"""The whole program: its steps, which all other rules speak of, are a minor part of its time."""

from __future__ import annotations

from sonda.analysis.doubts import EndedEarly
from sonda.analysis.rules.advice import Change, CompileLess, TryChange
from sonda.analysis.rules.limit_findings import MinorSteps, NoSteps, StageShare
from sonda.analysis.steps import program as stages
from sonda.analysis.steps.program import ProgramStage
from sonda.analysis.summary import Remedy, Summary, Value, Verdict
from sonda.record.spans import PARTS

MINOR = 0.5
"""Steps that take less than half of the program are its minor part: making them free would not make it twice as
fast."""
MOSTLY = 0.5
"""A package is named that takes more than half of the imports."""

ONCE = Remedy(TryChange(Change.START_ONCE))
OFTEN = 0.5
"""Code that is compiled again is most of what is compiled from here on."""
REMEDIES = {
    stages.START: (ONCE,),
    stages.IMPORTS: (Remedy(TryChange(Change.IMPORT_LATE)), ONCE),
    stages.PREPARATION: (Remedy(TryChange(Change.LOOK_BEFORE_STEPS)),),
    "validate": (Remedy(TryChange(Change.VALIDATE_LESS)),),
    "test": (Remedy(TryChange(Change.TEST_LESS)),),
    stages.CHECKPOINTS: (Remedy(TryChange(Change.SAVE_LESS_OFTEN)),),
    stages.BETWEEN: (Remedy(TryChange(Change.LOOK_BETWEEN_STEPS)),),
    stages.ENDING: (Remedy(TryChange(Change.LOOK_AFTER_STEPS)),),
}


def rule(summary: Summary) -> Verdict | None:
    """Fires when all steps take less than half of the program, or when those of the part that is judged do and another
    part takes more: then what is said of a step says little about the program."""
    program = summary.program
    if program is None:
        return None
    judged = summary.parts[0].name if summary.parts else ""
    steps = program.steps_share
    own = program.stage(judged)
    # What observing takes is nothing that its reader can change.
    apart: tuple[str, ...] = (stages.OBSERVING, judged)
    if steps < MINOR:
        apart += PARTS
        share, part = steps, ""
    elif own is not None and own.share < max(stage.share for stage in program.stages if stage.name in PARTS):
        share, part = own.share, judged
    else:
        return None
    rest = [stage for stage in program.stages if stage.name not in apart]
    largest = max(rest, key=lambda stage: stage.share, default=None)
    if largest is None:
        return None
    of_program, of_steps = Value(largest.share, "1", "derived"), Value(share, "1", "derived")
    stage = StageShare(largest.name, of_program, largest.time, _leading_package(largest))
    known = program.steps > 0
    return Verdict(
        kind=largest.name if known else "nothing",
        finding=MinorSteps(program.whole, stage, program.steps, of_steps, part)
        if known
        else NoSteps(program.whole, stage),
        evidence={
            "of_program": of_program,
            "time": largest.time,
            "steps_of_program": of_steps,
            "program": program.whole,
        },
        remedies=_remedies(largest, summary) if known and not _failed_before_steps(summary) else (),
        share=largest.share,
    )


def _failed_before_steps(summary: Summary) -> bool:
    """Whether the program ended with an error before a step was timed: its start took most because nothing came after
    it."""
    failed = any(isinstance(warning, EndedEarly) and warning.exit_code for warning in summary.warnings)
    return failed and not any(part.steps for part in summary.parts)


def _leading_package(stage: ProgramStage) -> str:
    """The package that takes more than half of the imports; '' where none does."""
    spent = stage.time.value or 0.0
    if stage.name != stages.IMPORTS or not stage.of_it or stage.of_it[0][1] <= MOSTLY * spent:
        return ""
    return stage.of_it[0][0]


def _remedies(stage: ProgramStage, summary: Summary) -> tuple[Remedy, ...]:
    if stage.name == stages.COMPILE:
        less = Remedy(CompileLess(summary.workload.framework or "torch"))
        # Only PyTorch tells which compilations these were.
        if stage.again and stage.again >= OFTEN * stage.count:
            return Remedy(TryChange(Change.COMPILE_ONCE)), less
        return less, Remedy(TryChange(Change.RUN_LONGER))
    return REMEDIES.get(stage.name, ())
