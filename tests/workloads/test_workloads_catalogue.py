"""Workloads by name: options as text, and every mistake as one line."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonda.record.errors import SondaError
from sonda.workloads.catalogue import describe, workload_names
from sonda.workloads.description import IMAGE, SIZE, widths

BUILT_IN = ["ops", "mlp", "cnn", "resnet18", "resnet34", "resnet50", "lstm", "transformer", "dlrm"]
STRESS = ["stress-cache", "stress-bandwidth", "stress-compute"]


def error(name: str, **options: str) -> str:
    with pytest.raises(SondaError) as caught:
        describe(name, options)
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_built_in_names_are_all_there() -> None:
    assert workload_names()[: len(BUILT_IN)] == BUILT_IN
    for name in BUILT_IN:
        assert describe(name, {}).name == name


def test_describing_imports_no_framework() -> None:
    program = (
        "import sys; from sonda.workloads.catalogue import describe, workload_names\n"
        "for name in workload_names(): describe(name, {}).parameters()\n"
        "print([m for m in ('torch', 'pyarrow', 'numba', 'rich') if m in sys.modules])"
    )
    seen = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert seen.strip() == "[]"


@pytest.mark.parametrize("name", BUILT_IN)
def test_parameters_are_plain_and_describe_the_same_again(name: str) -> None:
    first = describe(name, {})
    parameters = first.parameters()
    assert all(isinstance(value, (int, float, str, bool)) for value in parameters.values())
    assert parameters["batch"] >= 1
    options = {key: str(value) for key, value in parameters.items() if name != "dlrm" or key != "batch"}
    assert describe(name, options) == first


def test_an_image_is_written_width_then_height() -> None:
    workload = describe("resnet34", {"image": "148x112", "channels": "1", "classes": "9", "learning-rate": "0.1"})
    assert workload.parameters() == {
        "batch": 8, "image": "148x112", "channels": 1, "classes": 9, "learning_rate": 0.1,
    }  # fmt: skip
    assert IMAGE.parse("148x112") == (112, 148)
    assert IMAGE.parse("64") == (64, 64)


def test_sizes_in_powers_of_ten_and_of_two() -> None:
    assert SIZE.parse("6MB") == 6_000_000
    assert SIZE.parse("6 MiB") == 6 * 1024 * 1024
    assert SIZE.parse("1.5kB") == 1500
    assert SIZE.parse("100") == 100


@given(st.lists(st.integers(1, 10**7), min_size=2, max_size=9))
def test_widths_read_what_they_show(values: list[int]) -> None:
    kind = widths(2)
    assert kind.parse(kind.show(tuple(values))) == tuple(values)


def test_an_unknown_name_names_its_neighbours() -> None:
    line = error("resnet43")
    assert "no workload 'resnet43'" in line
    assert "resnet34" in line
    assert "known: cnn, dlrm" in error("qqqq")


def test_an_unknown_option_names_its_neighbours() -> None:
    assert "did you mean 'classes'" in error("cnn", clases="3")
    assert "has no option 'depth'" in error("resnet34", depth="18")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cnn", {"batch": "0"}, "batch=0 cannot be read; write a whole number of at least 1"),
        ("cnn", {"batch": "many"}, "batch=many cannot be read"),
        ("cnn", {"image": "3x"}, "image=3x cannot be read; write WIDTHxHEIGHT"),
        ("cnn", {"image": "0x3"}, "image=0x3 cannot be read"),
        ("cnn", {"image": "17x40"}, "nothing is left of an image of 17x40; use 18x18 or more"),
        ("cnn", {"filters": "3-4-5-6"}, "give three"),
        ("mlp", {"layers": "784"}, "layers=784 cannot be read"),
        ("mlp", {"learning_rate": "nan"}, "learning_rate=nan cannot be read"),
        ("mlp", {"learning_rate": "-1"}, "write a number of at least 0"),
        ("ops", {"op": "add,divide"}, "write all, or some of add, dot"),
        ("ops", {"op": "add,add"}, "op=add,add cannot be read"),
        ("ops", {"size": "6 mega"}, "size=6 mega cannot be read"),
        ("ops", {"size": "4"}, "4 bytes are too few for add"),
        ("ops", {"kernel": "2"}, "kernel=2 is even"),
        ("transformer", {"width": "10", "heads": "4"}, "width 10 cannot be shared by 4 heads"),
    ],
)
def test_a_bad_value_is_one_line_with_its_remedy(name: str, options: dict[str, str], message: str) -> None:
    assert message in error(name, **options)


def test_an_option_given_twice_is_refused() -> None:
    with pytest.raises(SondaError, match="given twice"):
        describe("cnn", {"learning-rate": "1", "learning_rate": "2"})


def test_another_framework_is_refused_by_name() -> None:
    with pytest.raises(SondaError, match="mlp cannot be built in 'keras'; use the framework torch"):
        describe("mlp", {}).build("keras", False, 0)


def add_entry_point(monkeypatch: pytest.MonkeyPatch, directory: Path, text: str) -> None:
    (directory / "added_workload.py").write_text(text)
    monkeypatch.syspath_prepend(directory)
    entry = EntryPoint("added", "added_workload:make", "sonda.workloads")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry] if group == entry.group else [])
    monkeypatch.delitem(sys.modules, "added_workload", raising=False)


def test_other_packages_add_workloads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    add_entry_point(monkeypatch, tmp_path, "def make(options):\n    return dict(options)\n")
    assert workload_names() == [*BUILT_IN, *STRESS, "added"]
    assert describe("added", {"a": "b"}) == {"a": "b"}
    assert "did you mean 'added'?" in error("aded")


def test_a_workload_of_another_package_that_fails_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    add_entry_point(monkeypatch, tmp_path, "def make(options):\n    raise KeyError('batch')\n")
    assert "the workload added of added_workload:make fails: KeyError: 'batch'" in error("added")
