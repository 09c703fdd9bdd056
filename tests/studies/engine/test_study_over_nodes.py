"""A study whose points train over several nodes: jobs of a queue, one after the other, when everything else is done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import node_cases
from fake_slurm import directives, fake_slurm
from plain_runs import target_of
from record_examples import an_info, two_spans
from sonda.record.errors import SondaError
from sonda.record.run import CoolDown, Run, write_run
from sonda.record.store import Store
from sonda.report.words import in_words
from sonda.studies import catalogue
from sonda.studies.catalogue import carry_out
from sonda.studies.engine import multi_node as over_nodes
from sonda.studies.engine import remote as elsewhere
from sonda.studies.engine.multi_node import QUEUED
from sonda.studies.engine.runner import load_study_result
from sonda.studies.executors import training_jobs
from sonda.studies.executors.executor import ThisProcess
from sonda.studies.file.loader import load_study
from sonda.targets.job import Job
from sonda.targets.pipeline import RunLabels

FILE = """
[study]
name = "network"
question = "What does it cost?"
metrics = ["step_ms"]
repeat = {repeat}
{more}
[workload]
name = "mlp"
train = true
[axes]
on = [{on}]
"""
OVER = "ddp=cpu/1@nodes=2"


def study_file(folder: Path, *on: str, repeat: int = 1, more: str = "") -> str:
    path = folder / "study.toml"
    path.write_text(FILE.format(repeat=repeat, more=more, on=", ".join(f'"{one}"' for one in on)))
    return str(path)


def silent(text: str) -> None:
    """Say nothing."""


@pytest.mark.parametrize(
    ("on", "cluster", "nodes", "words"),
    [
        (OVER, "", "", f"study network: {OVER} is a training over 2 nodes, and nobody starts them; add --on-cluster"),
        (f"{OVER},at=a:1", "", "", "and nobody starts them; leave out at= and add --on-cluster slurm:"),
        (OVER, "tcp://here:1", "", "--on-cluster 'tcp://here:1' starts no nodes for a training; write slurm:"),
        (OVER, "local", "each", f"--nodes each places what one node measures, and {OVER} takes 2; leave out --nodes"),
        (f"{OVER},at=a:1", "local", "", "the queue decides where nodes meet; leave out at="),
        ("ddp=cpu/1@at=a:1,nodes=2", "local", "", "the queue decides where nodes meet; leave out at="),
        (OVER, "slurm:time=soon", "", "--on-cluster time=soon is no time"),
        ("pipeline=cpu/1@nodes=2,replicas=2", "local", "", "2 devices on 2 nodes are not 2 pip"),
        ("ddp=cpu/1+cpu/1@nodes=2,batch=none", "local", "", "batch cannot be 'none'"),
    ],
)
def test_what_nobody_would_start_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: str, cluster: str, nodes: str, words: str
) -> None:
    """Also where other points of the study could be measured: nobody would compare the rest."""
    pytest.importorskip("submitit", reason="submitit is not installed")
    monkeypatch.setattr(catalogue, "executor_for", lambda *_: pytest.fail("workers are started"))
    monkeypatch.setattr(catalogue, "run_study", lambda *_, **__: pytest.fail("it is measured"))
    with pytest.raises(SondaError) as refused:
        carry_out(
            study_file(tmp_path, "cpu", on), "", None, False, Store(tmp_path), silent, cluster=cluster, nodes=nodes
        )
    assert words in str(refused.value)


class Watched(ThisProcess):
    """Work here, as a cluster that says in `log` when it goes."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def close(self) -> None:
        if "closed" not in self.log:
            self.log.append("closed")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done, in order; nothing is measured. The second training over nodes fails."""
    done: list[str] = []

    def keep(job: Job, store: Store, place: RunLabels | None, say: Any = None) -> Run:
        done.append(job.on)
        assert place is not None
        info = msgspec.structs.replace(
            an_info(place.identity),
            target=target_of({"spec": job.on}),
            point=place.point,
            study=place.study,
            cool_down=CoolDown(**place.cool_down) if place.cool_down else None,
        )
        return write_run(store.root, info, two_spans())

    def submitted(cluster: str) -> Any:
        assert cluster in ("local", "slurm:", "slurm:partition=short"), "host is for workers"

        def on_nodes(job: Job, store: Store, place: RunLabels | None, say: Any) -> Run:
            if done.count(OVER) == 1:
                done.append("refused")
                raise SondaError("the job was not taken")
            return keep(job, store, place)

        return on_nodes

    @contextmanager
    def executor_for(*_: Any) -> Iterator[Watched]:
        yield Watched(done)

    monkeypatch.setattr(over_nodes, "submit_training", submitted)
    monkeypatch.setattr(catalogue, "executor_for", executor_for)
    monkeypatch.setattr("sonda.targets.pipeline.measure", keep)
    monkeypatch.setattr(elsewhere, "_at_work", {})
    return done


def test_trainings_over_nodes_come_when_workers_have_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: list[str]
) -> None:
    (tmp_path / "disk").mkdir()
    monkeypatch.setattr(elsewhere.tempfile, "gettempdir", lambda: str(tmp_path / "disk"))
    file, store = study_file(tmp_path, OVER, "cpu/1", repeat=2), Store(tmp_path / "store")
    result = carry_out(file, "", None, False, store, silent, cluster="local")
    assert log == ["cpu/1", "cpu/1", "closed", OVER, "refused"]
    failures = [why for _, why in load_study_result(load_study(file), store).failures]
    assert failures == ["the job was not taken"]
    assert len(store.directories()) == result["measured"] == 3
    log.clear()
    assert carry_out(file, "", None, False, store, silent, cluster="local")["measured"] == 1
    assert log == ["closed", OVER], "what is missing"


def test_a_study_of_nothing_else_starts_no_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: list[str]
) -> None:
    monkeypatch.setattr(catalogue, "executor_for", lambda *_: pytest.fail("workers are started"))
    store, file = Store(tmp_path / "store"), study_file(tmp_path, OVER, more="cool_down_s = 60")
    assert carry_out(file, "", None, False, store, silent, cluster="slurm:host=me")["measured"] == 1
    result = carry_out(file, "", None, False, store, silent, cluster="slurm:host=me,partition=short")
    assert log == [OVER] and result["measured"] == 0
    (run,) = store.runs()
    assert run.info.cool_down == CoolDown(waited_s=0.0, reason=QUEUED)
    assert any(note.startswith(QUEUED) for note in in_words(result["notes"]))


@pytest.mark.slow
def test_points_are_jobs_of_the_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """submitit's scripts and their tasks are real; what a node does is to keep a run."""
    pytest.importorskip("submitit", reason="submitit is not installed")
    fake_slurm(tmp_path, monkeypatch)
    monkeypatch.setattr(training_jobs, "train_here", node_cases.kept)
    store = Store(tmp_path / "store")
    pipeline = "pipeline=cpu/1@nodes=2"
    result = carry_out(
        study_file(tmp_path, OVER, pipeline), "", None, False, store, silent, cluster="slurm:partition=short"
    )
    assert result["measured"] == 2
    assert {run.info.point["on"] for run in store.runs()} == {OVER, pipeline}
    scripts = sorted(tmp_path.glob("job-*.sh"))
    assert [script.name for script in scripts] == ["job-4242.sh", "job-4243.sh"], "one after the other"
    for script in scripts:
        assert {"--partition=short", "--nodes=2", "--ntasks-per-node=1", "--exclusive"} <= directives(script)
