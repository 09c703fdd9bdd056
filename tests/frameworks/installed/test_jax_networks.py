"""Networks in JAX: steps, phases and layers of compiled functions, compilations apart, counts by formula."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from time import perf_counter_ns as now
from typing import Any

import numpy as np
import pytest

from jax_gpu import with_gpu
from plain_runs import run_info
from sonda.analysis.doubts import InsideFused
from sonda.analysis.run_summary import summarise
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.harness.announcer import AnnouncedObserver
from sonda.frameworks.harness.settings import KERNEL_STEPS, Driving
from sonda.frameworks.harness.steps import PIECES_STEPS
from sonda.frameworks.jax.drive.steps import drive_network
from sonda.frameworks.reconstruction.assembly import Assembly, assemble
from sonda.record.run import new_id, write_run
from sonda.record.run import now as run_now
from sonda.record.spans import Spans
from sonda.studies.figures.registry import parse_figure
from sonda.targets.adapters.jax import build_network, xla_operations
from sonda.targets.job import Job
from sonda.targets.local.child import run_child
from sonda.targets.profiles.kernels import with_kernels
from sonda.workloads.catalogue import describe
from sonda.workloads.networks.cost import network_costs
from sonda.workloads.networks.layers import walk_layers

jax = pytest.importorskip("jax")
CNN = {"batch": "4", "image": "24x20"}
GPT = {"batch": "2", "length": "8", "generate": "3", "layers": "2", "width": "16", "vocabulary": "20"}


def task(name: str, options: dict[str, str], **settings: Any) -> Any:
    job = Job(workload=name, options=options, framework="jax", **settings)
    return build_network(job, describe(name, options), jax.devices("cpu")[0])[0]


def observe(
    place: Path, ready: Any, read: Any = xla_operations, device: str = "cpu", begin: int | None = None
) -> Assembly:  # fmt: skip
    place.mkdir(exist_ok=True)
    begin = begin or now()
    recorder = Recorder(str(place))
    observer = AnnouncedObserver(recorder, None, ready.network.class_name)
    observer.open({"jax": jax.__version__}, 1)
    classes = {path: layer.class_name for path, layer in walk_layers(ready.network)}
    assert drive_network(ready, observer, jax, Driving(ready.train, 3, 2, 1.0, device=device), classes, read) == 3
    observer.finish(1)
    recorder.close()
    return assemble(place, begin, now())


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    return observe(tmp_path_factory.mktemp("training"), task("cnn", CNN, train=True))


@pytest.fixture(scope="module")
def generating(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    return observe(tmp_path_factory.mktemp("generating"), task("transformer", GPT))


def phases(spans: Spans, which: str) -> list[str]:
    names = spans.words("name").decoded()
    return [names[row] for row in np.flatnonzero(spans.where(kind="phase", pass_=which))]


def test_a_timed_training_step_is_one_function(training: Assembly) -> None:
    spans = training.spans
    steps = {
        which: int(spans.where(kind="step", pass_=which).sum()) for which in ("warmup", "timed", "pieces", "count")
    }
    assert steps == {"warmup": 2, "timed": 3, "pieces": PIECES_STEPS, "count": 1}
    assert phases(spans, "timed") == ["data", "fused"] * 3
    assert not spans.where(kind="layer", pass_="timed").any()


def test_compilations_come_before_the_steps_and_are_said(training: Assembly, generating: Assembly) -> None:
    for assembly, expected in ((training, ["train"]), (generating, ["prefill", "decode"])):
        spans = assembly.spans
        rows = np.flatnonzero(spans.where(kind="compile"))
        names, ends = spans.words("name").decoded(), spans.number("start") + spans.number("duration")
        assert [names[row] for row in rows] == expected
        assert ends[rows].max() <= spans.number("start")[spans.where(kind="step")].min()
        assert any(note.startswith(f"compiling {len(expected)} function") for note in assembly.notes)


def test_the_profile_tells_phases_and_layers_of_the_same_function(training: Assembly) -> None:
    spans = training.spans
    assert phases(spans, "pieces") == ["data", "forward", "loss", "backward", "optimizer"] * PIECES_STEPS
    paths, directions = spans.words("path").decoded(), spans.words("direction").decoded()
    rows = np.flatnonzero(spans.where(kind="layer", pass_="pieces"))
    found = {(paths[row], directions[row]) for row in rows}
    # What cannot be fused into anything else: convolutions, poolings and products, forward and backward.
    for path in ("features.0", "features.2", "features.3", "features.5", "features.6", "classifier.1"):
        assert (path, "forward") in found and (path, "backward") in found, path
    known = {path for path, _ in walk_layers(describe("cnn", CNN).structure())} | {"CrossEntropyLoss"}
    assert {path for path, _ in found} <= known


def test_pieces_lie_within_their_call_and_make_most_of_it(training: Assembly) -> None:
    spans = training.spans
    start, duration, parent = spans.number("start"), spans.number("duration"), spans.number("parent")
    steps = np.flatnonzero(spans.where(kind="step", pass_="pieces"))
    rows = np.flatnonzero(spans.where(kind="phase", pass_="pieces"))
    assert set(parent[rows]) == set(steps)
    for step in steps:
        own = rows[parent[rows] == step]
        assert (start[own] >= start[step]).all()
        assert (start[own] + duration[own]).max() <= start[step] + duration[step]
        assert duration[own].sum() <= duration[step]
    assert any("told apart" in note or "tells" in note for note in training.notes)


def test_generation_has_prefill_and_a_decode_for_each_token(generating: Assembly) -> None:
    spans = generating.spans
    one = ["prefill", "decode", "decode", "decode"]
    assert phases(spans, "timed") == one * 3 and phases(spans, "pieces") == one * PIECES_STEPS
    paths = spans.words("path").decoded()
    layers = {paths[row] for row in np.flatnonzero(spans.where(kind="layer", pass_="pieces"))}
    assert {"head", "blocks.0.attention.project", "blocks.1.perceptron.0"} <= layers


def test_counts_are_those_of_the_formulas(training: Assembly) -> None:
    spans = training.spans
    expected = network_costs(describe("cnn", CNN), True)
    rows = spans.where(kind="op", pass_="count")
    assert spans.metric("flops", "nominal")[rows].sum() == sum(cost.flops for cost in expected)
    assert spans.metric("bytes", "nominal")[rows].sum() == sum(cost.bytes for cost in expected)


def test_layers_that_were_fused_are_counted_where_their_time_is(tmp_path: Path) -> None:
    """XLA for a processor makes one operation of all convolutions: the layer around them has its time and its FLOPs."""
    spans = observe(tmp_path, task("cnn", CNN)).spans
    paths, parent = spans.words("path").decoded(), spans.number("parent")
    timed = {paths[row] for row in np.flatnonzero(spans.where(kind="layer", pass_="pieces"))}
    flops = spans.metric("flops", "nominal")
    counted: dict[str, float] = {}
    for row in np.flatnonzero(spans.where(kind="op", pass_="count")):
        counted[paths[parent[row]]] = counted.get(paths[parent[row]], 0) + flops[row]
    assert sum(counted.values()) == sum(cost.flops for cost in network_costs(describe("cnn", CNN), False))
    assert {path for path, value in counted.items() if value} <= timed


def test_a_run_is_summarised_in_the_words_of_all_frameworks(training: Assembly, tmp_path: Path) -> None:
    info = run_info(
        id=new_id(), created=run_now(), status="complete",
        workload={**describe("cnn", CNN).parameters(), "name": "cnn", "framework": "jax", "train": True, "samples": 4},
        target={"spec": "cpu", "device": "cpu", "threads": 1}, notes=training.notes,
    )  # fmt: skip
    summary = summarise(write_run(tmp_path, info, training.spans))
    (part,) = summary.parts
    assert part.name == "train" and part.steps + part.warmup == 5
    fused = next(row for row in part.phases if row.name == "fused")
    assert fused.cost.flops.value == sum(cost.flops for cost in network_costs(describe("cnn", CNN), True))
    first = next(row for row in part.layers if row.path == "features.0")
    assert first.name == "Conv2d" and (first.forward.value or 0) > 0 and (first.backward.value or 0) > 0
    (inside,) = (note for note in summary.notes if isinstance(note, InsideFused))
    assert {"forward", "backward", "optimizer"} <= {name for name, _ in inside.shares}


def test_on_a_gpu_kernels_are_those_of_the_function_that_launched_them(tmp_path: Path) -> None:
    """There is none here: steps run on the processor under JAX's own profiler, and a GPU is put into its trace."""
    begin = now()
    assembly = observe(tmp_path, task("mlp", {"layers": "12-8-3"}, train=True), device="cuda:0", begin=begin)
    assert len(assembly.kernels) == 1 and assembly.no_kernels == "" and set(assembly.devices) == {"0"}
    steps = assembly.spans.words("pass").decoded()[assembly.spans.where(kind="step")]
    assert [int((steps == one).sum()) for one in ("timed", "kernels", "pieces")] == [3, KERNEL_STEPS, PIECES_STEPS]
    with_gpu(tmp_path / assembly.kernels[0][0], {"train": ("loop_fusion", 12.0)})
    spans = with_kernels(assembly, tmp_path, begin).spans
    rows = np.flatnonzero(spans.where(kind="kernel", pass_="kernels"))
    assert len(rows) == KERNEL_STEPS and set(spans.number("duration")[rows]) == {12_000}
    name = spans.words("name").decoded()
    assert {name[around] for around in spans.number("parent")[rows]} == {"fused"}
    info = run_info(id=new_id(), created=run_now(), status="complete", workload={"name": "mlp", "train": True},
                   target={"spec": "cuda:0", "device": "cuda"})  # fmt: skip
    summary = summarise(write_run(tmp_path / "store", info, spans))
    assert parse_figure("device_compute_ms").value_of(summary).value == pytest.approx(0.012)
    assert {"0", "2"} <= {row.path for row in summary.parts[0].layers}


def test_a_profile_that_cannot_be_read_is_said_and_the_steps_are_kept(tmp_path: Path) -> None:
    def broken(folder: Path) -> Any:
        raise ValueError("no plane\nbegins in it")

    found = {"broken": broken, "empty": lambda folder: []}
    for name, read in found.items():
        assembly = observe(tmp_path / name, task("mlp", {"layers": "8-4"}, train=True), read)
        assert assembly.spans.where(kind="step", pass_="timed").sum() == 3
        said = [note for note in assembly.notes if note.startswith("phases and layers of compiled steps are missing")]
        assert len(said) == 1 and ("no plane" in said[0]) == (name == "broken")
        assert not (tmp_path / name / "jax-profile").exists()


def test_shorter_precisions_learn() -> None:
    """Weights stay float32 in a mixed one; the losses are those of float32 but for 8 bits of mantissa."""

    class Runner:
        def __init__(self, ready: Any) -> None:
            self.functions = {name: function for name, (function, _) in ready.functions().items()}

        def call(self, name: str, *arguments: Any) -> Any:
            return self.functions[name](*arguments)

        def phase(self, name: str) -> Any:
            return nullcontext()

    losses = {}
    shorter = ("mixed_bfloat16", "mixed_float16", "bfloat16")
    for one in ("float32", *shorter):
        ready = task("cnn", CNN, train=True, precision=one)
        runner = Runner(ready)
        losses[one] = [float(ready.step(runner)) for _ in range(3)]
        kinds = {str(values.dtype) for values in ready.weights.values()}
        assert kinds == {"float32" if one.startswith("mixed") else one}
    for one in shorter:
        assert losses[one] == pytest.approx(losses["float32"], rel=2**-6)
        assert losses[one] != losses["float32"]


def test_images_of_a_stream_are_trained_on_and_made_ahead(tmp_path: Path) -> None:
    ready = task("cnn", {"batch": "4"}, train=True, data="cifar10-like", prefetch=2)
    first = [next(ready.batches) for _ in range(3)]
    again = task("cnn", {"batch": "4"}, train=True, data="cifar10-like")
    for images, classes in first:
        others, same = next(again.batches)
        assert images.shape == (4, 3, 32, 32) and np.array_equal(images, others) and np.array_equal(classes, same)


def test_a_job_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    job = Job(workload="resnet18", options={"batch": "2", "image": "16x16", "classes": "4"}, framework="jax",
              on="cpu/1", steps=2, warmup=1, threads=1)  # fmt: skip
    begin = now()
    outcome = run_child(job, tmp_path, 1)
    spans = assemble(tmp_path, begin, now()).spans
    assert (outcome.workload["name"], outcome.workload["samples"]) == ("resnet18", 2)
    assert phases(spans, "timed") == ["forward"] * 2
    paths = spans.words("path").decoded()
    layers = {paths[row] for row in np.flatnonzero(spans.where(kind="layer", pass_="pieces"))}
    assert {"", "stem", "stages.3.1.body.3", "classifier"} <= layers
