"""XSpace files, read by their wire format."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonda.imports.xplane import file as xplane
from sonda.imports.xplane import planes as xplane_plane
from sonda.imports.xplane.file import ABSENT, is_profile, open_space, profile_events
from sonda.imports.xplane.scanner import varint as read_varint
from sonda.imports.xplane.wire import double, fields
from xplane_examples import H200, PROFILES, PlaneMaker, number, space, stretch, training, varint


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_number_is_read_as_it_was_written(value: int) -> None:
    encoded = varint(value)
    assert read_varint(encoded, 0, len(encoded)) == (value, len(encoded))


@pytest.mark.parametrize("content", [b"", b"\x80", b"\xff" * 10, b"\x80" * 11])
def test_a_number_that_does_not_end_is_none(content: bytes) -> None:
    assert read_varint(content, 0, len(content)) == (0, -1)


@given(st.binary(max_size=60))
def test_fields_of_anything_end_within_what_was_given(content: bytes) -> None:
    ends = [one.stop for one in fields(content, 0, len(content))]
    assert ends == sorted(ends)
    assert all(end <= len(content) for end in ends[:-1])


def test_planes_lines_events_and_stats_are_as_written(tmp_path: Path) -> None:
    plane = PlaneMaker("/host:CPU", shown={"a/b:Mul": "Mul"}, own={"process_id": 42, "rate": 0.5})
    events = [plane.event("a/b:Mul", 5, 7, step_num=3, size=-1, share=0.25, word="x", raw=b"\x00\xff")]
    path = written(tmp_path / "a.xplane.pb", space(plane.line(9, "main", events, begin=1000), host="alpha"))
    ((found_plane, line, event),) = profile_events(path)
    assert (found_plane.name, found_plane.stats) == ("/host:CPU", {"process_id": 42, "rate": 0.5})
    assert (line.number, line.name, line.timestamp_ns, line.count) == (9, "main", 1000, 1)
    assert (event.name, event.shown, event.start_ns, event.duration_ns) == ("a/b:Mul", "Mul", 1005, 7)
    assert event.stats == {"step_num": 3, "size": -1, "share": 0.25, "word": "x", "raw": b"\x00\xff"}
    with open_space(path) as found:
        assert (found.hosts, found.truncated) == (["alpha"], False)


def test_a_reference_is_the_name_of_another_stat_and_shared_stats_are_hidden_by_own(tmp_path: Path) -> None:
    stats = stretch(5, number(1, 1) + stretch(2, number(1, 1) + stretch(2, b"hlo_op")))
    stats += stretch(5, number(1, 2) + stretch(2, number(1, 2) + stretch(2, b"dot.4")))
    stats += stretch(5, number(1, 3) + stretch(2, number(1, 3) + stretch(2, b"flops")))
    shared = stretch(5, number(1, 3) + number(3, 100)) + stretch(5, number(1, 1) + stretch(5, b"hidden"))
    names = stretch(4, number(1, 4) + stretch(2, number(1, 4) + stretch(2, b"fusion") + shared))
    event = number(1, 4) + number(2, 0) + stretch(4, number(1, 1) + number(7, 2))
    content = stretch(1, stretch(3, stretch(4, event)) + names + stats)
    ((_, _, found),) = profile_events(written(tmp_path / "a.pb", content))
    assert found.stats == {"hlo_op": "dot.4", "flops": 100}


def test_fields_that_stand_in_another_order_are_found(tmp_path: Path) -> None:
    event = stretch(4, number(1, 1) + number(2, 3000) + number(3, 2000))
    line = event + number(3, 50) + stretch(11, b"shown") + number(10, 77) + stretch(2, b"late") + number(1, 5)
    content = stretch(1, stretch(4, number(1, 1) + stretch(2, stretch(2, b"e"))) + stretch(3, line) + stretch(2, b"p"))
    ((plane, found, one),) = profile_events(written(tmp_path / "a.pb", content))
    assert (plane.name, found.name, found.number) == ("p", "shown", 77)
    assert (one.start_ns, one.duration_ns) == (53, 2)


@given(st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 20)), min_size=1, max_size=20))
def test_what_lies_inside_in_picoseconds_lies_inside_in_nanoseconds(times: list[tuple[int, int]]) -> None:
    plane = xplane_plane.XPlane(b"", False)
    rows = np.array([[0, start, length, 0, 0, 0] for start, length in times] + [[0, 0, 1 << 41, 0, 0, 0]])
    block = xplane_plane.EventBlock(xplane_plane.XLine(plane, 0, 0), rows, np.zeros((0, 4), np.int64))
    start, end = block.start_ns, block.start_ns + block.duration_ns
    assert (start >= start[-1]).all() and (end <= end[-1]).all()
    for at, (begin, length) in enumerate(times):
        for other, (its_begin, its_length) in enumerate(times):
            if begin <= its_begin and its_begin + its_length <= begin + length:
                assert start[at] <= start[other] and end[other] <= end[at]


@pytest.mark.parametrize("path", [H200, PROFILES / "keras_fit.xplane.pb.gz", PROFILES / "jax_marked.xplane.pb.gz"])
def test_machine_code_and_python_read_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = [(plane.name, line.name, event) for plane, line, event in profile_events(path)]
    monkeypatch.setattr(xplane, "COMPILED_FROM", 0)
    monkeypatch.setattr(xplane_plane, "EVENTS", 50)
    monkeypatch.setattr(xplane_plane, "STATS", 3)
    assert [(plane.name, line.name, event) for plane, line, event in profile_events(path)] == plain
    assert len(plain) > 200


def test_a_real_profile_of_a_gpu_holds_what_was_recorded() -> None:
    # Four steps of seven kernels each, in one CUDA graph (tests/data/gpu/README.md).
    with open_space(H200) as found:
        planes = {plane.name: plane for plane in found.planes}
        assert planes["/device:GPU:0"].stats["gpu_device_name"] == "NVIDIA H200"
        (stream,) = planes["/device:GPU:0"].lines
        (block,) = stream.blocks()
        assert (stream.name, len(block)) == ("Stream #14(Compute)", 28)
        launches = block.numbers("correlation_id")
        assert sorted({number: (launches == number).sum() for number in launches.tolist()}.values()) == [7, 7, 7, 7]
        assert (block.numbers("no such stat") == ABSENT).all()
        codes, words = block.texts("hlo_module")
        assert [words[code] for code in codes] == ["jit_step"] * 28
        assert found.began_ns == 1794726218292842592


def test_a_packed_file_is_unpacked_also_where_it_was_cut(tmp_path: Path) -> None:
    whole = training(200)
    path = written(tmp_path / "a.xplane.pb.gz", gzip.compress(whole))
    assert sum(1 for _ in profile_events(path)) == 600
    written(path, gzip.compress(whole)[:-200])
    with open_space(path) as found:
        assert found.truncated
        assert sum(line.count for plane in found.planes for line in plane.lines) > 0


def test_what_begins_like_a_profile_is_told_from_text_and_noise() -> None:
    assert is_profile(training()) and is_profile(H200.read_bytes()[:100])
    assert not is_profile(b"") and not is_profile(b'\n{"traceEvents": []}') and not is_profile(b"\x0a\x00")
    assert not is_profile(bytes(range(256))) and not is_profile(b"\nsome text\nthat begins with a new line\n")


def test_doubles_come_from_their_bits() -> None:
    assert double(0x3FF0000000000000) == 1.0
    assert double(-0x4010000000000000) == -1.0
