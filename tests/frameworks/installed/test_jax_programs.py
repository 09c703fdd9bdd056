"""Unmodified JAX programs: what is seen of them, and that nothing about them changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns as now
from typing import Any

import numpy as np
import pytest

from sonda.frameworks import INJECT
from sonda.frameworks.reconstruction.assembly import Assembly, assemble
from sonda.frameworks.reconstruction.events import read_events

pytest.importorskip("jax")
PROGRAMS = Path(__file__).parent / "programs"

from observed import check_structure, seen, share_of_data  # noqa: E402

MODES = ("fused", "apart", "eager")


@dataclass
class Ran:
    output: str
    assembly: Assembly
    traced: dict[str, dict[str, Any]]
    """What was found out about functions that were compiled, by name."""


def run(place: Path, program: str, *arguments: str, observe: bool = True, **variables: str) -> Ran:
    place.mkdir(parents=True)
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PJRT_NPROC": "1", **variables}
    if observe:
        settings = {"directory": str(place), "count": True, "longest": 1 << 62}
        environment |= {"PYTHONPATH": str(INJECT), "SONDA_COLLECT": json.dumps(settings)}
    begin = now()
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / program), *arguments], capture_output=True, text=True, env=environment,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [path.read_text() for path in place.glob("*.failure")] == []
    facts = [fact for path in place.glob("*.events") for fact in read_events(path).fact("traced", [])]
    return Ran(done.stdout, assemble(place, begin, now()), {fact["function"]: fact for fact in facts})


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    place = tmp_path_factory.mktemp("programs")
    found = {mode: run(place / mode, "jax_training.py", mode) for mode in MODES}
    found["bare"] = run(place / "bare", "jax_training.py", "fused", observe=False)
    found["retracing"] = run(place / "retracing", "jax_retracing.py")
    return found


def test_the_program_computes_what_it_computes_alone(programs: dict[str, Ran]) -> None:
    """Also what programs ask of a jitted function: `lower`, its name, methods, jit around jit, vmap around it."""
    assert programs["fused"].output == programs["bare"].output
    # The same weights after the same steps, whichever functions made them.
    assert programs["apart"].output.split()[3] == programs["bare"].output.split()[3]


@pytest.mark.parametrize("mode", MODES)
def test_calls_are_steps_of_training_validation_and_test(programs: dict[str, Ran], mode: str) -> None:
    """Two epochs of six batches and two evaluations; at the end a method and `jit` around a jitted function. What
    augments the batches is given no weights and is no step, not even before the first step tells what is learnt."""
    spans = programs[mode].assembly.spans
    found = seen(spans)
    assert found.parts == [("train", 6), ("validate", 2)] * 2 + [("test", 2)]
    updates = {"optimizer": 12} if mode == "apart" else {}
    assert found.phases == {"fused": 12, "forward": 6, **updates}
    check_structure(spans)


def test_compilations_have_spans_apart_and_their_steps_are_warm_up(programs: dict[str, Ran]) -> None:
    spans = programs["fused"].assembly.spans
    rows = np.flatnonzero(spans.where(kind="compile"))
    names, duration = spans.words("name").decoded(), spans.number("duration")
    assert [names[row] for row in rows] == ["augment", "step", "accuracy", "scores", "accuracy"]
    passes = spans.words("pass").decoded()
    steps = np.flatnonzero(spans.where(kind="step"))
    assert [passes[row] for row in steps] == [
        "warmup", *["timed"] * 5, "warmup", *["timed"] * 6, *["pieces"] * 3, "warmup", "warmup",
    ]  # fmt: skip
    # Compiling takes tens of ms, a step of this size well below one.
    assert duration[rows].min() > duration[steps[1:6]].min()


def test_versions_and_what_was_waited_for_are_said(programs: dict[str, Ran]) -> None:
    assembly = programs["fused"].assembly
    assert set(assembly.versions) >= {"python", "jax"}
    assert [note for note in assembly.notes if "waited for" in note] != []


def test_functions_that_are_compiled_again_are_told_with_the_cause(programs: dict[str, Ran]) -> None:
    traced = programs["retracing"].traced
    assert {name: (fact["calls"], fact["traces"]) for name, fact in traced.items()} == {
        "by_shape": (6, 6), "by_value": (6, 6), "steady": (6, 1), "<lambda>": (6, 6), "scores": (7, 7),
        "scaled": (1, 1),
    }  # fmt: skip
    by_shape = traced["by_shape"]
    assert (by_shape["cause"], by_shape["argument"], by_shape["times"]) == ("shape", "x", 5)
    assert by_shape["examples"][:2] == ["float32[1, 4]", "float32[2, 4]"]
    by_value = traced["by_value"]
    assert (by_value["cause"], by_value["argument"], by_value["examples"][:2]) == ("python", "power", ["0", "1"])
    # Of a method, whose object is no argument of the jitted function.
    assert (traced["scores"]["cause"], traced["scores"]["argument"]) == ("python", "scale")
    assert traced["<lambda>"]["cause"] == "new"
    assert traced["steady"]["cause"] == ""
    for fact in traced.values():
        assert fact["where"].startswith("jax_retracing.py:") and 0 < fact["trace_s"] < fact["call_s"]


# ---- waiting for input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "kind"), [("1", None), ("2", "threads")])
def test_keras_on_jax_waits_for_slow_input(tmp_path: Path, workers: str, kind: str | None) -> None:
    """A batch sleeps for 80 ms; the model takes a millisecond. Keras makes threads of two workers and more."""
    pytest.importorskip("keras")
    assembly = run(tmp_path / "run", "keras_jax_input.py", workers, KERAS_BACKEND="jax").assembly
    spans = assembly.spans
    assert seen(spans).parts == [("train", 32)]
    assert share_of_data(spans, "train") > 0.5
    waits = spans.number("duration")[spans.where(kind="phase", name="data")]
    if kind is None:  # nothing is made ahead
        assert np.sum(waits >= 80e6) == 32
    loads = assembly.crew.busiest.loads
    assert (loads["loader"], loads.get("worker_kind")) == ("PyDataset", kind)
