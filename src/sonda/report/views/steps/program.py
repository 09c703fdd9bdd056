"""The whole program: a row for each stage of a command, from its start to its end."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.steps import program as stages
from sonda.analysis.steps.program import Program, ProgramStage
from sonda.analysis.summary import Value
from sonda.record.spans import PARTS
from sonda.report import quantities
from sonda.report.blocks import Block, Gap, TableBlock
from sonda.report.table import Cell, Column, Table, build, quantity, shares
from sonda.report.values import Document, finite, number_document, value_document
from sonda.report.words.names import name_part

SMALL = 0.005
"""Stages below this part of the program share one row."""
NAMES = {
    stages.START: "interpreter start",
    stages.IMPORTS: "imports",
    stages.PREPARATION: "before the first step",
    stages.COMPILE: "compilation",
    stages.CHECKPOINTS: "files of weights",
    stages.BETWEEN: "between steps",
    stages.RUNNING: "its own code",
    stages.ENDING: "after the last step",
    stages.OBSERVING: "observing it",
}
NOUNS = {stages.COMPILE: "compilation", stages.CHECKPOINTS: "file", **dict.fromkeys(PARTS, "step")}
PROGRAM_MEANS = (
    "From the start of the command to its end. Every moment is in one row: what is compiled, imported, saved or loaded "
    "inside a step is in its own."
)


def program_blocks(program: Program) -> list[Block]:
    """The table, small stages together."""
    return [Gap(), TableBlock(program_table(program))]


def program_table(program: Program) -> Table:
    """Seconds and share of every stage; they add up to the program."""
    small = [stage for stage in program.stages if stage.share < SMALL]
    small = small if len(small) > 1 else []
    rows = [stage for stage in program.stages if stage not in small]
    names = [stage_name(stage, program) for stage in rows]
    values = [stage.time for stage in rows]
    parts = [stage.share for stage in rows]
    said = [_words(stage) for stage in rows]
    if small:
        names.append("the rest")
        values.append(Value(sum(stage.time.value or 0.0 for stage in small), "ns", "derived"))
        parts.append(sum(stage.share for stage in small))
        said.append(", ".join(stage_name(stage, program) for stage in small))
    names.append("whole program")
    values.append(program.whole)
    parts.append(1.0)
    said.append("")
    # All in the unit of the whole: small ones are small.
    scale = quantities.own_scale(program.whole.value or 0.0, "ns")
    times = [quantity(value, quantities.fixed((value.value or 0.0) / scale.factor, 2)) for value in values]
    return build(
        [
            (Column("program", right=False), [Cell(name, name, tone="name") for name in names]),
            (Column(scale.unit, hint="time of the whole program, measured"), times),
            (Column("%", hint="share of the program's time"), shares(parts, "the program")),
            (Column("of it", right=False, keep=4, wrap=True), [Cell(text, text) for text in said]),
        ],
        "program",
    )


def program_fields(program: Program | None) -> Document:
    """For `--json`: all stages, small ones too."""
    if program is None:
        return {}
    rows = [
        {
            "name": stage.name,
            "share": finite(stage.share),
            "time": value_document(stage.time),
            **({"count": stage.count} if stage.count else {}),
            **({"recompilations": stage.again} if stage.again else {}),
            **({"packages": {name: number_document(time, "ns", "measured") for name, time in stage.of_it}}
               if stage.of_it else {}),
        }
        for stage in program.stages
    ]  # fmt: skip
    return {
        "program": {
            "whole": value_document(program.whole),
            "steps": program.steps,
            "steps_share": finite(program.steps_share),
            "stages": rows,
        }
    }


def stage_name(stage: ProgramStage, program: Program) -> str:
    """What a reader calls a stage."""
    if stage.name == stages.ENDING and not program.steps:
        return "interpreter end"
    if stage.name in PARTS:
        return name_part(stage.name, [known.name for known in program.stages if known.name in PARTS])
    return NAMES[stage.name]


def _words(stage: ProgramStage) -> str:
    """`20 steps`, `torch 1.9 s, pandas 0.4 s`, `5 compilations, 2 of them again`."""
    if stage.of_it:
        return ", ".join(f"{name} {wording.duration(time)}" for name, time in stage.of_it)
    noun = NOUNS.get(stage.name)
    often = wording.plural(stage.count, noun) if noun and stage.count else ""
    return f"{often}, {stage.again} of them again" if stage.again else often
