"""A whole training from the job to the run: what is kept, and what happens when somebody kills a part of it."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))

import parallel_cases
import training_cases as cases
from parallel_ranks import CONTEXT, on_ranks, started
from sonda.frameworks.checkpoint import read_arrays
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.record.training import FINAL, Trained, read_trained
from sonda.targets import local
from sonda.targets.job import Job
from sonda.targets.parallel_agent import JOB, PLAN
from sonda.targets.parallel_plan import plan_of
from sonda.targets.spec import parse_target
from sonda.targets.training import LostError, Training

RANKS = "ddp=cpu/1+cpu/1"
EPOCHS = 30


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(cases.small_set(tmp_path_factory.mktemp("data") / "thirds"))


def job(data: str, on: str, **more: Any) -> Job:
    settings = {"epochs": EPOCHS, **more}
    return Job(workload="cnn", options=cases.OPTIONS, train=True, data=data, split=cases.SPLIT, on=on, **settings)


def silent(text: str) -> None:
    """Say nothing."""


def until_kept(epochs: int, root: Path) -> None:
    """Until there is a checkpoint of so many epochs or more: those before are taken away."""
    limit = time.monotonic() + 120
    while not any(int(path.name[-5:]) >= epochs for path in root.glob("checkpoints/*/epoch-?????")):
        assert time.monotonic() < limit, f"there is no checkpoint of {epochs} epochs"
        time.sleep(0.005)


def rows(run: Run) -> list[tuple[str, int, float]]:
    """Part, number and loss of each epoch span that says them, in order of time."""
    spans = run.spans
    loss, names = spans.metric("loss", "measured"), spans.words("name").decoded()
    found = np.flatnonzero(spans.where(kind="epoch") & ~np.isnan(loss))
    found = found[np.argsort(spans.number("start")[found])]
    return [(names[row], int(spans.number("call")[row]), float(loss[row])) for row in found]


def test_a_killed_program_goes_on_where_it_was(tmp_path: Path, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same job once more: earlier epochs keep their times, and the run holds everything."""
    for module in ("sonda.targets.local", "sonda.targets.keeping"):  # ceilings are measured elsewhere, and take seconds
        monkeypatch.setattr(f"{module}.load_or_measure", lambda *args, **kwargs: {})
    store = Store(tmp_path / "store")
    wanted = job(data, "cpu/1", threads=1)
    (tmp_path / "first").mkdir()
    process = CONTEXT.Process(
        target=cases.whole_training, args=(Training.of(wanted, store, silent).job, tmp_path / "first"), daemon=True
    )
    process.start()
    until_kept(2, store.root)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()

    said: list[str] = []
    run = local.measure(wanted, store, say=said.append)
    assert any(one.startswith("going on after epoch ") for one in said)
    training, spans = run.info.workload["training"], run.spans
    assert 2 <= training["resumed"] < EPOCHS
    earlier = f"epochs 1 to {training['resumed']} were trained by a process that was interrupted"
    assert any(note.startswith(earlier) for note in run.info.notes)
    assert [(part, number) for part, number, _ in rows(run)] == [
        *((part, epoch) for epoch in range(EPOCHS) for part in ("train", "validate")), ("test", EPOCHS),
    ]  # fmt: skip
    early = np.flatnonzero(spans.where(kind="epoch") & (spans.number("start") < 0))
    assert len(early) == 2 * training["resumed"] and (spans.number("duration")[early] > 0).all()
    assert [one[2] for one in rows(run)] == [
        walk.loss for walk in cases.alone(data, EPOCHS, precision="float32")["walks"]
    ]

    steps = np.flatnonzero(spans.where(kind="step", pass_="timed"))
    inside = spans.where(kind="epoch")[spans.number("parent")[steps]]
    left = EPOCHS - training["resumed"]
    assert inside.sum() == left * (6 + 1) + 1, "six batches of training and one of validation an epoch, one of the test"
    assert spans.where(kind="step", pass_="count").sum() == 1
    assert spans.where(kind="layer", pass_="timed").any()
    assert training["images"] == {"train": 44, "validate": 8, "test": 8}
    assert spans.metric("loading", "measured")[0] == training["loading_ns"] > 0
    assert spans.metric("initialisation", "measured")[0] == training["initialisation_ns"] > 0
    assert "layers recorded in the first 20 steps of training only" in run.info.notes
    assert set(read_arrays(run.directory / training["weights"])) == {
        f"{layer}.{kind}" for layer in ("features.0", "features.3", "features.6", "classifier.1", "classifier.3")
        for kind in ("weight", "bias")
    }  # fmt: skip
    assert not list((store.root / "checkpoints").iterdir()), "nothing is left to go on from"


def ready(wanted: Job, directory: Path, store: Path) -> str:
    """A directory from which ranks can be started."""
    directory.mkdir()
    training = Training.of(wanted, Store(store), silent)
    (directory / JOB).write_bytes(msgspec.json.encode(training.job))
    (directory / PLAN).write_bytes(msgspec.json.encode(plan_of(wanted, parse_target(wanted.on))))
    return str(directory)


def outcome(directory: Path, store: Path) -> tuple[Trained, dict[str, np.ndarray]]:
    trained = read_trained(directory)
    assert trained is not None
    return trained, read_arrays(next(store.glob(f"checkpoints/*/{FINAL}")))


def test_a_killed_rank_changes_nothing_in_the_end(tmp_path: Path, data: str) -> None:
    """Two ranks, one of them killed in the middle, started again: to the last bit what nobody disturbed gives."""
    wanted = job(data, RANKS)
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    assert on_ranks(2, parallel_cases.whole_rank, ready(wanted, tmp_path / "a", calm)) == [0, 0]
    processes, _ = started(2, parallel_cases.whole_rank, ready(wanted, tmp_path / "b", rough))
    until_kept(1, rough)
    os.kill(processes[1].pid or 0, signal.SIGKILL)
    for process in processes:
        process.join(60)
        assert process.exitcode, "the other one has lost it, and ends"
    assert read_trained(tmp_path / "b") is None
    assert on_ranks(2, parallel_cases.whole_rank, ready(wanted, tmp_path / "c", rough)) == [0, 0]

    (undisturbed, weights), (disturbed, same) = outcome(tmp_path / "a", calm), outcome(tmp_path / "c", rough)
    assert undisturbed.resumed == 0 < disturbed.resumed <= EPOCHS
    assert set(weights) == set(same) and all(np.array_equal(weights[name], same[name]) for name in weights)
    assert [(walk.part, walk.epoch, walk.loss, walk.accuracy) for walk in undisturbed.walks] == [
        (walk.part, walk.epoch, walk.loss, walk.accuracy) for walk in disturbed.walks
    ]


def test_ranks_are_started_again_a_few_times(tmp_path: Path, data: str) -> None:
    training = Training.of(job(data, RANKS), Store(tmp_path), silent)
    (tmp_path / "rank-0.json").touch()
    said: list[str] = []
    calls: list[bool] = []

    def start() -> str:
        calls.append((tmp_path / "rank-0.json").exists())
        if len(calls) < 3:
            raise LostError("cpu/1 (rank 1) was ended by SIGKILL")
        return "done"

    assert training.run(start, tmp_path, said.append) == "done"
    assert training.restarts == 2 and len(said) == 2
    assert calls == [True, False, False], "what a stopped rank left is taken away"
    calls.clear()
    training.restarts = 0

    def never() -> str:
        raise LostError("cpu/1 (rank 1) was ended by SIGKILL")

    with pytest.raises(SondaError, match="SIGKILL, for the 4th time; start the same command again to go on"):
        training.run(never, tmp_path, said.append)


def test_two_trainings_do_not_share_checkpoints(tmp_path: Path, data: str) -> None:
    training, other = (Training.of(job(data, "cpu/1", epochs=count), Store(tmp_path), silent) for count in (1, 2))
    assert training.place != other.place
    training.place.mkdir(parents=True)
    held = os.open(training.place, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with pytest.raises(SondaError, match="another process trains the same"), training.held(tmp_path, silent):
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
        ({"transfer": "later"}, "--transfer cannot be 'later'; use batch or up-front"),
        ({"cache": True}, "--cache is for timed steps; use --transfer up-front"),
        ({"probe": "callgrind"}, "--probe callgrind would train once more"),
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
        local.measure(wanted, Store(tmp_path))
    assert str(caught.value).startswith(words)
