"""A TensorFlow program on a GPU: kernels of its own profile, waiting without copying, one step for a profiler outside.

There is no GPU here: workloads run on the processor as if they were on one, under TensorFlow's own profiler, and a GPU
is put into the profile that it wrote, in the form of one that JAX recorded on an H200.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns as now
from typing import Any

import numpy as np
import pytest

from gpu_profile import with_gpu
from plain_runs import run_info
from sonda.analysis.run_summary import summarise
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.harness import steps as announced_steps
from sonda.frameworks.harness.announcer import AnnouncedObserver
from sonda.frameworks.harness.kernels import keep_profile
from sonda.frameworks.harness.settings import KERNEL_STEPS, Driving
from sonda.frameworks.reconstruction.assembly import Assembly, assemble
from sonda.frameworks.tensorflow.drive import steps as tensorflow_steps
from sonda.frameworks.tensorflow.drive.steps import PROFILE
from sonda.record.run import new_id, write_run
from sonda.record.run import now as run_now
from sonda.studies.figures.registry import parse_figure
from sonda.targets.adapters.tensorflow import run_in_tensorflow
from sonda.targets.job import Job
from sonda.targets.profiles.kernels import with_kernels
from sonda.targets.profiles.tensorflow_events import read_profile_events
from sonda.workloads.catalogue import describe
from sonda.workloads.operations.ops import Operations

tf = pytest.importorskip("tensorflow")
ON_GPU = "cuda:0"
OPERATIONS = ("add", "dot")


@contextmanager
def observing(place: Path, root: str) -> Iterator[AnnouncedObserver]:
    recorder = Recorder(str(place))
    observer = AnnouncedObserver(recorder, None, root)
    observer.open({"tensorflow": tf.__version__}, 1)
    yield observer
    observer.finish(1)
    recorder.close()


def operations(place: Path, **how: Any) -> tuple[Assembly, int]:
    from sonda.workloads.in_tensorflow.operations import build

    task = build(Operations(op=OPERATIONS, size=3 * 2**20), 5, "float32", False)
    begin = now()
    with observing(place, "OperationList") as observer:
        tensorflow_steps.drive_operations(task, observer, Driving(False, 2, 1, 1.0, device=ON_GPU, **how))
    return assemble(place, begin, now()), begin


def network(place: Path, train: bool = True, **how: Any) -> tuple[Assembly, int]:
    from sonda.workloads.in_tensorflow.input_pipeline import make_batches
    from sonda.workloads.in_tensorflow.layerwise import LayerwiseNetwork
    from sonda.workloads.in_tensorflow.network import build

    task = build(describe("mlp", {"layers": "12-8-3", "batch": "4"}), train, 5)
    begin = now()
    with observing(place, task.root) as observer:
        tensorflow_steps.drive_network(
            task, lambda announcer: LayerwiseNetwork(task, announcer), lambda: make_batches(task, 5), observer,
            Driving(train, 3, 1, 1.0, device=ON_GPU, **how), read_profile_events,
        )  # fmt: skip
    return assemble(place, begin, now()), begin


def passes(assembly: Assembly) -> dict[str, int]:
    """Steps by pass."""
    spans = assembly.spans
    words = spans.words("pass").decoded()[spans.where(kind="step")]
    return {str(one): int((words == one).sum()) for one in dict.fromkeys(words)}


def test_kernels_of_operations_hang_on_the_operation_that_launched_them(tmp_path: Path) -> None:
    assembly, begin = operations(tmp_path)
    assert assembly.no_kernels == "" and len(assembly.kernels) == 1
    assert passes(assembly) == {"warmup": 1, "timed": 2, "kernels": KERNEL_STEPS, "count": 1}
    layers = np.flatnonzero(
        assembly.spans.where(kind="layer", pass_="kernels") & ~assembly.spans.words("path").equal("")
    )
    with_gpu(assembly, tmp_path, begin, layers, 2000)
    found = with_kernels(assembly, tmp_path, begin)
    spans = found.spans
    rows = np.flatnonzero(spans.where(kind="kernel"))
    assert [note for note in found.notes if "left out" in note] == []
    assert list(spans.words("path").decoded()[rows]) == list(OPERATIONS) * KERNEL_STEPS
    assert list(spans.words("name").decoded()[rows]) == ["gemm_0", "gemm_1"] * KERNEL_STEPS
    assert set(spans.number("duration")[rows]) == {2000} and set(spans.number("stream")[rows]) == {14}
    assert spans.metric("launch_latency", "measured")[rows] == pytest.approx(700, abs=1)


def test_a_study_shows_the_gpu_of_a_training_step_that_is_one_graph(tmp_path: Path) -> None:
    events = tmp_path / "events"
    events.mkdir()
    assembly, begin = network(events)
    assert passes(assembly) == {"warmup": 1, "timed": 3, "kernels": KERNEL_STEPS, "pieces": 5, "count": 1}
    graphs = np.flatnonzero(assembly.spans.where(kind="phase", pass_="kernels", name="fused"))
    assert len(graphs) == KERNEL_STEPS
    with_gpu(assembly, events, begin, graphs, 40_000)
    spans = with_kernels(assembly, events, begin).spans
    assert spans.where(kind="kernel", pass_="kernels").sum() == KERNEL_STEPS
    info = run_info(id=new_id(), created=run_now(), status="complete",
                   workload={"name": "mlp", "train": True, "framework": "tensorflow"},
                   target={"spec": ON_GPU, "device": "cuda"})  # fmt: skip
    summary = summarise(write_run(tmp_path / "store", info, spans))
    assert parse_figure("device_compute_ms").value_of(summary).value == pytest.approx(0.04)
    assert parse_figure("launch_us").value_of(summary).value == pytest.approx(0.7)
    # Layers are those of steps in pieces: the graph launches all its kernels as one.
    assert {"0", "2"} <= {row.path for row in summary.parts[0].layers}


@pytest.fixture
def heard_marks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a profiler outside would hear."""
    heard: list[str] = []

    @contextmanager
    def replayed() -> Iterator[None]:
        heard.append("begin")
        yield
        heard.append("end")

    monkeypatch.setattr(announced_steps, "mark_replay", replayed)
    return heard


def test_a_job_for_a_profiler_outside_is_one_step(
    tmp_path: Path, heard_marks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "TF_CPP_MIN_LOG_LEVEL"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # put back afterwards, whatever the job writes there
    monkeypatch.setattr(tf.config.experimental, "enable_tensor_float_32_execution", lambda allowed: None)
    job = Job(workload="mlp", options={"layers": "12-8-3"}, framework="tensorflow", train=True, steps=9, warmup=2)
    begin = now()
    run_in_tensorflow(job, tmp_path, replay=True)
    assert passes(assemble(tmp_path, begin, now())) == {"warmup": 2, "kernels": 1}
    assert heard_marks == ["begin", "end"]


def test_a_profiler_outside_is_told_of_one_step(tmp_path: Path, heard_marks: list[str]) -> None:
    class Opaque:
        train, parameters = False, 1

        def function(self) -> Any:
            return lambda: {"scores": [tf.constant(1.0)]}

        def arguments(self) -> tuple[Any, ...]:
            return ()

    for name, run in (("operations", operations), ("training", network)):
        (tmp_path / name).mkdir()
        assert passes(run(tmp_path / name, replay=True)[0]) == {"warmup": 1, "kernels": 1}
    (tmp_path / "whole").mkdir()
    how = Driving(False, 9, 1, 1.0, device=ON_GPU, replay=True)
    with observing(tmp_path / "whole", "") as observer:
        assert tensorflow_steps.drive_opaque(Opaque(), observer, how) == 1
    assert heard_marks == ["begin", "end"] * 3


def test_a_gpu_is_waited_for_and_nothing_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []
    monkeypatch.setattr(tf.test.experimental, "sync_devices", lambda: waited.append("all"))

    class OnGpu:
        device = "/job:localhost/replica:0/task:0/device:GPU:0"

        def numpy(self) -> Any:
            raise AssertionError("a matrix was copied to the host")

    class OnCpu(OnGpu):
        device = "/job:localhost/replica:0/task:0/device:CPU:0"

    one = OnGpu()
    assert tensorflow_steps.wait(one) is one and waited == ["all"]
    tensorflow_steps.wait(OnCpu())
    tensorflow_steps.wait(None)
    assert waited == ["all"]
    # Of several results one wait is enough.
    tensorflow_steps._wait_for_parts({"scores": [OnGpu(), OnGpu()], "loss": (OnCpu(),)})
    assert waited == ["all"] * 2
    # In pieces every phase and every layer ends when its kernels do: an inference of four layers in one around them.
    waited.clear()
    network(tmp_path, train=False)
    assert len(waited) == announced_steps.PIECES_STEPS * (1 + 1 + 4)


def test_a_profile_that_was_not_written_is_said(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path))
    keep_profile(recorder, tmp_path / "nowhere", PROFILE)
    recorder.state(finished=True)
    recorder.close()
    assert assemble(tmp_path, 0, 1).no_kernels == "TensorFlow's profiler wrote no profile"
    assert not list(tmp_path.glob(f"{os.getpid()}*.xplane.pb"))
