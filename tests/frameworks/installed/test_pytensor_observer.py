"""Unmodified PyTensor programs: what is seen of them, and that nothing about them changes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns as now

import numpy as np
import pytest

from places import TESTS
from sonda.frameworks import INJECT
from sonda.frameworks.reconstruction.assembly import Assembly, assemble

pytest.importorskip("pytensor")
PROGRAM = (TESTS / "programs") / "pytensor_loop.py"
sys.path.insert(0, str(PROGRAM.parent.parent))
from observed import check_structure, seen  # noqa: E402


@dataclass
class Ran:
    output: str
    assembly: Assembly


def run(place: Path, compiled: Path, *arguments: str, observe: bool = True) -> Ran:
    place.mkdir()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTENSOR_FLAGS": f"base_compiledir={compiled}"}
    if observe:
        settings = {"directory": str(place), "count": True}
        environment |= {"PYTHONPATH": str(INJECT), "SONDA_COLLECT": json.dumps(settings)}
    begin = now()
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [path.read_text() for path in place.glob("*.failure")] == []
    return Ran(done.stdout, assemble(place, begin, now()))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What PyTensor compiles for one process is there for the next."""
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory, compiled: Path) -> str:
    return run(tmp_path_factory.mktemp("bare") / "run", compiled, "FAST_COMPILE", observe=False).output


@pytest.fixture(scope="module")
def stepwise(tmp_path_factory: pytest.TempPathFactory, compiled: Path) -> Ran:
    return run(tmp_path_factory.mktemp("stepwise") / "run", compiled, "FAST_COMPILE")


@pytest.fixture(scope="module")
def in_one(tmp_path_factory: pytest.TempPathFactory, compiled: Path) -> Ran:
    return run(tmp_path_factory.mktemp("in-one") / "run", compiled, "NUMBA", "short")


def test_the_program_computes_what_it_computes_alone(bare: str, stepwise: Ran) -> None:
    assert stepwise.output == bare and bare.startswith("refused")


def test_calls_are_steps_of_training_validation_and_test(stepwise: Ran) -> None:
    """Two epochs of five training and two test calls; drawing a number changes no weights, so it is no training."""
    spans = stepwise.assembly.spans
    found = seen(spans)
    assert found.parts == [("train", 5), ("validate", 2)] * 2 + [("test", 1)]
    assert found.phases == {"fused": 10, "forward": 5}
    check_structure(spans)


def test_compilations_have_spans_apart_from_the_steps(stepwise: Ran) -> None:
    spans = stepwise.assembly.spans
    rows = np.flatnonzero(spans.where(kind="compile"))
    names, parent = spans.words("name").decoded(), spans.number("parent")
    assert [names[row] for row in rows] == ["test", "train", "pytensor.function"]
    assert {int(parent[row]) for row in rows} == {0} and spans.number("duration")[rows].min() > 1e6


def test_operations_have_times_where_the_linker_runs_them_one_by_one(stepwise: Ran) -> None:
    """`test` is a transposition-free product, a sum and a sigmoid, and the bias made a row."""
    spans = stepwise.assembly.spans
    path, name, parent = (spans.words("path").decoded(), spans.words("name").decoded(), spans.number("parent"))
    duration = spans.number("duration")
    layers = np.flatnonzero(spans.where(kind="layer"))
    inner = [row for row in layers if path[row].startswith("test.")]
    assert {name[row] for row in inner} >= {"Sigmoid", "Add"}
    assert any(name[row].startswith(("Dot", "Gemm")) for row in inner)
    calls = [row for row in layers if path[row] in ("test", "train")]
    ran = [row for row in calls if (parent == row).any()]
    assert len(calls) == 15 and len(ran) == 14  # the call that was refused ran nothing
    for row in ran:
        assert (parent == row).sum() > 2 and duration[parent == row].sum() <= duration[row]
    assert [path[row] for row in inner].count("test.0") == 4
    assert any("linker of 15 steps was vm" in note for note in stepwise.assembly.notes)


def test_numba_compiles_in_the_first_call_and_that_is_no_part_of_a_step(in_one: Ran) -> None:
    spans = in_one.assembly.spans
    assert seen(spans).parts == [("test", 4)]
    start, duration = spans.number("start"), spans.number("duration")
    compiled = spans.where(kind="compile", name="test: Numba")
    assert duration[compiled].sum() > 0
    assert (start + duration)[compiled].max() <= start[spans.where(kind="step")].min()
    assert any("was numba: one piece of code" in note for note in in_one.assembly.notes)
    assert not [one for one in spans.words("path").decoded() if one.startswith("test.")]


def test_a_first_call_that_loads_code_from_disk_is_in_no_figure(tmp_path: Path, compiled: Path, in_one: Ran) -> None:
    """What an earlier process compiled is loaded in the first call, and nobody says for how long."""
    again = run(tmp_path / "run", compiled, "NUMBA", "short")
    spans = again.assembly.spans
    assert "test: Numba" not in spans.words("name").decoded()
    steps = np.flatnonzero(spans.where(kind="step"))
    assert [spans.words("pass").decoded()[row] for row in steps] == ["warmup", "timed", "timed", "timed"]
    assert seen(spans).parts == [("test", 4)]
    check_structure(spans)


@pytest.mark.skipif(shutil.which("g++") is None, reason="the C linker needs g++")
def test_the_machine_in_c_says_how_long_its_operations_take(tmp_path: Path, compiled: Path, in_one: Ran) -> None:
    ran = run(tmp_path / "run", compiled, "CVM", "short")
    assert ran.output.splitlines()[-1] == in_one.output.splitlines()[-1]
    spans = ran.assembly.spans
    path = spans.words("path").decoded()[~spans.where(kind="stage")]
    check_structure(spans)
    nodes = {one for one in path if one and one != "test"}
    assert nodes and all(list(path).count(one) == 4 for one in nodes)
