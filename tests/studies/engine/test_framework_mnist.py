"""The study of one perceptron in four frameworks: only the framework differs, and it may be given MNIST's files."""

from __future__ import annotations

from typing import Any

import pytest

from sonda.record.errors import SondaError
from sonda.studies.catalogue import load_plan
from sonda.studies.engine.plan import plan_points
from sonda.studies.file.loader import load_study
from sonda.studies.file.study import Study

NAME = "framework-mnist"


def test_frameworks_differ_in_nothing_but_the_framework() -> None:
    points = [dict(point.configuration) for point in plan_points(load_study(NAME).at_scale("processor"))]
    assert {point.pop("framework", "torch") for point in points} == {"torch", "tensorflow", "jax", "pytensor"}
    for point in points:
        point.pop("variant")
    assert len(points) == 4 and all(point == points[0] for point in points)
    assert (points[0]["layers"], points[0]["epochs"], points[0]["batch"]) == ("784-192-10", 8, 50)


def test_published_figures_stand_beside_the_programs_they_are_of() -> None:
    printed = {row.where["variant"]: (row.figures["accuracy_percent"], row.figures["whole_s"])
               for row in load_study(NAME).published}  # fmt: skip
    assert printed == {
        "TensorFlow, CPU": (95, 9.4), "TensorFlow, GPU": (96, 6.13),
        "PyTorch, CPU": (90, 14), "PyTorch, GPU": (90, 19.5),
    }  # fmt: skip


def test_other_images_are_for_every_point_and_make_them_other_points() -> None:
    own, given = (load_plan(NAME, "small", None, data=data) for data in ("", "digits"))
    assert all("data" not in run for run in own["runs"]) and {run["data"] for run in given["runs"]} == {"digits"}
    assert not {run["identity"] for run in own["runs"]} & {run["identity"] for run in given["runs"]}


@pytest.mark.parametrize("framework", ["tensorflow", "pytorch", "jax"])
def test_a_study_that_reads_images_without_epochs_takes_others(framework: str) -> None:
    own, given = (load_plan(f"{framework}-optimisations", "small", None, data=data) for data in ("", "cifar"))
    assert {run["data"] for run in own["runs"]} == {"cifar10-like"} and {run["data"] for run in given["runs"]} == {
        "cifar"
    }
    assert not {run["identity"] for run in own["runs"]} & {run["identity"] for run in given["runs"]}


def test_a_study_without_images_has_no_use_for_others() -> None:
    with pytest.raises(SondaError, match="study six-operations reads no images; leave out --data"):
        load_plan("six-operations", "small", None, data="digits")


@pytest.mark.parametrize("where", [{"axes": {"epochs": (1, 2)}}, {"axes": {}, "variants": {"long": {"epochs": 9}}}])
def test_images_are_read_wherever_epochs_are_said(where: dict[str, Any]) -> None:
    assert Study("s", {"workload": "resnet18"}, **where).with_data("digits").workload["data"] == "digits"
