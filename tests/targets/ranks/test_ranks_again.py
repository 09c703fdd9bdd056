"""Ranks that are run once more: by which command, under which tool, and where they cannot be."""

from __future__ import annotations

import shutil
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("torch")

from light_programs import without_ceilings, without_compiler
from sonda.frameworks.harness.settings import KERNEL_STEPS, Driving
from sonda.frameworks.torch.drive import steps as drive_steps
from sonda.record.errors import SondaError
from sonda.record.store import Store
from sonda.targets.instrument import AGAIN, REPLAY, Rerun
from sonda.targets.instruments import callgrind
from sonda.targets.instruments.registry import instruments_for
from sonda.targets.job import JOB, Job
from sonda.targets.local.launcher import LocalLauncher
from sonda.targets.pipeline import measure
from sonda.targets.ranks import plan as ranks_plan
from sonda.targets.ranks.elastic_agent import PLAN, UNDER_VARIABLE
from sonda.targets.ranks.launcher import RanksLauncher
from sonda.targets.ranks.outcomes import RankOutcome
from sonda.targets.ranks.plan import Plan

__all__ = ["without_ceilings", "without_compiler"]


def job(on: str, **settings: Any) -> Job:
    return Job(**{"workload": "mlp", "train": True, "on": on, **settings})


def refusal(launcher: Any, probe: str) -> str:
    with pytest.raises(SondaError) as refused:
        instruments_for(probe, launcher)
    return refused.value.cause


def test_every_rank_runs_under_the_words_of_a_tool_on_the_threads_that_were_asked_for(tmp_path: Path) -> None:
    launcher = RanksLauncher(job("ddp=cpu/2+cpu", steps=9, probe="callgrind"))
    plan = launcher.plan(Store(tmp_path), tmp_path, str)
    command = launcher.again(plan, Rerun(tmp_path, under=("valgrind", "-q"), warmup=1, steps=2, threads=1))
    assert command.words[-2:] == ("sonda.targets.ranks.elastic_agent", str(tmp_path))
    assert command.environment == {UNDER_VARIABLE: '["valgrind","-q"]'}
    again = msgspec.json.decode((tmp_path / JOB).read_bytes(), type=Job)
    assert (again.warmup, again.steps, again.probe, again.on) == (1, 2, "", "ddp=cpu/2+cpu")
    ranks = msgspec.json.decode((tmp_path / PLAN).read_bytes(), type=Plan)
    assert ranks.threads == (2, 1) and ranks.timeout > 300


def test_shares_are_those_of_the_run_that_was_timed(tmp_path: Path) -> None:
    launcher = RanksLauncher(job("hybrid=cpu/1+cpu/1@backend=gloo"))
    plan = launcher.plan(Store(tmp_path), tmp_path, str)
    for samples, shares, moving in (([[30, 20], [34, 44]], (20, 44), False), ([[64], []], (), True)):
        launcher.report.ranks = [
            RankOutcome(rank=rank, device="cpu/1", samples=own) for rank, own in enumerate(samples)
        ]  # fmt: skip
        launcher.again(plan, Rerun(tmp_path))
        ranks = msgspec.json.decode((tmp_path / PLAN).read_bytes(), type=Plan)
        assert (ranks.shares, ranks.moving) == (shares, moving)


def test_kernels_that_wait_for_those_of_other_ranks_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks_plan, "has_gpu", lambda: True)
    several = RanksLauncher(job("ddp=cuda:0+cuda:1"))
    assert refusal(several, "ncu") == "--probe ncu cannot be read of a ranks run whose GPUs exchange by nccl"
    assert AGAIN in several.offers
    for on in ("ddp=cuda:0", "ddp=cuda:0+cuda:1@backend=gloo", "hybrid=cuda:0+cpu"):
        assert REPLAY in RanksLauncher(job(on)).offers


@pytest.mark.parametrize(
    ("on", "settings", "where"),
    [
        ("ddp=cpu@nodes=2,at=localhost:1", {}, "on several nodes"),
        ("mirrored=cpu/1+cpu/1", {"framework": "tensorflow"}, "by mirrored="),
        ("ddp=cpu/1+cpu/1", {"epochs": 2, "workload": "cnn"}, "of a whole training"),
    ],
)
def test_where_ranks_cannot_be_run_once_more_one_line_says_so(
    on: str, settings: dict[str, Any], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sonda.targets.ranks.launcher.require_framework", lambda framework: None)
    launcher = RanksLauncher(job(on, **settings))
    for probe in ("ncu", "callgrind", "perf-stat"):
        assert refusal(launcher, probe) == f"--probe {probe} cannot be read of a ranks run {where}"
    assert len(instruments_for("pmu,os,energy", launcher)) == 2


def test_a_workload_that_is_bound_to_cores_is_so_when_it_is_run_once_more(tmp_path: Path) -> None:
    launcher = LocalLauncher(job("cpu", bind="0"))
    plan = launcher.plan(Store(tmp_path), tmp_path, str)
    for observed in (True, False):
        command = launcher.again(plan, Rerun(tmp_path, observed=observed))
        assert command.environment["OMP_PLACES"] == "{0}" and command.environment["SONDA_CORES"] == "0"


@pytest.mark.parametrize(("replay", "taken"), [(True, 1 + 1), (False, 1 + 2 + KERNEL_STEPS + 1)])
def test_a_rank_without_a_gpu_takes_the_steps_whose_kernels_others_record(
    replay: bool, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One to warm up, two timed, those for kernels, one that is counted; for a profiler outside, one for kernels."""
    done: list[str] = []
    loop = SimpleNamespace(part="train", step=lambda: done.append("step"), state=list)
    monkeypatch.setattr(drive_steps, "make_loop", lambda task, observer, how: loop)

    @contextmanager
    def span(kind: str, name: str) -> Any:
        yield

    observer: Any = SimpleNamespace(
        span=span, kernel_pass=None, marks=None, count_operations=lambda state: nullcontext()
    )
    how = Driving(True, 2, 1, 1.0, replay=replay, kernels=True)
    drive_steps.drive_task(SimpleNamespace(model=None), observer, how)  # type: ignore[arg-type]
    assert len(done) == taken


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind")
@pytest.mark.usefixtures("without_ceilings", "without_compiler")
def test_ranks_that_share_a_batch_equally_execute_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callgrind, "measure_penalties", lambda machine: None)
    run = measure(job("ddp=cpu/1+cpu/1", options={"batch": "8"}, steps=3, probe="callgrind"), Store(tmp_path))
    assert {probe.name: probe.state for probe in run.info.probes}["callgrind"] == "ok"
    spans, rank = run.spans, run.spans.number("rank")
    instructions = spans.metric("instructions", "modelled")
    for name in ("forward", "backward", "optimizer"):
        rows = [spans.where(kind="phase", name=name, pass_="modelled") & (rank == number) for number in (0, 1)]
        first, second = (float(np.nansum(instructions[of])) for of in rows)
        assert min(first, second) > 10_000
        # Four samples each: the same operations, but for what hashing and allocation do differently. In backward they
        # also wait for each other, and whoever waits executes more.
        assert name == "backward" or first == pytest.approx(second, rel=0.05)
