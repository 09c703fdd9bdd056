"""Pipelines of tf.data: a row for each stage, from the source to the batch."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.steps.pipeline import EXPLAINS, Pipeline
from sonda.analysis.summary import Summary
from sonda.report.blocks import Block, Gap, Paragraph, TableBlock
from sonda.report.table import Cell, Column, Table, build, numbers
from sonda.report.values import Document, finite, value_document

PIPELINE_MEANS = (
    "What tf.data's own model of itself says of each stage: the time that its calls took for a batch, without the "
    "stages before it, how many it makes at once, and the time from one batch to the next that follows from both."
)


def pipeline_blocks(summary: Summary) -> list[Block]:
    """The tables, each with its slowest stage."""
    blocks: list[Block] = []
    for pipeline in summary.pipelines:
        blocks += [Gap(), TableBlock(pipeline_table(pipeline)), Paragraph(slowest_words(pipeline, summary))]
    return blocks


def pipeline_table(pipeline: Pipeline) -> Table:
    """Work, calls at once and pace of every stage."""
    stages = pipeline.stages
    unit, work = numbers([stage.work for stage in stages])
    pace_unit, pace = numbers([stage.pace for stage in stages])
    names = [Cell(stage.name, stage.name, tone="name") for stage in stages]
    elements = [Cell(f"{stage.elements:,.3g}", stage.elements) for stage in stages]
    return build(
        [
            (Column(f"tf.data, {pipeline.part}", right=False), names),
            (Column(f"work {unit}", hint="time of its calls for a batch, measured"), work),
            (Column("at once", hint="calls that it makes at the same time"),
             [Cell(str(one.parallel), one.parallel) for one in stages]),
            (Column(f"a batch every {pace_unit}", hint="work by calls at once, derived"), pace),
            (Column("elements", keep=3, hint="that it gave for a batch"), elements),
            (Column("ahead", keep=2, hint="elements that it makes ahead"),
             [Cell("–" if one.buffer is None else str(one.buffer), one.buffer) for one in stages]),
        ],
        "pipeline",
    )  # fmt: skip


def slowest_words(pipeline: Pipeline, summary: Summary) -> str:
    """`The slowest stage is map and batch: a batch every 34 ms, 1 call at a time.`; or that none explains the wait."""
    slowest = pipeline.slowest
    pace = slowest.pace.value or 0.0
    parts = [part for part in summary.parts if part.name == pipeline.part]
    waited = sum(row.cost.time.value or 0.0 for part in parts for row in part.phases if row.name == "data")
    calls = f"a batch every {wording.duration(pace)}, {wording.plural(slowest.parallel, 'call')} at a time"
    if pace < EXPLAINS * waited:
        return (
            f"No stage that tf.data measured explains the wait of {wording.duration(waited)} a step; the slowest of "
            f"them is {slowest.name}: {calls}."
        )
    return f"The slowest stage is {slowest.name}: {calls}."


def pipelines_fields(pipelines: tuple[Pipeline, ...]) -> Document:
    """For `--json`."""
    if not pipelines:
        return {}
    rows = [
        {
            "part": pipeline.part,
            "batches": pipeline.batches,
            "slowest": pipeline.slowest.name,
            "stages": [
                {
                    "name": stage.name,
                    "elements": finite(stage.elements),
                    "work": value_document(stage.work),
                    "parallel": stage.parallel,
                    "pace": value_document(stage.pace),
                    **({} if stage.buffer is None else {"buffer": stage.buffer}),
                }
                for stage in pipeline.stages
            ],
        }
        for pipeline in pipelines
    ]
    return {"pipelines": rows}
