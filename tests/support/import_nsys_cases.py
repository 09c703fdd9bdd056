"""Helpers of `test_import_nsys.py` that other tests use too."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

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
