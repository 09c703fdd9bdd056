"""Runs as XSpace files: what is written is read back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from builders import MS, RunBuilder, training_step
from command_line import run_command
from plain_runs import run_info
from report_trace_cases import spans_of
from sonda.analysis.traces.profile import ProfileSummary, summarise_profile
from sonda.analysis.traces.verdict import profile_verdicts
from sonda.imports.xplane.file import open_space, profile_events
from sonda.record.run import Run
from sonda.report.trace import xplane
from sonda.report.trace.xplane import write_xplane
from sonda.targets.imported.launcher import import_files
from xplane_examples import H200, PROFILES, varint


def written(spans: object, path: Path, **info: object) -> Path:
    run = Run(path.parent, run_info(id="7f3a", created="2026-11-15T03:30:12+00:00", status="complete", **info))  # type: ignore[arg-type]
    run.__dict__["spans"] = spans
    return write_xplane(path, run)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 1 << 40, (1 << 63) - 1, -1, -(1 << 63)])
def test_numbers_are_written_as_an_independent_writer_does(value: int) -> None:
    assert xplane.varint(value) == varint(value)


def told(found: ProfileSummary) -> tuple[object, ...]:
    """All but what a step is called by: written steps are marked."""
    return found.steps, found.operations, found.placement


@pytest.mark.parametrize("path", [H200, *(PROFILES / f"{name}.xplane.pb.gz" for name in ("keras_fit", "jax_marked"))])
def test_a_profile_that_was_imported_and_exported_says_the_same(path: Path, tmp_path: Path) -> None:
    first = import_files([path], tmp_path / "runs")
    again = import_files([write_xplane(tmp_path / "again.xplane.pb", first)], tmp_path / "runs")
    assert len(again.spans) == len(first.spans)
    assert told(summarise_profile(again)) == told(summarise_profile(first))
    for column in ("start", "duration", "parent"):
        assert (again.spans.number(column) == first.spans.number(column)).all()


def test_steps_launches_and_metrics_are_where_xprof_looks_for_them(tmp_path: Path) -> None:
    rows = [
        {"kind": "step", "name": "train", "start": -10, "duration": 100},
        {"kind": "op", "name": "cudaLaunchKernel", "start": 5, "duration": 3, "parent": 0},
        {"kind": "kernel", "name": "gemm", "path": "model.fc", "start": 20, "duration": 30, "parent": 1, "stream": 7,
         "clock": "device", "device": "cuda:0"},
        {"kind": "phase", "name": "forward", "start": 0, "duration": 40, "parent": 0},
    ]  # fmt: skip
    spans = spans_of(rows, {"flops:nominal": [np.nan, np.nan, 2e9, np.nan]})
    path = written(spans, tmp_path / "a.xplane.pb", target={"devices": {"cuda:0": {"name": "Toy"}}})
    found = {event.name: (plane, line, event) for plane, line, event in profile_events(path)}
    # Everything is 10 ns later, because a span begins 10 ns before the run.
    assert {name: (event.start_ns, event.duration_ns) for name, (_, _, event) in found.items()} == {
        "train": (0, 100), "cudaLaunchKernel": (15, 3), "gemm": (30, 30), "forward:forward": (10, 40)
    }  # fmt: skip
    assert found["train"][2].stats == {"step_num": 0, "_r": 1}
    assert found["cudaLaunchKernel"][2].stats["correlation_id"] == found["gemm"][2].stats["correlation_id"]
    assert found["gemm"][2].stats["flops:nominal"] == 2e9
    plane, line, _ = found["gemm"]
    assert (plane.name, line.name) == ("/device:GPU:0", "Stream #7(cuda:0 stream 7)")
    assert plane.stats == {"gpu_device_name": "Toy"}
    assert found["forward:forward"][0].name == "/host:CPU"
    with open_space(path) as space:
        # 2026-11-15T03:30:12 UTC
        assert space.began_ns == 1794713412 * 10**9


def own_run() -> RunBuilder:
    """Two steps to warm up, four timed ones of 120 ms, two of a validation, and one that is counted."""
    builder = RunBuilder()
    part = builder.part("train")
    for pass_, factor, steps in (("warmup", 3.0, 2), ("timed", 1.0, 4)):
        for _ in range(steps):
            training_step(builder, part, factor, pass_)
    validating = builder.part("validate")
    for _ in range(2):
        builder.step(validating, 20, {"forward": 12, "communicate": 8})
    builder.op(training_step(builder, part, 5.0, "count")["conv"], "aten.conv2d", 1e9, 1e6)
    for row, length in ((builder.root, builder.clock), (part, builder.clock), (validating, 40 * MS)):
        builder.rows[row]["duration"] = length
    return builder


def test_a_run_of_our_own_is_read_back_with_its_timed_steps_and_what_they_are_spent_on(tmp_path: Path) -> None:
    again = import_files([written(own_run().spans(), tmp_path / "own.xplane.pb")], tmp_path / "runs")
    found = summarise_profile(again)
    train, validate = found.steps
    assert (train.name, train.durations) == ("train", (120 * MS,) * 4)
    assert (validate.name, validate.durations) == ("validate", (20 * MS,) * 2)
    # Of 120 ms: 5 wait for data, 40 + 60 + 10 are forward, backward and optimizer, 5 are covered by nothing.
    spent = {part: value.value for part, value in train.parts.items() if value.value}
    assert spent == {"input": 4 * 5 * MS, "operations": 4 * 110 * MS, "idle": 4 * 5 * MS}
    assert validate.parts["communication"].value == 2 * 8 * MS
    own = {(one.path, one.name): (one.calls, one.own) for one in found.operations}
    assert own == {
        ("data", "IteratorGetNext"): (4, 4 * 5 * MS), ("conv", "Conv2d"): (4, 4 * 25 * MS),
        ("norm", "BatchNorm2d"): (4, 4 * 10 * MS), ("Net", "Net"): (4, 4 * 3 * MS),
        ("forward", "forward"): (6, (4 * 2 + 2 * 12) * MS), ("gradients/norm", "BatchNorm2d"): (4, 4 * 20 * MS),
        ("gradients/conv", "Conv2d"): (4, 4 * 35 * MS), ("gradients/Net", "Net"): (4, 4 * 2 * MS),
        ("gradients/backward", "backward"): (4, 4 * 3 * MS), ("optimizer", "optimizer"): (4, 4 * 10 * MS),
        ("communicate", "communicate"): (2, 2 * 8 * MS),
    }  # fmt: skip
    assert "overhead" not in {one.kind for one in profile_verdicts(found, devices=False)}


def test_steps_whose_kernels_were_recorded_are_the_steps_of_a_run_on_a_gpu(tmp_path: Path) -> None:
    """Without their kernels timed steps would seem to leave the device idle."""
    rows = []
    for at, pass_ in enumerate(("timed", "kernels", "count")):
        base = len(rows)
        rows += [
            {"kind": "step", "name": "step", "start": 1000 * at, "duration": 100, "pass": pass_},
            {"kind": "phase", "name": "forward", "start": 1000 * at, "duration": 90, "parent": base, "pass": pass_},
        ]
    rows.append({"kind": "kernel", "name": "gemm", "start": 1010, "duration": 60, "parent": 3, "pass": "kernels",
                 "stream": 7, "clock": "device", "device": "cuda:0"})  # fmt: skip
    spans = spans_of(rows, {"launch_latency:measured": [np.nan] * 6 + [7.0]})
    again = import_files([written(spans, tmp_path / "gpu.xplane.pb")], tmp_path / "runs")
    (steps,) = summarise_profile(again).steps
    assert (steps.name, steps.durations, steps.device) == ("step", (100,), (60,))
    spent = {part: value.value for part, value in steps.parts.items() if value.value}
    assert spent == {"compute": 60, "operations": 30, "idle": 10}
    assert np.nanmax(again.spans.metric("launch_latency", "measured")) == 7


def test_spans_that_overlap_get_lines_of_their_own_and_disturbed_passes_too(tmp_path: Path) -> None:
    rows = [
        {"kind": "op", "name": "a", "start": 0, "duration": 10},
        {"kind": "op", "name": "b", "start": 5, "duration": 10},
        {"name": "c", "start": 0, "duration": 10, "pass": "count"},
    ]
    path = written(spans_of(rows), tmp_path / "a.xplane.pb")
    lines = {event.name: line.name for _, line, event in profile_events(path)}
    assert lines == {"a": "thread 1", "b": "thread 1, overlapping 1",
                     "c": "thread 1 · count pass (times disturbed)"}  # fmt: skip


def test_ranks_have_lines_and_devices_of_their_own(tmp_path: Path) -> None:
    rows = [
        {"kind": "kernel", "name": f"k{rank}", "start": rank, "duration": 1, "rank": rank, "clock": "device",
         "device": "cuda:0"}
        for rank in range(2)
    ]  # fmt: skip
    path = written(spans_of(rows), tmp_path / "a.xplane.pb")
    assert {event.name: plane.name for plane, _, event in profile_events(path)} == {
        "k0": "/device:GPU:0", "k1": "/device:GPU:1"
    }  # fmt: skip


def test_the_command_writes_it_and_import_reads_it(tmp_path: Path) -> None:
    assert run_command(tmp_path, "import", str(H200), "--json").returncode == 0
    done = run_command(tmp_path, "export", "last", "--xplane", "out/run.xplane.pb.gz")
    assert (done.returncode, done.stdout.strip()) == (0, "out/run.xplane.pb.gz")
    again = json.loads(run_command(tmp_path, "import", "out/run.xplane.pb.gz", "--json").stdout)
    assert again["profile"]["steps"][0]["durations_ns"] == [1141935, 359810, 196390, 194448]
    assert run_command(tmp_path, "export", "last").returncode == 2
