"""Traces are cut into whole events wherever their text is cut, and bad text loses no more than it must."""

from __future__ import annotations

import gzip
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sonda.imports.kineto import text as event_text
from sonda.imports.kineto.events import decode_event, decode_events, nanoseconds
from sonda.imports.kineto.text import EventText, open_text
from sonda.record.errors import SondaError

NASTY = ['},{"', "},\n  {", '\\"}', "[{", "]}", '"', "\\", "ünïcödé ✓", "<b>x</b>", "\x00", '"traceEvents": [']


def reader(data: bytes) -> EventText:
    return EventText(io.BytesIO(data), decode_events, decode_event)


def read(data: bytes) -> tuple[list[Any], EventText]:
    text = reader(data)
    text.read_head()
    return [event for piece in text.pieces() for event in piece], text


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    names=st.lists(st.sampled_from(NASTY) | st.text(max_size=8), max_size=12),
    nested=st.booleans(), indent=st.sampled_from([None, 2]), piece=st.integers(20, 400), late=st.booleans(),
    bare=st.booleans(),
)  # fmt: skip
def test_every_event_is_found_wherever_the_text_is_cut(
    monkeypatch: pytest.MonkeyPatch,
    names: list[str],
    nested: bool,
    indent: int | None,
    piece: int,
    late: bool,
    bare: bool,
) -> None:
    monkeypatch.setattr(event_text, "PIECE", piece)
    events = [
        {"ph": "X", "name": name, "ts": number, "dur": 1, "args": {"list": [{"a": 1}, {"b": "},{"}]} if nested else {}}
        for number, name in enumerate(names)
    ]
    document: Any = events if bare else {"about": {"traceEvents": [], "x": '"traceEvents": ['}, "traceEvents": events}
    if late and not bare:
        document["behind"] = {"rank": [{"a": 1}, {"b": 2}]}
    found, text = read(json.dumps(document, indent=indent).encode())
    assert [event.name for event in found] == names
    assert not text.truncated and text.unreadable == 0
    if not bare:
        assert text.head == {key: value for key, value in document.items() if key != "traceEvents"}


@pytest.mark.parametrize("cut", [1, 30, 100, 150, 199])
def test_a_text_that_was_cut_gives_the_whole_events_before_the_cut(cut: int) -> None:
    events = [{"ph": "X", "name": f"event }}{{ {number}", "ts": number, "dur": 1} for number in range(6)]
    whole = json.dumps({"traceEvents": events}).encode()
    begin = whole.index(b"[") + 1
    data = whole[: begin + cut]
    ends = [begin + len(json.dumps(events[: number + 1])) - 2 for number in range(6)]
    found, text = read(data)
    assert [event.ts for event in found] == [number for number in range(6) if ends[number] <= len(data)]
    assert text.truncated


def test_a_compressed_file_that_was_cut_gives_what_is_left(tmp_path: Path) -> None:
    events = [{"ph": "X", "name": f"{number * 7919 % 10007}", "ts": number, "dur": 1} for number in range(50_000)]
    data = gzip.compress(json.dumps({"traceEvents": events}).encode())
    (tmp_path / "cut.json.gz").write_bytes(data[: len(data) * 2 // 3])
    with open_text(tmp_path / "cut.json.gz") as stream:
        text = EventText(stream, decode_events, decode_event)
        text.read_head()
        found = [event for piece in text.pieces() for event in piece]
    assert text.truncated
    assert [event.ts for event in found] == list(range(len(found)))
    assert 25_000 < len(found) < 50_000


def test_numbers_that_json_does_not_have_and_bytes_that_are_no_utf8_spoil_nothing() -> None:
    data = (
        b'{"traceEvents": [{"ph": "X", "name": "inf: inf, nan", "ts": 1.5, "dur": 2, "args": {"a": inf, "x": -nan}},'
        b'{"ph": "X", "name": "caf\xe9", "ts": "3", "dur": 4, "args": {"stream": "7", "correlation": 5}},'
        b'{"ph": ["X"], "name": "no phase", "ts": 5, "dur": 6}, {"ph": "X", "name": "last", "ts": 7, "dur": 8}]}'
    )
    found, text = read(data)
    assert [event.name for event in found] == ["inf: inf, nan", "caf\ufffd", "last"]
    assert [nanoseconds(bytes(event.ts)) for event in found] == [1500, 3000, 7000]
    assert found[1].args.correlation == 5
    assert text.unreadable == 1 and not text.truncated


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"a": 1}', b"hello", b'{"traceEvents": 5}', b"\x00\x01", b'{"traceEvents"']
)
def test_what_is_no_trace_is_said_in_one_line(data: bytes) -> None:
    with pytest.raises(SondaError, match="traceEvents"):
        read(data)


def test_a_bare_list_may_lack_its_end_but_not_the_end_of_an_event() -> None:
    assert not read(b'[{"ph": "X", "ts": 1, "dur": 1},\n')[1].truncated
    assert read(b'[{"ph": "X", "ts": 1, "dur": 1}, {"ph":')[1].truncated


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        (b"3869232170605.514", 3869232170605514), (b"9007199254740993", 9007199254740993000),
        (b"9007199254740992.001", 9007199254740992001), (b"1e3", 1_000_000), (b"0.0004", 0), (b"-2.5", -2500),
        (b'"12.5"', 12500), (b"null", None), (b"1e400", None), (b"9" * 30, None), (b"1" + b"0" * 5000, None),
        (b"99999999999999999", None),
    ],
)  # fmt: skip
def test_times_are_read_as_they_are_written(text: bytes, ns: int | None) -> None:
    assert nanoseconds(text) == ns


@settings(max_examples=200, deadline=None)
@given(st.integers(0, (1 << 53) * 1000 + 999))
def test_no_nanosecond_is_lost_at_any_size(ns: int) -> None:
    from sonda.imports.kineto.events import raw_events
    from sonda.imports.trace.raw_events import EventTables

    text = f'[{{"ph": "X", "name": "a", "ts": {Decimal(ns) / 1000:f}, "dur": 0.001}}]'
    rows, _ = raw_events(decode_events(text.encode()), EventTables())
    assert rows["start"].tolist() == [ns] and rows["duration"].tolist() == [1]
