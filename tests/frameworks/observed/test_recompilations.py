"""What compiling took, and how much of it was for code that was compiled before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter_ns

import pytest

from places import PROGRAMS
from sonda.frameworks.reconstruction.assembly import assemble

pytest.importorskip("torch")

INJECT = Path(__file__).parents[3] / "src" / "sonda" / "frameworks" / "inject"
CASES = {"": (1, 0), "shapes": (3, 2), "reset": (2, 0)}
"""Compilations of the network, and those of them for another shape: three shapes of input, of which one is the first;
`torch.compiler.reset()` forgets everything, and what follows is compiled as if for the first time."""


def run(*arguments: str, **variables: str) -> str:
    command = [sys.executable, str(PROGRAMS / "recompiled.py"), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("kind", CASES)
def test_compilations_and_recompilations_are_told_apart_and_the_graphs_are_the_same(kind: str, tmp_path: Path) -> None:
    arguments = [kind] if kind else []
    bare = run(*arguments)
    begin = perf_counter_ns()
    settings = json.dumps({"directory": str(tmp_path), "count": False})
    observed = run(*arguments, PYTHONPATH=str(INJECT), SONDA_COLLECT=settings)
    spans = assemble(tmp_path, begin, perf_counter_ns()).spans
    assert observed == bare, "the same bits, frames and graph breaks"
    compilations, again = CASES[kind]
    compiled = spans.where(kind="compile", name="torch.compile")
    backward = spans.where(kind="compile", path="backward")
    # The compiler's own count stands in the program's output.
    assert f"('unique_graphs', {compilations})" in bare
    assert int((compiled & ~backward).sum()) == int(backward.sum()) == compilations
    assert int(spans.where(kind="compile", path="again").sum()) == again
    assert (spans.number("duration")[compiled] > 0).all()
