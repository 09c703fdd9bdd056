"""Critical paths that cross streams: by hand, through a real trace, and whatever a trace says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonda.analysis import device_order
from sonda.analysis.critical_path import CriticalPath, critical_path, walk
from sonda.analysis.device_order import DeviceOrder, HostWait, Stream, StreamWait
from sonda.analysis.trace_summary import summarise_trace
from sonda.imports.importing import import_files
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
    assert any("1 call made a stream wait for another" in note for note in summarise_trace(run).summary.notes)


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


@settings(max_examples=300, deadline=None)
@given(
    work=st.lists(
        st.tuples(times, st.none() | st.integers(-3, 10), st.integers(0, 10), streams), min_size=1, max_size=9
    ),
    waits=st.lists(st.tuples(times, streams, st.none() | streams, st.integers(0, 20)), max_size=6),
    syncs=st.lists(st.tuples(times, st.integers(0, 20), st.none() | streams), max_size=4),
)  # fmt: skip
def test_the_parts_of_a_path_always_add_up(
    work: list[tuple[int, int | None, int, int]],
    waits: list[tuple[int, int, int | None, int]],
    syncs: list[tuple[int, int, int | None]],
) -> None:
    order = DeviceOrder(first=-10)
    for start, late, length, stream in sorted(work, key=lambda one: one[0]):
        order.start.append(start)
        order.end.append(start + length)
        order.launch.append(None if late is None else start - late)
        order.place.append(("cuda:0", stream))
        order.name.append(f"on {stream}")
    for time, stream, awaited, age in waits:
        one = StreamWait(time, None if awaited is None else ("cuda:0", awaited), time - age)
        order.streams.setdefault(("cuda:0", stream), Stream()).waits.append(one)
    for row, (time, length, awaited) in enumerate(syncs):
        order.waits.append(HostWait(time + length, time, row))
        if awaited is not None:
            order.waits_for[row] = (("cuda:0", awaited), time)
    order.arrange()
    path = walk(order, 0)
    assert path.total == max(order.end) + 10 and min(parts(path)) >= 0
    assert sum(path.names.values()) == path.device


def test_of_more_activities_than_are_held_the_path_is_that_of_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """µs: 20 kernels of 6 every 10, each launched when the one before ends. Of the last 3: 18 on the device, three
    times 4 between them, since the last that is forgotten ended."""
    events: list[dict[str, Any]] = [op("start", 0, 1)]
    for number in range(20):
        begin = 100 + 10 * number
        events += [call("cudaLaunchKernel", begin - 4, 1, number), kernel(f"k{number}", begin, 6, number)]
    run = imported(tmp_path, events)
    whole = critical_path(run)
    assert whole is not None and whole.before == 0 and whole.total == 296_000
    monkeypatch.setattr(device_order, "MOST", 3)
    path = critical_path(run)
    assert parts(path) == (18, 8, 4, 0, 0, 0)
    assert path is not None and path.before == 17 and path.names == dict.fromkeys(("k19", "k18", "k17"), 6_000)
    notes = summarise_trace(run).summary.notes
    assert (
        "the critical path is told for the last 3e-05 s only, with 3 activities of devices: 17 stand before them"
        in notes
    )


@pytest.mark.parametrize("name", ["waits", "resnet18", "streams"])
def test_the_end_of_a_real_path_adds_up_and_is_the_end_of_the_whole_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = import_files([KINETO / f"{name}.json.gz"], tmp_path / "runs")
    whole = critical_path(run)
    monkeypatch.setattr(device_order, "MOST", 5)
    path = critical_path(run)
    assert whole is not None and path is not None and path.before > 0
    assert min(parts(path)) >= 0 and path.total < whole.total
    for part in ("device", "queue", "launch", "host", "returning", "crossings"):
        assert getattr(path, part) <= getattr(whole, part)
    assert all(path.names[one] <= whole.names.get(one, 0) for one in path.names)


def test_where_an_activity_that_is_not_held_ends_last_there_is_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = imported(tmp_path, [kernel("long", 0, 99, stream=8), *(kernel("k", 10 * n, 5) for n in range(1, 9))])
    monkeypatch.setattr(device_order, "MOST", 3)
    assert critical_path(run) is None
    assert any("critical path is left out" in note for note in summarise_trace(run).summary.notes)
