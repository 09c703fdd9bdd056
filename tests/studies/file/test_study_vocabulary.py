"""What Sonda itself says about the words of a study, and how a point becomes a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from sonda.record.errors import SondaError
from sonda.record.store import Store
from sonda.studies.engine.measurement import measuring
from sonda.studies.engine.plan import plan_points
from sonda.studies.file.loader import read_study
from sonda.studies.file.mistakes import StudyMistakes
from sonda.studies.file.study import Study
from sonda.studies.file.vocabulary import vocabulary_of_sonda
from sonda.targets.job import Job, make_job

WORDS = vocabulary_of_sonda()


@pytest.mark.parametrize("name", ["mlp", "resnet34", "ops", "dlrm"])
def test_built_in_workloads_are_known(name: str) -> None:
    assert WORDS.workload(name) == ""


def test_unknown_words_come_with_the_nearest_known() -> None:
    assert "resnet34" in WORDS.workload("resnet43")
    assert "did you mean 'batch'?" in WORDS.option("resnet34", "bach", 8)
    assert WORDS.option("resnet34", "trian", True) == "resnet34 has no option 'trian'; did you mean 'train'?"
    assert "did you mean '5-1M-20-100'?" in WORDS.option("dlrm", "preset", "5-1M-20-10")


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("batch", 8, 0),
        ("batch", "8", "eight"),
        ("image", "148x112", "148by112"),
        ("train", True, 1),
        ("steps", 5, 0),
        ("steps", 5, "5"),
        ("threads", 2, -1),
        ("precision", "bf16", "f8"),
        ("framework", "torch", "caffe"),
    ],
)
def test_values_are_checked(key: str, good: str | int, bad: str | int) -> None:
    assert WORDS.option("resnet34", key, good) == ""
    problem = WORDS.option("resnet34", key, bad)
    assert str(bad).lower() in problem.lower()
    assert "\n" not in problem


def test_targets_are_checked_as_they_are_written() -> None:
    for good in ("cpu", "cpu/8", "cuda:0", "ddp=cpu/1+cpu/1", "localsgd=cuda:0+cpu@h=8"):
        assert WORDS.target(good) == ""
    for bad in ("tpu:0", "cpu+cpu", "cpu/0", "dpp=cpu"):
        assert bad in WORDS.target(bad)


def test_a_whole_configuration_is_checked() -> None:
    # 512 x 512 float32 fill 1 MiB: nothing is left for the other two matrices.
    study = '[study]\nname = "x"\n[workload]\nname = "ops"\ninner = 512\n[axes]\nop = ["add", "dot"]\nsize = ["1MiB"]\n'
    with pytest.raises(StudyMistakes) as caught:
        read_study(study, "x.toml", WORDS)
    (mistake,) = caught.value.mistakes
    assert (mistake.line, mistake.key) == (6, "axes")
    assert "too few for dot" in mistake.text
    assert read_study(study.replace("1MiB", "2MiB"), "x.toml", WORDS).axes["size"] == ("2MiB",)


def test_a_size_that_suits_the_operations_asked_for_is_right() -> None:
    # By itself 1 kB is too small for the operations that `ops` would run if it were not told which.
    assert WORDS.option("ops", "size", "1kB") != ""
    study = '[study]\nname = "x"\n[workload]\nname = "ops"\n[axes]\nop = ["add", "tanh"]\nsize = ["1kB"]\n'
    assert read_study(study, "x.toml", WORDS).axes["size"] == ("1kB",)


def test_a_configuration_becomes_a_job() -> None:
    job = make_job({"workload": "resnet34", "on": "cpu/2", "train": True, "seed": 3, "steps": 5, "precision": "bf16",
                  "channels-last": True, "batch": 8, "image": "64x48"})  # fmt: skip
    assert job == Job(
        workload="resnet34",
        options={"batch": "8", "image": "64x48"},
        on="cpu/2",
        train=True,
        seed=3,
        steps=5,
        precision="bfloat16",
        channels_last=True,
    )


def test_switches_of_a_workload_are_written_as_on_the_command_line() -> None:
    assert make_job({"workload": "x", "flag": True, "rate": 0.5}).options == {"flag": "true", "rate": "0.5"}


def test_a_value_that_no_job_can_have_is_one_line() -> None:
    with pytest.raises(SondaError, match=r"^steps cannot be many; expected int \| null, got str$"):
        make_job({"workload": "mlp", "steps": "many"})


def test_a_point_is_measured_under_its_own_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr("sonda.targets.local.launcher.measure_local", lambda *arguments: seen.append(arguments))
    store = Store(tmp_path)
    first, second = plan_points(Study("try", {"workload": "mlp", "on": "cpu"}, {}, repeat=2))
    for point in (first, second):
        measuring(store)(point)
    (job, where, place, _), (_, _, other, _) = seen
    assert (job.workload, job.on, where) == ("mlp", "cpu", store)
    assert (place.identity, place.study) == (first.identity, "try")
    assert place.point == {"seed": 0, "workload": "mlp", "on": "cpu", "repetition": 1}
    assert place.group == other.group, "repetitions of a configuration share a group"
    assert place.identity != other.identity
