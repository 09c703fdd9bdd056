"""Pipelines of tf.data: what each stage spends on a batch, and which is the slowest."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sonda.analysis.summary import Value
from sonda.record.workload import InputStage, Workload

ROOT = "Root"
"""The consumer's end of a pipeline, which makes nothing."""
EXPLAINS = 0.5
"""A stage explains the wait for a batch where its pace is this part of it."""
VERSION = re.compile(r"V\d+$")
WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True)
class PipelineStage:
    """One stage; times are per batch that the pipeline gave."""

    name: str
    """In words: `map and batch`, `prefetch`."""
    elements: float
    """That it gave, per batch."""
    work: Value
    """ns that its calls took together, without the stages before it."""
    parallel: int
    """Calls that it makes at once."""
    pace: Value
    """ns from one batch to the next, were there no other stage: work by calls at once."""
    buffer: int | None = None
    """Elements that it makes ahead."""


@dataclass(frozen=True)
class Pipeline:
    part: str
    """That it feeds: train, validate, test."""
    batches: int
    stages: tuple[PipelineStage, ...]
    """From the source to the batch."""

    @property
    def slowest(self) -> PipelineStage:
        return max(self.stages, key=lambda stage: stage.pace.value or 0.0)


def summarise_pipelines(workload: Workload) -> tuple[Pipeline, ...]:
    """What a program's `workload` says of them; pipelines that gave nothing are left out."""
    return tuple(
        _pipeline(one.part, one.stages)
        for one in workload.pipelines or ()
        if len(one.stages) > 1 and one.stages[0].elements > 0
    )


def _pipeline(part: str, stages: list[InputStage]) -> Pipeline:
    batches = int(stages[0].elements)
    return Pipeline(part, batches, tuple(_stage(one, batches) for one in reversed(stages) if one.name != ROOT))


def _stage(stage: InputStage, batches: int) -> PipelineStage:
    work, parallel = stage.ns / batches, max(int(stage.parallel), 1)
    return PipelineStage(
        name=WORD.sub(" ", VERSION.sub("", stage.name)).lower(),
        elements=stage.elements / batches,
        work=Value(work, "ns", "measured"),
        parallel=parallel,
        pace=Value(work / parallel, "ns", "derived"),
        buffer=int(stage.buffer) if stage.buffer is not None else None,
    )
