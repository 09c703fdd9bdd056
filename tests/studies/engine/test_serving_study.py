"""Studies of served models: settings, a training that comes first, its weights, and the figures of the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plain_runs import run_info
from serving_run_cases import MS, evenly, here, synthetic  # noqa: F401
from sonda.analysis.run_summary import summarise
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState, Run, now, write_run
from sonda.record.spans import Spans, Words
from sonda.record.store import Store
from sonda.record.training import WEIGHTS
from sonda.studies.catalogue import load_study
from sonda.studies.engine.plan import configurations
from sonda.studies.engine.serving_point import check_served, measure_served, served_job, traffic_of, training_job
from sonda.studies.figures.registry import parse_figure
from sonda.studies.file.vocabulary import vocabulary_of_sonda
from sonda.targets.job import Job
from sonda.targets.pipeline import RunLabels
from sonda.targets.serving.weights import load_weights, with_weights

torch = pytest.importorskip("torch")


def figure(run: Run, key: str) -> float | str:
    """The value of a column, or why there is none."""
    column = parse_figure(key)
    assert not column.mistake
    assert column.measurable
    value = column.value_of(summarise(run))
    return value.reason if value.value is None else value.value


# ---- figures --------------------------------------------------------------------------------------------------------


def test_figures_of_a_stream_by_hand(tmp_path: Path) -> None:
    """100 queries of 2, 3, …, 101 ms, one after another: 5.15 s, and 30 J."""
    run = synthetic(tmp_path, evenly(np.arange(2, 102) * MS), [ProbeState("energy", "ok")], scenario="single-stream")
    assert figure(run, "latency_ms@50") == pytest.approx(52.0)  # floor(50) lie below it
    assert figure(run, "latency_ms@90") == figure(run, "latency_ms") == pytest.approx(92.0)
    # Three of 100 may be late, so two are left out: the third slowest.
    assert figure(run, "quotable_latency_ms") == pytest.approx(99.0)
    assert figure(run, "mean_latency_ms") == pytest.approx(51.5)
    assert figure(run, "queue_wait_ms") == pytest.approx(1.0)
    assert figure(run, "queries_per_second") == pytest.approx(100 / 5.15)
    assert figure(run, "busy_percent") == pytest.approx(100 * (1 - 0.1 / 5.15))
    assert figure(run, "energy_per_query_J") == pytest.approx(0.3)
    assert figure(run, "queries") == 100
    assert "562 queries more" in str(figure(run, "quotable_latency_ms@99"))
    assert "97.5th percentile is not kept" in str(figure(run, "latency_ms@97.5"))
    assert "no latency bound" in str(figure(run, "bound_held"))
    assert "LoadGen did not" in str(figure(run, "loadgen_latency_ms"))
    assert "run has no steps" in str(figure(run, "step_ms"))


def test_figures_of_a_server_by_hand(tmp_path: Path) -> None:
    """700 queries every 10 ms, of 2 ms each, five of them 30 ms: at the 99th percentile 1 of 662 may be late."""
    latency = np.full(700, 2 * MS)
    latency[100:600:100] = 30 * MS
    arrived = np.arange(700) * 10 * MS
    moments = [arrived, arrived, arrived + latency, np.ones(700)]
    loadgen = {
        "result_validity": "INVALID",
        "result_99.00_percentile_latency_ns": 2_100_000,
        "result_completed_samples_per_sec": 99.5,
    }
    given: dict[str, Any] = {"scenario": "server", "qps": 100.0, "rate": 100.0, "loadgen": loadgen}
    late = synthetic(tmp_path, moments, bound=20 * MS, **given)
    assert figure(late, "late_percent") == pytest.approx(500 / 700)
    assert figure(late, "bound_held") == 0
    assert "not shown to hold" in str(figure(late, "rate_under_bound_per_second"))
    assert figure(late, "loadgen_latency_ms") == pytest.approx(2.1)
    assert "most is no percentile" in str(figure(late, "loadgen_latency_ms@most"))
    assert figure(late, "loadgen_rate_per_second") == 99.5
    assert figure(late, "loadgen_valid") == 0
    held = synthetic(tmp_path, moments, bound=40 * MS, **given)
    assert figure(held, "bound_held") == 1
    assert figure(held, "rate_under_bound_per_second") == figure(held, "arrivals_per_second") == 100


def test_a_run_that_was_not_served_says_so(tmp_path: Path) -> None:
    spans = Spans({"start": np.array([0]), "duration": np.array([1])}, {"kind": Words.of(["run"])})
    run = write_run(tmp_path, run_info(id="ab", created=now(), status="complete", workload={}, target={}), spans)
    assert "was not served" in str(figure(run, "latency_ms"))


# ---- settings -------------------------------------------------------------------------------------------------------

SERVED: dict[str, Any] = {"workload": "mlp", "seed": 0, "on": "cpu/1"}


def test_a_configuration_becomes_traffic_and_a_model() -> None:
    asked = {**SERVED, "scenario": "server", "find-qps": True, "latency_bound": "50ms", "max-batch": 4, "seconds": 2,
             "percentile": 90, "layers": "16-4-2"}  # fmt: skip
    traffic = traffic_of(asked)
    assert (traffic.find, traffic.bound, traffic.max_batch, traffic.percentile) == (True, 50 * MS, 4, 0.9)
    assert traffic.seconds == 2
    job = served_job(asked)
    assert job.options == {"layers": "16-4-2"}
    assert job.on == "cpu/1"
    assert training_job(asked) is None


def test_a_training_has_the_options_that_a_served_model_has_not() -> None:
    asked = {**SERVED, "scenario": "offline", "trained": 2, "trained_on": "cpu", "images": 5, "batch": 4}
    training = training_job(asked)
    assert training is not None
    assert (training.epochs, training.train, training.images, training.on) == (2, True, 5, "cpu")
    assert training.options == {"batch": "4"}
    job = served_job(asked)
    assert (job.epochs, job.train, job.options) == (0, False, {})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scenario": "peak"}, "there is no scenario 'peak'"),
        ({"scenario": "server"}, "needs either --qps or --find-qps"),
        ({"scenario": "offline", "qps": "many"}, "qps cannot be many"),
        ({"scenario": "offline", "queries": 1.5}, "queries cannot be 1.5"),
        ({"scenario": "offline", "seconds": "long"}, "seconds cannot be long; give a number"),
        ({"scenario": "offline", "latency_bound": "soon"}, "latency_bound 'soon' is not a time"),
        ({"scenario": "offline", "batch": 4}, "size of an inference is set by the traffic"),
        ({"scenario": "offline", "trained": 1, "weights": "ab"}, "do not go together"),
        ({"qps": 5}, "qps is for a model that is served"),
        ({"scenario": "offline", "workload": "dlrm", "trained": 1}, "cannot be trained on images"),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SondaError, match=said.replace("(", r"\(")):
        check_served({**SERVED, **changes})
    assert said in vocabulary_of_sonda().configuration({**SERVED, **changes})


def test_the_published_study_is_sound_in_both_sizes() -> None:
    study = load_study("serving")
    for one in (study, study.at_scale("small")):
        found = configurations(one)
        assert {str(point["scenario"]) for point in found} == {"single-stream", "multi-stream", "server", "offline"}
        assert any(point.get("backend") == "loadgen" for point in found)
        for point in found:
            check_served({key: value for key, value in point.items() if key != "variant"})


# ---- weights --------------------------------------------------------------------------------------------------------


def trained_run(store: Store, identity: str, layers: str, broken: bool = False) -> Run:
    """A run that trained an mlp and keeps weights of 0.5."""
    from sonda.workloads.catalogue import describe

    model = describe("mlp", {"layers": layers}).build("torch", False, 0).model
    arrays = {name: np.full_like(tensor.numpy(), 0.5) for name, tensor in model.state_dict().items()}
    path = store.root / f"{identity}.npz"
    store.root.mkdir(parents=True, exist_ok=True)
    if broken:
        path.write_bytes(b"PK no arrays")
    else:
        np.savez(path, **arrays)
    spans = Spans({"start": np.array([0]), "duration": np.array([1])}, {"kind": Words.of(["run"])})
    workload = {"name": "mlp", "layers": layers, "batch": 50, "learning_rate": 0.5, "training": {"weights": WEIGHTS}}
    info = run_info(id=identity, created=now(), status="complete", workload=workload, target={"device": "cpu"})
    return write_run(store.root, info, spans, files={WEIGHTS: path})


def test_a_model_gets_the_weights_of_the_run_that_trained_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    trained_run(store, "ab12ab12ab12ab12", "16-4-2")
    job, path = with_weights(Job(workload="mlp"), "ab12", store)
    assert job.options["layers"] == "16-4-2"
    assert "batch" not in job.options
    from sonda.workloads.catalogue import describe

    model = describe("mlp", job.options).build("torch", False, 0).model
    load_weights(path, model)
    assert all(bool((tensor == 0.5).all()) for tensor in model.state_dict().values())
    assert with_weights(Job(workload="mlp"), path, store)[1] == path
    with pytest.raises(SondaError, match="trained mlp, not cnn"):
        with_weights(Job(workload="cnn"), "ab12", store)
    with pytest.raises(SondaError, match="do not fit"):
        load_weights(path, describe("mlp", {"layers": "16-3-2"}).build("torch", False, 0).model)
    broken = trained_run(store, "cd12ab12ab12ab12", "16-4-2", broken=True)
    with pytest.raises(SondaError, match="do not fit"):
        load_weights(str(broken.directory / WEIGHTS), model)


def test_points_that_share_a_training_train_once(here: Path) -> None:  # noqa: F811
    """`train` is told what to keep it under; the second point finds it there."""
    store = Store(here / "store")
    asked = {**SERVED, "layers": "784-4-2", "trained": 1, "images": 3, "queries": 5}
    trained: list[str] = []

    def train(job: Job, store: Store, place: RunLabels) -> Run:
        assert job.epochs == 1
        trained.append(place.identity)
        return trained_run(store, place.identity, "784-4-2")

    for number, scenario in enumerate(("single-stream", "offline")):
        run = measure_served({**asked, "scenario": scenario}, store, RunLabels(f"{number}" * 16), train)
        assert run.info.status == "complete"
        assert run.info.target.serving.weights.endswith(f"{trained[0]}/{WEIGHTS}")
        assert run.info.workload.parameters["layers"] == "784-4-2"
    assert len(trained) == 1
