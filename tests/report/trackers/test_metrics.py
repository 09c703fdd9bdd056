"""What trackers are given of a run: the numbers that its document has, under names that group."""

from __future__ import annotations

import json
import math

import pytest

from answers import ANSWERS, RUNS
from builders import stepped, trained
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.report.trackers.metrics import TrackedRun, track_run


def corpus_run(name: str) -> Run:
    return Store(RUNS).one(name)


def series_of(tracked: TrackedRun) -> dict[str, tuple[tuple[int, float], ...]]:
    return {series.name: series.points for series in tracked.series}


def test_medians_are_in_ms_by_phase_and_layer() -> None:
    totals = track_run(trained()).totals
    assert (totals["train/step ms"], totals["train/forward ms"], totals["train/backward ms"]) == (120, 40, 60)
    assert totals["train layers/conv ms"] == 60
    assert totals["train/samples per second"] == pytest.approx(16 / 0.12)


def test_steps_keep_their_places_and_warm_up_is_left_out() -> None:
    """The first step is ten times as long as the others, which are alike: it is found to be warm-up."""
    points = series_of(track_run(stepped([1000, *[100.0] * 11])))["train/step ms"]
    assert points == tuple((at, 100.0) for at in range(1, 12))


def test_phases_are_there_step_by_step() -> None:
    series = series_of(track_run(stepped([100.0, 110.0, 90.0])))
    assert series["train/forward ms"] == ((0, 50.0), (1, 55.0), (2, 45.0))


def test_epochs_have_their_losses_accuracy_and_times() -> None:
    document = json.loads((ANSWERS / "cnn-epochs" / "document.json").read_text(encoding="utf-8"))["training"]
    series = series_of(track_run(corpus_run("cnn-epochs")))
    for name, key in (("training loss", "train_loss"), ("validation loss", "validate_loss"), ("accuracy", "accuracy")):
        expected = [(epoch["epoch"], epoch[key]["value"]) for epoch in document["epochs"]]
        assert series[f"epoch/{name}"] == tuple((number, pytest.approx(value)) for number, value in expected)
    seconds = [epoch["train"]["value"] / 1e9 for epoch in document["epochs"]]
    assert [value for _, value in series["epoch/training s"]] == pytest.approx(seconds)
    assert track_run(corpus_run("cnn-epochs")).totals["test/accuracy"] == document["test_accuracy"]["value"]


def test_a_simulated_run_has_cycles() -> None:
    document = json.loads((ANSWERS / "sim-tpu" / "document.json").read_text(encoding="utf-8"))
    totals = track_run(corpus_run("sim-tpu")).totals
    (part,) = document["parts"]
    assert totals[f"{part['name']}/cycles"] == part["metrics"]["cycles:simulated"]["value"]
    assert not any(name.endswith(" ms") for name in totals)


@pytest.mark.parametrize("name", ["cnn-epochs", "program-train", "gpu-resnet18", "sim-hybrid", "jax-cnn", "ranks-ddp"])
def test_every_number_is_one_and_every_step_a_whole_number(name: str) -> None:
    tracked = track_run(corpus_run(name))
    assert tracked.totals
    assert all(math.isfinite(value) for value in tracked.totals.values())
    for series in tracked.series:
        steps = [step for step, _ in series.points]
        assert steps == sorted(set(steps))
        assert all(math.isfinite(value) for _, value in series.points)
    assert all(isinstance(value, str | int | float | bool) for value in tracked.settings.values())


def test_the_explanation_and_the_verdict_go_with_it() -> None:
    tracked = track_run(corpus_run("program-waiting"))
    assert tracked.text.startswith("waiting.py, train")
    assert "Try: read in workers" in tracked.text
    assert tracked.settings["command"] == "waiting.py"
    assert tracked.settings["sonda_run"] == tracked.id


@pytest.mark.parametrize("name", ["corun-two", "energy-command", "serving-rate", "explored", "import-kineto"])
def test_of_a_run_without_steps_settings_and_explanation_are_there(name: str) -> None:
    tracked = track_run(corpus_run(name))
    document = json.loads((ANSWERS / name / "document.json").read_text(encoding="utf-8"))
    sentence = document.get("sentence") or document["verdicts"][0]["sentence"]
    assert "".join(sentence.split()) in "".join(tracked.text.split())
    assert (tracked.totals, tracked.series) == ({}, ())
    assert tracked.settings["sonda_run"] == tracked.id
