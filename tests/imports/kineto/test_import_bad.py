"""Ugly traces: a clear result or one line, never a traceback, never a wrong number in silence."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from sonda.analysis.traces.summary import summarise_trace
from sonda.imports.kineto import reader as kineto
from sonda.imports.kineto import text as event_text
from sonda.imports.kineto.events import decode_event, decode_events
from sonda.imports.kineto.text import EventText
from sonda.record.errors import SondaError
from sonda.report.blocks import Detail
from sonda.report.trace.chrome import write_trace
from sonda.report.views.imported import TraceView
from sonda.targets.imported.launcher import import_files
from trace_examples import call, imported, kernel, op, step, table, write

EVENTS = [
    step(0, 0, 50), op("mm", 1, 30, external=3), call("cudaLaunchKernel", 2, 3, 1), kernel('g}{,[\\"k ü', 10, 20, 1),
    {"ph": "B", "name": "b", "ts": 5, "pid": 1, "tid": 1}, {"ph": "E", "ts": 9, "pid": 1, "tid": 1},
    {"ph": "C", "name": "c", "ts": 3, "args": {"x": 1}},
]  # fmt: skip
WHOLE = json.dumps({"schemaVersion": 1, "traceEvents": EVENTS, "traceName": "x"}, ensure_ascii=False).encode()


def shown(run: Any, folder: Path) -> str:
    """Everything that is made of a run, so that nothing of it fails; the screen is returned."""
    found = summarise_trace(run)
    json.dumps(TraceView(found).document())
    json.loads(write_trace(folder / "out.json", run).read_text())
    return TraceView(found).text(100, color=False, detail=Detail.ALL)


def test_cut_at_every_byte_a_text_gives_the_events_that_are_whole() -> None:
    ends = [WHOLE.index(json.dumps(event, ensure_ascii=False).encode()) for event in EVENTS]
    ends = [end + len(json.dumps(event, ensure_ascii=False).encode()) for end, event in zip(ends, EVENTS, strict=True)]
    for cut in range(len(WHOLE)):
        text = EventText(io.BytesIO(WHOLE[:cut]), decode_events, decode_event)
        try:
            text.read_head()
        except SondaError:
            assert cut < WHOLE.index(b"[") + 1
            continue
        found = [event for piece in text.pieces() for event in piece]
        assert len(found) == sum(end <= cut for end in ends), cut
        assert text.truncated and not text.unreadable


def test_a_compressed_file_cut_anywhere_is_incomplete_or_one_line(tmp_path: Path) -> None:
    data = gzip.compress(WHOLE)
    path = tmp_path / "cut.json.gz"
    for cut in range(0, len(data), 7):
        path.write_bytes(data[:cut])
        try:
            run = import_files([path], tmp_path / "runs")
        except SondaError as error:
            assert "cut.json.gz" in str(error) and "\n" not in str(error)
        else:
            assert run.info.status == "incomplete"


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"args": {"stream": 7, "device": 10**9}}, "1 activities do not say on which device"),
        ({"args": {"stream": 7, "device": "GPU"}}, "1 activities do not say on which device"),
        ({"args": [1, 2]}, "1 activities do not say on which device"),
        ({"args": None}, "1 activities do not say on which device"),
        ({"args": {"stream": 2**70, "device": 0, "correlation": 2**70, "bytes": -(2**70)}}, "the launch of 1 of 1"),
        ({"name": None}, "the launch of 1 of 1"),
        ({"pid": 1.5, "tid": {"a": 1}}, "the launch of 1 of 1"),
        ({"ts": "5.5", "dur": "2"}, "the launch of 1 of 1"),
    ],
)  # fmt: skip
def test_members_that_are_not_what_they_should_be(change: dict[str, Any], note: str, tmp_path: Path) -> None:
    run = imported(tmp_path, [kernel("k", 1, 2) | change])
    assert any(said.startswith(note) for said in run.info.notes)
    (row,) = table(run)
    assert (row["kind"], row["duration"], row["device"]) == ("kernel", 2_000, "cuda:0")
    shown(run, tmp_path)


@pytest.mark.parametrize("missing", [None, 5])
def test_an_event_without_a_category_is_work_of_the_host(missing: Any, tmp_path: Path) -> None:
    assert [row["kind"] for row in table(imported(tmp_path, [kernel("k", 1, 2) | {"cat": missing}]))] == ["op"]


def test_members_of_the_trace_that_are_not_what_they_should_be(tmp_path: Path) -> None:
    run = imported(tmp_path, [kernel("k", 1, 2)], deviceProperties=5, distributedInfo="x", baseTimeNanoseconds="z",
                   cuda_runtime_version={"a": 1})  # fmt: skip
    assert len(run.spans) == 1
    shown(run, tmp_path)


def test_large_names_and_arguments(tmp_path: Path) -> None:
    run = imported(tmp_path, [kernel("n" * 100_000, 1, 2, note="y" * 3_000_000), kernel("a\nb\r\x1b[31m<b>", 5, 2)])
    text = shown(run, tmp_path)
    assert len(run.spans) == 2 and max(len(line) for line in text.splitlines()) <= 100 and "\x1b" not in text


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_byte_order_marks(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "marked.json"
    path.write_bytes(WHOLE.decode().encode(encoding))
    if encoding == "utf-16":
        with pytest.raises(SondaError, match=r"marked.json is text in UTF-16"):
            import_files([path], tmp_path / "runs")
    else:
        assert len(import_files([path], tmp_path / "runs").spans) == 5


def test_a_second_list_of_events_is_counted(tmp_path: Path) -> None:
    event = json.dumps(kernel("k", 1, 2))
    path = tmp_path / "twice.json"
    path.write_text(f'{{"traceEvents": [{event}], "traceEvents": [{event}, {event}]}}')
    run = import_files([path], tmp_path / "runs")
    assert len(run.spans) == 1 and run.info.notes[0] == "2 events cannot be read: left out"


@pytest.mark.parametrize(
    ("ranks", "found", "note"),
    [
        ((3, 1), [1, 3], []),
        ((0, 0), [0, 1], ["several files say that they are rank 0"]),
        ((4, None), [0, 1], ["not every file says which rank it is"]),
    ],
)  # fmt: skip
def test_ranks_that_lack_or_repeat(
    ranks: tuple[int | None, ...], found: list[int], note: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    for number, rank in enumerate(ranks):
        head = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": 8}}
        write(folder / f"{number}.json", [op(f"{rank}", 1, 2), kernel("ncclDevKernel_AllReduce_Sum_f32", 2, 5)], **head)
    (folder / "README.txt").write_text("nothing")
    run = import_files([folder], tmp_path / "runs")
    assert sorted({row["rank"] for row in table(run)}) == found
    assert [said.split(":")[0] for said in run.info.notes if "rank" in said] == note
    assert [device.communication for device in summarise_trace(run).work.devices] == [5_000, 5_000]
    shown(run, tmp_path)


def test_processes_of_one_trace_do_not_hold_each_others_events(tmp_path: Path) -> None:
    """The same thread number in two processes is two threads."""
    rows = table(imported(tmp_path, [op("a", 0, 100), op("b", 10, 20) | {"pid": 11}, op("c", 12, 5) | {"pid": 11}]))
    names = [row["name"] for row in rows]
    assert {row["name"]: names[row["parent"]] for row in rows if row["parent"] >= 0} == {"c": "b"}
    assert rows[0]["thread"] == 1 and rows[1]["thread"] == rows[2]["thread"] != 1


def test_a_report_of_nsight_systems_says_how_to_export_it(tmp_path: Path) -> None:
    (tmp_path / "a.nsys-rep").write_bytes(b"\x00\x01NVIDIA")
    with pytest.raises(SondaError, match=r"a.nsys-rep: it is no file") as caught:
        import_files([tmp_path / "a.nsys-rep"], tmp_path / "runs")
    assert caught.value.remedy == "make a file that it knows: nsys export --type sqlite a.nsys-rep"


def test_a_member_of_a_trace_that_is_called_profile_is_none_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": EVENTS, "profile": {"steps": [1], "traced": {"f": 2}}}))
    run = import_files([path], tmp_path / "runs")
    assert shown(run, tmp_path) and run.info.workload.profile is None


TAIL = json.dumps({"stackFrames": {str(n): {"name": 'f}"]\\{"' * n, "parent": [n, []]} for n in range(12)}}).encode()[
    1:
]


def test_a_large_end_of_a_whole_trace_is_passed_over_and_one_that_was_cut_anywhere_is_a_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_text, "LARGEST_TAIL", 40)
    whole = b'{"traceEvents": [' + json.dumps(EVENTS[0]).encode() + b"], " + TAIL
    for piece in (7, 64, 4096):
        monkeypatch.setattr(event_text, "PIECE", piece)
        for cut in (*range(whole.index(TAIL) + 40, len(whole), 1 if piece > 64 else 17), len(whole)):
            text = EventText(io.BytesIO(whole[:cut]), decode_events, decode_event)
            text.read_head()
            assert len([event for found in text.pieces() for event in found]) == 1
            assert (text.truncated, text.passed_over) == (cut < len(whole), True), (piece, cut)


@pytest.mark.parametrize("helped", [False, True])
def test_a_trace_with_a_large_end_is_a_complete_run_that_says_so(
    helped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kineto, "SHARED_FROM", 1 if helped else 1 << 40)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    events = json.dumps([op("o" * 300, number * 10, 5) for number in range(3_000)])
    path = tmp_path / "trace.json"
    path.write_text(f'{{"traceEvents": {events}, "stackFrames": {{"0": {{"name": "{"f" * (17 << 20)}"}}}}}}')
    run = import_files([path], tmp_path / "runs")
    assert len(run.spans) == 3_000 and run.info.status == "complete"
    assert run.info.notes == ["more than 16 MiB stand behind the events: passed over"]


def test_a_disk_that_takes_nothing_leaves_no_process_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []

    def refuse(spill: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kineto, "SHARED_FROM", 1)
    monkeypatch.setattr(kineto._Helper, "start", lambda *words: started.append(words))
    monkeypatch.setattr(kineto.Spill, "__enter__", refuse)
    with pytest.raises(SondaError, match=r"trace\.json: No space left on device"):
        import_files([write(tmp_path / "trace.json", EVENTS)], tmp_path / "runs")
    assert started == []
