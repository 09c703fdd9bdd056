"""Causes of a program on a GPU, and of one that leaves cores idle: planted facts, and what follows from them by hand.

A step takes 100 ms.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from sonda.analysis.rules.device import slow_products, synchronisation, transfer
from sonda.analysis.rules.judge import verdicts
from sonda.analysis.rules.operations import allocation, optimizer, tiny_operations
from sonda.analysis.rules.program import single_thread
from sonda.analysis.summary import DeviceSide, Summary, Value, Verdict
from sonda.frameworks.torch.observe.counting.operation_groups import _find_crossing
from sonda.record.evidence import StepEvidence
from sonda.record.spans import Spans, Words
from sonda.report.words import describe
from sonda.targets.profiles.kernels import _sum_calls
from verdicts_cases import CEILINGS, MISSING, STEP, cost, layer, phase, summary

MS = 1e6
PHASES = [phase("transfer", cost(10)), phase("forward", cost(40)), phase("backward", cost(40)),
          phase("optimizer", cost(10))]  # fmt: skip
PEAKS = {"peaks": {"float32": Value(50e12, "FLOP/s", "measured"), "tf32": Value(400e12, "FLOP/s", "measured")}}


def on_gpu(busy: float, calls: dict[str, tuple[int, float]] | None = None, **evidence: Any) -> Summary:
    """A program whose GPU is busy for this part of the step. `calls`: how often a step calls the driver, and for how
    many ms."""
    device = DeviceSide(MISSING, MISSING, busy, Value(STEP, "ns", "measured"), *(MISSING,) * 5, {}, 3)
    facts = [{"name": name, "count": count, "ns": ms * MS} for name, (count, ms) in (calls or {}).items()]
    whole = summary(
        PHASES, [layer("body", "Linear", cost(60, "", 0.1))], ceilings={**CEILINGS, **PEAKS},
        workload={"name": "program", "framework": "torch", "train": True, "device_calls": facts},
        target={"spec": "", "threads": 16, "device": "cuda", "tf32": {"matmul": False, "convolution": True}},
    )  # fmt: skip
    step = msgspec.convert({"part": "train", "start": 1, **evidence}, StepEvidence)
    return dataclasses.replace(
        whole,
        parts=(dataclasses.replace(whole.parts[0], device=device),),
        workload=msgspec.structs.replace(whole.workload, evidence=[step]),
    )


def group(operations: int, family: str, line: str, **more: Any) -> dict[str, Any]:
    return {"phase": "forward", "operations": operations, "ns": int(MS), "family": family, "line": line, **more}


def told(verdict: Verdict | None) -> Verdict:
    assert verdict is not None
    assert describe(verdict.finding).endswith(".") and all(describe(remedy.advice) for remedy in verdict.remedies)
    return verdict


def test_a_gpu_that_is_asked_again_and_again_is_idle_meanwhile() -> None:
    """400 questions take 40 of 100 ms, and the GPU is idle for 70 of them."""
    asking = [group(400, "ask", "train.py:7")]
    verdict = told(synchronisation.rule(on_gpu(0.3, {"StreamSynchronize": (400, 40)}, groups=asking)))
    assert verdict.share == pytest.approx(0.40)
    assert verdict.place is not None and (verdict.place.file, verdict.place.line) == ("train.py", 7)


def test_asking_a_busy_gpu_costs_nothing() -> None:
    """The host waits for 90 ms at the end of each step, in which the GPU computes."""
    asking = [group(1, "ask", "train.py:9")]
    assert synchronisation.rule(on_gpu(0.98, {"StreamSynchronize": (1, 90)}, groups=asking)) is None


def test_memory_that_is_given_back_and_taken_again() -> None:
    verdict = told(allocation.rule(on_gpu(0.5, {"Malloc": (20, 20), "Free": (20, 10)})))
    assert verdict.share == pytest.approx(0.30)
    assert allocation.rule(on_gpu(0.5, {"Malloc": (1, 2)})) is None


def test_products_without_tf32_where_the_gpu_is_eight_times_as_fast_in_it() -> None:
    products = [group(10, "product", "net.py:5", layer="body", bits=32)]
    assert told(slow_products.rule(on_gpu(0.9, groups=products))).share == pytest.approx(0.60 * 7 / 8)
    half = [group(10, "product", "net.py:5", layer="body", bits=16)]
    assert slow_products.rule(on_gpu(0.9, groups=half)) is None


def test_products_that_may_use_tf32_are_as_fast_as_they_can_be() -> None:
    program = on_gpu(0.9, groups=[group(10, "product", "net.py:5", layer="body", bits=32)])
    allowed = msgspec.structs.replace(program.target, tf32={"matmul": True, "convolution": True})
    assert slow_products.rule(dataclasses.replace(program, target=allowed)) is None


def test_a_loop_that_launches_takes_what_the_gpu_is_idle() -> None:
    """200 launches of one line, and 30 elsewhere: the GPU is idle for 70 ms, 10 of which are in the driver."""
    groups = [group(200, "product", "net.py:5"), group(30, "other", "net.py:9")]
    verdict = told(tiny_operations.rule(on_gpu(0.3, {"Malloc": (1, 10)}, groups=groups)))
    assert verdict.share == pytest.approx(0.60)
    assert tiny_operations.rule(on_gpu(0.3, groups=[group(40, "product", "net.py:5")])) is None
    assert tiny_operations.rule(on_gpu(0.9, groups=groups)) is None


def test_a_line_that_asks_is_no_loop_that_launches() -> None:
    groups = [group(200, "ask", "net.py:5"), group(200, "pointwise", "net.py:5")]
    assert tiny_operations.rule(on_gpu(0.3, groups=groups)) is None


def test_a_transfer_has_its_line() -> None:
    verdict = told(transfer.rule(on_gpu(0.5, groups=[group(2, "to_device", "train.py:30", phase="transfer")])))
    assert verdict.share == pytest.approx(0.10)
    assert verdict.place is not None and verdict.place.line == 30


def test_an_optimizer_elsewhere_takes_the_copies_of_gradients_and_weights_too() -> None:
    """8 of 16 MB that are copied are its own, so half of the transfer's 10 ms, and its own 10 ms."""
    update = {"optimizer": "Adam", "tensors": 2, "elements": 1_000_000, "weight_bits": 32, "elsewhere": True}
    groups = [group(2, "to_host", "train.py:30", bytes=16e6)]
    verdict = told(optimizer.rule(on_gpu(0.5, updates=[update], groups=groups)))
    assert verdict.share == pytest.approx(0.15)


def test_what_makes_the_gpu_wait_is_said_and_not_that_it_waits() -> None:
    asking = [group(400, "ask", "train.py:7")]
    kinds = [verdict.kind for verdict in verdicts(on_gpu(0.3, {"StreamSynchronize": (400, 60)}, groups=asking))[0]]
    assert kinds[0] == "synchronisation" and "host" not in kinds


def test_all_cores_save_half_of_what_one_thread_computes() -> None:
    """The layer takes 60 ms of the step on one of two cores."""
    large = [group(1, "product", "net.py:5", layer="body", flops=1e12)]
    whole = summary(
        PHASES, [layer("body", "Linear", cost(60, "", 0.1))],
        workload={"name": "program", "framework": "torch", "train": True, "threads_line": "train.py:3"},
        target={"spec": "", "threads": 1, "device": "cpu"},
    )  # fmt: skip
    step = msgspec.convert({"part": "train", "start": 1, "groups": large}, StepEvidence)
    program = dataclasses.replace(whole, workload=msgspec.structs.replace(whole.workload, evidence=[step]))
    assert told(single_thread.rule(program)).share == pytest.approx(0.30)
    both = msgspec.structs.replace(program.target, threads=2)
    assert single_thread.rule(dataclasses.replace(program, target=both)) is None


@pytest.mark.parametrize(
    ("name", "family", "devices", "dtype", "expected"),
    [
        ("aten._local_scalar_dense", "other", ["cuda"], "float", "ask"),
        ("aten._local_scalar_dense", "other", ["cpu"], "float", ""),
        ("aten.index", "other", ["cuda", "cuda"], "bool", "ask"),
        ("aten.index", "other", ["cuda", "cuda"], "int64", ""),
        ("aten.copy_", "copy", ["cpu", "cuda"], "float", "to_host"),
        ("aten.copy_", "copy", ["cuda", "cpu"], "float", "to_device"),
        ("aten._to_copy", "copy", ["cuda", "cpu"], "float", "to_host"),
        ("aten._to_copy", "copy", ["cpu", "cuda"], "float", "to_device"),
        ("aten.clone", "copy", ["cuda"], "float", ""),
    ],
)
def test_what_speaks_with_a_gpu(name: str, family: str, devices: list[str], dtype: str, expected: str) -> None:
    tensors = [SimpleNamespace(device=SimpleNamespace(type=device), dtype=dtype) for device in devices]
    assert _find_crossing(SimpleNamespace(bool="bool"), name, family, tensors) == expected


def words(*names: str) -> Words:
    return Words(np.arange(len(names), dtype=np.int32), list(names))


def test_calls_that_wait_are_added_up_inside_of_recorded_steps() -> None:
    spans = Spans(
        {"start": np.array([0, 100, 300]), "duration": np.array([50, 100, 100]), "rank": np.zeros(3, dtype=np.int64)},
        {"kind": Words(np.zeros(3, dtype=np.int32), ["step"]),
         "pass": Words(np.array([0, 1, 1], dtype=np.int32), ["timed", "kernels"])},
    )  # fmt: skip
    names = ("cudaMalloc", "cudaMalloc", "cudaStreamSynchronize", "cudaLaunchKernel", "cudaDeviceSynchronize")
    start = np.array([10, 120, 310, 130, 250])
    trace = Spans({"start": start, "duration": np.array([5, 6, 8, 9, 40])}, {"name": words(*names)})
    assert _sum_calls(spans, trace, start, 0) == [
        {"name": "Malloc", "count": 0.5, "ns": 3.0},
        {"name": "StreamSynchronize", "count": 0.5, "ns": 4.0},
    ]
