"""Timelines of Nsight Systems: the SQLite file of `nsys export --type sqlite`.

Kernels, graphs, copies and fillings lie under the call that launched them, calls under the NVTX range of their thread.
Tables and columns are those of NVIDIA's documented schema (Nsight Systems' User Guide, SQLite Schema Reference): tables
are there only where something was recorded, and columns come and go between versions. Of NVTX, ranges that were pushed
and popped are read; those that start and end anywhere belong to no thread and are counted as left out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from sonda.imports.trace.ranks import RankEvents
from sonda.imports.trace.raw_events import (
    ABSENT,
    CALL,
    COLLECTIVE,
    COPY,
    EARLIEST,
    KERNEL,
    LATEST,
    OP,
    RAW,
    WAIT,
    EventTables,
    is_collective,
)
from sonda.imports.trace.spill import Spill
from sonda.record.errors import SondaError
from sonda.record.progress import Say

MAGIC = b"SQLite format 3\x00"
FETCHED = 20_000
KERNELS, COPIES, FILLINGS, CALLS, RANGES, GRAPHS, WAITS, RECORDS = (
    "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
)  # fmt: skip
DIRECTIONS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH",
              10: "PtoP"}  # fmt: skip
"""CUpti_ActivityMemcpyKind."""
SYNCHRONISATIONS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
"""CUpti_ActivitySynchronizationType, in Kineto's words."""
PUSHED = (59, 70)
"""NVTX_EVENTS.eventType of ranges that were pushed and popped, and of those from a text file."""
STARTED = (60, 71)
"""Of ranges that start on one thread and end on any."""
PROCESS_SHIFT, NUMBER_MASK = 24, (1 << 24) - 1
"""A globalTid is the process and below it the thread, 24 bits each."""


def read_nsys(path: Path, directory: Path, number: int, say: Say) -> RankEvents:
    """Spill the events of one timeline into `directory`. Raises SondaError when it cannot be read or has none."""
    say(f"reading {path.name}")
    source = EventTables()
    spill = Spill(directory / f"events-{number}")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as base:
            base.text_factory = lambda text: text.decode("utf-8", "replace")
            tables = _tables(base)
            if not tables & {KERNELS, COPIES, FILLINGS, CALLS, GRAPHS}:
                raise SondaError(
                    f"{path.name} holds no CUDA activity",
                    "record with: nsys profile --trace cuda,nvtx, then nsys export",
                )
            with spill:
                for kind, query in _queries(base, tables):
                    cursor = base.execute(query)
                    while rows := cursor.fetchmany(FETCHED):
                        spill.add(_raw_events(kind, rows, source))
            source.leave_out("are NVTX ranges of no thread", _count_started(base, tables))
            head = {"deviceProperties": _devices(base, tables)}
    except sqlite3.Error as error:
        raise SondaError(f"{path.name} cannot be read as SQLite: {error}", "export it again with nsys export") from None
    return RankEvents(path.name, [spill], source, head)


def _tables(base: sqlite3.Connection) -> set[str]:
    return {name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}


def _columns(base: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in base.execute(f"PRAGMA table_info({table})")}


class _Table:
    """A table of the file: the expressions that give its columns, or NULL for those that it does not have."""

    def __init__(self, base: sqlite3.Connection, name: str) -> None:
        self._name = name
        self.columns = _columns(base, name)

    def get(self, column: str, otherwise: str = "NULL") -> str:
        return f"t.{column}" if column in self.columns else otherwise

    def need(self, *columns: str) -> str:
        """The first of these that is there. Raises SondaError when none is."""
        known = [name for name in columns if name in self.columns]
        if not known:
            raise SondaError(f"{self._name} has no column {columns[0]}", "export it again with a newer nsys")
        return f"t.{known[0]}"

    def word(self, *columns: str) -> str:
        return f"(SELECT value FROM StringIds WHERE id = {self.need(*columns)})"

    def query(self, place: str, name: str, *, size: str = "NULL", recorded: str = "NULL", where: str = "") -> str:
        return (
            f"SELECT {self.need('start')}, {self.need('end')}, {place}, {self.get('correlationId')}, "
            f"{self.get('deviceId')}, {self.get('streamId')}, {size}, {name}, {recorded} FROM {self._name} t {where}"
        )


def _queries(base: sqlite3.Connection, tables: set[str]) -> Iterator[tuple[int, str]]:
    """For every table that is there, what its rows are and the question that gives them all alike: start, end, thread
    or process, correlation, device, stream, bytes or the stream that is waited for, name, correlation of the record."""
    if "StringIds" not in tables and tables & {KERNELS, CALLS}:
        raise SondaError("the table StringIds is missing", "export it again with nsys export")
    # In one order, so that what begins and ends together has the same rows whenever the file is read.
    for name in (table for table in (KERNELS, GRAPHS, COPIES, FILLINGS) if table in tables):
        table = _Table(base, name)
        process = table.get("globalPid", "0")
        if name == KERNELS:
            yield KERNEL, table.query(process, table.word("demangledName", "shortName"))
        elif name == GRAPHS:
            yield KERNEL, table.query(process, f"'CUDA graph ' || COALESCE({table.get('graphId')}, '')")
        elif name == FILLINGS:
            yield COPY, table.query(process, "'Memset'", size=table.get("bytes"))
        else:
            yield (
                COPY,
                table.query(process, f"'Memcpy ' || {_direction(table.get('copyKind'))}", size=table.get("bytes")),
            )
    if CALLS in tables:
        table = _Table(base, CALLS)
        yield CALL, table.query(table.need("globalTid"), table.word("nameId"))
    if WAITS in tables:
        yield WAIT, _waits(base, tables)
    if RANGES in tables:
        table = _Table(base, RANGES)
        text = table.get("text")
        if "textId" in table.columns and "StringIds" in tables:
            text = f"COALESCE({text}, {table.word('textId')})"
        kinds = f"WHERE t.eventType IN {PUSHED}" if "eventType" in table.columns else "WHERE t.end IS NOT NULL"
        yield OP, table.query(table.need("globalTid"), text, where=kinds)


def _direction(kind: str) -> str:
    cases = " ".join(f"WHEN {number} THEN '{word}'" for number, word in DIRECTIONS.items())
    return f"CASE {kind} {cases} ELSE 'of unknown direction' END"


def _waits(base: sqlite3.Connection, tables: set[str]) -> str:
    """Waits, with the stream and the call of the record that they wait for, where the file links them."""
    table = _Table(base, WAITS)
    cases = " ".join(f"WHEN {number} THEN '{word}'" for number, word in SYNCHRONISATIONS.items())
    name = f"CASE {table.need('syncType')} {cases} ELSE 'Sync' END"
    stream = recorded = "NULL"
    linked = {"eventSyncId", "globalPid", "correlationId"}
    if RECORDS in tables and linked <= table.columns and linked | {"streamId"} <= _columns(base, RECORDS):
        base.execute(f"CREATE TEMP TABLE records AS SELECT {', '.join(sorted(linked))}, streamId FROM {RECORDS}")
        base.execute("CREATE INDEX temp.by_event ON records (eventSyncId, globalPid, correlationId)")
        # The last record before the wait: an event may be recorded again and again.
        rows = (
            "FROM temp.records r WHERE r.eventSyncId = t.eventSyncId AND t.eventSyncId > 0 AND "
            "r.globalPid = t.globalPid AND r.correlationId < t.correlationId ORDER BY r.correlationId DESC LIMIT 1"
        )
        stream, recorded = f"(SELECT r.streamId {rows})", f"(SELECT r.correlationId {rows})"
    return table.query(table.get("globalPid", "0"), name, size=stream, recorded=recorded)


def _count_started(base: sqlite3.Connection, tables: set[str]) -> int:
    if RANGES not in tables or "eventType" not in _columns(base, RANGES):
        return 0
    return int(base.execute(f"SELECT COUNT(*) FROM {RANGES} WHERE eventType IN {STARTED}").fetchone()[0])


def _raw_events(kind: int, rows: list[tuple[Any, ...]], source: EventTables) -> np.ndarray:
    """Rows of the questions above as raw events."""
    raw = np.empty(len(rows), dtype=RAW)
    written = 0
    for start, end, place, correlation, device, stream, size, name, recorded in rows:
        if not _is_time(start) or not _is_time(end):
            source.leave_out("have no time that can be read", 1)
            continue
        if end < start:
            source.leave_out("end before they begin", 1)
            continue
        place = place if isinstance(place, int) else 0
        process = place >> PROCESS_SHIFT
        name = name if isinstance(name, str) else "(no name)"
        actual = COLLECTIVE if kind == KERNEL and is_collective(name) else kind
        thread = source.places[process, place & NUMBER_MASK] if kind in (CALL, OP) else 0
        raw[written] = (
            start, end - start, _unique_correlation(process, correlation), _unique_correlation(process, recorded),
            _size(size), source.names[name], thread, _small_number(stream), _small_number(device), actual,
        )  # fmt: skip
        written += 1
    return raw[:written]


def _unique_correlation(process: int, correlation: Any) -> int:
    """A correlation id that no other process has: each counts from 1."""
    if not isinstance(correlation, int) or not 0 <= correlation < 1 << 32:
        return ABSENT
    return (process & NUMBER_MASK) << 32 | correlation


def _size(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 62 else ABSENT


def _is_time(value: Any) -> bool:
    return isinstance(value, int) and EARLIEST <= value <= LATEST


def _small_number(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 15 else ABSENT


def _devices(base: sqlite3.Connection, tables: set[str]) -> list[dict[str, Any]]:
    if "TARGET_INFO_GPU" not in tables or not {"id", "name"} <= _columns(base, "TARGET_INFO_GPU"):
        return []
    return [{"id": number, "name": name} for number, name in base.execute("SELECT id, name FROM TARGET_INFO_GPU")]
