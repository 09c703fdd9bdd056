"""What compiling took, and how much of it was for code that was compiled before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter_ns

import pytest

from observed import PROGRAMS, Nursery
from sonda.frameworks import INJECT
from sonda.frameworks.reconstruction.assembly import assemble

pytest.importorskip("torch")

COMPILATIONS, AGAIN = 4, 2
"""Compilations of the network, and those of them for another shape: of three shapes of input that take turns one is the
first; `torch.compiler.reset()` forgets everything, and what follows is compiled as if for the first time."""


def test_compilations_and_recompilations_are_told_apart_and_the_graphs_are_the_same(tmp_path: Path) -> None:
    bare = Nursery().run("recompiled", "shapes", "reset", directory=tmp_path / "bare", observe=False)
    assert bare.code == 0, bare.output
    directory = tmp_path / "observed"
    directory.mkdir()
    # The compiler is followed as it is imported: the observed program has an interpreter of its own.
    command = [sys.executable, str(PROGRAMS / "recompiled.py"), "shapes", "reset"]
    settings = json.dumps({"directory": str(directory), "count": False})
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(INJECT), "SONDA_COLLECT": settings}
    begin = perf_counter_ns()
    observed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    spans = assemble(directory, begin, perf_counter_ns()).spans
    assert observed == bare.output, "the same bits, frames and graph breaks"
    compiled = spans.where(kind="compile", name="torch.compile")
    backward = spans.where(kind="compile", path="backward")
    # The compiler's own count stands in the program's output.
    assert f"('unique_graphs', {COMPILATIONS})" in bare.output
    assert int((compiled & ~backward).sum()) == int(backward.sum()) == COMPILATIONS
    assert int(spans.where(kind="compile", path="again").sum()) == AGAIN
    assert (spans.number("duration")[compiled] > 0).all()
