"""Constructed runs: spans with known durations, written down by hand, never measured."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from plain_runs import run_info
from sonda.record.run import Run
from sonda.record.spans import Spans, Words

MS = 1_000_000
"""ns in a millisecond."""

CEILINGS: dict[str, Any] = {
    "measured": "2026-11-15",
    "library": "torch 2.13.0",
    "cache_bytes": 32e6,
    "threads": {
        "1": {
            "flops": {"float32": 100e9, "float64": 50e9, "bfloat16": 300e9},
            "dram_bandwidth": 10e9,
            "cache_bandwidth": 40e9,
            "operation_ns": 1000.0,
            "training_operation_ns": 2000.0,
        }
    },
}
"""An invented machine: 100 GFLOP/s, DRAM 10 GB/s, 32 MB of cache at 40 GB/s."""

MACHINE: dict[str, Any] = {"processor": "Invented CPU", "effective_cores": 2, "ceilings": CEILINGS}


class RunBuilder:
    """Collects spans row by row, and makes a run of them that was never on disk."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.clock = 0
        self.root = self.add("run", "run", -1, 0, 0)

    def add(
        self, kind: str, name: str, parent: int, start: float, duration: float, *, path: str = "", pass_: str = "timed",
        direction: str = "", call: int = 0, metrics: dict[str, float] | None = None,
    ) -> int:  # fmt: skip
        """One span; returns its row. `start` and `duration` in ns."""
        self.rows.append(
            {"kind": kind, "name": name, "parent": parent, "start": int(start), "duration": int(duration), "path": path,
             "pass": pass_, "direction": direction, "call": call, "metrics": metrics or {}}
        )  # fmt: skip
        return len(self.rows) - 1

    def part(self, name: str) -> int:
        return self.add("part", name, self.root, self.clock, 0)

    def step(
        self, part: int, duration: float, phases: dict[str, float] | None = None, *, pass_: str = "timed",
        metrics: dict[str, float] | None = None,
    ) -> dict[str, int]:  # fmt: skip
        """A step with its phases one after the other, in ms; returns their rows by name, the step's under `step`."""
        start = self.clock
        rows = {"step": self.add("step", "step", part, start, duration * MS, pass_=pass_, metrics=metrics)}
        for name, length in (phases or {}).items():
            rows[name] = self.add("phase", name, rows["step"], start, length * MS, pass_=pass_)
            start += int(length * MS)
        self.clock += int(duration * MS)
        return rows

    def layer(self, parent: int, path: str, name: str, duration: float, direction: str = "forward", **more: Any) -> int:
        """A layer span that begins with its parent (after the children it already has), `duration` in ms."""
        inside = sum(row["duration"] for row in self.rows if row["parent"] == parent)
        start = self.rows[parent]["start"] + inside
        return self.add(
            "layer", name, parent, start, duration * MS, path=path, direction=direction,
            pass_=self.rows[parent]["pass"], **more,
        )  # fmt: skip

    def op(self, parent: int, name: str, flops: float, traffic: float) -> int:
        """An operation of a counted step."""
        metrics = {"flops:nominal": flops, "bytes:nominal": traffic}
        return self.add("op", name, parent, self.rows[parent]["start"], 1000, pass_="count", metrics=metrics)

    def spans(self) -> Spans:
        columns = sorted({column for row in self.rows for column in row["metrics"]})
        return Spans(
            {name: np.array([row[name] for row in self.rows]) for name in ("parent", "start", "duration", "call")},
            {name: Words.of(row[name] for row in self.rows) for name in ("kind", "name", "path", "pass", "direction")},
            {column: np.array([row["metrics"].get(column, np.nan) for row in self.rows]) for column in columns},
        )

    def run(self, **info: Any) -> Run:
        return with_spans(self.spans(), **info)


def with_spans(spans: Spans, **info: Any) -> Run:
    """A run in memory; `info` overrides a complete training run on one thread of the invented machine."""
    fields: dict[str, Any] = {
        "id": "7f3a9c21",
        "created": "2026-11-15T03:30:12.000+00:00",
        "status": "complete",
        "workload": {"name": "cnn", "train": True, "batch": 16, "samples": 16},
        "target": {"spec": "cpu", "device": "cpu", "threads": 1},
        "machine": MACHINE,
    }
    about = run_info(**{**fields, **info})
    run = Run(Path("in-memory") / about.id, about)
    run.spans = spans
    return run


def stepped(durations: Iterable[float], part: str = "train", **info: Any) -> Run:
    """A run whose steps take these ms; forward is always half of the step."""
    builder = RunBuilder()
    row = builder.part(part)
    for duration in durations:
        builder.step(row, duration, {"forward": duration / 2})
    return builder.run(**info)


def training_step(builder: RunBuilder, part: int, factor: float = 1.0, pass_: str = "timed", **metrics: float) -> dict:
    """One training step of a small network, 120 ms x `factor`.

    data 5, forward 40 (model 38: convolution 25, normalisation 10, 3 of its own), backward 60 (normalisation 20,
    convolution 35, model 2), optimizer 10, and 5 that no phase covers.
    """
    f = factor
    rows = builder.step(
        part, 120 * f, {"data": 5 * f, "forward": 40 * f, "backward": 60 * f, "optimizer": 10 * f}, pass_=pass_,
        metrics={name.replace("__", ":"): value for name, value in metrics.items()},
    )  # fmt: skip
    model = builder.layer(rows["forward"], "", "Net", 38 * f)
    rows["model"] = model
    rows["conv"] = builder.layer(model, "conv", "Conv2d", 25 * f)
    rows["norm"] = builder.layer(model, "norm", "BatchNorm2d", 10 * f)
    rows["norm_backward"] = builder.layer(rows["backward"], "norm", "BatchNorm2d", 20 * f, "backward")
    rows["conv_backward"] = builder.layer(rows["backward"], "conv", "Conv2d", 35 * f, "backward")
    rows["model_backward"] = builder.layer(rows["backward"], "", "Net", 2 * f, "backward")
    return rows


def count_operations(builder: RunBuilder, rows: dict[str, int]) -> None:
    """What the counted step of `training_step` did; least times on the invented machine are written beside.

    Half of the cache is 16 MB, so only the optimizer's 8 MB move at the cache's 40 GB/s.
    """
    builder.op(rows["conv"], "convolution", 2e9, 1e8)  # max(20 ms, 10 ms): compute
    builder.op(rows["norm"], "batch_norm", 1e7, 8e7)  # max(0.1 ms, 8 ms): memory
    builder.op(rows["norm_backward"], "batch_norm_backward", 1e7, 1.5e8)  # max(0.1 ms, 15 ms): memory
    builder.op(rows["conv_backward"], "convolution_backward", 3e9, 2e8)  # max(30 ms, 20 ms): compute
    builder.op(rows["optimizer"], "add", 1e6, 8e6)  # max(0.01 ms, 0.2 ms): memory, in the cache


def trained(factors: Iterable[float] = (1.0,) * 8, **info: Any) -> Run:
    """A training run with one counted step (ten times slower, as counting is) and timed steps of 120 ms x factor."""
    builder = RunBuilder()
    part = builder.part("train")
    count_operations(builder, training_step(builder, part, 10.0, "count"))
    for factor in factors:
        training_step(builder, part, factor)
    return builder.run(**info)
