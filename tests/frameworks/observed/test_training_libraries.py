"""Lightning, Accelerate and Transformers, where they are installed; `test_evaluations.py` and `test_wrapped_modules.py`
hold the same of programs of the same structure that need PyTorch alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter_ns

import pytest

from observed import Seen, seen
from places import PROGRAMS
from sonda.frameworks.reconstruction.assembly import assemble

pytest.importorskip("torch")

INJECT = Path(__file__).parents[3] / "src" / "sonda" / "frameworks" / "inject"
TRAIN, VALIDATE = ("train", 4), ("validate", 2)
LAYERS = {"fc1", "fc2"}
CASES = {
    # library and program's arguments: sections, layers that are there
    "lightning plain": ([VALIDATE, *[TRAIN, VALIDATE] * 2], LAYERS),  # the first is the sanity check
    "lightning plain validate": ([VALIDATE, TRAIN, VALIDATE, TRAIN, ("validate", 4)], LAYERS),
    "lightning plain test predict": ([VALIDATE, *[TRAIN, VALIDATE] * 2, ("test", 4)], LAYERS),
    "lightning ddp": ([VALIDATE, *[TRAIN, VALIDATE] * 2], LAYERS),
    "fabric plain": ([TRAIN, VALIDATE] * 2, LAYERS),
    "accelerate plain": ([TRAIN, VALIDATE, TRAIN, ("validate", 4)], LAYERS),
    "accelerate compiled": ([TRAIN, VALIDATE, TRAIN, ("validate", 4)], {""}),
    "transformers epoch": ([TRAIN, VALIDATE] * 2, LAYERS),
    "transformers no evaluate": ([("train", 8), VALIDATE], LAYERS),
    "transformers epoch evaluate predict": ([*[TRAIN, VALIDATE] * 2, VALIDATE, ("test", 2)], LAYERS),
}
PACKAGES = {"fabric": "lightning"}


def observe(directory: Path, *arguments: str) -> Seen:
    settings = json.dumps({"directory": str(directory)})
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(INJECT), "SONDA_COLLECT": settings}
    begin = perf_counter_ns()
    command = [sys.executable, str(PROGRAMS / "training_libraries.py"), *arguments, str(directory)]
    subprocess.run(command, env=environment, capture_output=True, check=True)
    assert not list(directory.glob("*.failure"))
    return seen(assemble(directory, begin, perf_counter_ns()).spans)


@pytest.mark.parametrize("case", CASES)
def test_parts_and_layers_are_those_that_the_library_and_the_program_name(case: str, tmp_path: Path) -> None:
    library, *arguments = case.split()
    package = PACKAGES.get(library, library)
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    found = observe(tmp_path, library, *arguments)
    sections, layers = CASES[case]
    assert _joined(found.parts) == _joined(sections)
    assert layers <= set(found.forward) <= {"", *LAYERS}


def _joined(parts: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Sections of one part that follow one another as one."""
    joined: list[tuple[str, int]] = []
    for part, steps in parts:
        if joined and joined[-1][0] == part:
            steps += joined.pop()[1]
        joined.append((part, steps))
    return joined
