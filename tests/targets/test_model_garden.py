"""`tf-models:NAME` without TensorFlow: what it asks for, and what is said where something is missing."""

from __future__ import annotations

import pytest

from sonda.record.errors import SondaError
from sonda.targets.job import Job, check_job
from sonda.workloads.catalogue import describe
from sonda.workloads.model_garden import ModelGarden


def test_an_experiment_is_a_workload_with_options() -> None:
    found = describe("tf-models:resnet_imagenet", {"batch": "2", "image": "64"})
    assert found == ModelGarden(experiment="resnet_imagenet", batch=2, image=64)
    assert found.name == "tf-models:resnet_imagenet"
    assert found.parameters() == {"batch": 2, "image": 64, "length": 128}


def test_no_experiment_is_one_line() -> None:
    with pytest.raises(SondaError, match="tf-models: names no experiment; write tf-models:resnet_imagenet"):
        describe("tf-models:", {})


@pytest.mark.parametrize(("framework", "words"), [("torch", "PyTorch"), ("jax", "JAX"), ("pytensor", "PyTensor")])
def test_another_framework_is_one_line(framework: str, words: str) -> None:
    with pytest.raises(SondaError) as raised:
        check_job(Job(workload="tf-models:bert", framework=framework))
    assert str(raised.value) == f"tf-models:bert is not there in {words}; add --framework tensorflow"


def test_a_missing_package_is_one_line_with_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sonda.workloads.model_garden.find_spec", lambda name: None)
    with pytest.raises(SondaError) as raised:
        check_job(Job(workload="tf-models:bert", framework="tensorflow"))
    said = str(raised.value)
    assert "tf-models-official, which is not installed" in said
    assert "pip install --use-pep517 tf-models-official" in said and "TensorFlow 2.20" in said
    monkeypatch.setattr("sonda.workloads.model_garden.find_spec", lambda name: object())
    assert check_job(Job(workload="tf-models:bert", framework="tensorflow")).workload == "tf-models:bert"
