"""Nsight Systems' SQLite: small files constructed after the schema in NVIDIA's User Guide."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from import_nsys_cases import PROCESSES, timeline
from sonda.record.errors import SondaError
from sonda.targets.imported.launcher import import_files
from trace_examples import table


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
    assert rows[7]["stream"] == 8 and run.info.machine.processor == "NVIDIA H200"


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


def changed(path: Path, script: str) -> Path:
    with closing(sqlite3.connect(timeline(path))) as base:
        base.executescript(script)
        base.commit()
    return path


def test_graphs_that_were_traced_whole_are_activities(tmp_path: Path) -> None:
    """nsys records a CUDA graph as one unless it is asked for nodes: without it the device would seem idle."""
    path = changed(
        tmp_path / "t.sqlite",
        f"""CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER,
        contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, graphId INTEGER,
        graphExecId INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (7000, 7900, 0, 1, 7, 9, {PROCESSES[0]}, 3, 4);""",
    )
    (row,) = [row for row in table(import_files([path], tmp_path / "runs")) if row["name"] == "CUDA graph 3"]
    assert (row["kind"], row["start"], row["duration"], row["device"], row["stream"]) == (
        "kernel",
        6000,
        900,
        "cuda:0",
        7,
    )


def test_copies_and_fillings_are_told_apart(tmp_path: Path) -> None:
    path = changed(
        tmp_path / "t.sqlite",
        f"""CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
        correlationId INTEGER, globalPid INTEGER, value INTEGER, bytes INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (8000, 8100, 0, 7, 20, {PROCESSES[0]}, 0, 512);
        INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (9000, 9100, 0, 1, 8, 21, {PROCESSES[0]}, 64, 0);""",
    )
    rows = [row for row in table(import_files([path], tmp_path / "runs")) if row["kind"] == "copy"]
    assert [(row["name"], row["bytes:counted"]) for row in rows] == [
        ("Memcpy HtoD", 4096), ("Memset", 512), ("Memcpy of unknown direction", 64),
    ]  # fmt: skip


def test_ranges_of_no_thread_are_counted_and_left_out(tmp_path: Path) -> None:
    path = changed(
        tmp_path / "t.sqlite",
        f"INSERT INTO NVTX_EVENTS VALUES (1000, 9000, 60, 'anywhere', {PROCESSES[0] | 5}, NULL);"
        f"INSERT INTO NVTX_EVENTS VALUES (1100, 1200, 70, 'from text', {PROCESSES[0] | 5}, NULL);",
    )
    run = import_files([path], tmp_path / "runs")
    names = [row["name"] for row in table(run)]
    assert "from text" in names and "anywhere" not in names
    assert "1 events are NVTX ranges of no thread: left out" in run.info.notes


def test_waits_say_for_which_stream_by_the_record_before_them(tmp_path: Path) -> None:
    """The event is recorded twice on stream 7; the wait of stream 8 is for the second record, 300 ns before it."""
    path = changed(
        tmp_path / "t.sqlite",
        f"""CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER, end INTEGER, deviceId INTEGER,
        streamId INTEGER, correlationId INTEGER, globalPid INTEGER, syncType INTEGER, eventId INTEGER,
        eventSyncId INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT (timestamp INTEGER, deviceId INTEGER, contextId INTEGER,
        streamId INTEGER, correlationId INTEGER, globalPid INTEGER, eventId INTEGER, eventSyncId INTEGER);
        INSERT INTO StringIds VALUES (5, 'cudaEventRecord_v3020'), (6, 'cudaStreamWaitEvent_v3020');
        INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1610, 1620, {PROCESSES[0] | 5}, 30, 5, 0),
          (1700, 1710, {PROCESSES[0] | 5}, 31, 5, 0), (2000, 2010, {PROCESSES[0] | 5}, 32, 6, 0);
        INSERT INTO CUPTI_ACTIVITY_KIND_CUDA_EVENT VALUES (0, 0, 1, 9, 30, {PROCESSES[0]}, 4, 77),
          (0, 0, 1, 7, 31, {PROCESSES[0]}, 4, 77), (0, 0, 1, 5, 33, {PROCESSES[0]}, 4, 77);
        INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (2000, 2010, 0, 8, 32, {PROCESSES[0]}, 2, 4, 77),
          (2100, 2110, 0, 8, 34, {PROCESSES[0]}, 2, 4, 0);""",
    )
    run = import_files([path], tmp_path / "runs")
    rows = [row for row in table(run) if row["name"].startswith("Stream Wait Event")]
    assert [(row["name"], row["stream"], row["event_age:measured"]) for row in rows] == [
        ("Stream Wait Event for stream 7", 8, 300), ("Stream Wait Event", 8, None),
    ]  # fmt: skip
    assert any("1 waits of streams do not say for which stream" in note for note in run.info.notes)


def test_a_table_of_an_older_nsys_that_lacks_columns(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    with closing(sqlite3.connect(path)) as base:
        base.executescript(
            """CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT); INSERT INTO StringIds VALUES (1, 'gemm');
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
            correlationId INTEGER, shortName INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 30, 0, 7, 1, 1), (40, 50, 1, 7, 2, NULL);"""
        )
        base.commit()
    rows = table(import_files([path], tmp_path / "runs"))
    assert [(row["name"], row["device"]) for row in rows] == [("gemm", "cuda:0"), ("(no name)", "cuda:1")]
    with closing(sqlite3.connect(path)) as base:
        base.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN shortName")
        base.commit()
    with pytest.raises(SondaError, match="CUPTI_ACTIVITY_KIND_KERNEL has no column demangledName"):
        import_files([path], tmp_path / "runs")
