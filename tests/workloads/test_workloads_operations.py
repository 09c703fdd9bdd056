"""Single operations: their sizes as the study counts them, and their results against NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch

from sonda.workloads.catalogue import describe
from sonda.workloads.operations.ops import OPERATIONS, Operations

SMALL = {"size": "64KiB", "channels": "4", "heads": "2", "columns": "8", "bags": "5", "indices": "3", "batch": "2"}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def result(op: str, train: bool = False) -> tuple[np.ndarray, list[np.ndarray], Any]:
    task = describe("ops", {**SMALL, "op": op}).build("torch", train, 3)
    (output,) = task.infer(lambda name: nullcontext())
    (module,) = task.model.children()
    return output.double().numpy(), [operand.detach().double().numpy() for operand in module.operands], module


def softmax(values: np.ndarray) -> np.ndarray:
    raised = np.exp(values - values.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


REFERENCES = {
    "add": lambda a, b: a + b,
    "dot": lambda a, b: np.einsum("ik,kj->ij", a, b),
    "mul": lambda a, b: a * b,
    "scalar": lambda a: a / 2,
    "sigmoid": lambda a: 1 / (1 + np.exp(-a)),
    "tanh": lambda a: (np.exp(a) - np.exp(-a)) / (np.exp(a) + np.exp(-a)),
    "softmax": softmax,
    "pooling": lambda maps: maps.reshape(*maps.shape[:2], maps.shape[2] // 2, 2, -1, 2).max(axis=(3, 5)),
    "layer_norm": lambda a, scale, shift: (
        (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5) * scale + shift
    ),
    "batch_norm": lambda maps, scale, shift: (
        maps / np.sqrt(1 + 1e-5) * scale[:, None, None] + shift[:, None, None]  # running statistics: mean 0, variance 1
    ),
    "attention": lambda q, k, v: softmax(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3])) @ v,
}


@pytest.mark.parametrize("op", REFERENCES)
def test_results_equal_numpy(op: str) -> None:
    output, operands, _ = result(op)
    np.testing.assert_allclose(output, REFERENCES[op](*operands), rtol=1e-4, atol=1e-4)


def test_convolution_equals_the_sum_over_shifted_images() -> None:
    output, (maps, kernel), _ = result("convolution")
    padded = np.pad(maps, ((0, 0), (0, 0), (1, 1), (1, 1)))
    side = maps.shape[2]
    expected = sum(
        np.einsum("nchw,oc->nohw", padded[:, :, y : y + side, x : x + side], kernel[:, :, y, x])
        for y in range(3)
        for x in range(3)
    )
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-4)


def test_embedding_bag_sums_its_rows() -> None:
    output, (table,), module = result("embedding_bag")
    assert module.indices.shape == (5, 3)
    np.testing.assert_allclose(output, table[module.indices.numpy()].sum(1), rtol=1e-5, atol=1e-5)


def test_batch_norm_in_training_uses_the_batch() -> None:
    task = describe("ops", {**SMALL, "op": "batch_norm"}).build("torch", True, 3)
    (output,) = task.model()
    (module,) = task.model.children()
    maps, scale, shift = (operand.detach() for operand in module.operands)
    centred = (maps - maps.mean((0, 2, 3), keepdim=True)) / (
        maps.var((0, 2, 3), correction=0, keepdim=True) + 1e-5
    ).sqrt()
    torch.testing.assert_close(output, centred * scale[:, None, None] + shift[:, None, None], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("op", "matrices"), [("add", 3), ("mul", 3), ("dot", 3), ("scalar", 2), ("tanh", 2)])
def test_a_size_holds_all_matrices_of_an_operation(op: str, matrices: int) -> None:
    workload = describe("ops", {"op": op, "size": "96MiB"})
    assert isinstance(workload, Operations)
    side = workload.operands(op)[0][0]
    assert matrices * 4 * side**2 <= 96 * 2**20 < matrices * 4 * (side + 1) ** 2


@pytest.mark.parametrize(("size", "rows"), [(5, 1024), (9, 2048), (17, 4096), (33, 8192), (65, 16384)])
def test_the_sizes_of_dot_in_the_study_are_round_shapes(size: int, rows: int) -> None:
    workload = describe("ops", {"op": "dot", "size": f"{size}MiB", "inner": "512"})
    assert isinstance(workload, Operations)
    assert workload.operands("dot") == ((rows, 512), (512, 512))
    assert 4 * (rows * 512 + 512 * 512 + rows * 512) == size * 2**20


def test_every_operation_is_a_layer_in_the_order_asked_for() -> None:
    model = describe("ops", {**SMALL, "op": "tanh,add"}).build("torch", False, 0).model
    assert [name for name, _ in model.named_children()] == ["tanh", "add"]
    everything = describe("ops", {**SMALL, "op": "all"}).build("torch", False, 0).model
    assert [name for name, _ in everything.named_children()] == list(OPERATIONS)


@pytest.mark.parametrize("op", OPERATIONS)
def test_training_gives_every_operand_a_gradient(op: str) -> None:
    task = describe("ops", {**SMALL, "op": op}).build("torch", True, 0)
    inputs, target = next(iter(task.batches(0)))
    task.loss(task.model(*inputs), target).backward()
    task.optimizer().step()
    gradients = [parameter.grad for parameter in task.model.parameters()]
    assert gradients
    assert all(gradient is not None and torch.isfinite(gradient.to_dense()).all() for gradient in gradients)
