"""Helpers of `test_verdicts.py` that other tests use too."""

from __future__ import annotations

import dataclasses

from plain_runs import typed
from sonda.analysis.summary import Cost, LayerRow, PartSummary, PhaseRow, Summary, Value

STEP = 100e6


PEAKS = {
    "float32": Value(100e9, "FLOP/s", "measured"),
    "bfloat16": Value(300e9, "FLOP/s", "measured"),
}


CEILINGS = {
    "flops": PEAKS["float32"],
    "dram_bandwidth": Value(10e9, "B/s", "measured"),
    "cache_bandwidth": Value(40e9, "B/s", "measured"),
    "peaks": PEAKS,
}


MISSING = Value(None, "1", "derived", reason="no operation was counted here")


def cost(
    percent: float, bound: str = "", reached: float = 0.0, moved: float = 0.0, cached: float = 0.0, ops: float = 4
):
    """Work that takes `percent` of a step of 100 ms, of which `reached` is what its bound explains."""
    time = percent / 100 * STEP
    limits = {"compute": 0.0, "memory": 0.0, "overhead": 0.0}
    if bound:
        limits[bound] = reached * time
    return Cost(
        time=Value(time, "ns", "measured"), share=percent / 100, flops=Value(1e9, "FLOP", "nominal"),
        bytes=Value(moved, "B", "nominal"), achieved=MISSING, bandwidth=MISSING, roof=Value(reached, "1", "derived"),
        bound=bound, operations=Value(ops, "1", "counted"), limits=limits, cached=cached,
    )  # fmt: skip


def bare(percent: float) -> Cost:
    """Time in which nothing was counted."""
    return dataclasses.replace(cost(percent), flops=MISSING, roof=MISSING, operations=MISSING, limits={})


def layer(path: str, name: str, found: Cost) -> LayerRow:
    time = found.time
    return LayerRow(path, name, 1, True, 1, time, MISSING, time, found, MISSING, found)


def phase(name: str, found: Cost) -> PhaseRow:
    return PhaseRow(name, found, MISSING)


def summary(phases: list[PhaseRow] = (), layers: list[LayerRow] = (), **more) -> Summary:
    value = Value(STEP, "ns", "measured")
    part = PartSummary(
        "train", value, 20, 0, (STEP,) * 20, 0.01, MISSING, MISSING, tuple(phases), tuple(layers), {},
    )  # fmt: skip
    fields = {
        "ceilings": CEILINGS,
        "workload": {"name": "cnn", "batch": 16, "train": True},
        "target": {"spec": "cpu", "threads": 1, "device": "cpu"},
        "machine": {"effective_cores": 2},
    }
    return Summary("7f3a", "", "", "complete", (part,), (), (), notes=(), **typed({**fields, **more}))
