"""Timelines of Nsight Systems: the SQLite file of `nsys export --type sqlite`.

Kernels, copies and fillings lie under the call that launched them, calls under the NVTX range of their thread. Read are
the tables that NVIDIA documents (CUPTI_ACTIVITY_KIND_KERNEL, _MEMCPY, _MEMSET, _RUNTIME, NVTX_EVENTS, StringIds).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from sonda.imports.rank_events import RankEvents
from sonda.imports.raw_event import (
    ABSENT,
    CALL,
    COLLECTIVE,
    COPY,
    EARLIEST,
    KERNEL,
    LATEST,
    OP,
    RAW,
    Source,
    is_collective,
)
from sonda.imports.spill import Spill
from sonda.record.errors import SondaError

MAGIC = b"SQLite format 3\x00"
FETCHED = 20_000
KERNELS, COPIES, FILLINGS, CALLS, RANGES = (
    "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS",
)  # fmt: skip
DIRECTIONS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH",
              10: "PtoP"}  # fmt: skip
"""CUpti_ActivityMemcpyKind."""
PUSHED = 59
"""NVTX_EVENTS.eventType of a range that was pushed and popped."""
PROCESS_SHIFT, NUMBER_MASK = 24, (1 << 24) - 1
"""A globalTid is the process and below it the thread, 24 bits each."""


def read_nsys(path: Path, directory: Path, number: int, tell: Callable[[str], None]) -> RankEvents:
    """Spill the events of one timeline into `directory`. Raises SondaError when it cannot be read or has none."""
    tell(f"reading {path.name}")
    source = Source()
    spill = Spill(directory / f"events-{number}")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as base:
            base.text_factory = lambda text: text.decode("utf-8", "replace")
            tables = _tables(base)
            if not tables & {KERNELS, COPIES, FILLINGS, CALLS}:
                raise SondaError(
                    f"{path.name} holds no CUDA activity",
                    "record with: nsys profile --trace cuda,nvtx, then nsys export",
                )
            with spill:
                for kind, query in _queries(base, tables):
                    cursor = base.execute(query)
                    while rows := cursor.fetchmany(FETCHED):
                        spill.add(_raw(kind, rows, source))
            head = {"deviceProperties": _devices(base, tables)}
    except sqlite3.Error as error:
        raise SondaError(f"{path.name} cannot be read as SQLite: {error}", "export it again with nsys export") from None
    return RankEvents(path.name, [spill], source, head)


def _tables(base: sqlite3.Connection) -> set[str]:
    return {name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}


def _columns(base: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in base.execute(f"PRAGMA table_info({table})")}


def _queries(base: sqlite3.Connection, tables: set[str]) -> Iterator[tuple[int, str]]:
    """For every table that is there, what its rows are and the question that gives them all alike:
    start, end, thread, correlation, device, stream, bytes, name, kind of copy."""
    if "StringIds" not in tables and tables & {KERNELS, CALLS}:
        raise SondaError("the table StringIds is missing", "export it again with nsys export")

    def word(table: str, *columns: str) -> str:
        known = [name for name in columns if name in _columns(base, table)]
        if not known:
            raise SondaError(f"{table} has no column {columns[0]}", "export it again with a newer nsys")
        return f"(SELECT value FROM StringIds WHERE id = t.{known[0]})"

    def column(table: str, name: str, otherwise: str = "NULL") -> str:
        return f"t.{name}" if name in _columns(base, table) else otherwise

    for kind, table in ((KERNEL, KERNELS), (COPY, COPIES), (COPY, FILLINGS)):
        if table in tables:
            name = word(table, "demangledName", "shortName") if kind == KERNEL else "NULL"
            operation = column(table, "copyKind") if table == COPIES else "0"
            yield (
                kind,
                (
                    f"SELECT t.start, t.end, {column(table, 'globalPid', '0')}, t.correlationId, t.deviceId, "
                    f"t.streamId, {column(table, 'bytes')}, {name}, {operation} FROM {table} t"
                ),
            )
    if CALLS in tables:
        yield (
            CALL,
            (
                f"SELECT t.start, t.end, t.globalTid, t.correlationId, NULL, NULL, NULL, {word(CALLS, 'nameId')}, NULL "
                f"FROM {CALLS} t"
            ),
        )
    if RANGES in tables:
        text = column(RANGES, "text")
        if "textId" in _columns(base, RANGES):
            text = f"COALESCE({text}, {word(RANGES, 'textId')})"
        kinds = f"WHERE t.eventType = {PUSHED}" if "eventType" in _columns(base, RANGES) else "WHERE t.end IS NOT NULL"
        yield OP, f"SELECT t.start, t.end, t.globalTid, NULL, NULL, NULL, NULL, {text}, NULL FROM {RANGES} t {kinds}"


def _raw(kind: int, rows: list[tuple[Any, ...]], source: Source) -> np.ndarray:
    """Rows of the questions above as raw events."""
    raw = np.empty(len(rows), dtype=RAW)
    kept = 0
    for start, end, place, correlation, device, stream, size, name, operation in rows:
        if not _is_time(start) or not _is_time(end):
            source.leave_out("have no time that can be read", 1)
            continue
        if end < start:
            source.leave_out("end before they begin", 1)
            continue
        place = place if isinstance(place, int) else 0
        process = place >> PROCESS_SHIFT
        if kind == COPY:
            name = "Memset" if operation == 0 else f"Memcpy {DIRECTIONS.get(operation, 'of unknown direction')}"
        name = name if isinstance(name, str) else "(no name)"
        # Processes count their correlation ids from 1, each for itself.
        own = (
            (process & NUMBER_MASK) << 32 | correlation if isinstance(correlation, int) and correlation >= 0 else ABSENT
        )
        actual = COLLECTIVE if kind == KERNEL and is_collective(name) else kind
        thread = source.places[process, place & NUMBER_MASK] if kind in (CALL, OP) else 0
        raw[kept] = (
            start, end - start, own, ABSENT, size if isinstance(size, int) else ABSENT, source.names[name], thread,
            _small(stream), _small(device), actual,
        )  # fmt: skip
        kept += 1
    return raw[:kept]


def _is_time(value: Any) -> bool:
    return isinstance(value, int) and EARLIEST <= value <= LATEST


def _small(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 15 else ABSENT


def _devices(base: sqlite3.Connection, tables: set[str]) -> list[dict[str, Any]]:
    if "TARGET_INFO_GPU" not in tables or not {"id", "name"} <= _columns(base, "TARGET_INFO_GPU"):
        return []
    return [{"id": number, "name": name} for number, name in base.execute("SELECT id, name FROM TARGET_INFO_GPU")]
