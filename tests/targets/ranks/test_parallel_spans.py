"""Ranks that train together, observed: their spans are one table, and what they exchange is seen."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

import parallel_cases as cases
from parallel_ranks import on_ranks
from sonda.frameworks.reconstruction.assembly import assemble
from sonda.targets.job import JOB, Job
from sonda.targets.ranks.elastic_agent import PLAN
from sonda.targets.ranks.outcomes import RankOutcome, read_forecast, read_outcome
from sonda.targets.ranks.plan import make_plan
from sonda.targets.target import parse_target

MODEL = """
from torch import nn

def build():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
"""


def test_ranks_of_a_hybrid_become_one_run(tmp_path: Path) -> None:
    steps = 7
    model = tmp_path / "model.py"
    model.write_text(MODEL)
    job = Job(workload=f"{model}:build", options={"input": "8x1x8x8"}, train=True, warmup=1, steps=steps,
              on="hybrid=cpu/1+cpu/1")  # fmt: skip
    (tmp_path / JOB).write_bytes(msgspec.json.encode(job))
    (tmp_path / PLAN).write_bytes(msgspec.json.encode(make_plan(job, parse_target(job.on))))
    assert on_ranks(2, cases.whole_rank, str(tmp_path)) == [0, 0]
    first, second = (read_outcome(tmp_path, rank) for rank in range(2))
    assert first is not None and second is not None
    _check_shares(first, second, steps)
    assert first.workload["samples"] == 8
    assembly = assemble(tmp_path, 0, 1 << 62)
    spans = assembly.spans
    assert assembly.processes == 2
    assert not assembly.truncated
    timed = spans.where(kind="step", pass_="timed")
    assert np.bincount(spans.number("rank")[timed]).tolist() == [steps, steps]
    communicate = spans.where(kind="phase", name="communicate", pass_="timed")
    assert set(spans.number("rank")[communicate].tolist()) == {0, 1}
    # The wait for gradients is no part of backward, and what a batch norm exchanges is a number on its layers.
    parents = spans.words("kind").decoded()[spans.number("parent")[communicate]]
    assert set(parents.tolist()) == {"step"}
    norms = spans.where(kind="layer", name="SharedBatchNorm", pass_="timed")
    assert norms.sum() == 2 * 2 * steps, "forward and backward on both ranks"
    exchanged = spans.metrics["communication:measured"][norms]
    assert (exchanged >= 0).all()
    assert (exchanged <= spans.number("duration")[norms]).all()
    outlook = read_forecast(tmp_path)
    assert outlook is not None
    assert outlook.numbers["gradient_bytes"] == 4 * (4 * 9 + 4 + 4 + 4 + 144 * 3 + 3)
    assert outlook.numbers["norms"] == 1
    assert outlook.numbers["bound"] == pytest.approx(sum(min(outlook.numbers["alone_ns"]) / time
                                                         for time in outlook.numbers["alone_ns"]))  # fmt: skip
    assert outlook.sentences[0].startswith("a step of 8 samples alone: cpu/1 (rank 0) ")


def _check_shares(first: RankOutcome, second: RankOutcome, steps: int) -> None:
    assert len(first.samples) == len(second.samples) == steps
    assert [one + other for one, other in zip(first.samples, second.samples, strict=True)] == [8] * steps
    assert first.changes == second.changes
    assert all(time > 0 for time in first.worked_ns + second.worked_ns)


@pytest.mark.parametrize("precision", ["bfloat16", "mixed_bfloat16"])
def test_stages_send_each_other_what_they_compute_in(tmp_path: Path, precision: str) -> None:
    """Which is what the modules before a cut give in training, not what they would give in float32."""
    model = tmp_path / "model.py"
    model.write_text(
        "from torch import nn\n\ndef build():\n    return nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3))\n"
    )
    job = Job(workload=f"{model}:build", options={"input": "8x6"}, train=True, warmup=1, steps=2, precision=precision,
              on="pipeline=cpu/1+cpu/1")  # fmt: skip
    (tmp_path / JOB).write_bytes(msgspec.json.encode(job))
    (tmp_path / PLAN).write_bytes(msgspec.json.encode(make_plan(job, parse_target(job.on))))
    assert on_ranks(2, cases.whole_rank, str(tmp_path)) == [0, 0]
    outlook = read_forecast(tmp_path)
    assert outlook is not None and outlook.numbers["bytes"] == 2 * 8 * 5 * 2, "two bytes a value, there and back"
