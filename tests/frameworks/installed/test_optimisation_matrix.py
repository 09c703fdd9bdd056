"""The optimisation matrix in other frameworks: a job in a process of its own, with an input pipeline to optimise."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
import pytest

from sonda.frameworks.reconstruction.assembly import Assembly, assemble
from sonda.targets.applicability import drop_inapplicable
from sonda.targets.job import Job, check_job
from sonda.targets.local.child import run_child


@pytest.fixture(scope="module", params=["tensorflow", "jax"])
def optimised(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Assembly, Any, list[str]]:
    """A training with everything that can be asked for: what was seen, what the child said, what did not apply."""
    pytest.importorskip(request.param)
    job = check_job(
        Job(
            workload="cnn", framework=request.param, train=True, options={"batch": "4"}, data="cifar10-like", steps=3,
            warmup=1, threads=1, inter_op_threads=1, precision="mixed_bf16", prefetch=2, cache=True, workers=1,
            pin=True, compile=True, channels_last=True, gpu_private_threads=2,
        )
    )  # fmt: skip
    plain, notes = drop_inapplicable(job)
    directory: Path = tmp_path_factory.mktemp(request.param)
    begin = perf_counter_ns()
    outcome = run_child(plain, directory, 1)
    return assemble(directory, begin, perf_counter_ns()), outcome, notes


def test_what_does_not_apply_is_said(optimised: tuple[Assembly, Any, list[str]]) -> None:
    _, _, notes = optimised
    said = {note.partition(":")[0] for note in notes}
    assert {"--gpu-private-threads", "--pin", "--channels-last"} <= said
    assert not said & {"--threads", "--precision", "--prefetch", "--cache", "--data"}


def test_steps_wait_for_data_and_compute(optimised: tuple[Assembly, Any, list[str]]) -> None:
    assembly, outcome, _ = optimised
    spans = assembly.spans
    assert int(spans.where(kind="step", pass_="timed").sum()) == 3
    assert int(spans.where(kind="phase", name="data", pass_="timed").sum()) == 3
    assert np.all(spans.number("duration")[spans.where(kind="phase", pass_="timed")] > 0)
    assert outcome.workload["samples"] == 4


def test_the_cache_and_what_it_took_are_among_the_notes(optimised: tuple[Assembly, Any, list[str]]) -> None:
    assembly, _, _ = optimised
    assert any(note.startswith("5,000 decoded images take 61 MB of memory") for note in assembly.notes)
