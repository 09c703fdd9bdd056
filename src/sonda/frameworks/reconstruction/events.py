"""Reads a collector's file: definitions, facts, and matched spans per thread, as arrays."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from sonda.frameworks.collector.recorder import AGAIN, HEAD, MAGIC

CODE = (1 << 32) - 1
"""Mask of the lower half of an event's code. The upper half says which counters were read there; with `AGAIN` the last
reading holds."""
COUNTS = struct.Struct("<qq")


@dataclass
class ProcessEvents:
    """One process: its definitions, the facts that it stated, and the raw pairs of each of its threads."""

    definitions: list[dict[str, Any]] = field(default_factory=list)
    facts: list[dict[str, Any]] = field(default_factory=list)
    threads: dict[int, np.ndarray] = field(default_factory=dict)
    """Thread id to an array of shape (events, 2): code, value."""
    readings: dict[int, list[bytes]] = field(default_factory=dict)
    """Thread id to its readings of counters, as the kernel gave them."""
    marks: dict[int, int] = field(default_factory=dict)
    """When the GPU that was used most reached each mark, ns on its own clock, by the number of the mark."""
    other_marks: int = 0
    """How many marks lie on other GPUs, which have other clocks."""
    truncated: bool = False

    def fact(self, key: str, default: Any = None) -> Any:
        """The last value that was stated under this key."""
        for stated in reversed(self.facts):
            if key in stated:
                return stated[key]
        return default


def read_events(path: Path) -> ProcessEvents:
    """Read one collector's file. A record that a crash cut short ends the reading and sets `truncated`."""
    data = path.read_bytes()
    events = ProcessEvents()
    if not data.startswith(MAGIC):
        events.truncated = True
        return events
    blocks: dict[int, list[np.ndarray]] = {}
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    position = len(MAGIC)
    while position < len(data):
        end = position + HEAD.size
        kind, length = HEAD.unpack_from(data, position) if end <= len(data) else (b"", 0)
        whole = kind == b"D" or (kind == b"E" and length % 16 == 8) or (kind == b"C" and length >= COUNTS.size)
        if not whole or end + length > len(data):
            events.truncated = True
            break
        payload = memoryview(data)[end : end + length]
        if kind == b"D":
            try:
                record = decode(payload)
            except msgspec.MsgspecError:
                events.truncated = True
                break
            (events.definitions if "id" in record else events.facts).append(record)
        elif kind == b"C":
            thread, readings = _split_readings(payload)
            events.readings.setdefault(thread, []).extend(readings)
        else:
            pairs = np.frombuffer(payload, dtype="<i8")
            blocks.setdefault(int(pairs[0]), []).append(pairs[1:].reshape(-1, 2))
        position = end + length
    _take_marks(events)
    events.definitions.sort(key=lambda definition: definition["id"])
    if [definition["id"] for definition in events.definitions] != list(range(len(events.definitions))):
        events.truncated = True
        events.definitions = []
    events.threads = {thread: _drop_undefined(np.concatenate(parts), events) for thread, parts in blocks.items()}
    return events


def _take_marks(events: ProcessEvents) -> None:
    """Move the times of marks on a GPU out of the facts, which may hold thousands of them."""
    by_device: dict[int, dict[int, int]] = {}
    for fact in events.facts:
        for number, device, time in fact.pop("device_times", ()):
            by_device.setdefault(device, {})[number] = time
    events.marks = max(by_device.values(), key=len, default={})
    events.other_marks = sum(map(len, by_device.values())) - len(events.marks)
    events.facts = [fact for fact in events.facts if fact]


def _split_readings(payload: memoryview) -> tuple[int, list[bytes]]:
    """The thread of a block of readings, and the readings; [] for a block whose lengths do not add up."""
    thread, count = COUNTS.unpack_from(payload)
    start = COUNTS.size + 4 * count
    if count < 0 or start > len(payload):
        return thread, []
    lengths = np.frombuffer(payload[COUNTS.size : start], dtype="<u4").astype(np.int64)
    ends = start + np.cumsum(lengths)
    if count and ends[-1] != len(payload):
        return thread, []
    return thread, [bytes(payload[end - length : end]) for end, length in zip(ends, lengths, strict=True)]


def _drop_undefined(pairs: np.ndarray, events: ProcessEvents) -> np.ndarray:
    """Drop events without a definition: they cannot be interpreted."""
    code = pairs[:, 0]
    count = len(events.definitions)
    defined = (code >= 0) & ((code & CODE) >> 1 < count) & ((code & ~AGAIN) >> 32 <= count)
    if not defined.all():
        events.truncated = True
    return pairs[defined]


@dataclass(frozen=True)
class RawSpans:
    """Matched spans of one thread in the order they began."""

    definition: np.ndarray
    start: np.ndarray
    end: np.ndarray
    parent: np.ndarray
    """Row of the span around each span, -1 for none."""
    level: np.ndarray
    """1 for a span with no span around it."""
    value_definition: np.ndarray
    value: np.ndarray
    value_row: np.ndarray
    """For every value: its definition, the number, and the row of the span that it belongs to (-1: none)."""
    read_definition: np.ndarray
    read_again: np.ndarray
    read_row: np.ndarray
    read_ends: np.ndarray
    """For every boundary with a reading of counters: their definition, whether the last reading holds again, the row of
    the span that begins or ends there (-1: none), and whether it ends."""


def match_spans(pairs: np.ndarray, is_value: np.ndarray) -> RawSpans:
    """Pair begins with ends and find parents. `is_value` says which definitions are values.

    Spans that never ended (an exception, a kill) end where their parent ends, or with the last event.
    """
    codes, values = pairs[:, 0] & CODE, pairs[:, 1]
    value_event = is_value[codes >> 1] if len(is_value) else np.zeros(0, dtype=bool)
    span_events = np.flatnonzero(~value_event)
    upper = pairs[span_events, 0] >> 32
    boundary = np.flatnonzero(upper)
    upper = upper[boundary]
    span_codes, times = codes[span_events], values[span_events]
    before_value = np.searchsorted(span_events, np.flatnonzero(value_event))
    matched = _match_nested(span_codes)
    if matched is None:
        span_codes, times, before_value, place = _repair(span_codes, times, before_value)
        boundary = place[boundary]
        matched = _match_nested(span_codes)
        assert matched is not None
    begins, ends, level = matched
    row_at = np.cumsum((span_codes & 1) == 0) - 1
    rows = row_at[begins]
    order = np.argsort(rows, kind="stable")
    begins, ends, level = begins[order], ends[order], level[order]
    parent = _last_row_at_level(level, np.arange(len(begins)), level - 1)
    depth_after = np.cumsum(np.where(span_codes & 1, -1, 1))
    last = before_value - 1
    inside = last >= 0
    value_row = np.full(len(before_value), -1, dtype=np.int64)
    value_row[inside] = _last_row_at_level(level, row_at[last[inside]] + 1, depth_after[last[inside]])
    row_of = np.full(len(span_codes) + 1, -1, dtype=np.int64)
    row_of[begins] = row_of[ends] = np.arange(len(begins))
    return RawSpans(
        definition=span_codes[begins] >> 1,
        start=times[begins],
        end=times[ends],
        parent=parent,
        level=level,
        value_definition=codes[value_event] >> 1,
        value=values[value_event],
        value_row=value_row,
        read_definition=(upper & ~(AGAIN >> 32)) - 1,
        read_again=upper >= AGAIN >> 32,
        read_row=row_of[boundary],
        read_ends=np.append(span_codes & 1, 0)[boundary].astype(bool),
    )


def _match_nested(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Positions of begins and of their ends, and the level of each span; None unless all spans nest and end.

    Events of one level alternate: begin, end, begin, end. So sorting by level puts every end behind its begin.
    """
    if len(codes) % 2:
        return None
    ending = (codes & 1).astype(bool)
    depth = np.cumsum(np.where(ending, -1, 1))
    level = np.where(ending, depth + 1, depth)
    order = np.argsort(level, kind="stable")
    begins, ends = order[0::2], order[1::2]
    # An end without a begin may stand in the place of a begin.
    if ending[begins].any() or not np.array_equal(codes[begins] + 1, codes[ends]):
        return None
    return begins, ends, level[begins]


def _last_row_at_level(level: np.ndarray, before: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """For every query, the last row before row `before` whose level is `wanted`; -1 where `wanted` is 0."""
    last = np.full(len(before), -1, dtype=np.int64)
    for number in range(1, int(level.max(initial=0)) + 1):
        queries = np.flatnonzero(wanted == number)
        if len(queries):
            rows = np.flatnonzero(level == number)
            last[queries] = rows[np.searchsorted(rows, before[queries]) - 1]
    return last


def _repair(
    codes: np.ndarray, times: np.ndarray, before_value: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """End spans that never ended, and drop ends without a begin. Slow: only for programs that were interrupted.

    The last result is the new position of each event; -1 for one that was dropped.
    """
    fixed_codes: list[int] = []
    fixed_times: list[int] = []
    new_position = np.zeros(len(codes) + 1, dtype=np.int64)
    place = np.full(len(codes), -1, dtype=np.int64)
    stack: list[int] = []
    for position, (code, time) in enumerate(zip(codes.tolist(), times.tolist(), strict=True)):
        new_position[position] = len(fixed_codes)
        if not code & 1:
            stack.append(code)
        elif code - 1 in stack:
            while stack[-1] != code - 1:
                fixed_codes.append(stack.pop() + 1)
                fixed_times.append(time)
            stack.pop()
        else:
            continue
        place[position] = len(fixed_codes)
        fixed_codes.append(code)
        fixed_times.append(time)
    new_position[len(codes)] = len(fixed_codes)
    last = int(times.max(initial=0))
    while stack:
        fixed_codes.append(stack.pop() + 1)
        fixed_times.append(last)
    fixed = np.array(fixed_codes, dtype=np.int64), np.array(fixed_times, dtype=np.int64)
    return *fixed, new_position[before_value], place
