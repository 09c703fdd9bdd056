"""Runs as XSpace files: what is written is read back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from command_line import run_command
from sonda.analysis.profile_summary import ProfileSummary, summarise_profile
from sonda.imports.importing import import_files
from sonda.imports.xplane import open_space, profile_events
from sonda.record.run import Run, RunInfo
from sonda.report import xplane
from sonda.report.xplane import write_xplane
from test_report_trace import spans_of
from xplane_examples import H200, PROFILES, varint


def written(spans: object, path: Path, **info: object) -> Path:
    run = Run(path.parent, RunInfo(id="7f3a", created="2026-11-15T03:30:12+00:00", status="complete", **info))  # type: ignore[arg-type]
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
        "train": (0, 100), "cudaLaunchKernel": (15, 3), "gemm": (30, 30), "forward": (10, 40)
    }  # fmt: skip
    assert found["train"][2].stats == {"step_num": 0, "_r": 1}
    assert found["cudaLaunchKernel"][2].stats["correlation_id"] == found["gemm"][2].stats["correlation_id"]
    assert found["gemm"][2].stats["flops:nominal"] == 2e9
    plane, line, _ = found["gemm"]
    assert (plane.name, line.name) == ("/device:GPU:0", "Stream #7(cuda:0 stream 7)")
    assert plane.stats == {"gpu_device_name": "Toy"}
    assert found["forward"][0].name == "/host:CPU"
    with open_space(path) as space:
        # 2026-11-15T03:30:12 UTC
        assert space.began_ns == 1794713412 * 10**9


def test_spans_that_overlap_get_lines_of_their_own_and_disturbed_passes_too(tmp_path: Path) -> None:
    rows = [
        {"name": "a", "start": 0, "duration": 10},
        {"name": "b", "start": 5, "duration": 10},
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
