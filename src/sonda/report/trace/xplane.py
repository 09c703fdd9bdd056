"""A run as an XSpace file (`*.xplane.pb`), which xprof and TensorBoard open, and `sonda import` reads back.

Threads are lines of the plane `/host:CPU`, streams those of `/device:GPU:N`; with several ranks their names say which.
A timed step carries `step_num`, a call and the activities that it launched the same `correlation_id`: that is how
xprof finds steps and launches. Where kernels were recorded in steps of their own, those are the steps of the file: a
step without its kernels would seem idle. Layers and phases of such steps are operations (`features.3:Conv2d`,
`gradients/` before those of a backward), under the names that readers of profiles know where these have one for them.
Steps that warm up or are disturbed, and what is in them, are there under their plain names; runs, parts and epochs,
which only hold others, are on a plane of their own. Metrics are stats under their own names. Times are ps since the run
began; where a span starts before that, all are later by as much. Field numbers are those of `xplane.proto`
(github.com/openxla/xla).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sonda.record.run import Run
from sonda.record.spans import Spans
from sonda.report.output import whole_file
from sonda.report.trace.tracks import IN_CYCLES, Track, in_cycles, lanes, nothing_to_draw, timed_spans, tracks

HOST, AROUND, ENVIRONMENT = "/host:CPU", "/sonda:around", "Task Environment"
HOLDING = ("run", "part", "epoch")
"""Kinds of spans that hold others and are nothing by themselves: on a host's plane they would count as its work."""
KNOWN_AS = {"data": "IteratorGetNext", "transfer": "TransferToDevice"}
"""What readers of profiles call a phase."""
GRADIENTS = "gradients/"
PS_PER_NS = 1000
SIGNED, DOUBLE, TEXT = 4, 2, 5
"""Fields of XStat that hold its value."""


def write_xplane(path: Path, run: Run) -> Path:
    """Write a run as a profile, compressed when the name ends in `.gz`; returns the path.

    Raises SondaError where it cannot be written, or where there is nothing to draw.
    """
    with whole_file(path) as stream:
        for plane in _planes(run):
            stream.write(_stretch(1, plane.encoded()))
        stream.write(_stretch(4, (run.info.machine.host or "sonda").encode()))
    return path


def varint(value: int) -> bytes:
    """A whole number of 64 bits, as the wire format writes it."""
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


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
        return b"".join([*pieces, *(_stretch(6, stat) for stat in self.own)])


def _planes(run: Run) -> list[_Plane]:
    spans = timed_spans(run)
    if not len(spans):
        raise nothing_to_draw(run)
    planes: dict[Any, _Plane] = {HOST: _Plane(HOST)}
    around = _Plane(AROUND)
    codes, places = tracks(spans)
    order, lane_of = lanes(spans, codes)
    several = len({(place.node, place.rank) for place in places}) > 1
    earliest = min(int(spans.number("start").min()), 0)
    writer = _Lines(spans, earliest)
    by_line: dict[tuple[int, int, bool], list[int]] = {}
    for row, lane in zip(order.tolist(), lane_of, strict=True):
        by_line.setdefault((int(codes[row]), lane, writer.holds(row)), []).append(row)
    for (code, lane, holds), rows in by_line.items():
        track = places[code]
        plane = around if holds else planes[HOST]
        if track.device:
            key = track.node, track.rank, track.device
            plane = planes.get(key) or planes.setdefault(key, _device(run, track, len(planes) - 1))
        name = _line_name(track, lane, several)
        plane.lines.append(writer.line(plane, len(plane.lines) + 1, name, rows))
    return [*planes.values(), *([around] if around.lines else []), _environment(run)]


def _device(run: Run, track: Track, number: int) -> _Plane:
    plane = _Plane(f"/device:GPU:{number}")
    gpu = (run.info.target.devices or {}).get(track.device)
    name = gpu.name if gpu is not None else run.info.machine.processor
    if name:
        plane.own.append(plane.stat("gpu_device_name", name))
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
    about = {"sonda_run": run.id, "sonda_workload": run.info.workload.name}
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
        self._words = {name: spans.words(name) for name in ("name", "path", "kind", "direction")}
        on_device = spans.words("clock").equal("device")
        parent = spans.number("parent")
        self._parent = parent
        launched = np.flatnonzero(on_device & (parent >= 0))
        is_call = spans.words("kind").equal("op")[parent[launched]]
        self._launching = set(parent[launched[is_call]].tolist())
        self._moments: dict[int, list[int]] = {}
        """By phase or layer, what was launched in it: of its launch nothing but the moment is known."""
        for row in launched[~is_call].tolist():
            self._moments.setdefault(int(parent[row]), []).append(row)
        self._latency = spans.metric("launch_latency", "measured")
        self._on_device = on_device
        self._shown = _shown(spans, on_device)
        steps = np.flatnonzero(spans.where(kind="step") & self._shown)
        self._steps = {row: at for at, row in enumerate(steps.tolist())}

    def holds(self, row: int) -> bool:
        return self._word("kind", row) in HOLDING

    def line(self, plane: _Plane, number: int, name: str, rows: list[int]) -> bytes:
        start, duration = self._spans.number("start"), self._spans.number("duration")
        pieces = [_number(1, number), _text(2, name)]
        for row in rows:
            event = _number(1, self._metadata(plane, row))
            event += _number(2, (int(start[row]) - self._earliest) * PS_PER_NS)
            event += _number(3, int(duration[row]) * PS_PER_NS)
            pieces.append(_stretch(4, event + b"".join(_stretch(4, stat) for stat in self._stats(plane, row))))
            pieces += [_stretch(4, self._launch(plane, launch)) for launch in self._moments.get(row, ())]
        return b"".join(pieces)

    def _launch(self, plane: _Plane, row: int) -> bytes:
        """The moment at which an activity of a device was launched, or at which it began where that is unknown."""
        latency = self._latency[row]
        moment = int(self._spans.number("start")[row]) - (int(latency) if latency == latency else 0)
        event = _number(1, plane.event(self._word("name", row))) + _number(2, (moment - self._earliest) * PS_PER_NS)
        return event + _stretch(4, plane.stat("correlation_id", row))

    def _word(self, column: str, row: int) -> str:
        words = self._words[column]
        return str(words.words[words.codes[row]])

    def _metadata(self, plane: _Plane, row: int) -> int:
        kind, path = self._word("kind", row), self._word("path", row)
        name = self._word("name", row) or kind
        if self._on_device[row] or not self._shown[row]:
            return plane.event(name)
        if kind == "step":
            return plane.event(self._part(row) or name)
        if kind in ("phase", "layer"):
            scope = path or name
            if self._word("direction", row) == "backward" or (kind, name) == ("phase", "backward"):
                scope = GRADIENTS + scope
            known = KNOWN_AS.get(name, name) if kind == "phase" else name
            return plane.event(f"{scope}:{known}", known)
        return plane.event(f"{path}:{name}", name) if path and kind == "op" else plane.event(name)

    def _part(self, row: int) -> str:
        """The part of the run that a step belongs to: steps of training and of validation are not of one kind."""
        around = int(self._parent[row])
        while around >= 0 and self._word("kind", around) != "part":
            around = int(self._parent[around])
        return self._word("name", around) if around >= 0 else ""

    def _stats(self, plane: _Plane, row: int) -> list[bytes]:
        kind, path = self._word("kind", row), self._word("path", row)
        stats = []
        if row in self._steps:
            stats += [plane.stat("step_num", self._steps[row]), plane.stat("_r", 1)]
        if row in self._launching:
            stats.append(plane.stat("correlation_id", row))
        if self._on_device[row]:
            launched = int(self._parent[row])
            if launched >= 0:
                stats.append(plane.stat("correlation_id", launched if launched in self._launching else row))
            stats += [plane.stat("tf_op", f"{path}:")] if path else []
        elif kind not in ("op", "step"):
            stats += [plane.stat("kind", kind)] + ([plane.stat("path", path)] if path else [])
        for column, values in self._spans.metrics.items():
            if values[row] == values[row] and abs(values[row]) != float("inf"):
                stats.append(plane.stat(column, float(values[row])))
        return stats


def _shown(spans: Spans, on_device: Any) -> Any:
    """Which spans are of the passes whose steps are the file's."""
    import numpy as np

    passes = spans.words("pass")
    timed = passes.equal("timed")
    if not on_device.any() or (on_device & timed).any():
        return timed
    return np.isin(passes.codes, np.unique(passes.codes[on_device]))
