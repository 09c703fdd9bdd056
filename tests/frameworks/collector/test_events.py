"""What a collector writes, whole or cut short anywhere, and what the parent reads."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from observed import check_structure
from sonda.frameworks.collector.descriptors import ASIDE
from sonda.frameworks.collector.recorder import HEAD, MAGIC, Recorder
from sonda.frameworks.reconstruction.assembly import assemble
from sonda.frameworks.reconstruction.events import match_spans, read_events


def record(directory: Path) -> tuple[Path, list[int]]:
    """Two steps of a program with one layer, in two flushes; the file and the codes used."""
    recorder = Recorder(str(directory))
    forward, optimizer, backward = (
        recorder.define(kind="phase", name=name) for name in ("forward", "optimizer", "backward")
    )
    layer = recorder.define(kind="layer", name="Linear", path="", root=1, root_name="Linear", direction="forward")
    number = recorder.define(kind="value", quantity="optimizer", source="counted")
    stream = recorder.stream()
    for step in range(2):
        at = 100 * step
        stream.push((forward, at, layer, at + 1, layer + 1, at + 9, forward + 1, at + 10))
        stream.push((backward, at + 10, backward + 1, at + 15))
        stream.push((optimizer, at + 20, number, 0, optimizer + 1, at + 30))
        recorder.flush()
    recorder.state(finished=True)
    recorder.close()
    return Path(recorder.path), [forward, optimizer, layer, number]


def test_what_was_recorded_is_read_back(tmp_path: Path) -> None:
    path, codes = record(tmp_path)
    events = read_events(path)
    assert not events.truncated and events.fact("finished") is True
    assert [one["id"] for one in events.definitions] == [0, 1, 2, 3, 4]
    [pairs] = events.threads.values()
    assert pairs[:4].tolist() == [[codes[0], 0], [codes[2], 1], [codes[2] + 1, 9], [codes[0] + 1, 10]]
    spans = match_spans(pairs, np.array([False, False, False, False, True]))
    assert spans.start.tolist() == [0, 1, 10, 20, 100, 101, 110, 120]
    assert spans.end.tolist() == [10, 9, 15, 30, 110, 109, 115, 130]
    assert spans.parent.tolist() == [-1, 0, -1, -1, -1, 4, -1, -1]
    assert spans.value_row.tolist() == [3, 7]


def test_a_file_name_that_is_no_text_loses_nothing(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path))
    recorder.state(line=os.fsdecode(b"net-\xff.py:3"))
    forward = recorder.define(kind="phase", name="forward")
    recorder.stream().push((forward, 1, forward + 1, 2))
    recorder.state(finished=True)
    recorder.close()
    events = read_events(Path(recorder.path))
    assert events.fact("line") == "net-?.py:3" and events.fact("finished") and events.threads and not events.truncated


def test_a_file_cut_at_any_byte_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path, _ = record(tmp_path)
    data = path.read_bytes()
    ends = [len(MAGIC)]
    while ends[-1] < len(data):
        ends.append(ends[-1] + HEAD.size + HEAD.unpack_from(data, ends[-1])[1])
    whole = read_events(path)
    for length in range(len(data)):
        path.write_bytes(data[:length])
        events = read_events(path)
        assert events.truncated == (length not in ends)
        assert events.definitions == whole.definitions[: len(events.definitions)]
        spans = assemble(tmp_path, 0, 1000)
        assert spans.truncated
        # At most what is there: the run, a part, two steps, six phases, two layers.
        assert len(spans.spans) <= 12
        check_structure(spans.spans)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_read_without_a_crash(data: bytes) -> None:
    path = Path(os.environ["PYTEST_EVENTS"])
    path.write_bytes(MAGIC + data)
    read_events(path)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 1000)), max_size=40))
@example([(1, 5), (2, 7)])  # an end without its begin, then the next definition's begin
def test_any_sequence_of_events_becomes_nested_spans(pairs: list[tuple[int, int]]) -> None:
    times = np.sort(np.array([time for _, time in pairs], dtype=np.int64))
    codes = np.array([code for code, _ in pairs], dtype=np.int64)
    is_value = np.array([False, False, False, False, False, True])
    spans = match_spans(np.stack((codes, times), axis=1), is_value)
    begins = np.flatnonzero((codes < 10) & (codes % 2 == 0))
    assert spans.definition.tolist() == (codes[begins] // 2).tolist()
    assert spans.start.tolist() == times[begins].tolist()
    for row, parent in enumerate(spans.parent.tolist()):
        assert parent < row
        if parent >= 0:
            assert spans.start[parent] <= spans.start[row] <= spans.end[row] <= spans.end[parent]


@pytest.fixture(autouse=True)
def _scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_EVENTS", str(tmp_path / "any.events"))


def writing_at_most(
    monkeypatch: pytest.MonkeyPatch, at_once: int, in_all: int = 1 << 62, why: int = errno.ENOSPC
) -> None:
    """Have the recorder's writes take `at_once` bytes, and fail after `in_all` of them, for want of space."""
    write, left = os.write, [in_all]

    def some(descriptor: int, data: Any) -> int:
        if descriptor < ASIDE:  # not the recorder's
            return write(descriptor, data)
        if not left[0]:
            raise OSError(why, os.strerror(why))
        count = write(descriptor, data[: min(at_once, left[0])])
        left[0] -= count
        return count

    monkeypatch.setattr(os, "write", some)


def test_a_full_disk_ends_the_recording_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writing_at_most(monkeypatch, 30, 30)
    path, _ = record(tmp_path)
    assert path.stat().st_size == 30
    assert read_events(path).truncated


@pytest.mark.parametrize(
    ("why", "name", "text"),
    [(errno.ENOSPC, "full", ""), (errno.EDQUOT, "full", ""),
     (errno.EIO, "unwritten.failure", "Input/output error\n"), (errno.EFBIG, "unwritten.failure", "File too large\n")],
)  # fmt: skip
def test_only_a_full_disk_is_called_full(
    why: int, name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing_at_most(monkeypatch, 30, 30, why)
    record(tmp_path)
    (said,) = [path for path in tmp_path.iterdir() if path.suffix in (".full", ".failure")]
    assert said.name == f"{os.getpid()}.{name}" and said.read_text() == text


def test_after_a_full_disk_nothing_is_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writing_at_most(monkeypatch, 30, 30)
    recorder = Recorder(str(tmp_path))
    stream = recorder.stream()
    stream.push(tuple(range(100)))
    recorder.flush()
    assert recorder.off and not stream.events and not stream.detail
    recorder.close()


def test_a_write_that_takes_a_part_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = record(tmp_path / "..")[0].read_bytes()
    writing_at_most(monkeypatch, 7)
    assert record(tmp_path)[0].read_bytes() == whole


def test_a_directory_that_is_gone_ends_the_recording(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path / "gone"))
    recorder.stream().push((0, 1))
    recorder.flush()
    assert recorder.off


def test_a_forked_child_writes_nothing_and_leaves_the_parents_events_alone(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path))
    code = recorder.define(kind="phase", name="forward")
    recorder.stream().push((code, 1))
    child = os.fork()
    if not child:
        silent = recorder.off
        recorder.stream().push((code + 1, 5))
        recorder.flush()
        recorder.close()
        os._exit(0 if silent else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    recorder.stream().push((code + 1, 2))
    recorder.close()
    [pairs] = read_events(Path(recorder.path)).threads.values()
    assert pairs.tolist() == [[0, 1], [1, 2]]
    assert len(list(tmp_path.glob("*.events"))) == 1


def test_every_thread_has_a_stream_and_those_gone_are_dropped(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path))
    code = recorder.define(kind="phase", name="forward")

    def work() -> None:
        recorder.stream().push((code, 1, code + 1, 2))

    for _ in range(40):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    recorder.flush()
    recorder.flush()
    assert len(recorder.streams) <= 1
    recorder.close()
    assert sum(len(pairs) for pairs in read_events(Path(recorder.path)).threads.values()) == 80
