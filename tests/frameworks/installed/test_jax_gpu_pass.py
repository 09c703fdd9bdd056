"""Kernels of unmodified JAX programs: which calls are recorded, and whose kernels are. There is no GPU here: programs
make JAX say that there is one, and a GPU is put into the profile of their calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter_ns as now

import numpy as np
import pytest

from gpu_profile import with_gpu
from sonda.frameworks import INJECT
from sonda.frameworks.collector.piece_pass import CALLS, PROFILING
from sonda.frameworks.jax.observe.kernel_pass import STEPS
from sonda.frameworks.reconstruction.assembly import Assembly, assemble
from sonda.targets.profiles.jax import with_jitted_layers
from sonda.targets.profiles.kernels import with_kernels

pytest.importorskip("jax")
PROGRAM = Path(__file__).parent / "programs" / "jax_pretended.py"


def ran(place: Path, *arguments: str, observe: bool = True, **more: bool) -> tuple[str, int, Assembly | None]:
    """What the program says, when it began (ns), and what was seen of it."""
    place.mkdir()
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PJRT_NPROC": "1"}
    if observe:
        settings = {"directory": str(place), "count": True, "longest": 1 << 62, **more}
        environment |= {"PYTHONPATH": str(INJECT), "SONDA_COLLECT": json.dumps(settings)}
    begin = now()
    command = [sys.executable, str(PROGRAM), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert [path.read_text() for path in place.glob("*.failure")] == []
    return done.stdout, begin, assemble(place, begin, now()) if observe else None


def test_kernels_hang_on_the_calls_that_launched_them_and_layers_stay(tmp_path: Path) -> None:
    said, begin, assembly = ran(tmp_path / "run")
    assert said == ran(tmp_path / "bare", observe=False)[0]
    assert assembly is not None and assembly.no_kernels == "" and len(assembly.kernels) == 1
    assert assembly.devices == {"0": {"name": "Example", "peak_allocated": 64}}
    assert assembly.tf32 == {"matmul": True, "convolution": True}
    spans = assembly.spans
    phases = {
        name: np.flatnonzero(spans.where(kind="phase", name=name, pass_="kernels")) for name in ("fused", "optimizer")
    }
    # Steps are recorded whole, with the update behind the last call.
    assert len(phases["fused"]) == len(phases["optimizer"]) == STEPS
    assert (
        len(np.flatnonzero(spans.where(kind="phase", name="fused", pass_="pieces"))) == CALLS - 1
    )  # the last has an update that waited for the profile
    rows = np.sort(np.concatenate(list(phases.values())))
    with_gpu(assembly, tmp_path / "run", begin, rows, 40)
    found = with_kernels(assembly, tmp_path / "run", begin)
    kernels = np.flatnonzero(found.spans.where(kind="kernel"))
    assert found.spans.number("parent")[kernels].tolist() == rows.tolist()
    assert set(found.spans.number("duration")[kernels]) == {40}
    assert [note for note in found.notes if "left out" in note] == []
    layers, notes = with_jitted_layers(assembly, found.spans, tmp_path / "run", begin)
    assert len(np.flatnonzero(layers.where(kind="layer", pass_="pieces"))) and "missing" not in " ".join(notes)


@pytest.mark.parametrize("step", ["18", "20"])
def test_a_program_that_profiles_itself_keeps_its_profile(tmp_path: Path, step: str) -> None:
    """Before ours begins, and while it runs."""
    _, begin, assembly = ran(tmp_path / "own", step)
    assert assembly is not None and assembly.kernels == [] and assembly.no_kernels == PROFILING
    assert with_kernels(assembly, tmp_path / "own", begin).notes[0] == f"no kernels were recorded: {PROFILING}"


def test_without_kernels_wanted_nothing_is_profiled(tmp_path: Path) -> None:
    _, _, assembly = ran(tmp_path / "none", kernels=False)
    assert assembly is not None and assembly.kernels == [] and assembly.jitted == []
    assert set(assembly.spans.words("pass").decoded()[assembly.spans.where(kind="step")]) <= {"warmup", "timed"}
