"""Helpers of `test_gpu_roofline.py` that other tests use too."""

from __future__ import annotations

from typing import Any

from builders import RunBuilder, with_spans

FIGURE = {"words": "132 SMs x 256 FLOP x 1.980 GHz, dense, cores", "source": "a datasheet"}


ENTRY: dict[str, Any] = {
    "measured": "2026-11-15T00:00:00+00:00", "library": "torch 2.11.0", "cache_bytes": 40e6,
    "flops": {"float32": 50e12, "tf32": 400e12, "bfloat16": 800e12},
    "dram_bandwidth": 4e12, "cache_bandwidth": 8e12, "operation_ns": 5000.0, "training_operation_ns": 9000.0,
    "theory": {"card": "H200 SXM", "dram_bandwidth": {"value": 5e12, **FIGURE},
               "flops": {"float32": {"value": 62.5e12, **FIGURE}, "tf32": {"value": 500e12, **FIGURE}}},
}  # fmt: skip


MACHINE: dict[str, Any] = {"processor": "Invented CPU", "ceilings": {"devices": {"cuda:0": ENTRY}}}


def gpu_run(**info):
    """Inference, 8 timed steps of 2 ms on the GPU, with a convolution and a sum; least times are written beside."""
    builder = RunBuilder()
    part = builder.part("test")
    counted = builder.step(part, 20, {"forward": 20}, pass_="count")
    model = builder.layer(counted["forward"], "", "Net", 20)
    builder.op(builder.layer(model, "conv", "Conv2d", 10), "convolution", 40e9, 80e6)  # float32 0.8 ms; TF32 0.1 ms
    builder.op(builder.layer(model, "add", "Add", 10), "add", 1e8, 1.2e9)  # 0.3 ms at 4 TB/s
    for _ in range(8):
        rows = builder.step(part, 2, {"forward": 2})
        model = builder.layer(rows["forward"], "", "Net", 2)
        builder.layer(model, "conv", "Conv2d", 1)
        builder.layer(model, "add", "Add", 0.5)
    target = {"spec": "cuda:0", "device": "cuda", "threads": 4}
    return with_spans(builder.spans(), **{"target": target, "machine": MACHINE,
                                          "workload": {"name": "net", "train": False}, **info})  # fmt: skip
