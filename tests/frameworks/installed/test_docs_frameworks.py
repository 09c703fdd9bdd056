"""Commands of the documentation that need TensorFlow or JAX: run with lighter settings, or to their one line."""

from __future__ import annotations

import os
import re
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from command_line import run_command
from docs_commands import FRAMEWORKS, lacks_test, lighter, shown
from docs_desk import ceilings, mnist

LACKING = [one for one in ("torch", "tensorflow", "keras", "jax") if find_spec(one) is None]
pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(LACKING), reason=f"needs {', '.join(LACKING)}"),
]

KERAS = """
import numpy
import keras
model = keras.Sequential([keras.layers.Dense(4, activation="relu"), keras.layers.Dense(2)])
model.compile("sgd", "mse")
model.fit(numpy.ones((16, 3), "float32"), numpy.ones((16, 2), "float32"), batch_size=4, verbose=0)
"""

ELSEWHERE = {
    r"resnet50 .*--compile": "test_optimisation_matrix.py::test_steps_wait_for_data_and_compute",
    r"--on (mirrored|multiworker)=": "test_tensorflow_strategies.py::"
    "test_unequal_replicas_learn_what_one_device_learns",
}
"""What would take minutes, and where it is run: XLA on smaller networks, strategies with processes of their own."""


def distinct() -> dict[str, str]:
    found: dict[str, str] = {}
    for command in shown():
        if re.search(FRAMEWORKS, command.text) and not any(re.search(one, command.text) for one in ELSEWHERE):
            found.setdefault(shlex.join(lighter(command.words)), f"{command.page}:{command.line}")
    return found


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("desk")
    (place / "keras_fit.py").write_text(KERAS)
    mnist(place / "mnist")
    ceilings(place / "store")
    return place


COMMANDS = distinct()


@pytest.mark.parametrize("text", COMMANDS, ids=COMMANDS.values())
def test_a_shown_command_of_another_framework(text: str, desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    done = run_command(desk, *shlex.split(text))
    if done.returncode == 2 and "tf-models:" in text:  # the Model Garden wants an environment of its own
        last = done.stderr.strip().splitlines()[-1]
        assert last.startswith("sonda: ") and "tf-models-official" in last
    else:
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr


def test_what_runs_elsewhere_has_a_test_there() -> None:
    assert [lacks_test(test) for test in ELSEWHERE.values()] == [""] * len(ELSEWHERE)
