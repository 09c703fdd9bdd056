"""A whole training from the job to the run: what is kept, and what happens when somebody kills a part of it."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("torch")

import parallel_cases
import training_cases as cases
from command_line import run_command
from light_programs import without_ceilings
from parallel_ranks import CONTEXT, on_ranks
from sonda.frameworks.harness.checkpoint import read_arrays
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.record.training import FINAL, read_trained
from sonda.targets.job import JOB, Job
from sonda.targets.local import launcher as local
from sonda.targets.ranks.elastic_agent import PLAN
from sonda.targets.ranks.plan import make_plan
from sonda.targets.target import parse_target
from sonda.targets.training.supervisor import LostError, SupervisedTraining

__all__ = ["without_ceilings"]

RANKS = "ddp=cpu/1+cpu/1"
EPOCHS, FATAL = 4, 6 + 3
"""Epochs, of six steps each (44 images in batches of 8), and the step in which a rank is killed, in the second."""
WIDE = {**cases.OPTIONS, "filters": "32-32-32"}
MODEL = "energy-model:cpu=20..95,energy:10ms+idle=0s"

SITE = """
import os, signal

if os.environ.get("RANK") == "1" and not os.path.exists({flag!r}):
    from sonda.frameworks.torch.parallel.shared_task import SharedTask

    learns, calls = SharedTask.loss, []

    def loss(self, output, target):
        calls.append(1)
        if len(calls) == {step}:
            open({flag!r}, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return learns(self, output, target)

    SharedTask.loss = loss
"""
"""What every process of the command imports first: its second rank dies once, between forward and backward. Steps of
the calibration have a loss of their own."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(cases.small_set(tmp_path_factory.mktemp("data") / "thirds"))


def job(data: str, on: str, **more: Any) -> Job:
    settings = {"epochs": EPOCHS, "options": cases.OPTIONS, **more}
    return Job(workload="cnn", train=True, data=data, split=cases.SPLIT, on=on, **settings)


def silent(text: str) -> None:
    """Say nothing."""


def rows(run: Run) -> list[tuple[str, int, float, float | None, int]]:
    """Part, number, loss, accuracy and row of each epoch that says them, in order of time."""
    spans = run.spans
    loss, accuracy = spans.metric("loss", "measured"), spans.metric("accuracy", "measured")
    names = spans.words("name").decoded()
    found = np.flatnonzero(spans.where(kind="epoch") & ~np.isnan(loss))
    found = found[np.argsort(spans.number("start")[found])]
    return [
        (str(names[row]), int(spans.number("call")[row]), float(loss[row]),
         None if np.isnan(accuracy[row]) else float(accuracy[row]), int(row))
        for row in found.tolist()
    ]  # fmt: skip


@pytest.mark.usefixtures("without_ceilings")
def test_a_killed_program_goes_on_where_it_was(tmp_path: Path, data: str) -> None:
    """The same job once more: earlier epochs keep their times, and the run holds everything."""
    store = Store(tmp_path / "store")
    wanted = job(data, "cpu/1", threads=1)
    (tmp_path / "first").mkdir()
    process = CONTEXT.Process(
        target=cases.killed_training,
        args=(SupervisedTraining.prepare(wanted, store, silent).job, tmp_path / "first", 2),
        daemon=True,
    )
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL

    said: list[str] = []
    run = local.measure_local(wanted, store, say=said.append)
    assert any(one.startswith("going on after epoch ") for one in said)
    training, spans = run.info.workload.training, run.spans
    assert training.resumed == 2
    assert any(
        note.startswith("epochs 1 to 2 were trained by a process that was interrupted") for note in run.info.notes
    )
    assert [(part, number) for part, number, *_ in rows(run)] == [
        *((part, epoch) for epoch in range(EPOCHS) for part in ("train", "validate")), ("test", EPOCHS),
    ]  # fmt: skip
    early = np.flatnonzero(spans.where(kind="epoch") & (spans.number("start") < 0))
    assert len(early) == 2 * 2 and (spans.number("duration")[early] > 0).all()
    assert [one[2] for one in rows(run)] == [
        walk.loss for walk in cases.alone(data, EPOCHS, precision="float32")["walks"]
    ]

    steps = np.flatnonzero(spans.where(kind="step", pass_="timed"))
    inside = spans.where(kind="epoch")[spans.number("parent")[steps]]
    assert inside.sum() == (EPOCHS - 2) * (6 + 1) + 1, (
        "six batches of training and one of validation an epoch, one of the test"
    )
    assert spans.where(kind="step", pass_="count").sum() == 1
    assert spans.where(kind="layer", pass_="timed").any()
    assert training.images == {"train": 44, "validate": 8, "test": 8}
    assert spans.metric("loading", "measured")[0] == training.loading_ns > 0
    assert spans.metric("initialisation", "measured")[0] == training.initialisation_ns > 0
    assert "layers recorded in the first 20 steps of training only" in run.info.notes
    assert set(read_arrays(run.directory / training.weights)) == {
        f"{layer}.{kind}" for layer in ("features.0", "features.3", "features.6", "classifier.1", "classifier.3")
        for kind in ("weight", "bias")
    }  # fmt: skip
    assert not list((store.root / "checkpoints").iterdir()), "nothing is left to go on from"


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory, data: str, without_ceilings: None) -> tuple[Run, str]:
    """The run of the command whose rank was killed, and what it said meanwhile."""
    place = tmp_path_factory.mktemp("restart")
    (place / "sitecustomize.py").write_text(SITE.format(flag=str(place / "killed"), step=FATAL))
    words = [word for name, value in WIDE.items() for word in (f"--{name}", value)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(place), prepend=os.pathsep)
        ended = run_command(
            place, "run", "cnn", *words, "--train", "--epochs", str(EPOCHS), "--data", data, "--split", cases.SPLIT,
            "--on", RANKS, "--deterministic", "--probe", MODEL, "--json",
        )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert (place / "killed").exists()
    json.loads(ended.stdout)
    return Store(place / "store").one("last"), ended.stderr


def test_the_command_says_so_and_goes_on(disturbed: tuple[Run, str]) -> None:
    run, said = disturbed
    assert "cpu/1 (rank 1) was ended by SIGKILL (out of memory?); the other ranks were stopped; going on from" in said
    training = run.info.workload.training
    assert (training.restarts, training.resumed) == (1, 1), "one epoch was kept, half of the second was lost"
    assert run.info.workload.parameters["deterministic"] is True
    assert "ranks were started again once after one was lost" in run.info.notes
    assert not list((run.directory.parent / "checkpoints").glob("*/epoch-*")), "nothing is left to go on from"


def test_weights_losses_and_accuracies_are_those_of_an_undisturbed_training(
    disturbed: tuple[Run, str], data: str, tmp_path: Path
) -> None:
    wanted = job(data, RANKS, options=WIDE, deterministic=True)
    directory = tmp_path / "ranks"
    directory.mkdir()
    training = SupervisedTraining.prepare(wanted, Store(tmp_path / "store"), silent)
    (directory / JOB).write_bytes(msgspec.json.encode(training.job))
    (directory / PLAN).write_bytes(msgspec.json.encode(make_plan(wanted, parse_target(RANKS))))
    assert on_ranks(2, parallel_cases.whole_rank, str(directory)) == [0, 0]

    run, _ = disturbed
    found = read_arrays(run.directory / run.info.workload.training.weights)
    same = read_arrays(training.checkpoint_directory / FINAL)
    assert set(found) == set(same) and all(np.array_equal(found[name], same[name]) for name in same)
    undisturbed = read_trained(directory)
    assert undisturbed is not None and undisturbed.resumed == 0
    assert [(part, number, loss, accuracy) for part, number, loss, accuracy, _ in rows(run)] == [
        (walk.part, walk.epoch, walk.loss, walk.accuracy) for walk in undisturbed.walks
    ]


def test_epochs_of_the_lost_ranks_lie_where_they_were_with_their_energy(disturbed: tuple[Run, str]) -> None:
    """The energy once more from the readings of the model, between the ends of each epoch."""
    run, _ = disturbed
    spans = run.spans
    places = [row for *_, row in rows(run)]
    begin = spans.number("start")[places].astype(float)
    end = begin + spans.number("duration")[places]
    assert len(places) == 2 * EPOCHS + 1
    assert begin[0] > 0 and (begin[1:] >= end[:-1]).all() and end[-1] <= spans.number("duration")[0]
    lost = begin[2] - end[1]
    assert lost > 0.3 * (end[0] - begin[0]), "between them lies what was lost, a new start of all ranks included"
    readings = [(one.time, one.value) for one in run.samples if one.sensor == "modelled energy"]
    times, joules = (np.array(column, dtype=float) for column in zip(*sorted(readings), strict=True))
    wanted = np.interp(end, times, joules) - np.interp(begin, times, joules)
    energy = spans.metric("energy", "estimated")[places]
    trained = [at for at, (part, *_) in enumerate(rows(run)) if part == "train"]
    assert np.isfinite(energy[trained]).all(), "an epoch of training is longer than what is between two readings"
    # At each end a reading may be an interval and a tick of /proc/stat (10 ms) away, at no more than full load.
    gaps = np.diff(times, append=np.inf)[np.clip(np.searchsorted(times, [begin, end]) - 1, 0, None)] / 1e9
    known = np.isfinite(energy)
    assert (np.abs(energy - wanted) <= 95 * (2 * gaps.sum(axis=0) + 0.04))[known].all()


def test_ranks_are_started_again_a_few_times(tmp_path: Path, data: str) -> None:
    training = SupervisedTraining.prepare(job(data, RANKS), Store(tmp_path), silent)
    (tmp_path / "rank-0.json").touch()
    said: list[str] = []
    calls: list[bool] = []

    def start() -> str:
        calls.append((tmp_path / "rank-0.json").exists())
        if len(calls) < 3:
            raise LostError("cpu/1 (rank 1) was ended by SIGKILL")
        return "done"

    assert training.run_with_restarts(start, tmp_path, said.append) == "done"
    assert training.restarts == 2 and len(said) == 2
    assert calls == [True, False, False], "what a stopped rank left is taken away"
    calls.clear()
    training.restarts = 0

    def never() -> str:
        raise LostError("cpu/1 (rank 1) was ended by SIGKILL")

    with pytest.raises(SondaError, match="SIGKILL, for the 4th time; start the same command again to go on"):
        training.run_with_restarts(never, tmp_path, said.append)


def test_two_trainings_do_not_share_checkpoints(tmp_path: Path, data: str) -> None:
    training, other = (
        SupervisedTraining.prepare(job(data, "cpu/1", epochs=count), Store(tmp_path), silent) for count in (1, 2)
    )
    assert training.checkpoint_directory != other.checkpoint_directory
    training.checkpoint_directory.mkdir(parents=True)
    held = os.open(training.checkpoint_directory, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with (
            pytest.raises(SondaError, match="another process trains the same"),
            training.lock_checkpoints(tmp_path, silent),
        ):
            pass
    finally:
        os.close(held)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"train": False}, "--epochs is for training; add --train"),
        ({"steps": 3}, "--epochs and --steps do not go together"),
        ({"split": "0.9/0.1"}, "--split '0.9/0.1' is not three fractions"),
        ({"split": "0.9/0.2/0.1"}, "fractions 0.9, 0.2, 0.1 add up to 1.2"),
        ({"transfer": "later"}, "--transfer cannot be 'later'; known: batch, up-front"),
        ({"cache": True}, "--cache is for timed steps; use --transfer up-front"),
        ({"workload": "lstm", "options": {}}, "lstm cannot be trained on images by epochs; use mlp, cnn"),
        ({"options": {"image": "64x48"}}, "cnn: --image 64x48, and thirds has 22x18"),
        ({"options": {"channels": "3"}}, "cnn: --channels 3, and thirds has 1"),
        ({"options": {"classes": "2"}}, "cnn: 2 outputs for the 3 classes of thirds"),
        ({"data": "nowhere"}, "there is no folder nowhere"),
        ({"epochs": -1}, "--epochs -1 is too small"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(tmp_path: Path, data: str, settings: dict[str, Any], words: str) -> None:
    wanted = msgspec.structs.replace(job(data, "cpu/1"), **settings)
    with pytest.raises(SondaError) as caught:
        local.measure_local(wanted, Store(tmp_path))
    assert str(caught.value).startswith(words)
