"""A run as an XSpace file (`*.xplane.pb`), which xprof and TensorBoard open, and `sonda import` reads back.

Threads are lines of the plane `/host:CPU`, streams those of `/device:GPU:N`; with several ranks their names say which.
A step carries `step_num`, a call and the activities that it launched the same `correlation_id`: that is how xprof finds
steps and launches. Metrics are stats under their own names. Times are ps since the run began; where a span starts
before that, all are later by as much. Field numbers are those of `xplane.proto` (github.com/openxla/xla).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sonda.record.run import Run
from sonda.record.span import Spans
from sonda.report.output import whole_file
from sonda.report.tracks import IN_CYCLES, Track, in_cycles, lanes, timed_spans, tracks

HOST, ENVIRONMENT = "/host:CPU", "Task Environment"
PS_PER_NS = 1000
SIGNED, DOUBLE, TEXT = 4, 2, 5
"""Fields of XStat that hold its value."""


def write_xplane(path: Path, run: Run) -> Path:
    """Write a run as a profile, compressed when the name ends in `.gz`; returns the path."""
    with whole_file(path) as stream:
        for plane in _planes(run):
            stream.write(_stretch(1, plane.encoded()))
        stream.write(_stretch(4, (run.info.machine.get("host") or "sonda").encode()))
    return path


def varint(value: int) -> bytes:
    """A whole number of 64 bits, as the wire format writes it."""
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def _number(place: int, value: int) -> bytes:
    return varint(place << 3) + varint(value) if value else b""


def _stretch(place: int, content: bytes) -> bytes:
    return varint(place << 3 | 2) + varint(len(content)) + content


def _text(place: int, word: str) -> bytes:
    return _stretch(place, word.encode("utf-8", "backslashreplace")) if word else b""


@dataclass
class _Plane:
    name: str
    events: dict[tuple[str, str], int] = field(default_factory=dict)
    """Metadata by long and short name."""
    stats: dict[str, int] = field(default_factory=dict)
    lines: list[bytes] = field(default_factory=list)
    own: list[bytes] = field(default_factory=list)
    """Stats of the plane itself."""

    def event(self, name: str, shown: str = "") -> int:
        return self.events.setdefault((name, shown), len(self.events) + 1)

    def stat(self, name: str, value: int | float | str) -> bytes:
        head = _number(1, self.stats.setdefault(name, len(self.stats) + 1))
        if isinstance(value, str):
            return head + _stretch(TEXT, value.encode("utf-8", "backslashreplace"))
        if isinstance(value, float):
            return head + varint(DOUBLE << 3 | 1) + struct.pack("<d", value)
        return head + varint(SIGNED << 3) + varint(value)

    def encoded(self) -> bytes:
        pieces = [_text(2, self.name), *(_stretch(3, line) for line in self.lines)]
        for (name, shown), number in self.events.items():
            about = _number(1, number) + _text(2, name) + _text(4, shown)
            pieces.append(_stretch(4, _number(1, number) + _stretch(2, about)))
        for name, number in self.stats.items():
            pieces.append(_stretch(5, _number(1, number) + _stretch(2, _number(1, number) + _text(2, name))))
        return b"".join([*pieces, *(_stretch(6, one) for one in self.own)])


def _planes(run: Run) -> list[_Plane]:
    spans = timed_spans(run)
    found: dict[Any, _Plane] = {HOST: _Plane(HOST)}
    if len(spans):
        codes, places = tracks(spans)
        order, lane_of = lanes(spans, codes)
        several = len({(one.node, one.rank) for one in places}) > 1
        earliest = min(int(spans.number("start").min()), 0)
        writer = _Lines(spans, earliest)
        by_line: dict[tuple[int, int], list[int]] = {}
        for row, lane in zip(order.tolist(), lane_of, strict=True):
            by_line.setdefault((int(codes[row]), lane), []).append(row)
        for (code, lane), rows in by_line.items():
            track = places[code]
            plane = found[HOST]
            if track.device:
                key = track.node, track.rank, track.device
                plane = found.get(key) or found.setdefault(key, _device(run, track, len(found) - 1))
            name = _line_name(track, lane, several)
            plane.lines.append(writer.line(plane, len(plane.lines) + 1, name, rows))
    return [*found.values(), _environment(run)]


def _device(run: Run, track: Track, number: int) -> _Plane:
    plane = _Plane(f"/device:GPU:{number}")
    said = (run.info.target.get("devices") or {}).get(track.device) or {}
    name = said.get("name") or ("" if said else run.info.machine.get("processor", ""))
    if name:
        plane.own.append(plane.stat("gpu_device_name", str(name)))
    return plane


def _line_name(track: Track, lane: int, several: bool) -> str:
    name = f"Stream #{track.number}({track.name})" if track.device else track.name
    words = [name] + ([f"rank {track.rank} {track.node}".rstrip()] if several else [])
    return ", ".join(words + ([f"overlapping {lane}"] if lane else []))


def _environment(run: Run) -> _Plane:
    """When the run began, and what it was."""
    plane = _Plane(ENVIRONMENT)
    try:
        created = datetime.fromisoformat(run.info.created)
        began = int((created if created.tzinfo else created.replace(tzinfo=UTC)).timestamp() * 1e9)
        plane.own.append(plane.stat("profile_start_time", began))
    except ValueError:
        pass  # a run whose date cannot be read has none here
    about = {"sonda_run": run.id, "sonda_workload": str(run.info.workload.get("name") or "")}
    if in_cycles(run):
        about["times"] = IN_CYCLES
    plane.own += [plane.stat(name, word) for name, word in about.items()]
    return plane


class _Lines:
    """Writes lines of one run."""

    def __init__(self, spans: Spans, earliest: int) -> None:
        import numpy as np

        self._spans = spans
        self._earliest = earliest
        self._words = {name: spans.words(name) for name in ("name", "path", "kind")}
        on_device = spans.words("clock").equal("device")
        parent = spans.number("parent")
        launching = np.unique(parent[on_device & (parent >= 0)])
        self._launching = set(launching.tolist())
        self._on_device = on_device
        self._steps = {row: at for at, row in enumerate(np.flatnonzero(spans.where(kind="step")).tolist())}

    def line(self, plane: _Plane, number: int, name: str, rows: list[int]) -> bytes:
        start, duration = self._spans.number("start"), self._spans.number("duration")
        pieces = [_number(1, number), _text(2, name)]
        for row in rows:
            event = _number(1, self._metadata(plane, row))
            event += _number(2, (int(start[row]) - self._earliest) * PS_PER_NS)
            event += _number(3, int(duration[row]) * PS_PER_NS)
            pieces.append(_stretch(4, event + b"".join(_stretch(4, one) for one in self._stats(plane, row))))
        return b"".join(pieces)

    def _word(self, column: str, row: int) -> str:
        words = self._words[column]
        return words.words[words.codes[row]]

    def _metadata(self, plane: _Plane, row: int) -> int:
        name, path = self._word("name", row) or self._word("kind", row), self._word("path", row)
        if not path or self._on_device[row] or self._word("kind", row) != "op":
            return plane.event(name)
        return plane.event(f"{path}:{name}", name)

    def _stats(self, plane: _Plane, row: int) -> list[bytes]:
        kind, path = self._word("kind", row), self._word("path", row)
        found = []
        if row in self._steps:
            found += [plane.stat("step_num", self._steps[row]), plane.stat("_r", 1)]
        if row in self._launching:
            found.append(plane.stat("correlation_id", row))
        if self._on_device[row]:
            launched = int(self._spans.number("parent")[row])
            found += [plane.stat("correlation_id", launched)] if launched >= 0 else []
            found += [plane.stat("tf_op", f"{path}:")] if path else []
        elif kind not in ("op", "step"):
            found += [plane.stat("kind", kind)] + ([plane.stat("path", path)] if path else [])
        for column, values in self._spans.metrics.items():
            if values[row] == values[row] and abs(values[row]) != float("inf"):
                found.append(plane.stat(column, float(values[row])))
        return found
