"""Critical paths that cross streams: by hand, through a real trace, and whatever a trace says."""

from __future__ import annotations

import json
import math
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plain_path import Activity, HostWait, PlainPath, StreamWait
from sonda.analysis.device.critical_path import (
    COLUMNS,
    CriticalPath,
    DeviceOrder,
    critical_path,
    critical_paths,
    walk_path,
)
from sonda.analysis.traces.summary import summarise_trace
from sonda.record.files import rows as row_file
from sonda.record.files.tables import read_blocks
from sonda.record.run import Run
from sonda.record.spans import Spans, Words
from sonda.report.words import in_words
from sonda.targets.imported.launcher import import_files
from trace_examples import KINETO, call, imported, kernel, op, table


def wait(
    name: str, start: float, length: float, correlation: int, stream: int, awaited: int = -1, record: int = -1
) -> dict[str, Any]:
    about = {"cuda_sync_kind": name, "stream": stream, "correlation": correlation, "device": 0,
             "wait_on_stream": awaited, "wait_on_cuda_event_record_corr_id": record}  # fmt: skip
    return {"ph": "X", "cat": "cuda_sync", "name": name, "pid": 0, "tid": stream, "ts": start, "dur": length,
            "args": about}  # fmt: skip


def parts(path: CriticalPath | None) -> tuple[float, ...]:
    """µs: device, queue, launch, host, returning; and how often the stream changes."""
    assert path is not None
    assert path.device + path.queue + path.launch + path.host + path.returning == path.total
    spent = (path.device, path.queue, path.launch, path.host, path.returning)
    return (*(one / 1000 for one in spent), path.crossings)


def crossing(awaited: int, record: int) -> list[dict[str, Any]]:
    """µs: a 10–50 on stream 7, recorded at 6; d 55–60 on 7, launched after that; b 20–25 on 8; c 52–60 on 8, which has
    waited since 7."""
    return [
        call("cudaLaunchKernel", 2, 1, 1), call("cudaLaunchKernel", 4, 1, 2), call("cudaEventRecord", 6, 1, 3),
        call("cudaLaunchKernel", 6.5, 0.2, 6), call("cudaStreamWaitEvent", 7, 1, 4),
        wait("Stream Wait Event", 7.2, 0.5, 4, 8, awaited, record), call("cudaLaunchKernel", 9, 1, 5),
        kernel("a", 10, 40, 1, stream=7), kernel("b", 20, 5, 2, stream=8), kernel("d", 55, 5, 6, stream=7),
        kernel("c", 52, 9, 5, stream=8), op("start", 0, 1),
    ]  # fmt: skip


def test_a_path_goes_from_a_stream_to_the_one_it_waited_for(tmp_path: Path) -> None:
    """c 9 + a 40 on the device; 2 between a and c; a launched at 2, begun at 10; the host until 2."""
    run = imported(tmp_path, crossing(7, 3))
    path = critical_path(run)
    assert parts(path) == (49, 2, 8, 2, 0, 1)
    assert path is not None and path.names == {"a": 40_000, "c": 9_000}
    (made,) = [row for row in table(run) if row["name"].startswith("Stream Wait")]
    assert made["name"] == "Stream Wait Event for stream 7" and made["stream"] == 8 and made["device"] == "cuda:0"
    assert table(run)[made["parent"]]["name"] == "cudaStreamWaitEvent" and made["thread"] == 1
    assert made["event_age:measured"] == 1_200 and made["bytes:counted"] is None


def test_a_wait_that_does_not_say_for_what_is_for_what_ended_last(tmp_path: Path) -> None:
    run = imported(tmp_path, crossing(-1, -1))
    assert parts(critical_path(run)) == (49, 2, 8, 2, 0, 1)
    assert "1 waits of streams do not say for which stream" in run.info.notes[0]


def test_without_events_of_synchronisation_the_wait_is_not_seen_and_that_is_said(tmp_path: Path) -> None:
    """c then follows b on its stream: 27 in a queue, though nothing else was to be done there."""
    run = imported(tmp_path, [event for event in crossing(7, 3) if event["cat"] != "cuda_sync"])
    path = critical_path(run)
    assert parts(path) == (14, 27, 16, 4, 0, 0)
    assert path is not None and path.unseen == 1
    assert any("1 call made a stream wait for another" in note for note in in_words(summarise_trace(run).summary.notes))


def test_a_stream_that_is_synchronised_is_the_one_the_host_waited_for(tmp_path: Path) -> None:
    """The host waits for a on stream 7 (10–30) while b runs on 8 (12–31), and launches c at 40."""
    events = [
        op("start", 0, 1), call("cudaLaunchKernel", 2, 1, 1), call("cudaLaunchKernel", 4, 1, 2),
        kernel("a", 10, 20, 1, stream=7), kernel("b", 12, 19, 2, stream=8), call("cudaStreamSynchronize", 15, 17, 3),
        call("cudaLaunchKernel", 40, 1, 4), kernel("c", 45, 5, 4, stream=7),
    ]  # fmt: skip
    told = imported(tmp_path, [*events, wait("Stream Sync", 15.5, 16, 3, 7)])
    guessed = imported(tmp_path, events)
    assert parts(critical_path(told)) == (25, 0, 13, 10, 2, 0)
    assert parts(critical_path(guessed)) == (24, 0, 13, 12, 1, 0)


def test_a_real_path_crosses_streams_where_the_second_product_waits_for_the_first(tmp_path: Path) -> None:
    """Added up by hand from the events of `waits.json.gz`: three products, two of them on the path because the third
    began 2.176 µs after the second had ended on another stream."""
    run = import_files([KINETO / "waits.json.gz"], tmp_path)
    path = critical_path(run)
    assert parts(path)[:3] == pytest.approx((
        7.712 + 0.704 + 8.128 + 339.932 + 344.349 + 341.596, 11.840 + 2.176, 8.718 + 10.598 + 11.993 + 11.765
    ), abs=0.002)  # fmt: skip
    assert parts(path)[4] == pytest.approx(3.776 + 3.755 + 6.899, abs=0.002) and parts(path)[5] == 1
    plain = critical_path(import_files([KINETO / "waits_plain.json.gz"], tmp_path))
    assert plain is not None and (plain.crossings, plain.unseen) == (0, 2)


times = st.integers(0, 40)
streams = st.integers(7, 9)
WORK, AWAITED, SYNCHRONISED = "kernel", "Stream Wait Event", "cudaStreamSynchronize"


def as_blocks(
    work: list[Activity], waits: list[StreamWait], syncs: list[HostWait], block: int, first: int
) -> Iterator[Spans]:
    """The same as spans in the order of time, as an importer writes them, a few at a time."""
    rows: list[dict[str, Any]] = [{"kind": "op", "name": "start", "start": first, "end": first}]
    rows += [{"kind": WORK, "name": one.name, "start": one.start, "end": one.end, "stream": one.stream,
              "late": math.nan if one.launch is None else one.start - one.launch} for one in work]  # fmt: skip
    for wait in waits:
        name = AWAITED if wait.awaited is None else f"{AWAITED} for stream {wait.awaited}"
        rows.append({"kind": "op", "name": name, "start": wait.time, "end": wait.time, "stream": wait.stream,
                     "age": wait.time - wait.recorded})  # fmt: skip
    for call_ in syncs:
        made = {"kind": "op", "name": SYNCHRONISED, "start": call_.began, "end": call_.ended}
        rows.append(made)
        if call_.known is not None:
            rows.append({"kind": "op", "name": "Stream Sync", "start": call_.known[1], "end": call_.known[1],
                         "stream": call_.known[0], "parent": made})  # fmt: skip
    rows.sort(key=lambda row: row["start"])
    place = {id(row): number for number, row in enumerate(rows)}
    for begin in range(0, len(rows), block):
        some = rows[begin : begin + block]
        yield Spans(
            {
                "start": np.array([row["start"] for row in some]),
                "duration": np.array([row["end"] - row["start"] for row in some]),
                "stream": np.array([row.get("stream", 0) for row in some]),
                "parent": np.array([place.get(id(row.get("parent")), -1) for row in some]),
            },
            {
                "kind": Words.of(row["kind"] for row in some),
                "name": Words.of(row["name"] for row in some),
                "device": Words.of("cuda:0" if "stream" in row else "cpu" for row in some),
            },
            {
                "launch_latency:measured": np.array([row.get("late", math.nan) for row in some]),
                "event_age:measured": np.array([row.get("age", math.nan) for row in some]),
            },
        )


@settings(max_examples=300, deadline=None)
@given(
    work=st.lists(
        st.tuples(times, st.none() | st.integers(-3, 10), st.integers(0, 10), streams), min_size=1, max_size=12
    ),
    waits=st.lists(st.tuples(times, streams, st.none() | streams, st.integers(0, 20)), max_size=6),
    syncs=st.lists(st.tuples(times, st.integers(0, 20), st.none() | streams), max_size=4),
    sizes=st.tuples(st.integers(1, 30), st.integers(1, 5)),
)  # fmt: skip
def test_a_path_is_that_of_lists_and_its_parts_add_up(
    work: list[tuple[int, int | None, int, int]],
    waits: list[tuple[int, int, int | None, int]],
    syncs: list[tuple[int, int, int | None]],
    sizes: tuple[int, int],
) -> None:
    """Whatever happened, and however few rows are sorted and kept in memory."""
    done = [
        Activity(start, start + length, None if late is None else start - late, stream, f"on {stream}")
        for start, late, length, stream in sorted(work, key=lambda one: one[0])
    ]
    waited = [
        StreamWait(stream, time, awaited, time - age)
        for time, stream, awaited, age in sorted(waits, key=lambda one: one[0])
    ]
    called = [
        HostWait(time, time + length, None if awaited is None else (awaited, time)) for time, length, awaited in syncs
    ]
    plain = PlainPath(-10, done, waited, called)
    block, run_rows = sizes
    with DeviceOrder(run_rows, in_memory=1) as order:
        order.read(as_blocks(done, waited, called, block, -10), 0)
        path = walk_path(order, 0)
    assert path is not None and path.total == max(one.end for one in done) + 10 and min(parts(path)) >= 0
    assert sum(path.names.values()) == path.device
    assert {part: getattr(path, part) for part in plain.spent} == plain.spent
    assert path.names == plain.names and path.crossings == plain.crossings


def test_a_path_of_a_real_trace_is_the_same_on_disk(tmp_path: Path) -> None:
    run = import_files([KINETO / "resnet18.json.gz"], tmp_path)
    with DeviceOrder(run_rows=100, in_memory=1) as order:
        order.read(read_blocks(run, COLUMNS), 0)
        assert walk_path(order, 0) == critical_path(run)


def test_memory_does_not_grow_with_the_activities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of 6 µs every 10, each launched 4 µs before, and the host waits in every hundredth call."""
    monkeypatch.setattr(row_file, "HELD_BLOCKS", 2)

    def blocks(count: int) -> Iterator[Spans]:
        work = np.arange(2000) % 2
        name = np.where(work, 0, np.where(np.arange(2000) % 200 == 0, 1, 2))
        for first in range(0, count, 1000):
            yield Spans(
                {"start": 10_000 * np.repeat(np.arange(first, first + 1000), 2) + 100 * work,
                 "duration": np.where(work, 6000, 50), "stream": 7 * work},
                {"kind": Words(work, ("op", WORK)), "name": Words(name, ("k", SYNCHRONISED, "op")),
                 "device": Words(work, ("cpu", "cuda:0"))},
                {"launch_latency:measured": np.where(work, 4000.0, math.nan)},
            )  # fmt: skip

    def needed(count: int) -> int:
        tracemalloc.start()
        try:
            with DeviceOrder(run_rows=2000, in_memory=1) as order:
                order.read(blocks(count), 0)
                path = walk_path(order, 0)
            assert path is not None and path.device == 6000 * count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    needed(2_000)
    assert needed(16_000) < 1.2 * needed(6_000)


def test_paths_of_many_ranks_are_found_in_one_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second rank's activities come 5 µs later and are 3 µs longer."""
    files = []
    for rank, (late, longer) in enumerate(((0, 0), (5, 3))):
        events = [
            op("start", 0, 1), call("cudaLaunchKernel", 2, 1, 1), kernel("a", 10 + late, 20 + longer, 1, stream=7),
            call("cudaStreamSynchronize", 15, 30, 3), wait("Stream Sync", 15.5, 20, 3, 7),
            call("cudaLaunchKernel", 50, 1, 4), kernel("c", 60 + late, 5 + longer, 4, stream=7),
        ]  # fmt: skip
        files.append(tmp_path / f"rank{rank}.json")
        files[-1].write_text(json.dumps({"traceEvents": events, "distributedInfo": {"rank": rank, "world_size": 2}}))
    run = import_files(files, tmp_path / "runs")
    readings: list[Run] = []

    def counted(run: Run, columns: Sequence[str]) -> Iterator[Spans]:
        readings.append(run)
        return read_blocks(run, columns)

    monkeypatch.setattr("sonda.analysis.device.critical_path.read_blocks", counted)
    first, second = critical_paths(run, [0, 1])
    # 45 the call ended, 30 and 38 the kernel that it waited for; 2 the first launch.
    assert parts(first) == (25, 0, 10 + 8, 5 + 2, 15, 0) and len(readings) == 1
    assert parts(second) == (31, 0, 15 + 13, 5 + 2, 7, 0)
    assert [critical_path(run, rank) for rank in (0, 1)] == [first, second]
