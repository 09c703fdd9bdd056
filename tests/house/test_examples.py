"""The examples: every command that their READMEs show is run, in a copy of their directory, and looked at."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from command_line import Done, run_command
from docs_commands import lacks_test
from installed_parts import importable, lay_down
from places import REPOSITORY, TESTS
from sonda.record.store import Store

EXAMPLES = REPOSITORY / "examples"
SHOWN = re.compile(r"^\$ (sonda .*?)(?:\s+# ends with (\d+))?$", re.MULTILINE)
NUMBERED = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir() and not path.name.startswith((".", "__")))


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """One store for all: what the machine can do is measured once."""
    return tmp_path_factory.mktemp("examples") / "store"


def follow(name: str, tmp_path: Path, home: Path) -> tuple[Path, list[Done]]:
    """Do what an example's README shows, in a copy of its directory; every command ends as it says."""
    place = tmp_path / name
    shutil.copytree(EXAMPLES / name, place)
    shown = SHOWN.findall((place / "README.md").read_text())
    assert shown, f"{name}/README.md shows no command"
    done = []
    with pytest.MonkeyPatch.context() as patch:
        # `python` in a command is the one that runs the tests; there may be no such name beside it.
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
        for line, ends in shown:
            words = [sys.executable if word == "python" else word for word in shlex.split(line)[1:]]
            done.append(run_command(place, *words, home=home))
            assert done[-1].returncode == int(ends or 0), (line, done[-1].stderr)
    return place, done


def test_examples_are_numbered_without_gaps_and_listed():
    assert [name[:2] for name in NUMBERED] == [f"{number:02d}" for number in range(1, len(NUMBERED) + 1)]
    listing = (EXAMPLES / "README.md").read_text()
    assert [name for name in NUMBERED if f"({name}/" not in listing] == []


@pytest.mark.parametrize("name", [name for name in NUMBERED if (EXAMPLES / name / "README.md").exists()])
def test_what_a_readme_shows_is_typed_in_its_directory(name):
    """Every line of a block is one that `follow` runs, or installs what lies there."""
    text = (EXAMPLES / name / "README.md").read_text()
    lines = [
        line
        for block in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
    ]
    assert lines
    for line in lines:
        if line.startswith("$ pip install "):
            assert (EXAMPLES / name / shlex.split(line)[3] / "pyproject.toml").exists(), line
        else:
            assert SHOWN.fullmatch(line), line


@pytest.mark.slow
def test_01_a_script_is_observed_and_stays_as_it_is(tmp_path, home):
    place, (observed, shown, _) = follow("01_observe_a_script", tmp_path, home)
    assert all(word in observed.stderr for word in ("a step", "forward", "backward", "tables: sonda show"))
    assert all(word in shown.stdout for word in ("data", "optimizer", "Conv2d", "layer (3 of 4)"))
    assert (place / "page.html").read_text().lower().startswith("<!doctype html>")


@pytest.mark.slow
def test_02_a_model_of_ones_own_is_run_with_its_options(tmp_path, home):
    _, (training, wider) = follow("02_own_model", tmp_path, home)
    assert "backward" in training.stdout and "backward" not in wider.stdout
    run = Store(home).one("last")
    assert run.info.workload.parameters["option_width"] == "32"


@pytest.mark.slow
def test_03_targets_are_columns_of_one_table(tmp_path, home):
    _, (both,) = follow("03_several_targets", tmp_path, home)
    assert "cpu/1" in both.stdout and "sim:maeri-256" in both.stdout and "cycles" in both.stdout


def test_04_an_accelerator_of_ones_own_is_simulated(tmp_path, home):
    _, done = follow("04_simulated_accelerator", tmp_path, home)
    assert all("cycles" in one.stdout for one in done)
    runs = [run.spans for run in reversed(list(Store(home).runs(3)))]
    slow, fast, best = (spans.metric("cycles", "simulated")[spans.where(kind="step")].item() for spans in runs)
    # Memory that brings more bytes a cycle makes nothing slower; a search begins with the rule's own mapping.
    assert fast <= slow and best <= slow


def test_05_points_are_listed_and_written(tmp_path, home):
    place, (first, _) = follow("05_explore", tmp_path, home)
    with (place / "points.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5 * 3 and "15 points" in first.stdout  # 64, 128, 256, 512, 1024 by three


@pytest.mark.slow
def test_06_a_slower_head_fails_the_guard(tmp_path, home):
    _, (_, _, told, guarded) = follow("06_compare_and_guard", tmp_path, home)
    assert "slower" in told.stdout and "slower" in guarded.stdout


def test_08_energy_is_told_by_region(tmp_path, home):
    _, (measured, shown) = follow("08_energy_of_a_command", tmp_path, home)
    for text in (measured.stderr, shown.stdout):
        assert "small" in text and "large" in text and "estimated" in text


def test_09_a_study_of_ones_own_is_planned_carried_out_and_shown(tmp_path, home):
    place, (plan, table, shown) = follow("09_own_study", tmp_path, home)
    assert "6 runs, simulated" in plan.stdout
    assert "tpu-128x128" in table.stdout and table.stdout == shown.stdout
    assert "Cycles: " in table.stdout and "none of 6" not in table.stdout, "what is asked for is answered"
    assert (place / "study.html").exists()


def test_10_a_trace_of_another_tool_is_read(tmp_path, home):
    place, (imported, *_) = follow("10_import_a_trace", tmp_path, home)
    assert "gemm" in imported.stdout and "3 steps" in imported.stdout
    import gzip

    events = json.loads(gzip.decompress((place / "again.json.gz").read_bytes()))["traceEvents"]
    assert {event.get("name") for event in events} >= {"aten::addmm"}


@pytest.mark.slow
def test_11_parts_of_ones_own_are_used(tmp_path, home):
    with importable(lay_down(EXAMPLES / "11_own_parts", tmp_path / "installed")):
        _, (trained, simulated) = follow("11_own_parts", tmp_path, home)
    assert "machine: load" in trained.stdout and "backward" in trained.stdout
    assert "sim:ideal-256" in simulated.stdout and "sim:small-mesh" in simulated.stdout


@pytest.mark.parametrize(
    ("name", "module", "tests"),
    [
        ("07_notebook", "test_notebook", ("test_a_run_shows_itself", "test_its_roofline_is_a_drawing")),
        ("11_own_parts", "test_extending", ("test_the_own_workload_has_the_table_of_any_other",)),
    ],
)
def test_07_and_11_are_tried_elsewhere(name, module, tests):
    """By tests that are there, of the directory that is meant."""
    assert [lacks_test(f"{module}.py::{test}") for test in tests] == [""] * len(tests)
    (file,) = TESTS.rglob(f"{module}.py")
    source = file.read_text()
    assert f'"examples" / "{name}"' in source
