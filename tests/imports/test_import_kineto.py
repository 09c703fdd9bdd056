"""Kineto traces become spans whose parents, times and sums are those of the trace."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from sonda.imports.kineto import reader as kineto
from sonda.imports.kineto import text as event_text
from sonda.imports.trace import linker as linking
from sonda.imports.trace import ranks as rank_events
from sonda.imports.trace import spill
from sonda.record.errors import SondaError
from sonda.record.files.tables import read_blocks
from sonda.record.run import Run
from sonda.report.words import describe
from sonda.targets.imported.launcher import import_files
from trace_examples import KINETO, call, imported, kernel, op, step, table, write

REAL = ("mlp", "resnet18", "streams")
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def real(name: str, folder: Path) -> Run:
    return import_files([KINETO / f"{name}.json.gz"], folder / "runs")


def events_of(name: str) -> list[dict[str, Any]]:
    document = json.loads(gzip.decompress((KINETO / f"{name}.json.gz").read_bytes()))
    return [event for event in document["traceEvents"] if event["ph"] == "X"]


def ancestors(rows: list[dict[str, Any]], row: int) -> list[int]:
    found, at = [], rows[row]["parent"]
    while at >= 0:
        found.append(at)
        at = rows[at]["parent"]
    return found


# ---- real traces ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REAL)
def test_every_activity_lies_under_the_operation_that_has_its_external_id(name: str, tmp_path: Path) -> None:
    rows = table(real(name, tmp_path))
    events = events_of(name)
    first = min(round(1000 * event["ts"]) for event in events if event["cat"] not in ("Trace", "overhead"))

    def place(event: dict[str, Any]) -> tuple[str, int, int]:
        return event["name"], round(1000 * event["ts"]) - first, round(1000 * event["dur"])

    external = {place(event): event["args"]["External id"] for event in events if event["cat"] == "cpu_op"}
    wanted = {place(event): event["args"]["External id"] for event in events if event["cat"] in ON_DEVICE}
    launched = {
        event["args"]["correlation"]: event["ts"]
        for event in events
        if "runtime" in event["cat"] or "driver" in event["cat"]
    }
    latencies = {place(event): round(1000 * (event["ts"] - launched[event["args"]["correlation"]]))
                 for event in events if event["cat"] in ON_DEVICE}  # fmt: skip
    checked = 0
    for row in rows:
        if row["kind"] not in ("kernel", "copy"):
            continue
        key = (row["name"], row["start"], row["duration"])
        around = rows[rows[row["parent"]]["parent"]]
        assert external[around["name"], around["start"], around["duration"]] == wanted[key]
        assert abs(row["launch_latency:measured"] - latencies[key]) <= 1
        assert row["clock"] == "device" and row["device"] == "cuda:0"
        checked += 1
    assert checked == len(wanted)


@pytest.mark.parametrize("name", ["mlp", "resnet18"])
def test_device_times_by_operation_are_torch_profilers_own(name: str, tmp_path: Path) -> None:
    rows = table(real(name, tmp_path))
    totals: Counter[str] = Counter()
    kernels: Counter[str] = Counter()
    for number, row in enumerate(rows):
        if row["clock"] == "device":
            kernels[row["name"]] += row["duration"]
            # An operation inside one of the same name is one operation to torch.profiler.
            for called in {rows[at]["name"] for at in ancestors(rows, number) if rows[at]["kind"] == "op"}:
                totals[called] += row["duration"]
    names = {row["name"] for row in rows if row["kind"] == "op"}
    # torch.profiler counts the first copy once more: under the request of a buffer that happened in it.
    said = json.loads((KINETO / f"{name}.sums.json").read_text())
    twice = 1000 * next(time for called, _, time in said if called == "Activity Buffer Request")
    compared = 0
    for called, _, time in said:
        if called.startswith(("cuda", "cu")) or "ProfilerStep" in called or called == "Activity Buffer Request":
            continue
        if called in names and not called.startswith("Optimizer"):
            more = twice if called in ("aten::to", "aten::_to_copy", "aten::copy_") else 0
            assert totals[called] + more == pytest.approx(1000 * time, abs=1.0), called
            compared += 1
        elif called in kernels:
            assert kernels[called] == pytest.approx(1000 * time, abs=1.0), called
            compared += 1
    assert compared > 40


def test_steps_hold_the_backward_pass_of_another_thread(tmp_path: Path) -> None:
    rows = table(real("resnet18", tmp_path))
    steps = [number for number, row in enumerate(rows) if row["kind"] == "step"]
    assert [rows[number]["name"] for number in steps] == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]
    launched: dict[int, int] = defaultdict(int)
    for number, row in enumerate(rows):
        if row["clock"] == "device":
            launched[ancestors(rows, number)[-1]] += 1
    assert dict(launched) == dict.fromkeys(steps, 993 // 3)


@pytest.mark.parametrize("name", ["mlp", "waits"])
def test_small_pieces_and_blocks_give_the_same_spans(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = real(name, tmp_path)
    monkeypatch.setattr(event_text, "PIECE", 5_000)
    monkeypatch.setattr(spill, "RUN_ROWS", 97)
    monkeypatch.setattr(spill, "STRIDE", 4)
    monkeypatch.setattr(rank_events, "merge_by_time", lambda spills: spill.merge_by_time(spills, 50))
    cut = real(name, tmp_path)
    assert sum(1 for _ in read_blocks(cut)) > (len(whole.spans) // 200)
    assert table(cut) == table(whole)


def test_two_processes_read_what_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = tmp_path / "trace.json"
    plain.write_bytes(gzip.decompress((KINETO / "resnet18.json.gz").read_bytes()))
    alone = import_files([plain], tmp_path / "runs")
    monkeypatch.setattr(kineto, "SHARED_FROM", 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    asked: list[int] = []
    original = kineto._Helper.result
    monkeypatch.setattr(kineto._Helper, "result", lambda self: asked.append(self.begin) or original(self))
    together = import_files([plain], tmp_path / "runs")
    assert len(asked) == 1 and asked[0] > plain.stat().st_size // 2
    assert table(together) == table(alone)


def test_the_second_process_runs_nothing_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file named like a module that it needs, beside the trace, is neither run nor in the way."""
    (tmp_path / "numpy.py").write_text("open('run', 'w').close()\nraise SystemExit(1)\n")
    path = write(tmp_path / "trace.json", [op("o" * 300, number * 10, 5) for number in range(1_000)])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kineto, "SHARED_FROM", 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    parts: list[kineto.FilePart | None] = []
    original = kineto._Helper.result
    monkeypatch.setattr(kineto._Helper, "result", lambda self: parts.append(original(self)) or parts[-1])
    assert len(import_files([path], tmp_path / "runs").spans) == 1_000
    assert not (tmp_path / "run").exists() and len(parts) == 1 and parts[0] is not None


def test_a_middle_that_only_looks_like_an_event_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [op("},{" * 3_000, number * 10, 5) for number in range(20)]
    path = write(tmp_path / "trace.json", events)
    monkeypatch.setattr(kineto, "SHARED_FROM", 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    run = import_files([path], tmp_path / "runs")
    assert len(run.spans) == 20 and run.info.status == "complete"


# ---- constructed traces -----------------------------------------------------------------------------------------


def test_parents_by_hand(tmp_path: Path) -> None:
    run = imported(
        tmp_path,
        [
            kernel("gemm", 40, 20, 1), kernel("Memcpy HtoD", 70, 5, 2, cat="gpu_memcpy", bytes=1024),
            call("cudaLaunchKernel", 12, 3, 1), call("cudaMemcpyAsync", 32, 2, 2, thread=2),
            op("outer", 5, 20), op("inner", 10, 10), op("after", 25, 2), op("backward", 30, 8, thread=2),
            op("outside", 205, 3), step(0, 0, 100), kernel("ncclDevKernel_AllReduce", 80, 10, 99, External_id=1),
        ],
    )  # fmt: skip
    rows = table(run)
    names = [row["name"] for row in rows]
    parent = {row["name"]: names[row["parent"]] if row["parent"] >= 0 else "" for row in rows}
    assert parent == {
        "ProfilerStep#0": "", "outer": "ProfilerStep#0", "inner": "outer", "cudaLaunchKernel": "inner", "gemm":
        "cudaLaunchKernel", "after": "ProfilerStep#0", "backward": "ProfilerStep#0", "cudaMemcpyAsync": "backward",
        "Memcpy HtoD": "cudaMemcpyAsync", "outside": "", "ncclDevKernel_AllReduce": "",
    }  # fmt: skip
    by_name = {row["name"]: row for row in rows}
    assert by_name["gemm"]["launch_latency:measured"] == 28_000
    assert by_name["Memcpy HtoD"]["bytes:counted"] == 1024 and by_name["Memcpy HtoD"]["kind"] == "copy"
    assert by_name["ncclDevKernel_AllReduce"]["kind"] == "collective"
    assert by_name["ncclDevKernel_AllReduce"]["launch_latency:measured"] is None
    assert [row["start"] for row in rows] == sorted(row["start"] for row in rows)
    assert any("launch of 1 of 3" in note for note in run.info.notes)


@pytest.mark.parametrize("longer", [0, 50])
@pytest.mark.parametrize("thread", [1, 2])
def test_a_step_and_what_begins_with_it_are_never_each_others_parent(longer: int, thread: int, tmp_path: Path) -> None:
    """An event as long as the step lies in it; one that lasts longer does not."""
    rows = table(imported(tmp_path, [op("outer", 100, 100 + longer, thread=thread), step(1, 100, 100)]))
    at = {row["name"]: number for number, row in enumerate(rows)}
    (stepped,) = [number for number, row in enumerate(rows) if row["kind"] == "step"]
    assert at["outer"] not in ancestors(rows, stepped) or stepped not in ancestors(rows, at["outer"])
    assert (stepped in ancestors(rows, at["outer"])) == (longer == 0)


def test_without_a_launch_the_external_id_says_whose_a_kernel_is(tmp_path: Path) -> None:
    lone = kernel("gemm", 40, 20)
    lone["args"]["External id"] = 5
    rows = table(imported(tmp_path, [lone, op("mm", 10, 3, external=5), op("other", 20, 3, external=6)]))
    assert rows[next(row["parent"] for row in rows if row["name"] == "gemm")]["name"] == "mm"


def test_events_that_end_before_they_begin_are_left_out_and_counted(tmp_path: Path) -> None:
    run = imported(tmp_path, [op("good", 0, 5), op("bad", 3, -2), op("open", 4, 1), {"ph": "X", "name": "x", "ts": 1}])
    assert [row["name"] for row in table(run)] == ["good", "open"]
    notes = " ".join(run.info.notes)
    assert "1 events end before they begin" in notes and "1 events have no time" in notes


def test_events_that_overlap_are_told_and_never_nested(tmp_path: Path) -> None:
    run = imported(tmp_path, [op("outer", 0, 100), op("a", 10, 20), op("b", 20, 30), op("c", 25, 3)])
    rows = table(run)
    names = [row["name"] for row in rows]
    assert {row["name"]: names[row["parent"]] for row in rows[1:]} == {"a": "outer", "b": "outer", "c": "b"}
    assert any(note.startswith("1 events of the host overlap") for note in run.info.notes)


def test_a_kernel_before_its_launch_is_told(tmp_path: Path) -> None:
    run = imported(tmp_path, [call("cudaLaunchKernel", 50, 5, 1), kernel("early", 40, 2, 1)])
    assert any("begin before their launch" in note for note in run.info.notes)
    assert [row["launch_latency:measured"] for row in table(run) if row["kind"] == "kernel"] == [-10_000]


def test_times_around_2_to_the_53_are_exact(tmp_path: Path) -> None:
    text = (
        '{"traceEvents": ['
        + ", ".join(
            f'{{"ph": "X", "cat": "kernel", "name": "k{i}", "pid": 0, "tid": 7, "ts": {ts}, "dur": 0.007, '
            f'"args": {{"stream": 7, "device": 0}}}}'
            for i, ts in enumerate(["9007199254740990.999", "9007199254740993", "9007199254740993.001"])
        )
        + "]}"
    )
    (tmp_path / "late.json").write_text(text)
    rows = table(import_files([tmp_path / "late.json"], tmp_path / "runs"))
    assert [(row["start"], row["duration"]) for row in rows] == [(0, 7), (2001, 7), (2002, 7)]


def test_ranks_keep_their_files_apart(tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in (1, 0):
        events = [call("cudaLaunchKernel", 10 * rank, 2, 1), kernel(f"k{rank}", 10 * rank + 5, 4, 1)]
        write(
            folder / f"part-{1 - rank}.json.gz", events, distributedInfo={"rank": rank}, baseTimeNanoseconds=1000 * rank
        )
    (folder / "notes.txt").write_text("nothing of ours")
    run = import_files([folder], tmp_path / "runs")
    rows = table(run)
    assert [(row["rank"], row["name"], row["start"]) for row in rows] == [
        (0, "cudaLaunchKernel", 0), (0, "k0", 5_000), (1, "cudaLaunchKernel", 11_000), (1, "k1", 16_000),
    ]  # fmt: skip
    assert [row["parent"] for row in rows] == [-1, 0, -1, 2]
    assert run.info.workload.ranks == 2
    assert run.info.notes == ["not read: notes.txt"]


def test_more_calls_than_are_remembered_lose_their_kernels_not_other_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linking, "REMEMBERED", 4)
    monkeypatch.setattr(rank_events, "merge_by_time", lambda spills: spill.merge_by_time(spills, 1))
    monkeypatch.setattr(spill, "STRIDE", 1)
    events = [call("cudaLaunchKernel", number, 0.5, number) for number in range(10)]
    events += [kernel(f"k{number}", 100 + number, 0.5, number) for number in range(10)]
    rows = table(imported(tmp_path, events))
    found = {row["name"]: row["parent"] for row in rows if row["kind"] == "kernel"}
    assert found == {f"k{number}": number if number >= 6 else -1 for number in range(10)}


# ---- bad input --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.3, 0.9])
@pytest.mark.parametrize("compressed", [True, False])
def test_a_trace_that_was_cut_is_an_incomplete_run(share: float, compressed: bool, tmp_path: Path) -> None:
    data = (KINETO / "resnet18.json.gz").read_bytes()
    data = data if compressed else gzip.decompress(data)
    path = tmp_path / ("cut.json.gz" if compressed else "cut.json")
    path.write_bytes(data[: int(share * len(data))])
    run = import_files([path], tmp_path / "runs")
    assert run.info.status == "incomplete"
    assert any("ends in the middle" in note for note in run.info.notes)
    whole = {(row["name"], row["duration"]) for row in table(real("resnet18", tmp_path))}
    rows = table(run)
    assert len(rows) > 1_000 and {(row["name"], row["duration"]) for row in rows} <= whole


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b'{"traceEvents": []}', "holds no event"),
        (b'{"traceEvents": [', "holds no event.*ends in the middle"),
        (b'{"traceEvents": [{"ph": "X", "ts": 1, "dur": -1}]}', "holds no event.*end before they begin"),
        (b'{"a": 1}', "no list traceEvents"),
        (b"", "it is empty"),
        (b"\x1f\x8b", "damaged"),
        (b"\x1f\x8b\x08" + bytes(7) + b"\xff\xff", "damaged"),
        (b"hello", "no file that sonda import knows"),
        (b"[[1, 2]]", "no file that sonda import knows"),
    ],
)  # fmt: skip
def test_what_holds_nothing_is_one_line_and_leaves_nothing(data: bytes, cause: str, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_bytes(data)
    with pytest.raises(SondaError, match=f"bad.json.*{cause}"):
        import_files([tmp_path / "bad.json"], tmp_path / "runs")
    assert not (tmp_path / "runs").exists() or list((tmp_path / "runs").iterdir()) == []


def test_files_that_are_not_there_and_kinds_that_do_not_mix(tmp_path: Path) -> None:
    with pytest.raises(SondaError, match="cannot read"):
        import_files([tmp_path / "none.json"], tmp_path)
    with pytest.raises(SondaError, match="nothing to import"):
        import_files([], tmp_path)
    with pytest.raises(SondaError, match="one by one"):
        import_files([KINETO / "mlp.json.gz", KINETO.parent / "ncu" / "raw.csv"], tmp_path)


def test_the_recorded_trace_of_nothing_shows_the_host_only(tmp_path: Path) -> None:
    from sonda.analysis.run_summary import summarise

    run = import_files([KINETO / "empty.json"], tmp_path / "runs")
    assert "No activity of a device" in describe(summarise(run).verdicts[0].finding)
