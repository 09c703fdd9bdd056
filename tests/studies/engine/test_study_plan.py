"""The plan of a study: points, order, identities."""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path

import pytest

from sonda.record.errors import SondaError
from sonda.studies.engine.plan import configurations, plan_points, study_identity
from sonda.studies.file.study import Published, Study

STUDY = Study(
    "try",
    {"workload": "mlp", "train": True},
    {"on": ("cpu", "cuda:0"), "batch": (64, 128, 256)},
    repeat=3,
    exclude=({"on": "cpu", "batch": [128, 256]},),
    scales={"small": {"batch": [8, 64], "repeat": 1, "image": "64x48"}, "one": {"batch": 64}},
)


def identities(study: Study) -> set[str]:
    return {point.identity for point in plan_points(study)}


def test_axes_are_crossed_without_what_is_excluded() -> None:
    assert configurations(STUDY) == [
        {"seed": 0, "workload": "mlp", "train": True, "on": on, "batch": batch}
        for on, batch in [("cpu", 64), ("cuda:0", 64), ("cuda:0", 128), ("cuda:0", 256)]
    ]


def test_without_axes_there_is_one_configuration() -> None:
    assert configurations(Study("one", {"workload": "mlp"}, {})) == [{"seed": 0, "workload": "mlp"}]


def test_plain_repeats_each_configuration_in_a_row() -> None:
    points = plan_points(dataclasses.replace(STUDY, protocol="plain"))
    assert [point.repetition for point in points] == [1, 2, 3] * 4
    assert [point.configuration for point in points[::3]] == configurations(STUDY)


def test_interleaved_goes_round_and_shuffles_by_the_seed() -> None:
    study = dataclasses.replace(STUDY, repeat=20)
    points = plan_points(study)
    rounds = [points[first : first + 4] for first in range(0, 80, 4)]
    orders = []
    for number, one in enumerate(rounds, start=1):
        assert {point.repetition for point in one} == {number}
        assert all(wanted in [point.configuration for point in one] for wanted in configurations(study))
        orders.append(tuple((point.configuration["on"], point.configuration["batch"]) for point in one))
    assert len(set(orders)) > 1
    assert plan_points(study) == points
    assert [p.configuration["batch"] for p in plan_points(dataclasses.replace(study, seed=1))] != [
        p.configuration["batch"] for p in points
    ]


def test_identities_are_different_and_can_be_ids_of_runs() -> None:
    points = plan_points(STUDY)
    assert len({point.identity for point in points}) == len(points) == 12
    assert all(re.fullmatch("[0-9a-f]{16}", point.identity) for point in points)


def test_an_identity_does_not_change_between_versions_of_sonda() -> None:
    # sha256 of '["one","interleaved",0,{"workload":"mlp"}]' and of the point, computed with the sha256sum program.
    study = Study("one", {"workload": "mlp"}, {})
    assert study_identity(study) == "6c38fab5f541d8c1"
    assert identities(study) == {"f4e821e3643778b6"}


@pytest.mark.parametrize(
    "change",
    [
        {"question": "why?"},
        {"source": "elsewhere"},
        {"published": (Published({"batch": 64}, {"step_ms": 1.0}, "s"),)},
        {"deviations": ("none",)},
        {"metrics": ("step_ms",)},
        {"scales": {}},
    ],
)
def test_prose_and_published_figures_leave_finished_runs_valid(change: dict[str, object]) -> None:
    assert identities(dataclasses.replace(STUDY, **change)) == identities(STUDY)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"workload": {"workload": "cnn", "train": True}},
        {"workload": {"workload": "mlp", "train": False}},
        {"workload": {"workload": "mlp", "train": 1}},
        {"seed": 1},
        {"name": "other"},
        {"protocol": "plain"},
    ],
)
def test_what_determines_the_measurement_makes_new_points(change: dict[str, object]) -> None:
    changed = dataclasses.replace(STUDY, **change)  # type: ignore[arg-type]
    assert not identities(changed) & identities(STUDY)
    assert study_identity(changed) != study_identity(STUDY)


def test_more_values_or_repetitions_keep_what_was_measured() -> None:
    longer = dataclasses.replace(STUDY, axes={**STUDY.axes, "on": ("cuda:1", *STUDY.axes["on"])}, repeat=5)
    assert identities(STUDY) < identities(longer)


def test_a_changed_model_file_makes_new_points(tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    study = Study("own", {}, {"workload": ("mlp", f"{model}:build"), "batch": (1, 2)})
    model.write_text("def build(): ...")
    before = identities(study)
    assert identities(study) == before
    model.write_text("def build(): pass")
    after = identities(study)
    assert len(before & after) == 2  # those of mlp
    assert len(before | after) == 6


def test_a_scale_replaces_axes_and_sets_options() -> None:
    small = STUDY.at_scale("small")
    assert small.repeat == 1
    assert [(c["on"], c["batch"], c["image"]) for c in configurations(small)] == list(
        itertools.product(("cpu", "cuda:0"), (8, 64), ("64x48",))
    )
    assert STUDY.at_scale("one").axes["batch"] == (64,)
    assert identities(STUDY.at_scale("one")) < identities(STUDY), "the same measurements are not made twice"


def test_an_unknown_scale_is_one_line() -> None:
    with pytest.raises(SondaError, match=r"study try has no scale 'smal'; did you mean 'small'\?"):
        STUDY.at_scale("smal")
    with pytest.raises(SondaError, match="study x has no scale 'small'; it has no"):
        Study("x", {}, {}).at_scale("small")
