"""Built-in workloads in TensorFlow: phases, layers and costs as in PyTorch, pieces that compute what the graph does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import monotonic, perf_counter_ns, sleep
from typing import Any

import numpy as np
import pytest

from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.harness.announcer import AnnouncedObserver
from sonda.frameworks.harness.settings import Driving
from sonda.frameworks.reconstruction.assembly import Assembly, assemble
from sonda.frameworks.tensorflow.drive.steps import drive_network, drive_operations
from sonda.record.errors import SondaError
from sonda.targets.adapters.tensorflow import tensorflow_device
from sonda.targets.job import Job
from sonda.targets.profiles.tensorflow_events import read_profile_events
from sonda.workloads.catalogue import describe
from sonda.workloads.networks.layers import walk_layers
from sonda.workloads.operations.ops import STUDIED, Operations

tf = pytest.importorskip("tensorflow")
SEED = 5
SMALL = {"mlp": {"layers": "12-8-3", "batch": "4"}, "cnn": {"batch": "2"}}


def network(name: str, train: bool, **how: Any) -> Any:
    from sonda.workloads.in_tensorflow.network import build

    return build(describe(name, SMALL[name]), train, SEED, **how)


def driven(task: Any, train: bool, directory: Path) -> Assembly:
    from sonda.workloads.in_tensorflow.input_pipeline import make_batches
    from sonda.workloads.in_tensorflow.layerwise import LayerwiseNetwork

    recorder = Recorder(str(directory))
    observer = AnnouncedObserver(recorder, None, task.root)
    begin = perf_counter_ns()
    observer.open({"tensorflow": tf.__version__}, 1)
    how = Driving(train, steps=3, warmup=2, seconds=1.0)
    drive_network(
        task,
        lambda told: LayerwiseNetwork(task, told),
        lambda: make_batches(task, SEED),
        observer,
        how,
        read_profile_events,
    )
    observer.finish(1)
    recorder.close()
    return assemble(directory, begin, perf_counter_ns())


class Told:
    """Keeps the order in which phases and layers are announced."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, ...]] = []

    @contextmanager
    def _heard(self, *words: str) -> Iterator[None]:
        self.heard.append(words)
        yield

    def phase(self, name: str) -> AbstractContextManager[None]:
        return self._heard("phase", name)

    def layer(self, path: str, class_name: str = "", direction: str = "forward") -> AbstractContextManager[None]:
        return self._heard("layer", path, direction)


def test_a_step_in_pieces_computes_what_the_graph_computes() -> None:
    from sonda.workloads.in_tensorflow.input_pipeline import make_batches
    from sonda.workloads.in_tensorflow.layerwise import LayerwiseNetwork

    whole, apart = network("cnn", True), network("cnn", True)
    step, told = whole.function(), Told()
    pieces = LayerwiseNetwork(apart, told)
    rows = make_batches(whole, SEED), make_batches(apart, SEED)
    for _ in range(2):
        ours, theirs = float(pieces.learn(*next(rows[1]))), float(step(*next(rows[0])))
        assert ours == pytest.approx(theirs, rel=1e-6)
    for name, values in whole.arrays().items():
        assert np.allclose(values, apart.arrays()[name], rtol=1e-5, atol=1e-7), name
    phases = [words[1] for words in told.heard if words[0] == "phase"]
    assert phases == ["forward", "loss", "backward", "optimizer"] * 2
    leaves = [path for path, node in walk_layers(whole.structure) if not node.children()]
    layers = [words for words in told.heard if words[0] == "layer"]
    assert [path for _, path, direction in layers if direction == "forward" and path in leaves] == leaves * 2
    assert [path for _, path, direction in layers if direction == "backward" and path] == leaves[::-1] * 2


PARTS = ["data", "forward", "loss", "backward", "optimizer"]


@pytest.mark.parametrize("compiled", [False, True])
def test_training_has_the_spans_of_every_framework(tmp_path: Path, compiled: bool) -> None:
    """Phases and layers are those of the function that was timed, also where XLA compiled it."""
    assembly = driven(network("cnn", True, compiled=compiled), True, tmp_path)
    spans = assembly.spans
    words = spans.words("pass").decoded()[spans.where(kind="step")]
    assert {one: int((words == one).sum()) for one in set(words)} == {"warmup": 2, "timed": 3, "pieces": 5, "count": 1}
    name = spans.words("name").decoded()
    assert list(name[spans.where(kind="phase", pass_="timed")]) == ["data", "fused"] * 3
    assert list(name[spans.where(kind="phase", pass_="pieces")]) == PARTS * 5
    assert list(name[spans.where(kind="compile")]) == ["training"]
    assert list(name[spans.where(kind="part")]) == ["train"]
    rows = spans.where(kind="layer", pass_="pieces")
    told = set(zip(spans.words("path").decoded()[rows], spans.words("direction").decoded()[rows], strict=True))
    products = ("features.0", "features.3", "features.6", "classifier.1", "classifier.3")
    assert {(path, way) for path in products for way in ("forward", "backward")} <= told
    # A pool has a kernel of its own in both; the ReLU before it under XLA, which fuses it with the bias, and otherwise
    # where this processor's kernels do not fuse it with the product.
    assert {("features.2", "forward"), ("features.2", "backward")} <= told
    assert ("features.1", "forward") in told or not compiled
    said = [note for note in assembly.notes if note.startswith("layers are those of the same function")]
    assert len(said) == 1 and ("XLA" in said[0]) == compiled
    lasted = spans.number("duration")
    inside = lasted[spans.where(kind="phase", pass_="pieces")].sum()
    assert inside <= lasted[spans.where(kind="step", pass_="pieces")].sum(), "every moment counts once"
    counted = spans.metric("flops", "nominal")[spans.where(kind="op")]
    assert np.nansum(counted) == sum(cost.flops for cost in network("cnn", True).costs)


def test_inference_is_a_forward_and_its_flops_are_those_of_the_network(tmp_path: Path) -> None:
    """mlp 12-8-3 on 4 samples: 2 x 4 x (12 x 8 + 8 x 3) for the products, 4 x 11 for biases, 4 FLOP for each of
    4 x 8 sigmoids and, at the end, of 4 x 3."""
    assembly = driven(network("mlp", False), False, tmp_path)
    spans = assembly.spans
    name = spans.words("name").decoded()
    assert list(name[spans.where(kind="phase", pass_="timed")]) == ["forward"] * 3
    assert list(name[spans.where(kind="phase", pass_="pieces")]) == ["forward"] * 5
    counted = np.nansum(spans.metric("flops", "nominal")[spans.where(kind="op")])
    assert counted == 2 * 4 * (12 * 8 + 8 * 3) + 4 * 11 + 4 * 4 * 11
    assert any(note.startswith("tracing 1 function") for note in assembly.notes)


def test_training_begins_with_the_initial_weights(tmp_path: Path) -> None:
    """Tracing runs a step, and 2 + 3 + 5 follow: the weights are those of ten steps, not eleven."""
    from sonda.workloads.in_tensorflow.input_pipeline import make_batches

    task, plain = network("mlp", True), network("mlp", True)
    driven(task, True, tmp_path)
    row = make_batches(plain, SEED)
    for _ in range(10):
        plain.learn(*next(row))
    for name, values in plain.arrays().items():
        assert np.allclose(values, task.arrays()[name], rtol=1e-5, atol=1e-7), name


@pytest.mark.parametrize("compiled", [False, True])
def test_operations_compute_what_numpy_computes(tmp_path: Path, compiled: bool) -> None:
    from sonda.workloads.in_tensorflow.operations import build

    task = build(Operations(op=STUDIED, size=3 * 2**12), SEED, "float32", compiled)
    a, b = (np.asarray(one, np.float64) for one in task.operands["dot"])
    expected = {
        "dot": a @ b, "add": np.add(*map(np.asarray, task.operands["add"])),
        "mul": np.multiply(*map(np.asarray, task.operands["mul"])),
        "scalar": 0.5 * np.asarray(task.operands["scalar"][0]),
        "sigmoid": 1 / (1 + np.exp(-np.asarray(task.operands["sigmoid"][0], np.float64))),
        "tanh": np.tanh(np.asarray(task.operands["tanh"][0], np.float64)),
    }  # fmt: skip
    for op, values in expected.items():
        found = task.functions[op](*task.operands[op]).numpy()
        assert np.abs(found - values).max() <= 1e-5 * np.abs(values).max(), op
    if compiled:
        return
    recorder = Recorder(str(tmp_path))
    observer = AnnouncedObserver(recorder, None, "OperationList")
    begin = perf_counter_ns()
    observer.open({}, 1)
    assert drive_operations(task, observer, Driving(False, 2, 1, 1.0)) == 2
    observer.finish(1)
    recorder.close()
    spans = assemble(tmp_path, begin, perf_counter_ns()).spans
    paths = spans.words("path").decoded()[spans.where(kind="layer", pass_="timed")]
    assert [path for path in paths if path] == list(STUDIED) * 2
    side = task.operands["dot"][0].shape[0]
    ops = spans.where(kind="op", name="tensorflow.dot")
    assert spans.metric("flops", "nominal")[ops].tolist() == [2 * side**3]


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16", "bfloat16", "float64"])
def test_precisions_learn(precision: str) -> None:
    """All begin with the same weights: a first loss in a short type differs by its rounding, 2^-8 at most."""
    from sonda.workloads.in_tensorflow.input_pipeline import make_batches

    task, plain = network("cnn", True, precision=precision), network("cnn", True)
    first = float(task.learn(*next(make_batches(task, SEED))))
    exact = float(plain.learn(*next(make_batches(plain, SEED))))
    assert first == pytest.approx(exact, rel=2**-6) and first != exact
    kinds = {weight.dtype.name for weight in task.weights.values()}
    assert kinds == {"float32" if precision.startswith("mixed") else precision}


@pytest.mark.parametrize(("workers", "prefetch"), [(0, None), (2, 3)])
def test_the_pipeline_gives_the_batches_of_every_framework(workers: int, prefetch: int | None) -> None:
    from sonda.workloads.in_tensorflow.input_pipeline import make_batches
    from sonda.workloads.networks.examples import batch_numbers, synthetic_examples

    task = network("mlp", True)
    inputs, targets = synthetic_examples(task.description, SEED)
    row = make_batches(task, SEED, workers, prefetch)
    for numbers, (found, kinds), _ in zip(batch_numbers(len(targets), 4, SEED), row, range(6), strict=False):
        assert np.array_equal(found.numpy(), inputs[numbers])
        assert np.array_equal(kinds.numpy(), targets[numbers])


@pytest.mark.parametrize("prefetch", [0, 2])
def test_as_many_batches_are_made_ahead_as_were_asked_for(prefetch: int) -> None:
    """tf.data by itself would make one ahead, asked or not, so that loading ahead could not be compared with none."""
    from sonda.workloads.data.image_stream import image_stream
    from sonda.workloads.in_tensorflow.input_pipeline import make_batches

    task = network("cnn", True)
    stream = image_stream(task.description, "cifar10-like", SEED, False)
    made: list[int] = []

    class Counted:
        shape, places = stream.shape, stream.places

        def example(self, place: int) -> Any:
            made.append(place)
            return stream.example(place)

    row = make_batches(task, SEED, 0, prefetch, Counted())  # type: ignore[arg-type]
    expected = stream.batches(task.samples)
    until = monotonic() + 60
    for taken in range(1, 9):
        images, kinds = next(row)
        while len(made) < (taken + prefetch) * task.samples and monotonic() < until:
            sleep(0.001)
        # While these are made once more, what makes batches ahead has the time to make one too many, eight times.
        planes, labels = next(expected)
        assert np.array_equal(images.numpy(), planes.transpose(0, 2, 3, 1)) and np.array_equal(kinds.numpy(), labels)
        assert len(made) == (taken + prefetch) * task.samples


def test_a_gpu_that_is_not_there_is_said() -> None:
    with pytest.raises(SondaError, match="finds no GPU that it can use"):
        tensorflow_device(Job(workload="cnn", framework="tensorflow", on="cuda:0"), tf)


def test_an_operation_that_is_not_there_is_said() -> None:
    from sonda.workloads.in_tensorflow.operations import build

    with pytest.raises(SondaError, match="softmax is not there in TensorFlow"):
        build(Operations(op=("softmax",)), SEED, "float32", False)
