"""Helpers of `test_serving_run.py` that other tests use too."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plain_runs import run_info
from sonda.record.run import ProbeState, Run, new_id, now, write_run
from sonda.targets.job import Job
from sonda.targets.local.worker import Outcome, _run_job
from sonda.targets.serving import launcher as serving
from sonda.targets.serving.launcher import query_spans
from sonda.targets.serving.traffic import ServingTraffic, check_traffic

MS = 1_000_000


MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self, fails):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.calls, self.fails = 0, fails

    def forward(self, x):
        self.calls += 1
        if self.calls == self.fails:
            raise RuntimeError("no memory of that\\nmore")
        return self.layer(x)

def build(fails: int = 0):
    return Model(fails)
"""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The child's work in this process, and a directory with a model."""

    def child(job: Job, directory: Path, threads: int, variables: Mapping[str, str], started: Any) -> Outcome:
        before = torch.get_num_threads()
        try:
            return _run_job(job, directory)
        finally:
            torch.set_num_threads(before)

    monkeypatch.setattr(serving, "run_child", child)
    monkeypatch.setattr(sys, "path", [*sys.path])  # where a model comes from stays on it
    (tmp_path / "own.py").write_text(MODEL)
    return tmp_path


def synthetic(root: Path, moments: Any, probes: list[ProbeState] | None = None, **given: Any) -> Run:
    """A run of traffic with given moments (ns): arrived, begun, done and batch of every query."""
    rate = given.pop("rate", None)
    loadgen = given.pop("loadgen", {})
    traffic = check_traffic(ServingTraffic(**given))
    spans = query_spans(np.array(moments), 0, 10**10, traffic, "cpu")
    if probes is not None:
        part = spans.where(kind="part")
        for name, joules in (("energy", 30.0), ("energy_low", 27.0), ("energy_high", 36.0)):
            spans.metrics[f"{name}:measured"] = np.where(part, joules, np.nan)
    facts = {**traffic.describe(), "rate": rate, "loadgen": loadgen}
    info = run_info(
        id=new_id(), created=now(), status="complete", workload={"name": "mlp", "train": False},
        target={"spec": "cpu", "device": "cpu", "threads": 1, "serving": facts}, probes=probes or [],
    )  # fmt: skip
    return write_run(root, info, spans)


def evenly(latencies: Any) -> list[Any]:
    """Queries one after another, 1 ms of each latency spent waiting."""
    ends = np.cumsum(latencies)
    arrived = ends - latencies
    return [arrived, arrived + MS, ends, np.ones(len(ends))]
