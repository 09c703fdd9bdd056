"""Nsight Systems' SQLite: a small file constructed after NVIDIA's documented schema."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sonda.imports.importing import import_files
from sonda.record.errors import SondaError
from trace_examples import table

SCHEMA = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
  streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
  streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER,
  nameId INTEGER, returnValue INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, textId INTEGER);
CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
"""
PROCESSES = [0x1000 << 24, 0x2000 << 24]


def timeline(path: Path) -> Path:
    """Two processes whose correlation ids are the same numbers: each launches one kernel, the first a copy too."""
    with closing(sqlite3.connect(path)) as base:
        base.executescript(SCHEMA)
        words = ["gemm<float>", "cudaLaunchKernel", "ncclDevKernel_AllReduce", "range by id", "cudaMemcpyAsync"]
        base.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(words))
        base.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 1, 7, 1, ?, ?, ?)",
            [(2_000, 5_000, PROCESSES[0], 0, 0), (2_500, 3_000, PROCESSES[1], 2, 2)],
        )
        base.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (6000, 6100, 0, 1, 8, 2, ?, 4096, 1)", (PROCESSES[0],)
        )
        base.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?, 0)",
            [(1_500, 1_600, PROCESSES[0] | 5, 1, 1), (1_700, 1_800, PROCESSES[1] | 6, 1, 1),
             (5_500, 5_600, PROCESSES[0] | 5, 2, 4)],
        )  # fmt: skip
        base.executemany(
            "INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)",
            [(1_000, 2_000, 59, "forward", PROCESSES[0] | 5, None), (5_400, 5_700, 59, None, PROCESSES[0] | 5, 3),
             (1_000, None, 34, "mark", PROCESSES[0] | 5, None)],
        )  # fmt: skip
        base.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H200')")
        base.commit()
    return path


def test_a_timeline_becomes_spans(tmp_path: Path) -> None:
    run = import_files([timeline(tmp_path / "t.sqlite")], tmp_path / "runs")
    rows = table(run)
    names = [row["name"] for row in rows]
    around = [names[row["parent"]] if row["parent"] >= 0 else "" for row in rows]
    found = [
        (row["name"], row["kind"], row["start"], row["duration"], parent)
        for row, parent in zip(rows, around, strict=True)
    ]
    assert found == [
        ("forward", "op", 0, 1000, ""), ("cudaLaunchKernel", "op", 500, 100, "forward"),
        ("cudaLaunchKernel", "op", 700, 100, ""), ("gemm<float>", "kernel", 1000, 3000, "cudaLaunchKernel"),
        ("ncclDevKernel_AllReduce", "collective", 1500, 500, "cudaLaunchKernel"),
        ("range by id", "op", 4400, 300, ""), ("cudaMemcpyAsync", "op", 4500, 100, "range by id"),
        ("Memcpy HtoD", "copy", 5000, 100, "cudaMemcpyAsync"),
    ]  # fmt: skip
    assert rows[3]["parent"] == 1 and rows[4]["parent"] == 2, "equal correlation ids of two processes"
    assert rows[3]["launch_latency:measured"] == 500 and rows[7]["bytes:counted"] == 4096
    assert rows[7]["stream"] == 8 and run.info.machine["processor"] == "NVIDIA H200"


def test_bad_databases_are_one_line(tmp_path: Path) -> None:
    data = timeline(tmp_path / "t.sqlite").read_bytes()
    (tmp_path / "cut.sqlite").write_bytes(data[: len(data) // 2])
    with pytest.raises(SondaError, match=r"cut.sqlite"):
        import_files([tmp_path / "cut.sqlite"], tmp_path / "runs")
    with closing(sqlite3.connect(tmp_path / "other.sqlite")) as base:
        base.execute("CREATE TABLE t (a)")
        base.commit()
    with pytest.raises(SondaError, match=r"other.sqlite holds no CUDA activity"):
        import_files([tmp_path / "other.sqlite"], tmp_path / "runs")


def test_rows_that_cannot_be_are_left_out_and_counted(tmp_path: Path) -> None:
    path = timeline(tmp_path / "t.sqlite")
    with closing(sqlite3.connect(path)) as base:
        base.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 1 WHERE demangledName = 0")
        base.execute("UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET start = NULL")
        base.commit()
    run = import_files([path], tmp_path / "runs")
    assert len(run.spans) == 6
    assert {"1 events end before they begin: left out", "1 events have no time that can be read: left out"} <= set(
        run.info.notes
    )
