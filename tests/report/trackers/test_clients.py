"""MLflow and Weights & Biases: what their clients are asked for, by a recorded interface that runs everywhere, and by
the packages themselves where they are installed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from answers import RUNS
from command_line import run_command
from sonda.record.errors import SondaError
from sonda.record.store import Store
from sonda.report.trackers import metrics
from sonda.report.trackers.metrics import TrackedRun, TrackedSeries, track_run
from sonda.report.trackers.mlflow import log_to_mlflow
from sonda.report.trackers.wandb import log_to_wandb

TRACKED = TrackedRun(
    "7f3a9c21", "mlp", 1763177412.5, "Input-bound.", {"batch": 16, "note": "x" * 9000},
    {"train/step ms": 120.0, "train layers/a<b ms": 60.5},
    (
        TrackedSeries("train", "train/step ms", ((1, 119.0), (2, 121.0))),
        TrackedSeries("train", "train/forward ms", ((1, 59.0), (2, 61.0))),
        TrackedSeries("epoch", "epoch/training loss", ((1, 0.5),)),
    ),
)  # fmt: skip


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """Modules that stand for packages, in place of those that are installed or missing."""
    modules: dict[str, ModuleType] = {}
    for name in ("mlflow", "mlflow.entities", "mlflow.tracking", "wandb"):
        modules[name] = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, modules[name])
    monkeypatch.setattr(metrics, "find_spec", lambda name: object())
    return modules


BLOCK, FULL, LAST = 32768, 1, 4
"""Of a log of LevelDB: bytes of a block, and kinds of records that end one (github.com/google/leveldb)."""


class RecordedClient:
    """Has the methods of `MlflowClient` that are used, and keeps what it was asked for."""

    present: tuple[str, ...] = ()

    def __init__(self, tracking_uri: str) -> None:
        self.calls: list[tuple[str, Any]] = [("uri", tracking_uri)]

    def get_experiment_by_name(self, name: str) -> None:
        return None

    def create_experiment(self, name: str, artifact_location: str | None) -> str:
        self.calls.append(("experiment", (name, artifact_location)))
        return "5"

    def search_runs(self, experiments: list[str], filter_string: str) -> list[str]:
        self.calls.append(("search", filter_string))
        return list(self.present)

    def create_run(self, experiment_id: str, start_time: int, tags: dict[str, str], run_name: str) -> SimpleNamespace:
        self.calls.append(("run", (experiment_id, start_time, tags, run_name)))
        return SimpleNamespace(info=SimpleNamespace(run_id="r1"))

    def log_batch(self, run_id: str, metrics: Any = (), params: Any = ()) -> None:
        self.calls.append(("batch", [*metrics, *params]))

    def log_text(self, run_id: str, text: str, artifact_file: str) -> None:
        self.calls.append(("text", (text, artifact_file)))

    def set_terminated(self, run_id: str, status: str, end_time: int) -> None:
        self.calls.append(("ended", (status, end_time)))


@pytest.fixture
def client(installed: dict[str, ModuleType]) -> list[RecordedClient]:
    made: list[RecordedClient] = []

    def make(uri: str) -> RecordedClient:
        made.append(RecordedClient(uri))
        return made[-1]

    installed["mlflow.tracking"].MlflowClient = make  # type: ignore[attr-defined]
    for name in ("Metric", "Param"):
        setattr(installed["mlflow.entities"], name, lambda *values: values)
    return made


def test_mlflow_is_given_every_number_once_with_its_step(client: list[RecordedClient], tmp_path: Path) -> None:
    assert log_to_mlflow(str(tmp_path / "ml runs"), TRACKED) == "r1"
    calls = client[0].calls
    assert calls[0] == ("uri", f"sqlite:///{tmp_path}/ml runs/mlflow.db")
    assert ("experiment", ("sonda", f"file://{tmp_path}/ml%20runs/mlartifacts")) in calls
    assert ("run", ("5", 1763177412500, {"sonda.run": "7f3a9c21"}, "mlp")) in calls
    batches = [values for name, values in calls if name == "batch"]
    assert batches[0] == [("batch", "16"), ("note", "x" * 500)]
    when = 1763177412500
    assert sorted(batches[1]) == sorted([
        ("train layers/a_b ms", 60.5, when, 0), ("train/step ms", 119.0, when, 1), ("train/step ms", 121.0, when, 2),
        ("train/forward ms", 59.0, when, 1), ("train/forward ms", 61.0, when, 2), ("epoch/training loss", 0.5, when, 1),
    ])  # fmt: skip
    assert ("text", ("Input-bound.", "sonda.txt")) in calls
    assert calls[-1] == ("ended", ("FINISHED", when))


def test_an_address_of_a_server_is_left_as_it_is(client: list[RecordedClient]) -> None:
    log_to_mlflow("http://127.0.0.1:5000", TRACKED)
    assert client[0].calls[0] == ("uri", "http://127.0.0.1:5000")


def test_requests_have_no_more_than_a_server_takes(client: list[RecordedClient], tmp_path: Path) -> None:
    many = TrackedSeries("train", "train/step ms", tuple((step, 1.0) for step in range(2500)))
    log_to_mlflow(str(tmp_path), TrackedRun("7f", "t", 0.0, "", {str(n): n for n in range(250)}, {}, (many,)))
    sizes = [len(values) for name, values in client[0].calls if name == "batch"]
    assert sizes == [100, 100, 50, 1000, 1000, 500]


def test_a_run_that_is_there_already_is_not_logged_twice(
    client: list[RecordedClient], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(RecordedClient, "present", ("r0",))
    with pytest.raises(SondaError, match="7f3a9c21 is in MLflow already"):
        log_to_mlflow(str(tmp_path), TRACKED)
    assert not [call for call in client[0].calls if call[0] == "run"]


class RecordedRun:
    """Has the methods of a run of wandb that are used."""

    def __init__(self, folder: Path) -> None:
        self.dir = str(folder / "wandb" / "offline-run-1" / "files")
        self.summary: dict[str, float] = {}
        self.rows: list[dict[str, float]] = []
        self.axes: dict[str, str] = {}
        self.finished = False

    def define_metric(self, name: str, step_metric: str) -> None:
        self.axes[name] = step_metric

    def log(self, row: dict[str, float]) -> None:
        self.rows.append(row)

    def finish(self) -> None:
        self.finished = True


def test_wandb_is_given_rows_with_an_axis_of_their_own_and_stays_offline(
    installed: dict[str, ModuleType], tmp_path: Path
) -> None:
    begun: list[dict[str, Any]] = []
    run = RecordedRun(tmp_path)
    module: Any = installed["wandb"]
    module.Settings = lambda **settings: settings
    module.init = lambda **settings: begun.append(settings) or run
    assert log_to_wandb(tmp_path, TRACKED) == tmp_path / "wandb" / "offline-run-1"
    (settings,) = begun
    assert (settings["mode"], settings["project"], settings["id"]) == ("offline", "sonda", "7f3a9c21")
    assert settings["config"]["batch"] == 16
    assert run.rows == [
        {"train step": 1, "train/step ms": 119.0, "train/forward ms": 59.0},
        {"train step": 2, "train/step ms": 121.0, "train/forward ms": 61.0},
        {"epoch": 1, "epoch/training loss": 0.5},
    ]
    assert run.axes["train/step ms"] == "train step"
    assert run.axes["epoch/training loss"] == "epoch"
    assert run.summary == TRACKED.totals
    assert run.finished


def test_what_a_client_raises_is_one_line(client: list[RecordedClient], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no room\nat all")

    monkeypatch.setattr(RecordedClient, "create_run", fail)
    with pytest.raises(SondaError, match="MLflow did not take the run: RuntimeError: no room; look at runs"):
        log_to_mlflow("runs", TRACKED)


@pytest.mark.parametrize("package", ["mlflow", "wandb"])
def test_a_missing_package_is_one_line_and_nothing_is_written(tmp_path: Path, package: str) -> None:
    if metrics.find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    run = str(next(RUNS.glob("*cb53808dbacd")))
    done = run_command(tmp_path, "export", run, "--tensorboard", "logs", "--trace", "t.json", f"--{package}", "there")
    assert done.returncode == 2
    assert done.stderr == f"sonda: {package} is not installed; install it with: pip install {package}\n"
    assert not [path.name for path in tmp_path.iterdir() if path.name != "store"]


# ---- With the packages ----------------------------------------------------------------------------------------------


def test_mlflow_itself_has_every_number(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    from mlflow.tracking import MlflowClient

    run = track_run(Store(RUNS).one("cnn-epochs"))
    identity = log_to_mlflow(str(tmp_path / "mlruns"), run)
    client = MlflowClient(f"sqlite:///{tmp_path}/mlruns/mlflow.db")
    kept = client.get_run(identity)
    assert kept.info.run_name == run.title
    assert kept.data.params["sonda_run"] == run.id
    for series in run.series:
        points = [(metric.step, metric.value) for metric in client.get_metric_history(identity, series.name)]
        assert sorted(points) == sorted(series.points)
    drawn = {series.name for series in run.series}
    assert {name: kept.data.metrics[name] for name in run.totals if name not in drawn} == {
        name: value for name, value in run.totals.items() if name not in drawn
    }
    with pytest.raises(SondaError, match="in MLflow already"):
        log_to_mlflow(str(tmp_path / "mlruns"), run)


def log_records(data: bytes) -> Iterator[bytes]:
    """Records of a log as LevelDB has it, in blocks of 32 KiB, behind a head of seven bytes; one may span several."""
    at, begun = 7, b""
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        begun += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (FULL, LAST):
            yield begun
            begun = b""


def test_wandb_itself_writes_a_run_that_can_be_synchronised(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    from wandb.proto import wandb_internal_pb2

    run = track_run(Store(RUNS).one("cnn-epochs"))
    folder = log_to_wandb(tmp_path, run)
    (file,) = folder.glob("run-*.wandb")
    rows: list[dict[str, Any]] = []
    for data in log_records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items})
    for series in run.series:
        axis = "epoch" if series.axis == "epoch" else f"{series.axis} step"
        found = [(row[axis], row[series.name]) for row in rows if series.name in row]
        assert found == [(step, pytest.approx(value)) for step, value in series.points]
