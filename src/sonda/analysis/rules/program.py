"""The whole program: its steps, which all other rules speak of, are a minor part of its time."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.steps import program as stages
from sonda.analysis.steps.program import ProgramStage
from sonda.analysis.summary import Remedy, Summary, Value, Verdict
from sonda.record.spans import PARTS

MINOR = 0.5
"""Steps that take less than half of the program are its minor part: making them free would not make it twice as
fast."""
MOSTLY = 0.5
"""A package is named that takes more than half of the imports."""

SUBJECTS = {
    stages.START: "starting the interpreter takes",
    stages.IMPORTS: "imports take",
    stages.PREPARATION: "what runs before the first step takes",
    stages.COMPILE: "compilation takes",
    "train": "training takes",
    "validate": "validation takes",
    "test": "the test takes",
    stages.CHECKPOINTS: "saving and loading files of weights takes",
    stages.BETWEEN: "what runs between the steps takes",
    stages.RUNNING: "its own code takes",
    stages.ENDING: "what follows the last step takes",
}
ONCE = Remedy("start the program once for many runs: a process that stays, or a loop over settings inside it")
COMPILED = {
    "torch": "compile one block instead of the whole model, or what runs often only",
    "jax": "keep compiled functions on disk: jax.config.update('jax_compilation_cache_dir', …)",
    "tensorflow": "compile what runs often only, and give it one shape",
    "pytensor": "keep the compilation cache between runs, or compile with mode='FAST_COMPILE'",
}
AGAIN = "compile once: torch.compile(dynamic=True), or few shapes; TORCH_LOGS=recompiles says what changed"
OFTEN = 0.5
"""Code that is compiled again is most of what is compiled from here on."""
REMEDIES = {
    stages.START: (ONCE,),
    stages.IMPORTS: (
        Remedy("import what is seldom used where it is used; python -X importtime says what each import takes"),
        ONCE,
    ),
    stages.PREPARATION: (Remedy("look at what runs before the first step, and keep its result in a file"),),
    "validate": (Remedy("validate less often, or on fewer batches"),),
    "test": (Remedy("test on fewer batches, or in larger ones"),),
    stages.CHECKPOINTS: (Remedy("save less often, or in a thread beside the training"),),
    stages.BETWEEN: (Remedy("look at what runs between the steps: logs, metrics, pictures; do it less often"),),
    stages.ENDING: (Remedy("look at what runs after the last step: exports, pictures, processes that are waited for"),),
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
        share, subject = steps, _steps_words(program.steps)
    elif own is not None and own.share < max(stage.share for stage in program.stages if stage.name in PARTS):
        share, subject = own.share, SUBJECTS[judged].capitalize()
    else:
        return None
    rest = [stage for stage in program.stages if stage.name not in apart]
    largest = max(rest, key=lambda stage: stage.share, default=None)
    if largest is None:
        return None
    whole = wording.duration(program.whole.value or 0.0)
    piece = (
        f"{SUBJECTS[largest.name]} {wording.percent(largest.share)} "
        f"({wording.duration(largest.time.value or 0.0)}{_mostly(largest)})"
    )
    known = program.steps > 0
    sentence = f"{subject} {wording.percent(share)} of the program's {whole}; {piece}."
    return Verdict(
        kind=largest.name if known else "none",
        sentence=sentence if known else f"Nothing to judge: no step was seen. Of the program's {whole} {piece}.",
        evidence={
            "of_program": Value(largest.share, "1", "derived"),
            "time": largest.time,
            "steps_of_program": Value(share, "1", "derived"),
            "program": program.whole,
        },
        remedies=_remedies(largest, summary) if known else (),
        share=largest.share,
    )


def _steps_words(steps: int) -> str:
    return "The only step takes" if steps == 1 else f"The {wording.plural(steps, 'step')} take"


def _mostly(stage: ProgramStage) -> str:
    """`, most of it torch`, where one package takes more than half of the imports."""
    spent = stage.time.value or 0.0
    if stage.name != stages.IMPORTS or not stage.of_it or stage.of_it[0][1] <= MOSTLY * spent:
        return ""
    return f", most of it {stage.of_it[0][0]}"


def _remedies(stage: ProgramStage, summary: Summary) -> tuple[Remedy, ...]:
    if stage.name == stages.COMPILE:
        how = COMPILED.get(summary.workload.framework or "torch", COMPILED["torch"])
        # Only PyTorch tells which compilations these were.
        if stage.again and stage.again >= OFTEN * stage.count:
            return Remedy(AGAIN), Remedy(how)
        return Remedy(how), Remedy("run longer: compilation is paid once")
    return REMEDIES.get(stage.name, ())
