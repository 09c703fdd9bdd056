"""The six operations in JAX: the same mathematics as in PyTorch, the same spans, kernels under their layers."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns as now
from typing import Any

import numpy as np
import pytest

from jax_gpu import with_gpu
from plain_runs import run_info
from sonda.analysis.run_summary import summarise
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.harness.announcer import AnnouncedObserver
from sonda.frameworks.harness.kernels import keep_profile
from sonda.frameworks.harness.settings import Driving
from sonda.frameworks.jax.drive.steps import TRACE, drive_operations
from sonda.frameworks.reconstruction.assembly import Assembly, assemble
from sonda.probes.ncu.join import join_counts
from sonda.probes.ncu.replay import CountedKernels, CountedLaunch
from sonda.record.errors import SondaError
from sonda.record.run import new_id, write_run
from sonda.record.run import now as run_now
from sonda.studies.results.operations import operation_points
from sonda.targets.adapters.jax import compilation_cache, jax_device
from sonda.targets.job import Job
from sonda.targets.local.child import run_child
from sonda.targets.profiles.kernels import with_kernels
from sonda.workloads.operations.ops import STUDIED, Operations

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
TOLERANCE = 1e-5
"""Of the largest value of a result."""
SMALL = Operations(op=STUDIED, size=3 * 2**18, inner=64)


def task(description: Operations = SMALL, precision: str = "float32", seed: int = 7) -> Any:
    return description.in_jax(seed, precision, jax.devices("cpu")[0])


def observe(tmp_path: Path, device: str = "cpu", steps: int = 3) -> tuple[Assembly, int]:
    begin = now()
    recorder = Recorder(str(tmp_path))
    observer = AnnouncedObserver(recorder, None, "OperationList")
    observer.open({"jax": jax.__version__}, 1)
    assert drive_operations(task(), observer, jax, Driving(False, steps, 2, 1.0, device=device)) == steps
    observer.finish(1)
    recorder.close()
    return assemble(tmp_path, begin, now()), begin


# ---- mathematics --------------------------------------------------------------------------------------------------


def test_operands_are_those_of_pytorch() -> None:
    ours, theirs = task(), SMALL.in_torch(False, 7)
    for op in STUDIED:
        for one, other in zip(ours.operands[op], getattr(theirs.model, op).operands, strict=True):
            assert np.array_equal(np.asarray(one), other.detach().numpy())


@pytest.mark.parametrize("op", STUDIED)
def test_results_are_those_of_pytorch(op: str) -> None:
    ours = task()
    result = np.asarray(ours.functions[op](*ours.operands[op]))
    with torch.no_grad():
        expected = getattr(SMALL.in_torch(False, 7).model, op)().numpy()
    assert result.dtype == expected.dtype and result.shape == expected.shape
    assert np.abs(result - expected).max() <= TOLERANCE * np.abs(expected).max()


def test_bfloat16_products_are_those_of_autocast() -> None:
    ours = task(precision="mixed_bfloat16")
    result = np.asarray(ours.functions["dot"](*ours.operands["dot"]).astype("float32"))
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        expected = SMALL.in_torch(False, 7).model.dot()
    assert expected.dtype == torch.bfloat16
    # 8 bits of mantissa, and sums in another order.
    assert np.abs(result - expected.float().numpy()).max() <= 2**-7 * expected.abs().max().item()
    assert ours.functions["add"](*ours.operands["add"]).dtype == "float32"


def test_another_operation_is_one_line() -> None:
    with pytest.raises(SondaError, match=r"softmax is not there in JAX; use --op with some of add, dot"):
        task(Operations(op=("add", "softmax")))


# ---- spans --------------------------------------------------------------------------------------------------------


def test_steps_layers_and_compilations_have_spans(tmp_path: Path) -> None:
    spans = observe(tmp_path)[0].spans
    assert spans.where(kind="step", pass_="warmup").sum() == 2
    assert spans.where(kind="step", pass_="timed").sum() == 3
    assert spans.where(kind="step", pass_="count").sum() == 1
    path, name, parent = spans.words("path").decoded(), spans.words("name").decoded(), spans.number("parent")
    layers = np.flatnonzero(spans.where(kind="layer", pass_="timed"))
    assert sorted({path[row] for row in layers}) == sorted(["", *STUDIED])
    inner = [row for row in layers if path[row]]
    assert {path[parent[row]] for row in inner} == {""} and {name[row] for row in inner} >= {"Add", "Dot", "Tanh"}
    compiled = np.flatnonzero(spans.where(kind="compile"))
    assert [name[row] for row in compiled] == list(STUDIED)
    first = spans.number("start")[spans.where(kind="step")].min()
    ends = spans.number("start")[compiled] + spans.number("duration")[compiled]
    assert (ends <= first).all()


def test_counted_operations_have_the_formulas_of_hand(tmp_path: Path) -> None:
    """786,432 bytes: 256 x 256 matrices of add and mul; 313 x 313 of one operand; dot (1504 x 64) (64 x 64)."""
    spans = observe(tmp_path, steps=1)[0].spans
    rows = np.flatnonzero(spans.where(kind="op", pass_="count"))
    name = spans.words("name").decoded()
    flops = {name[row]: spans.metric("flops", "nominal")[row] for row in rows}
    size = {name[row]: spans.metric("bytes", "nominal")[row] for row in rows}
    assert flops == {
        "jax.add": 256**2, "jax.mul": 256**2, "jax.scalar": 313**2, "jax.sigmoid": 4 * 313**2, "jax.tanh": 313**2,
        "jax.dot": 2 * 1504 * 64 * 64,
    }  # fmt: skip
    assert size["jax.add"] == 3 * 4 * 256**2 and size["jax.tanh"] == 2 * 4 * 313**2
    assert size["jax.dot"] == 4 * (2 * 1504 * 64 + 64 * 64)


# ---- kernels ------------------------------------------------------------------------------------------------------


def test_kernels_hang_on_the_operation_that_launched_them(tmp_path: Path) -> None:
    assembly, begin = observe(tmp_path, device="cuda:0")
    assert assembly.no_kernels == "" and len(assembly.kernels) == 1 and set(assembly.devices) == {"0"}
    kernels = {op: (f"loop_{op}_fusion", 1.0 + number) for number, op in enumerate(STUDIED)}
    with_gpu(tmp_path / assembly.kernels[0][0], kernels)
    found = with_kernels(assembly, tmp_path, begin)
    spans = found.spans
    rows = np.flatnonzero(spans.where(kind="kernel"))
    assert len(rows) == 3 * len(STUDIED) and found.notes == []
    path, name = spans.words("path").decoded(), spans.words("name").decoded()
    for row in rows:
        assert name[row] == kernels[path[row]][0]
        assert spans.number("duration")[row] == 1000 * kernels[path[row]][1]
    assert {spans.words("device").decoded()[row] for row in rows} == {"cuda:0"}
    assert set(spans.number("stream")[rows]) == {14}
    assert spans.metric("launch_latency", "measured")[rows] == pytest.approx(1500, abs=1)


def test_a_run_becomes_points_of_a_study_with_the_time_of_its_kernels(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    assembly, begin = observe(tmp_path / "events", "cuda:0")
    kernels = {op: (f"loop_{op}_fusion", 10.0 * (number + 1)) for number, op in enumerate(STUDIED)}
    with_gpu(tmp_path / "events" / assembly.kernels[0][0], kernels)
    spans = with_kernels(assembly, tmp_path / "events", begin).spans
    launches = tuple(
        CountedLaunch(name, "1", 0, 14, "1", "1", 1, {"flops:counted": 1000 + number, "dram_bytes:counted": 2000,
                                                     "stall_long_scoreboard:counted": 90.0, "stall_wait:counted": 5.0})
        for number, (name, _) in enumerate(kernels.values())
    )  # fmt: skip
    joined, notes = join_counts(spans, CountedKernels(launches, ()))
    assert notes == []
    info = run_info(
        id=new_id(), created=run_now(), status="complete",
        workload={**SMALL.parameters(), "name": "ops", "framework": "jax", "precision": "float32"},
        target={"spec": "cuda:0", "device": "cuda", "devices": {"cuda:0": {"name": "NVIDIA Example"}}},
    )  # fmt: skip
    run = write_run(tmp_path / "store", info, joined)
    points = operation_points([(run, summarise(run))])
    assert [point.op for point in points] == list(STUDIED)
    assert [point.time for point in points] == [10_000 * (number + 1) for number in range(len(STUDIED))]
    assert [point.counted for point in points] == [1000 + number for number in range(len(STUDIED))]
    first = points[0]
    assert (first.nominal, first.bytes, first.dram, first.size) == (256**2, 12 * 256**2, 2000, 3 * 2**18)
    assert first.stalls == {"long_scoreboard": pytest.approx(0.9), "wait": pytest.approx(0.05)}
    assert (first.framework, first.device, first.rate) == ("jax", "NVIDIA Example", 1e9 * 1000 / 10_000)


def test_a_profile_without_a_trace_says_so(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path))
    keep_profile(recorder, tmp_path / "nowhere", TRACE)
    recorder.state(finished=True)
    recorder.close()
    assert assemble(tmp_path, 0, 1).no_kernels == "JAX's profiler wrote no trace"


# ---- the command ----------------------------------------------------------------------------------------------------


def test_a_job_runs_in_a_process_of_its_own_and_leaves_what_it_compiled(tmp_path: Path) -> None:
    job = Job(workload="ops", options={"op": "add,dot", "size": "786432", "inner": "64"}, framework="jax", on="cpu/1",
              steps=3, warmup=1)  # fmt: skip
    folder = tmp_path / "compiled"
    folder.mkdir()
    begin = now()
    outcome = run_child(job, tmp_path, 1, compilation_cache(folder))
    assembly = assemble(tmp_path, begin, now())
    assert (outcome.workload["name"], outcome.workload["parameters"]["op"]) == ("ops", "add,dot")
    assert assembly.spans.where(kind="step", pass_="timed").sum() == 3
    assert set(assembly.versions) == {"python", "jax", "jaxlib"} and assembly.threads == 1
    assert {path.name.partition("-")[0] for path in folder.glob("*-cache")} == {"jit_add", "jit_dot"}


def test_a_gpu_that_jax_cannot_use_is_one_line() -> None:
    class Nothing:
        __version__ = "0"

        def devices(self) -> Any:
            raise RuntimeError("Unable to initialize backend 'cuda'")

    with pytest.raises(SondaError, match=r"target 'cuda:0': JAX 0 finds no GPU that it can use; install JAX"):
        jax_device(Job(workload="ops", framework="jax", on="cuda:0"), Nothing())
