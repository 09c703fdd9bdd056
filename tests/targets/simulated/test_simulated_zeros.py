"""Zeros of a model on sparse engines, from the model itself to the products that are computed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from sonda.accelerators.operations.capture import capture
from sonda.accelerators.operations.program import Bags
from sonda.targets.job import Job
from sonda.targets.simulated.launcher import SPANS, read_spans, simulate_job
from sonda.targets.simulated.program import capture_program
from sonda.workloads.catalogue import describe

torch.set_num_threads(1)


def of_step(directory: Path, quantity: str, source: str) -> float:
    spans = read_spans(directory / SPANS)
    return float(spans.metric(quantity, source)[np.flatnonzero(spans.where(kind="step"))[0]])


@pytest.mark.parametrize(
    ("workload", "options"),
    [
        (
            "transformer",
            {"layers": "1", "width": "16", "heads": "2", "length": "4", "generate": "2", "vocabulary": "20"},
        ),
        ("lstm", {"hidden": "8", "length": "4", "features": "6", "layers": "1"}),
    ],
)
def test_whole_networks_on_a_sparse_engine(workload: str, options: dict[str, str], tmp_path: Path) -> None:
    simulate_job(Job(workload=workload, options=options, on="sim:sigma-128"), tmp_path)
    # Weights, keys and values stay in the multipliers and hold no zeros, so every product is computed.
    assert of_step(tmp_path, "multiplications", "simulated") == of_step(tmp_path, "flops", "nominal") / 2


@pytest.mark.parametrize("interaction", ["dot", "cat"])
def test_tables_that_are_not_kept_change_no_zero(interaction: str) -> None:
    """The program of the whole model, captured, and of the model that keeps only the rows it looks up."""
    options = {
        "arch-embedding-size": "1000-7-300", "arch-sparse-feature-size": "8", "arch-mlp-bot": "13-16-8",
        "arch-mlp-top": "9-1", "batch": "6", "num-indices-per-lookup": "20", "arch-interaction-op": interaction,
    }  # fmt: skip
    job = Job(workload="dlrm", options=options, on="sim:sigma-128", threads=1)
    workload = describe("dlrm", options)
    kinds = frozenset(("linear", "gemm"))
    whole = workload.build("torch", False, 0)
    whole.model.eval()
    expected = capture(whole.model, whole.infer, kinds).program
    task, found = capture_program(job, workload, kinds)
    assert torch.equal(task.infer(None), whole.infer(None))
    assert sum(table.num_embeddings for table in task.model.embeddings) < 1307
    assert found.calls == expected.calls
    assert found.others == expected.others
    for one, other in zip(found.operations, expected.operations, strict=True):
        assert (one.kind, one.name, one.caller) == (other.kind, other.name, other.caller)
        if isinstance(other.shape, Bags):
            assert isinstance(one.shape, Bags)
            assert (one.shape.rows, one.shape.columns) == (other.shape.rows, other.shape.columns)
            assert np.array_equal(one.shape.indices, other.shape.indices)
            assert np.array_equal(one.shape.sizes, other.shape.sizes)
            continue
        assert one.shape == other.shape
        for pattern, same in ((one.inputs, other.inputs), (one.weights, other.weights)):
            assert pattern is not None
            assert same is not None
            assert np.array_equal(pattern.bits(), same.bits())


def test_zeros_of_pruned_weights_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])  # where a model comes from stays on it
    (tmp_path / "models.py").write_text(
        "import torch\n"
        "def pruned():\n"
        "    layer = torch.nn.Linear(8, 4)\n"
        "    layer.weight.data[:, 4:] = 0\n"
        "    return layer\n"
    )
    job = Job(workload=f"{tmp_path}/models.py:pruned", options={"input": "2x8"}, on="sim:sigma-128")
    simulate_job(job, tmp_path)
    # Two samples, four outputs, four weights left in each.
    assert of_step(tmp_path, "multiplications", "simulated") == 2 * 4 * 4
