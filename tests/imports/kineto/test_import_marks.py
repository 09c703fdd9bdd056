"""Beginnings and ends, asynchronous events, counters, names of devices: what is no span by itself."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sonda.analysis.traces.summary import device_work, summarise_trace
from sonda.imports.kineto import reader as kineto
from sonda.imports.kineto import text as event_text
from sonda.imports.trace import spill
from sonda.record.errors import SondaError
from sonda.report.trace.chrome import write_trace
from sonda.targets.imported.launcher import import_files
from trace_examples import GPU, imported, kernel, op, table, write


def mark(phase: str, name: str, time: float | str, thread: int = 1, **more: Any) -> dict[str, Any]:
    return {"ph": phase, "name": name, "ts": time, "pid": 10, "tid": thread, **more}


def spans(run: Any) -> dict[str, tuple[int, int]]:
    """Start and duration in µs by name."""
    return {row["name"]: (row["start"] // 1000, row["duration"] // 1000) for row in table(run)}


# ---- beginnings and ends ----------------------------------------------------------------------------------------


def test_beginnings_and_ends_are_paired_by_a_stack_for_each_thread(tmp_path: Path) -> None:
    run = imported(
        tmp_path,
        [
            mark("B", "outer", 10), mark("B", "inner", 12), mark("B", "elsewhere", 13, thread=2),
            {"ph": "E", "ts": 15, "pid": 10, "tid": 1}, mark("E", "outer", 20), mark("E", "elsewhere", 30, thread=2),
            op("whole", 14, 0.5),
        ],
    )  # fmt: skip
    assert spans(run) == {"outer": (0, 10), "inner": (2, 3), "elsewhere": (3, 17), "whole": (4, 0)}
    rows = table(run)
    names = [row["name"] for row in rows]
    assert {row["name"]: names[row["parent"]] for row in rows if row["parent"] >= 0} == {
        "inner": "outer", "whole": "inner",
    }  # fmt: skip
    assert run.info.notes == []


def test_the_order_of_the_file_does_not_matter_where_times_differ(tmp_path: Path) -> None:
    run = imported(tmp_path, [mark("E", "a", 9), mark("E", "b", 5), mark("B", "b", 3), mark("B", "a", 1)])
    assert spans(run) == {"a": (0, 8), "b": (2, 2)}


def test_equal_times_keep_the_order_of_the_file(tmp_path: Path) -> None:
    run = imported(tmp_path, [mark("B", "a", 1), mark("E", "", 4), mark("B", "b", 4), mark("E", "", 6)])
    assert spans(run) == {"a": (0, 3), "b": (3, 2)}


def test_what_has_no_partner_is_counted_and_harms_nothing(tmp_path: Path) -> None:
    run = imported(
        tmp_path,
        [
            mark("E", "lost", 1), mark("B", "outer", 2), mark("B", "never ended", 3), mark("E", "outer", 8),
            mark("B", "open", 9), mark("B", "when", "soon"),
        ],
    )  # fmt: skip
    assert spans(run) == {"outer": (1, 6)}
    assert run.info.notes == [
        "1 events have no time that can be read: left out", "2 events begin and never end: left out",
        "1 events end and never began: left out",
    ]  # fmt: skip


def test_frames_of_python_and_annotations_are_known_by_their_beginning(tmp_path: Path) -> None:
    run = imported(
        tmp_path,
        [
            mark("B", "ProfilerStep#3", 0, cat="user_annotation"), mark("B", "f.py(3): g", 1, cat="python_function"),
            mark("B", "aten::mm", 2, cat="cpu_op"), mark("E", "aten::mm", 5), mark("E", "", 6), mark("E", "", 7),
        ],
    )  # fmt: skip
    assert [(row["kind"], row["duration"]) for row in table(run)] == [("step", 7_000), ("op", 3_000)]
    assert run.info.notes == ["1 events are frames of Python: left out"]


def test_a_real_file_of_torch_compile(tmp_path: Path) -> None:
    """Its beginnings and ends, paired here by the number of those that are open, in the order of time."""
    path = GPU.parent / "chrome" / "torch_compile.json"
    events = json.loads(path.read_text(), parse_float=Decimal)
    expected, around = [], []
    for event in sorted(events, key=lambda event: event["ts"]):
        if event["ph"] == "B":
            around.append(event)
        elif event["ph"] == "E":
            begun = around.pop()
            outer = around[-1]["name"] if around else ""
            expected.append((begun["ts"], begun["name"], int(1000 * (event["ts"] - begun["ts"])), outer))
    rows = table(import_files([path], tmp_path))
    names = [row["name"] for row in rows]
    found = [(row["name"], row["duration"], names[row["parent"]] if row["parent"] >= 0 else "") for row in rows]
    assert found == [one[1:] for one in sorted(expected)] and len(found) == 24


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.recursive(st.just([]), lambda inner: st.lists(inner, max_size=3), max_leaves=12), st.booleans())
def test_any_tree_comes_back(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, tree: list[Any], named: bool
) -> None:
    """A tree written as marks, read in small pieces and blocks, is the tree."""
    monkeypatch.setattr(event_text, "PIECE", 150)
    monkeypatch.setattr(spill, "RUN_ROWS", 3)
    monkeypatch.setattr(spill, "STRIDE", 2)
    events: list[dict[str, Any]] = []
    expected: list[tuple[str, int, int, str]] = []

    def put(node: list[Any], around: str) -> None:
        name = f"n{len(expected)}"
        begun = len(events)
        expected.append((name, begun, 0, around))
        place = len(expected) - 1
        events.append(mark("B", name, begun))
        for child in node:
            put(child, name)
        events.append(mark("E", name if named else "", len(events)))
        expected[place] = (name, begun, len(events) - 1 - begun, around)

    put(tree, "")
    rows = table(imported(tmp_path_factory.mktemp("tree"), events))
    names = [row["name"] for row in rows]
    found = [
        (row["name"], row["start"] // 1000, row["duration"] // 1000, names[row["parent"]] if row["parent"] >= 0 else "")
        for row in rows
    ]
    assert found == expected


def test_two_processes_share_marks_names_and_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filling = [op(f"op {number}", 10 * number, 5, thread=2) for number in range(300)]
    events = [mark("B", "across", 1), mark("C", "load", 2, args={"a": 1}), *filling,
              mark("C", "load", 8, args={"a": 2}), mark("E", "across", 9),
              {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "/device:GPU:0"}},
              {"ph": "M", "name": "thread_name", "pid": 1, "tid": 4, "args": {"name": "Stream #4(Compute)"}},
              {"ph": "X", "name": "fusion", "ts": 5, "dur": 2, "pid": 1, "tid": 4}]  # fmt: skip
    path = write(tmp_path / "trace.json", events)
    alone = import_files([path], tmp_path / "runs")
    monkeypatch.setattr(kineto, "SHARED_FROM", 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    together = import_files([path], tmp_path / "runs")
    assert table(together) == table(alone) and together.samples == alone.samples
    assert spans(alone)["across"] == (1, 8) and len(alone.samples) == 2
    assert [row["device"] for row in table(alone) if row["name"] == "fusion"] == ["cuda:0"]


# ---- asynchronous events ----------------------------------------------------------------------------------------


def test_asynchronous_events_belong_together_by_id_and_never_overlap_on_a_lane(tmp_path: Path) -> None:
    run = imported(
        tmp_path,
        [
            op("main", 0, 100), mark("b", "request", 1, cat="net", id="0x1"),
            mark("b", "request", 2, cat="net", id="0x2"),
            mark("b", "parse", 3, cat="net", id="0x1"), mark("n", "instant", 3, cat="net", id="0x1"),
            mark("e", "parse", 5, cat="net", id="0x1"), mark("e", "request", 8, cat="net", id="0x2"),
            mark("e", "request", 10, cat="net", id="0x1"), mark("b", "other", 4, cat="disk", id="0x1"),
            mark("e", "other", 20, cat="disk", id="0x1"), mark("e", "lost", 30, cat="net", id=7),
            mark("b", "own", 1, id2={"local": 3}), mark("e", "own", 2, id2={"local": 3}),
        ],
    )  # fmt: skip
    rows = table(run)
    found = sorted((row["name"], row["start"] // 1000, row["duration"] // 1000) for row in rows)
    assert found == [("main", 0, 100), ("other", 4, 16), ("own", 1, 1), ("parse", 3, 2), ("request", 1, 9),
                     ("request", 2, 6)]  # fmt: skip
    names = [row["name"] for row in rows]
    assert {row["name"]: names[row["parent"]] for row in rows if row["parent"] >= 0} == {"parse": "request"}
    assert len({row["thread"] for row in rows}) == 4, "main, and three that are open at once"
    assert run.info.notes == ["1 events end and never began: left out"]


# ---- counters ---------------------------------------------------------------------------------------------------


def test_counters_are_samples_and_tracks_of_the_exported_trace(tmp_path: Path) -> None:
    run = imported(
        tmp_path,
        [
            op("x", 100, 50), mark("C", "queue", 110.5, args={"long": 3, "short": "1.5", "label": "no number"}),
            mark("C", "queue", 90, args={"long": 2}), mark("C", "broken", 120), mark("C", "bare", 1, args=5),
            mark("C", "queue", 130, args={"long": True}),
        ],
    )  # fmt: skip
    found = [(one.time, one.sensor, one.value, one.device) for one in run.samples]
    assert found == [(0, "queue long", 2, "process 10"), (20_500, "queue long", 3, "process 10"),
                     (20_500, "queue short", 1.5, "process 10")]  # fmt: skip
    assert spans(run) == {"x": (10, 50)} and run.info.notes == ["3 events are counters without a number: left out"]
    exported = json.loads(write_trace(tmp_path / "out.json", run).read_text())["traceEvents"]
    points = [(event["ts"], event["args"]) for event in exported if event["ph"] == "C"]
    assert points == [(0, {"1": 2}), (20.5, {"1": 3}), (20.5, {"1": 1.5})]


def test_moments_of_memory_are_samples(tmp_path: Path) -> None:
    about = {"Total Allocated": 4096, "Total Reserved": 8192, "Bytes": 64, "Device Id": 1, "Device Type": 1}
    host = {"Total Allocated": 128, "Total Reserved": 0, "Bytes": -64, "Device Id": -1, "Device Type": 0}
    run = imported(
        tmp_path,
        [op("x", 0, 9), {**mark("i", "[memory]", 3, args=about), "cat": "cpu_instant_event", "s": "t"},
         {**mark("i", "[memory]", 4, args=host), "s": "t"}, mark("i", "Record Window End", 5, s="g")],
    )  # fmt: skip
    assert [(one.time, one.sensor, one.value, one.unit, one.device) for one in run.samples] == [
        (3_000, "memory allocated", 4096, "B", "cuda:1"), (3_000, "memory reserved", 8192, "B", "cuda:1"),
        (4_000, "memory allocated", 128, "B", "cpu"), (4_000, "memory reserved", 0, "B", "cpu"),
    ]  # fmt: skip


def test_a_trace_of_counters_alone_holds_no_span(tmp_path: Path) -> None:
    with pytest.raises(SondaError, match="holds no event with a duration"):
        imported(tmp_path, [mark("C", "queue", 1, args={"a": 1})])


# ---- devices by their names -------------------------------------------------------------------------------------


def test_a_real_trace_of_jax_shows_its_device(tmp_path: Path) -> None:
    path = GPU / "jax" / "h200.trace.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    kernels = [event for event in events if event.get("pid") == 1 and event.get("ph") == "X"]
    work = device_work(import_files([path], tmp_path))
    (device,) = work.devices
    moments = sorted((round(1000 * event["ts"]), round(1000 * (event["ts"] + event["dur"]))) for event in kernels)
    busy, last = 0, 0
    for begin, end in moments:
        busy += max(0, end - max(begin, last))
        last = max(last, end)
    assert (device.device, device.activities, [one.stream for one in device.streams]) == ("cuda:0", 28, [14])
    assert (device.busy, device.window) == (busy, last - moments[0][0])
    assert sum(one.total for one in work.kernels) == sum(round(1000 * event["dur"]) for event in kernels)
    assert len(work.steps[0]) == 4
    launched = {event["args"]["correlation_id"]: round(1000 * event["ts"])
                for event in events if event.get("name", "").startswith("cuGraphLaunch")}  # fmt: skip
    expected = sum(round(1000 * event["ts"]) - launched[event["args"]["correlation_id"]] for event in kernels)
    assert sum(one.latency for one in work.kernels) == expected


def test_lines_of_a_device_that_are_no_streams_are_left_out_and_counted(tmp_path: Path) -> None:
    def line(process: int, thread: int, name: str) -> dict[str, Any]:
        return {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": name}}

    names = [{"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}
             for process, name in ((1, "/device:GPU:1"), (2, "/device:TPU:0"))]  # fmt: skip
    work = (("fusion", 1, 3), ("MemcpyH2D", 1, 3), ("jit_step", 1, 9), ("dot", 2, 1))
    events = [{"ph": "X", "name": name, "ts": 10 * number, "dur": 5, "pid": process, "tid": thread}
              for number, (name, process, thread) in enumerate(work)]  # fmt: skip
    run = imported(tmp_path, [*events, *names, line(1, 3, "Stream #3(Compute)"), line(1, 9, "XLA Modules")])
    assert [(row["kind"], row["name"], row["device"], row["stream"]) for row in table(run)] == [
        ("kernel", "fusion", "cuda:1", 3), ("copy", "MemcpyH2D", "cuda:1", 3),
    ]  # fmt: skip
    assert run.info.notes[0] == "2 events are on lines of a device that are no streams: left out"
    assert summarise_trace(run).work.devices[0].activities == 2


def test_names_of_processes_change_nothing_for_kineto(tmp_path: Path) -> None:
    named = {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python3"}}
    labelled = {"ph": "M", "name": "process_labels", "pid": 0, "args": {"labels": "GPU 0"}}
    assert [row["kind"] for row in table(imported(tmp_path, [named, labelled, kernel("k", 0, 5)]))] == ["kernel"]
