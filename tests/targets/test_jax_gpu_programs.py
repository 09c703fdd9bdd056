"""JAX on a GPU, without one: kernels by run from a profile that was recorded on an H200, and what is said of GPUs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sonda.frameworks.collector.piece_pass import PROFILING
from sonda.frameworks.jax.observe import devices as jax_devices
from sonda.frameworks.jax.profile.operations import XlaOperation, number_runs, split_runs
from sonda.frameworks.reconstruction.assembly import Assembly
from sonda.probes.ncu.command import NcuSettings
from sonda.record.spans import Spans, Words
from sonda.record.store import Store
from sonda.targets.adapters.jax import xla_operations
from sonda.targets.instrument import Circumstances, EndedRun, Observation
from sonda.targets.instruments.ncu import NcuInstrument
from sonda.targets.program.launcher import ProgramLauncher, WatchSettings
from xplane_examples import H200

KERNELS = [
    "gemm_fusion_dot_1", "loop_reduce_fusion", "input_multiply_reduce_fusion", "input_reduce_fusion",
    "loop_multiply_fusion", "void cutlass::Kernel2", "wrapped_subtract",
]  # fmt: skip
"""Of one step of the program, in the order of the trace that was recorded beside the profile; four steps ran."""


def test_kernels_are_of_the_run_whose_begin_the_host_tells() -> None:
    found = split_runs(xla_operations(H200.parent))
    assert [name for name, _ in found] == ["jit_step"] * 4
    for number, (_, operations) in enumerate(found, 1):
        assert [one.name.partition("<")[0] for one in operations] == KERNELS
        assert {one.run for one in operations} == {number}


def test_what_was_launched_before_any_run_is_untold_and_gpus_share_a_number() -> None:
    def kernel(gpu: int, launched: int) -> tuple[XlaOperation, int, int]:
        return XlaOperation("jit_f", 0, "add", 90 + launched, 99 + launched), gpu, launched

    begins = {("jit_f", 0): [30, 10], ("jit_f", 1): [12, 32]}
    found = number_runs(
        [kernel(0, 5), kernel(0, 11), kernel(1, 13), kernel(1, 31), kernel(0, 30), kernel(2, 40)], begins
    )
    assert [(one.run, one.start) for one in found] == [(1, 101), (1, 103), (1, 121), (2, 120)]


def device(number: int, platform: str, **memory: int) -> Any:
    return SimpleNamespace(
        id=number + 8, local_hardware_id=number, platform=platform, device_kind="NVIDIA H200",
        memory_stats=lambda: memory or None,
    )  # fmt: skip


def jax_with(*devices: Any, precision: str | None = None) -> Any:
    return SimpleNamespace(
        local_devices=lambda: list(devices), config=SimpleNamespace(jax_default_matmul_precision=precision)
    )


def test_a_program_says_which_gpus_it_used() -> None:
    """Of those that it sees, in the second of two processes. JAX multiplies float32 as TF32 unless told otherwise."""
    used, idle = device(1, "gpu", peak_bytes_in_use=4096), device(0, "gpu", peak_bytes_in_use=0)
    jax = jax_with(idle, used)
    stated = jax_devices.describe_gpus(jax, jax_devices.gpus(jax))
    assert stated["devices"] == {"1": {"name": "NVIDIA H200", "peak_allocated": 4096}}
    assert stated["tf32"] == {"matmul": True, "convolution": True}
    jax = jax_with(device(0, "gpu"), device(1, "gpu"), precision="highest")
    stated = jax_devices.describe_gpus(jax, jax_devices.gpus(jax))
    assert list(stated["devices"]) == ["0"] and stated["tf32"] == {"matmul": False, "convolution": False}
    jax = jax_with(device(0, "cpu"))
    assert jax_devices.describe_gpus(jax, jax_devices.gpus(jax)) == {}


def test_a_program_without_kernels_is_not_run_again_under_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sonda.targets.instruments.ncu.count_command", None)
    bare = Spans({"start": np.zeros(1)}, {"kind": Words.of(["run"])})
    assembly = Assembly(spans=bare, no_kernels=PROFILING)
    launcher = ProgramLauncher(["python", "train.py"], WatchSettings())
    plan = launcher.plan(Store(tmp_path), tmp_path, print)
    observation = Observation(bare, {}, {}, Circumstances("", {}, {}), assembly=assembly)
    seen = EndedRun(plan, observation, bare, partial(launcher.again, plan))
    (state,) = NcuInstrument(NcuSettings()).collect(seen).states
    assert (state.name, state.state) == ("ncu", "missing")
    assert state.reason == f"no kernels were recorded: {PROFILING}"
