"""Study files: what they may say, and every mistake at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from sonda.record.errors import SondaError
from sonda.studies.file.check import Vocabulary
from sonda.studies.file.loader import load_study, published_studies, read_study
from sonda.studies.file.mistakes import StudyMistakes
from sonda.studies.file.study import Study, matches

OPTIONS = {"batch", "image", "train", "epochs", "seed", "framework"}


def _option(workload: str, key: str, value: object) -> str:
    if key not in OPTIONS:
        return f"{workload} has no option {key!r}"
    if key == "batch" and (not isinstance(value, int) or value < 1):
        return f"batch cannot be {value}"
    return ""


def _together(configuration: dict[str, object]) -> str:
    """Fails for images of 1x1 and for wrong options; but a batch of -8 is right as soon as the image is known."""
    for key, value in configuration.items():
        problem = "" if key in ("workload", "on") else _option(str(configuration["workload"]), key, value)
        if problem and not (key == "batch" and value == -8 and "image" in configuration):
            return problem
    return "images of 1x1 are too small for mlp" if configuration.get("image") == "1x1" else ""


WORDS = Vocabulary(
    workload=lambda name: "" if name in ("resnet34", "mlp") else f"there is no workload {name!r}",
    option=_option,
    configuration=_together,
    target=lambda spec: "" if spec.startswith(("cpu", "cuda:", "ddp=")) else f"{spec!r} is not a target",
)

GOOD = """\
[study]
name = "resnet34-parallel"
question = "Does training on several devices pay, in time and in energy?"
repeat = 10
protocol = "interleaved"        # or plain
[workload]
name = "resnet34"
train = true
[axes]                          # crossed
on = ["cpu", "cuda:0", "ddp=cuda:0", "ddp=cuda:0+cuda:1"]
batch = [64, 128]
[[exclude]]
on = "cpu"
batch = 64
[scale.small]                   # --scale small
image = "64x48"
epochs = 3
[[published]]
where = { on = "cuda:0", batch = 128 }
energy_J = 1.17e6
source = "table 4.2"
"""


def read(text: str) -> Study:
    return read_study(text, "study.toml", WORDS)


def mistakes(text: str) -> list[tuple[int, str, str]]:
    with pytest.raises(StudyMistakes) as caught:
        read(text)
    return [(one.line, one.key, one.text) for one in caught.value.mistakes]


def test_a_study_file_is_read_whole() -> None:
    study = read(GOOD)
    assert study.name == "resnet34-parallel"
    assert study.repeat == 10
    assert study.protocol == "interleaved"
    assert study.workload == {"workload": "resnet34", "train": True}
    assert study.axes == {"on": ("cpu", "cuda:0", "ddp=cuda:0", "ddp=cuda:0+cuda:1"), "batch": (64, 128)}
    assert study.exclude == ({"on": "cpu", "batch": 64},)
    assert study.scales == {"small": {"image": "64x48", "epochs": 3}}
    (row,) = study.published
    assert (row.where, row.figures, row.source) == ({"on": "cuda:0", "batch": 128}, {"energy_J": 1.17e6}, "table 4.2")


def test_every_mistake_is_listed_at_once_with_key_and_line() -> None:
    text = """\
[study]
nane = "x"
repeat = 0
protocol = "plane"
metrics = ["step_ms", "speed", "step_J", "step_ms"]
[workload]
name = "resnet43"
seed = 3
batch = 8
[axes]
on = ["cpu", "tpu:0"]
batch = [64, 128, 64, inf]
image = []
train = true
[[exclude]]
on = "cpu"
batch = 63
[[exclude]]
bach = 64
[scale]
tiny = 3
[scale.small]
repeat = 2.5
batch = [0]
[[published]]
where = { bach = 64 }
step_ms = -1
[[published]]
source = "s"
where = { batch = 128 }
hardwear = "K40"
energy_J = true
[[published]]
source = "s"
where = {}
[publishd]
"""
    assert mistakes(text) == [
        (1, "study.name", "is missing"),
        (2, "study.nane", "unknown key; did you mean 'name'?"),
        (3, "study.repeat", "must be between 1 and 10000, not 0"),
        (4, "study.protocol", "'plane' is not a protocol; did you mean 'plain'?"),
        (5, "study.metrics[1]", "'speed' is not a metric; did you mean 'speedup'?"),
        (5, "study.metrics[2]", "step is kept in ns, which J is not"),
        (5, "study.metrics[3]", "'step_ms' is there twice"),
        (7, "workload.name", "there is no workload 'resnet43'"),
        (8, "workload.seed", "belongs to [study], or is an axis"),
        (9, "workload.batch", "is an axis too; remove it here or from [axes] (batch)"),
        (11, "axes.on[1]", "'tpu:0' is not a target"),
        (12, "axes.batch[2]", "64 is there twice"),
        (12, "axes.batch[3]", "must be a finite number, not inf"),
        (13, "axes.image", "must not be empty"),
        (14, "axes.train", "must be a list of values, not true"),
        (17, "exclude[0].batch", "excludes nothing: the axis has no 63"),
        (19, "exclude[1].bach", "is not an axis; did you mean 'batch'?"),
        (21, "scale.tiny", "must be a table [scale.NAME], not a whole number"),
        (23, "scale.small.repeat", "must be a whole number, not a number"),
        (25, "published[0].source", "is missing; say where the figures were printed"),
        (26, "published[0].where.bach", "is not an axis; did you mean 'batch'?"),
        (27, "published[0].step_ms", "must be above 0, not -1"),
        (31, "published[1].hardwear", "unknown key; did you mean 'hardware'?"),
        (32, "published[1].energy_J", "must be a number, not true"),
        (33, "published[2]", "has no figure; add one with its unit, such as step_ms = 6.1"),
        (35, "published[2].where", "matches nothing; name an axis and its value"),
        (36, "publishd", "unknown key; did you mean 'published'?"),
    ]


def test_the_message_has_one_line_for_each_mistake() -> None:
    with pytest.raises(StudyMistakes) as caught:
        read(GOOD.replace("repeat = 10", "repeat = 0").replace("batch = 64", "batch = 63"))
    assert str(caught.value).splitlines() == [
        "study.toml:4: study.repeat: must be between 1 and 10000, not 0",
        "study.toml:14: exclude[0].batch: excludes nothing: the axis has no 63",
    ]
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "text"),
    [
        ("batch = [64, 128]", "bach = [64, 128]", 11, "axes.bach", "resnet34 has no option 'bach'"),
        ("batch = [64, 128]", "batch = [64, 128, -1]", 11, "axes.batch[2]", "batch cannot be -1"),
        ("train = true", "trian = true", 8, "workload.trian", "resnet34 has no option 'trian'"),
        ("epochs = 3", "epoch = 3", 17, "scale.small.epoch", "resnet34 has no option 'epoch'"),
        ("epochs = 3", "batch = [0]", 17, "scale.small.batch[0]", "batch cannot be 0"),
        ("epochs = 3", 'name = "mlp"', 17, "scale.small.name", "cannot be changed by a scale unless it is an axis"),
        ("epochs = 3", 'on = "cpu"\nbatch = 64', 15, "scale.small", "leaves no point: everything is excluded"),
        ("batch = 128 }", "batch = 32 }", 19, "published[0].where", "matches no point of the study"),
        ('on = "cuda:0", batch = 128 }', 'on = "cpu", batch = 64 }', 19, "published[0].where",
         "matches no point of the study"),
        ("energy_J = 1.17e6", "energy_J = nan", 20, "published[0].energy_J", "must be a finite number, not nan"),
        ("energy_J = 1.17e6", "step_J = 1", 20, "published[0].step_J", "step is kept in ns, which J is not"),
        ('[workload]\nname = "resnet34"', "[workload]", 6, "workload.name",
         "is missing; name a workload here, or several as the axis 'workload'"),
        ("[scale.small]", "[[exclude]]\nbatch = 64\non = 'cpu'\n[scale.small]", 15, "exclude[1]", "is there twice"),
        ('"resnet34-parallel"', '"../x"', 2, "study.name",
         "'../x' cannot be a name; use letters, digits, '.', '_' and '-'"),
        ("repeat = 10", "repeat = 1979-05-27", 4, "study.repeat", "must be a whole number, not a date or time"),
        ("repeat = 10", "repeat = true", 4, "study.repeat", "must be a whole number, not true"),
        ("repeat = 10", "seed = -1", 4, "study.seed", f"must be between 0 and {2**63 - 1}, not -1"),
        ("batch = [64, 128]", f"batch = [{', '.join(map(str, range(64, 3064)))}]", 9, "axes",
         "makes 120000 points, more than 100000; leave out values or repetitions"),
    ],
)  # fmt: skip
def test_one_mistake_is_one_mistake(old: str, new: str, line: int, key: str, text: str) -> None:
    broken = GOOD.replace(old, new, 1)
    assert broken != GOOD
    found = mistakes(broken)
    assert (line, key, text) in found
    consequences = {"exclude[0].batch", "published[0].where.batch"} if "bach" in new else set()
    assert {one[1] for one in found} - consequences == {key}


def test_options_that_do_not_fit_together_are_a_mistake_of_the_axes() -> None:
    assert mistakes(GOOD.replace("train = true", 'image = "1x1"').replace('image = "64x48"', "")) == [
        (9, "axes", "images of 1x1 are too small for mlp"),
        (15, "scale.small", "images of 1x1 are too small for mlp"),
    ]


def test_a_value_that_needs_another_option_is_right_in_its_company() -> None:
    alone = GOOD.replace("batch = [64, 128]", "batch = [64, 128, -8]").replace('image = "64x48"', "")
    assert mistakes(alone) == [(11, "axes.batch[2]", "batch cannot be -8")]
    assert read(alone.replace("train = true", 'image = "9x9"')).axes["batch"] == (64, 128, -8)


def test_a_figure_published_twice_for_the_same_place_and_hardware_is_a_mistake() -> None:
    row = '[[published]]\nwhere = { batch = 128, on = "cuda:0" }\nenergy_J = 2\nsource = "s"\n'
    assert mistakes(GOOD + row) == [
        (24, "published[1].energy_J", "is there twice: published[0] has it for the same 'where' and 'hardware'")
    ]
    assert len(read(GOOD + row + 'hardware = "K40"\n').published) == 2


def test_a_scale_that_only_repeats_too_often_is_a_mistake_of_its_own() -> None:
    batches = f"batch = [{', '.join(map(str, range(64, 83)))}, 128]"
    often = GOOD.replace("batch = [64, 128]", batches).replace("epochs = 3", "epochs = 3\nrepeat = 9000")
    text = "makes 720000 points, more than 100000; leave out values or repetitions"
    assert mistakes(often) == [(15, "scale.small", text)]


def test_rows_take_the_source_of_the_study() -> None:
    text = GOOD.replace("repeat = 10", 'source = "A. Author: Title"')
    assert read(text).published[0].source == "A. Author: Title, table 4.2"
    assert read(text.replace('source = "table 4.2"', "")).published[0].source == "A. Author: Title"


def test_what_is_not_toml_is_said_with_its_line() -> None:
    with pytest.raises(SondaError, match=r"study.toml is not TOML: .*line 2, column 6") as caught:
        read("[study]\nname 3\n")
    assert "\n" not in str(caught.value)


def test_deep_nesting_is_one_line() -> None:
    with pytest.raises(SondaError, match="nested too deeply"):
        read("a = " + "[" * 100_000)


def test_a_study_is_found_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    assert load_study(str(path), WORDS).name == "resnet34-parallel"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.toml", None, "cannot read the study .*none.toml: No such file"),
        ("bytes.toml", b"name = '\xff'", "is not UTF-8 text .byte 8."),
        ("folder.toml", "directory", "cannot read the study .*folder.toml: Is a directory"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, name: str, content: object, message: str) -> None:
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "directory":
        path.mkdir()
    with pytest.raises(SondaError, match=message) as caught:
        load_study(str(path), WORDS)
    assert "\n" not in str(caught.value)


def test_an_unknown_name_offers_the_nearest() -> None:
    assert "six-operations" in published_studies()
    with pytest.raises(SondaError, match=r"there is no study 'six-operation'; did you mean 'six-operations'\?"):
        load_study("six-operation", WORDS)


def test_true_is_not_one() -> None:
    assert matches({"batch": 2}, {"batch": 2.0})
    assert not matches({"train": 1}, {"train": True})
    assert matches({"op": ["add", "mul"]}, {"op": "mul", "size": 3})
    assert not matches({"op": ["add", "mul"]}, {"op": "dot"})
    assert not matches({"op": "add"}, {})
