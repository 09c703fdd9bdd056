"""Workloads in PyTensor: the mathematics of PyTorch, steps and layers in spans, whole trainings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter_ns as now
from typing import Any

import numpy as np
import pytest

from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.harness.announcer import AnnouncedObserver
from sonda.frameworks.harness.settings import Driving
from sonda.frameworks.reconstruction.assembly import Assembly, assemble
from sonda.record.errors import SondaError
from sonda.targets.job import Job, check_job
from sonda.targets.local.child import run_child
from sonda.workloads.networks.mlp import Perceptron
from sonda.workloads.operations.ops import STUDIED, Operations

pytensor = pytest.importorskip("pytensor")
torch = pytest.importorskip("torch")

from sonda.frameworks.pytensor.drive.steps import drive_network, drive_operations, run_layerwise  # noqa: E402
from sonda.workloads.in_pytensor.learner import PyTensorLearner  # noqa: E402
from sonda.workloads.in_pytensor.network import build as build_network  # noqa: E402
from sonda.workloads.in_pytensor.operations import build as build_operations  # noqa: E402

TOLERANCE = 1e-5
"""Of the largest value, for one layer and for the losses of a few steps."""
SMALL = Operations(op=STUDIED, size=3 * 2**16, inner=32)
LOSSES = ("mse", "cross_entropy")


@pytest.fixture(autouse=True)
def quickly() -> Iterator[None]:
    """Without compiling: Numba takes seconds for each function, and one test in a process of its own uses it."""
    with pytensor.config.change_flags(mode="FAST_COMPILE", floatX="float32"):
        yield


def network(loss: str = "mse", activation: str = "sigmoid") -> Perceptron:
    return Perceptron(batch=8, layers=(12, 7, 5), loss=loss, activation=activation)


def observed(place: Path, drive: Any, task: Any, root: str, train: bool = False) -> Assembly:
    begin = now()
    recorder = Recorder(str(place))
    observer = AnnouncedObserver(recorder, None, root)
    observer.open({"pytensor": pytensor.__version__}, 1)
    assert drive(task, observer, Driving(train, 4, 2, 1.0)) == (4, "vm")
    observer.finish(1)
    recorder.close()
    return assemble(place, begin, now())


# ---- mathematics --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", STUDIED)
def test_operations_give_what_pytorch_gives(op: str) -> None:
    ours, theirs = build_operations(SMALL, 7, "float32"), getattr(SMALL.in_torch(False, 7).model, op)
    for one, other in zip(ours.operands[op], theirs.operands, strict=True):
        assert np.array_equal(one.get_value(), other.detach().numpy())
    result = ours.function(op)()
    with torch.no_grad():
        expected = theirs().numpy()
    assert result.dtype == expected.dtype == np.float32 and result.shape == expected.shape
    assert np.abs(result - expected).max() <= TOLERANCE * np.abs(expected).max()


def test_training_gives_the_losses_and_weights_of_pytorch() -> None:
    """With what the cases of test_mathematics do not have."""
    description = network("cross_entropy", "relu")
    ours, theirs = build_network(description, True, 3, "float32"), description.in_torch(True, 3)
    step, batches, others, optimizer = ours.training(), ours.batches(), theirs.batches(0), theirs.optimizer()
    for _ in range(3):
        found = float(step(*next(batches)))
        inputs, target = next(others)
        optimizer.zero_grad()
        expected = theirs.loss(theirs.model(*inputs), target)
        expected.backward()
        optimizer.step()
        assert found == pytest.approx(expected.item(), rel=TOLERANCE)
    for name, values in theirs.model.state_dict().items():
        assert np.abs(ours.weights[name].get_value() - values.numpy()).max() <= TOLERANCE


def test_inference_gives_the_output_of_pytorch_and_float64_stays_float64() -> None:
    description = network()
    ours = build_network(description, False, 3, "float64")
    result = ours.inference()(ours.first())
    model = description.in_torch(False, 3).model.double()
    with torch.no_grad():
        expected = model(torch.from_numpy(ours.first())).numpy()
    assert result.dtype == np.float64 and np.abs(result - expected).max() < 1e-12


@pytest.mark.parametrize("loss", LOSSES)
def test_a_step_in_pieces_is_the_step(loss: str) -> None:
    whole, apart = (build_network(network(loss), True, 3, "float32") for _ in range(2))
    step, functions = whole.training(), apart.step_functions()
    silent = AnnouncedObserver(Recorder(""), None, "PerceptronNet")
    for _, batch in zip(range(3), whole.batches(), strict=False):
        step(*batch)
        run_layerwise(functions, silent, batch, list(apart.weights))
    for name, weight in whole.weights.items():
        assert np.abs(weight.get_value() - apart.weights[name].get_value()).max() <= TOLERANCE


# ---- spans --------------------------------------------------------------------------------------------------------


def test_operations_are_layers_and_have_the_formulas_of_hand(tmp_path: Path) -> None:
    """196,608 bytes: 128 x 128 matrices of add; 156 x 156 of one operand; dot (752 x 32) (32 x 32)."""
    spans = observed(tmp_path, drive_operations, build_operations(SMALL, 7, "float32"), "OperationList").spans
    assert [int(spans.where(kind="step", pass_=one).sum()) for one in ("warmup", "timed", "count")] == [2, 4, 1]
    names = spans.words("name").decoded()
    assert [names[row] for row in np.flatnonzero(spans.where(kind="compile"))] == list(STUDIED)
    rows = np.flatnonzero(spans.where(kind="op", pass_="count"))
    flops = {names[row]: spans.metric("flops", "nominal")[row] for row in rows}
    assert flops == {
        "pytensor.add": 128**2, "pytensor.mul": 128**2, "pytensor.scalar": 156**2, "pytensor.sigmoid": 4 * 156**2,
        "pytensor.tanh": 156**2, "pytensor.dot": 2 * 752 * 32 * 32,
    }  # fmt: skip


def test_a_training_step_is_fused_and_its_layers_are_those_of_steps_in_pieces(tmp_path: Path) -> None:
    assembly = observed(tmp_path, drive_network, build_network(network(), True, 3, "float32"), "PerceptronNet", True)
    spans = assembly.spans
    counts = {one: int(spans.where(kind="step", pass_=one).sum()) for one in ("warmup", "timed", "pieces", "count")}
    assert counts == {"warmup": 2, "timed": 4, "pieces": 5, "count": 1}
    names, path, direction = (spans.words(word).decoded() for word in ("name", "path", "direction"))
    phases = [names[row] for row in np.flatnonzero(spans.where(kind="phase", pass_="timed"))]
    assert phases == ["data", "fused"] * 4
    pieces = [names[row] for row in np.flatnonzero(spans.where(kind="phase", pass_="pieces"))]
    assert pieces == ["forward", "loss", "backward", "optimizer"] * 5
    layers = np.flatnonzero(spans.where(kind="layer", pass_="pieces"))
    found = [(path[row], names[row], direction[row]) for row in layers][:10]
    assert found == [
        ("", "PerceptronNet", "forward"), ("0", "Linear", "forward"), ("1", "Sigmoid", "forward"),
        ("2", "Linear", "forward"), ("3", "Softmax", "forward"), ("", "PerceptronNet", "backward"),
        ("3", "Softmax", "backward"), ("2", "Linear", "backward"), ("1", "Sigmoid", "backward"),
        ("0", "Linear", "backward"),
    ]  # fmt: skip
    # Forward 2·8·(12·7 + 7·5), the gradients of both weights the same, of the hidden values 2·8·7·5.
    rows = [row for row in np.flatnonzero(spans.where(kind="op", pass_="count")) if "linear" in names[row]
            or names[row].endswith(("weight_gradient", "input_gradient"))]  # fmt: skip
    products = 2 * 2 * 8 * (12 * 7 + 7 * 5) + 2 * 8 * 7 * 5
    assert spans.metric("flops", "nominal")[rows].sum() == products + 8 * (7 + 5)
    assert any("linker is vm; compiling took" in note for note in assembly.notes)


# ---- whole trainings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
def test_making_ready_learns_nothing_and_judging_counts_right_answers(loss: str) -> None:
    learner = PyTensorLearner(network(loss), 3, "float32")
    inputs = np.eye(5, 12, dtype=np.float32)
    targets = np.eye(5, dtype=np.float32) if loss == "mse" else np.arange(5)
    before = learner.arrays()
    learner.ready(inputs, targets, train=True)
    learner.ready(inputs, targets, train=False)
    assert all(np.array_equal(before[name], values) for name, values in learner.arrays().items())
    for _ in range(3000):
        learner.learn(inputs, targets)
    judged, right = learner.judge(inputs, targets)
    assert right == 5 and judged < 0.01
    wrong = np.roll(targets, 1, axis=0)
    assert learner.judge(inputs, wrong)[1] == 0


# ---- the command ----------------------------------------------------------------------------------------------------


def test_a_job_runs_under_numba_in_a_process_of_its_own(tmp_path: Path) -> None:
    job = Job(workload="ops", options={"op": "add,dot", "size": "196608", "inner": "32"}, framework="pytensor",
              on="cpu/1", steps=3, warmup=1)  # fmt: skip
    begin = now()
    outcome = run_child(job, tmp_path, 1, {"PYTENSOR_FLAGS": f"base_compiledir={tmp_path / 'compiled'}"})
    assembly = assemble(tmp_path, begin, now())
    assert (outcome.workload["name"], outcome.workload["linker"]) == ("ops", "numba")
    assert assembly.spans.where(kind="step", pass_="timed").sum() == 3
    assert set(assembly.versions) == {"python", "pytensor", "numba"} and assembly.threads == 1
    note = next(note for note in assembly.notes if "linker" in note)
    assert "cache" not in note  # the folder was empty


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"workload": "cnn"}, "cnn is not there in PyTensor; in PyTensor there is ops, mlp; or use --framework torch"),
        ({"on": "cuda:0"}, "PyTensor runs on cpu, not on cuda:0; use --framework torch"),
    ],
)
def test_what_pytensor_does_not_have_is_one_line(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(SondaError) as raised:
        check_job(Job(**{"workload": "mlp", "framework": "pytensor", **changes}))
    assert str(raised.value) == line


def test_another_operation_is_one_line() -> None:
    with pytest.raises(SondaError, match=r"ops: softmax is not there in PyTensor; use --op with some of add, dot"):
        build_operations(Operations(op=("add", "softmax")), 0, "float32")
