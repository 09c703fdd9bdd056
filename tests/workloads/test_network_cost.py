"""Costs of networks by formula: held against hand counts and against what is counted of PyTorch's operations."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from time import perf_counter_ns as now
from typing import NamedTuple

import numpy as np
import pytest
import torch

from sonda.frameworks.collector.counters.process import Counting
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.collector.sampling.schedule import Schedule
from sonda.frameworks.harness.settings import Driving
from sonda.frameworks.reconstruction.assembly import assemble
from sonda.frameworks.torch.drive.steps import drive_task
from sonda.frameworks.torch.observe.observer import TorchObserver
from sonda.frameworks.torch.observe.process import finish
from sonda.workloads.catalogue import describe
from sonda.workloads.networks.cost import LayerCost, network_costs

NETWORKS = {
    "mlp": {"batch": "3", "layers": "7-5-4"},
    "mlp tanh": {"batch": "3", "layers": "7-6-5-4", "activation": "tanh", "loss": "cross_entropy"},
    "cnn": {"batch": "2", "image": "18x21", "channels": "1", "filters": "2-3-4", "hidden": "5", "classes": "3"},
    "resnet18": {"batch": "2", "image": "33x17", "channels": "1", "classes": "4"},
    "resnet50": {"batch": "2", "image": "9x40", "classes": "4"},
    "transformer": {"batch": "2", "length": "6", "generate": "3", "layers": "2", "width": "8", "vocabulary": "11"},
}
OTHERWISE = {
    "aten.max_pool2d_with_indices": "max_pool",
    "aten.max_pool2d_with_indices_backward": "max_pool_backward",
    "aten._scaled_dot_product_flash_attention_for_cpu": "attention",
    "aten._scaled_dot_product_flash_attention_for_cpu_backward": "attention_backward",
    "aten.stack": "", "aten.clone": "", "aten.arange": "", "aten.ones_like": "", "aten.add_": "",
}  # fmt: skip
"""PyTorch's operations that move other bytes (indices, row sums, copies, counters of batches), with our names."""
IN_INFERENCE = {"aten.native_layer_norm": "layer_norm"}
"""PyTorch keeps the statistics of rows for a backward that does not come."""


class Counted(NamedTuple):
    """An operation of PyTorch's count pass."""

    phase: str
    path: str
    name: str
    flops: int
    bytes: int


def counted(name: str, train: bool, directory: Path) -> list[Counted]:
    torch.set_num_threads(1)
    task = describe(name.partition(" ")[0], NETWORKS[name]).build("torch", train, 0)
    begin = now()
    recorder = Recorder(str(directory))
    observer = TorchObserver(recorder, torch, Schedule(count=False), Counting(str(directory)))
    observer.install()
    drive_task(task, observer, Driving(train, 1, 0, 1.0))
    finish(observer)
    recorder.close()
    spans = assemble(directory, begin, now()).spans
    names, kinds, paths = (spans.words(column).decoded() for column in ("name", "kind", "path"))
    parent, flops, moved = spans.number("parent"), spans.metric("flops", "nominal"), spans.metric("bytes", "nominal")
    found = []
    for row in np.flatnonzero(spans.where(kind="op", pass_="count")):
        phase = parent[row]
        while kinds[phase] != "phase":
            phase = parent[phase]
        if names[phase] != "data":
            found.append(Counted(names[phase], paths[parent[row]], names[row], int(flops[row]), int(moved[row])))
    return found


def by_layer(costs: list[Counted] | list[LayerCost], quantity: str) -> dict[tuple[str, str], int]:
    totals: dict[tuple[str, str], int] = defaultdict(int)
    for cost in costs:
        totals[cost.phase, cost.path] += getattr(cost, quantity)
    return {key: value for key, value in totals.items() if value}


def is_joint(cost: Counted | LayerCost) -> bool:
    """Gradients that meet: PyTorch's engine adds them under the layer that came last, we under the one that forked."""
    return cost.phase == "backward" and (cost.name if isinstance(cost, Counted) else cost.operation) in (
        "aten.add", "add",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "train"),
    [(name, train) for name in NETWORKS for train in (True, False) if (name, train) != ("resnet50", False)],
)
def test_costs_are_those_counted_of_pytorch(name: str, train: bool, tmp_path: Path) -> None:
    theirs = counted(name, train, tmp_path)
    ours = list(network_costs(describe(name.partition(" ")[0], NETWORKS[name]), train))
    if name != "transformer":  # AdamW keeps a counter for each weight
        assert sum(cost.flops for cost in theirs) == sum(cost.flops for cost in ours)
    assert sum(cost.flops for cost in theirs if is_joint(cost)) == sum(cost.flops for cost in ours if is_joint(cost))
    plain = [cost for cost in theirs if cost.phase != "optimizer" and not is_joint(cost)]
    formula = [cost for cost in ours if cost.phase != "optimizer" and not is_joint(cost)]
    assert by_layer(formula, "flops") == by_layer(plain, "flops")
    otherwise = {**OTHERWISE, **({} if train else IN_INFERENCE)}
    plain = [cost for cost in plain if cost.name not in otherwise]
    formula = [cost for cost in formula if cost.operation not in otherwise.values()]
    assert by_layer(formula, "bytes") == by_layer(plain, "bytes")


@pytest.mark.parametrize("name", NETWORKS)
def test_the_optimizer_costs_what_its_parameters_do(name: str, tmp_path: Path) -> None:
    description = describe(name.partition(" ")[0], NETWORKS[name])
    weights = list(description.build("torch", True, 0).model.parameters())
    count = sum(weight.numel() for weight in weights)
    ours = [cost for cost in network_costs(description, True) if cost.phase == "optimizer"]
    per_weight, moved = (14, 28) if name == "transformer" else (2, 12)
    assert sum(cost.flops for cost in ours) == per_weight * count
    assert sum(cost.bytes for cost in ours) == moved * count
    if name == "transformer":
        theirs = [cost for cost in counted(name, True, tmp_path) if cost.phase == "optimizer"]
        # PyTorch also adds 1 to a counter of each weight.
        assert sum(cost.flops for cost in theirs) == per_weight * count + len(weights)


def test_resnet50_costs_what_everybody_prints() -> None:
    """4.09 G multiply-adds of convolutions and the dense layer on 224 x 224, twice that in FLOPs (He et al.: 3.8)."""
    costs = network_costs(describe("resnet50", {"batch": "1", "image": "224x224"}), False)
    products = sum(cost.flops for cost in costs if cost.operation in ("convolution", "linear"))
    assert products == pytest.approx(2 * 4.089e9, rel=1e-3)


def test_a_wider_element_moves_more_bytes_and_computes_the_same() -> None:
    description = describe("mlp", NETWORKS["mlp"])
    narrow, wide = network_costs(description, True), network_costs(description, True, 8)
    assert [cost.flops for cost in narrow] == [cost.flops for cost in wide]
    assert sum(cost.bytes for cost in wide) == 2 * sum(cost.bytes for cost in narrow)
