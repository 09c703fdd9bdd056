"""Traces for other viewers: valid JSON, nested tracks, no nanosecond lost."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plain_runs import run_info
from report_trace_cases import spans_of
from sonda.record.errors import SondaError
from sonda.record.run import Run, write_run
from sonda.record.samples import Sample
from sonda.record.spans import Spans
from sonda.report.trace.chrome import write_trace
from sonda.report.trace.xplane import write_xplane


def traced(folder: Path, spans: Spans, samples: list[Sample] | None = None, name: str = "trace.json") -> dict[str, Any]:
    """The trace of a run in memory, decoded with exact decimals."""
    info = run_info(id="7f3a9c21", created="2026-11-15T03:30:12+00:00", status="complete")
    run = Run(folder, info)
    run.__dict__["spans"] = spans
    run.__dict__["samples"] = samples or []
    data = write_trace(folder / name, run).read_bytes()
    decoded: dict[str, Any] = json.loads(gzip.decompress(data) if name.endswith(".gz") else data, parse_float=Decimal)
    return decoded


def complete(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def names_of_tracks(trace: dict[str, Any]) -> dict[tuple[int, int], str]:
    return {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in trace["traceEvents"]
        if event["ph"] == "M" and event["name"] == "thread_name"
    }


def overlaps(trace: dict[str, Any]) -> list[tuple[str, str]]:
    """Pairs on one track where the later written event neither follows the earlier one nor lies inside it.

    Compares all pairs, unlike the writer, which keeps a stack. A parent written after its child is such a pair too: a
    viewer that meets equal starts takes the first as the outer one.
    """
    found = []
    tracks: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for event in complete(trace):
        tracks.setdefault((event["pid"], event["tid"]), []).append(event)
    for events in tracks.values():
        for index, later in enumerate(events):
            for earlier in events[:index]:
                a, b = earlier["ts"], earlier["ts"] + earlier["dur"]
                c, d = later["ts"], later["ts"] + later["dur"]
                apart = b <= c
                inside = a <= c and d <= b
                if not (apart or inside):
                    found.append((earlier["name"], later["name"]))
    return found


def test_a_step_becomes_nested_events_with_exact_times(tmp_path: Path) -> None:
    spans = spans_of(
        [
            {"kind": "step", "name": "step", "start": 1_234_567, "duration": 2_000_001},
            {"kind": "phase", "name": "forward", "start": 1_234_567, "duration": 1_000_000, "parent": 0},
            {"name": "Conv2d", "path": "conv", "direction": "forward", "start": 1_234_567, "duration": 7, "parent": 1},
        ],
        {"flops:nominal": [np.nan, np.nan, 118.0]},
    )
    trace = traced(tmp_path, spans)
    step, forward, layer = complete(trace)
    assert (step["ts"], step["dur"]) == (Decimal("1234.567"), Decimal("2000.001"))
    assert [event["name"] for event in (step, forward, layer)] == ["step", "forward", "Conv2d"]
    assert layer["args"] == {
        "id": 2, "parent": 1, "pass": "timed", "path": "conv", "call": 0, "direction": "forward",
        "flops:nominal": 118.0,
    }  # fmt: skip
    assert "flops:nominal" not in step["args"]
    assert overlaps(trace) == []


def test_threads_streams_clocks_and_ranks_have_tracks_of_their_own(tmp_path: Path) -> None:
    spans = spans_of(
        [
            {"name": "a", "thread": 1, "duration": 10},
            {"name": "b", "thread": 2, "duration": 10},
            {"name": "c", "kind": "kernel", "device": "cuda:0", "stream": 7, "clock": "device", "duration": 10},
            {"name": "d", "rank": 1, "duration": 10},
        ]
    )
    trace = traced(tmp_path, spans)
    names = names_of_tracks(trace)
    placed = {event["name"]: (event["pid"], event["tid"]) for event in complete(trace)}
    assert {name: names[place] for name, place in placed.items()} == {
        "a": "thread 1", "b": "thread 2", "c": "cuda:0 stream 7", "d": "thread 1",
    }  # fmt: skip
    assert placed["a"][0] == placed["b"][0]
    assert len({placed[name][0] for name in "acd"}) == 3
    processes = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    assert processes == {"this machine, rank 0", "this machine, rank 0, device clock", "this machine, rank 1"}


def test_counted_steps_stand_apart_from_timed_ones(tmp_path: Path) -> None:
    spans = spans_of(
        [
            {"name": "warm", "pass": "warmup", "duration": 10},
            {"name": "counted", "pass": "count", "start": 5, "duration": 10},
            {"name": "timed", "start": 20, "duration": 10},
        ]
    )
    trace = traced(tmp_path, spans)
    names = names_of_tracks(trace)
    tracks = {event["name"]: names[event["pid"], event["tid"]] for event in complete(trace)}
    assert tracks == {"warm": "thread 1", "timed": "thread 1", "counted": "thread 1 · count pass (times disturbed)"}


intervals = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(1, 2)), min_size=1, max_size=25)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60)
@given(intervals)
def test_whatever_overlaps_is_moved_to_a_lane_where_it_nests(
    tmp_path: Path, drawn: list[tuple[int, int, int]]
) -> None:  # fmt: skip
    rows = [
        {"name": str(index), "start": start, "duration": duration, "thread": thread}
        for index, (start, duration, thread) in enumerate(drawn)
    ]
    trace = traced(tmp_path, spans_of(rows))
    assert overlaps(trace) == []
    times = {int(e["name"]): (int(e["ts"] * 1000), int(e["dur"] * 1000)) for e in complete(trace)}
    assert times == {index: (start, duration) for index, (start, duration, _) in enumerate(drawn)}


def test_the_checker_sees_a_bad_trace() -> None:
    crossing = [{"ph": "X", "name": n, "pid": 1, "tid": 1, "ts": t, "dur": 10} for n, t in (("a", 0), ("b", 5))]
    child_first = [{"ph": "X", "name": n, "pid": 1, "tid": 1, "ts": 0, "dur": d} for n, d in (("a", 1), ("b", 5))]
    assert overlaps({"traceEvents": crossing}) == [("a", "b")]
    assert overlaps({"traceEvents": child_first}) == [("a", "b")]


def test_samples_become_counters_and_missing_values_are_left_out(tmp_path: Path) -> None:
    samples = [
        Sample(500_000_000, "power", 41.5, "W", "measured"),
        Sample(1_000_000_000, "power", float("nan"), "W", "measured"),
    ]
    trace = traced(tmp_path, spans_of([]), samples)
    counters = [event for event in trace["traceEvents"] if event["ph"] == "C"]
    assert [(c["name"], c["ts"], c["args"]) for c in counters] == [
        ("power cpu (measured)", Decimal("500000.000"), {"W": Decimal("41.5")})
    ]


def test_names_are_data(tmp_path: Path) -> None:
    name = 'a"},{"ph":"E" \\ \n </script>'
    assert [event["name"] for event in complete(traced(tmp_path, spans_of([{"name": name}])))] == [name]


def test_compressed_and_plain_traces_hold_the_same(tmp_path: Path) -> None:
    spans = spans_of([{"name": "a", "duration": 3}])
    assert traced(tmp_path, spans, name="t.json.gz") == traced(tmp_path, spans)


def test_a_run_from_disk_can_be_traced(tmp_path: Path) -> None:
    info = run_info(id="7f3a9c21", created="2026-11-15T03:30:12+00:00", status="complete")
    write_run(tmp_path, info, spans_of([{"name": "a", "duration": 3}]), [Sample(1, "power", 2.0, "W", "measured")])
    run = Run.load(next(path for path in tmp_path.iterdir() if path.is_dir()))
    events = json.loads(write_trace(tmp_path / "t.json", run).read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"X", "C", "M"}


def test_a_place_that_cannot_be_written_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SondaError, match=r"cannot write .*choose another place"):
        traced(tmp_path, spans_of([]), name="file/t.json")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_run_without_spans_is_no_empty_trace(tmp_path: Path) -> None:
    """As an exploration, which has points."""
    run = Run(tmp_path, run_info(id="7f3a9c21", created="2026-11-15T03:30:12+00:00", status="complete"))
    run.__dict__["spans"], run.__dict__["samples"] = spans_of([]), []
    for write in (write_trace, write_xplane):
        with pytest.raises(SondaError, match="run 7f3a9c21 has no spans to draw; name a run that has steps"):
            write(tmp_path / "t.json", run)
    assert not list(tmp_path.iterdir())


def test_writing_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From which a watcher is told how long it will take."""
    monkeypatch.setattr("sonda.report.trace.spans.AT_ONCE", 2)
    run = Run(tmp_path, run_info(id="7f3a9c21", created="2026-11-15T03:30:12+00:00", status="complete"))
    run.__dict__["spans"], run.__dict__["samples"] = spans_of([{"name": name, "duration": 3} for name in "abcde"]), []
    said: list[str] = []
    write_trace(tmp_path / "t.json", run, said.append)
    assert said == ["writing 0 of 5 spans", "writing 2 of 5 spans", "writing 4 of 5 spans"]
