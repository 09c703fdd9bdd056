"""Large profiles constructed from a real small one: the same steps again and again, later each time.

Events, names and stats are those of the real file; times, numbers of steps and what links events to each other are
moved on from copy to copy. They are written as numbers of a fixed width, which the wire format allows.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

REAL = Path(__file__).parent.parent / "tests" / "data" / "xplane" / "keras_marked.xplane.pb.gz"
WIDTH = {"offset": 8, "number": 10}
"""Bytes of a number; 8 hold 2^56 ps."""
LINKS = ("_p", "_c", "step_num", "id", "element_id", "correlation_id")
"""Stats that differ from step to step."""
COPIES_AT_ONCE = 64


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def _fields(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """Number and wire type of every field, its whole number, and its content or bytes."""
    found, at = [], 0
    while at < len(data):
        tag, at = _varint(data, at)
        value, content = 0, b""
        if tag & 7 == 0:
            value, at = _varint(data, at)
        else:
            length, at = _varint(data, at) if tag & 7 == 2 else (8 if tag & 7 == 1 else 4, at)
            content, at = data[at : at + length], at + length
        found.append((tag >> 3, tag & 7, value, content))
    return found


def _number(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def _written(place: int, wire: int, value: int, content: bytes) -> bytes:
    head = _number(place << 3 | wire)
    return head + (_number(value) if wire == 0 else (_number(len(content)) if wire == 2 else b"") + content)


class _Template:
    """The events of one line, with places for the numbers that change."""

    def __init__(self, events: list[bytes], changing: dict[int, str]) -> None:
        self.slots: list[tuple[int, str, int]] = []
        pieces, self.size = [], 0
        for event in events:
            body, slots = self._event(event, changing)
            head = _number(4 << 3 | 2) + _number(len(body))
            self.slots += [(self.size + len(head) + at, kind, value) for at, kind, value in slots]
            pieces.append(head + body)
            self.size += len(head) + len(body)
        self.text = np.frombuffer(b"".join(pieces), np.uint8)

    @staticmethod
    def _event(event: bytes, changing: dict[int, str]) -> tuple[bytes, list[tuple[int, str, int]]]:
        body, slots = b"", []
        for place, wire, value, content in _fields(event):
            if place == 2:
                body += _number(place << 3)
                slots.append((len(body), "offset", value))
                body += bytes(WIDTH["offset"])
                continue
            stat = _fields(content) if place == 4 else []
            kind = changing.get(stat[0][2]) if stat and stat[0][0] == 1 else None
            if kind is None or len(stat) != 2 or stat[1][1] != 0:
                body += _written(place, wire, value, content)
                continue
            inner = _written(*stat[0]) + _number(stat[1][0] << 3)
            body += _number(place << 3 | wire) + _number(len(inner) + WIDTH["number"]) + inner
            slots.append((len(body), kind, stat[1][2]))
            body += bytes(WIDTH["number"])
        return body, slots

    def copies(self, first: int, count: int, period: int, steps: int) -> bytes:
        """The events of some copies; `period` is ps from one to the next, `steps` those of one."""
        text = np.tile(self.text, (count, 1))
        number = np.arange(first, first + count, dtype=np.uint64)
        for at, kind, value in self.slots:
            width = WIDTH["offset"] if kind == "offset" else WIDTH["number"]
            later = {"offset": period, "step_num": steps}.get(kind, 1 << 32)
            moved = np.uint64(value) + number * np.uint64(later)
            for byte in range(width):
                low = (moved >> np.uint64(7 * byte)) & np.uint64(127)
                text[:, at + byte] = low | (128 if byte < width - 1 else 0)
        return text.tobytes()


class ProfileMaker:
    """The real profile, taken apart where its numbers are."""

    def __init__(self, real: Path = REAL) -> None:
        data = gzip.decompress(real.read_bytes()) if real.suffix == ".gz" else real.read_bytes()
        self.planes = []
        self._behind = b""
        latest, steps = 0, set()
        for place, wire, value, content in _fields(data):
            if place != 1:
                self._behind += _written(place, wire, value, content)
                continue
            fields = _fields(content)
            names = {}
            for at, _, _, entry in fields:
                if at == 5:
                    about = _fields(_fields(entry)[1][3])
                    names[about[0][2]] = about[1][3].decode()
            changing = {number: name for number, name in names.items() if name in LINKS}
            lines = []
            for at, _, _, line in fields:
                if at == 3:
                    inside = _fields(line)
                    events = [one[3] for one in inside if one[0] == 4]
                    template = _Template(events, changing)
                    latest = max([latest, *(value for _, kind, value in template.slots if kind == "offset")])
                    steps |= {value for _, kind, value in template.slots if kind == "step_num"}
                    lines.append((b"".join(_written(*one) for one in inside if one[0] != 4), template))
            before = b"".join(_written(*one) for one in fields if one[0] < 3)
            tables = b"".join(_written(*one) for one in fields if one[0] > 3)
            self.planes.append((before, lines, tables))
        self.period = latest + 10**10
        """ps from one copy to the next: what the real profile lasts, and 10 ms."""
        self.steps = len(steps)
        self.copy_bytes = sum(template.size for _, lines, _ in self.planes for _, template in lines)

    def write(self, path: Path, size: int) -> int:
        """Write a profile of about `size` bytes; returns how often the real one is in it."""
        copies = max(1, size // self.copy_bytes)
        with open(path, "wb") as file:
            for before, lines, tables in self.planes:
                heads = []
                for head, template in lines:
                    length = len(head) + copies * template.size
                    heads.append(_number(3 << 3 | 2) + _number(length) + head)
                bodies = sum(
                    len(head) + copies * template.size for head, (_, template) in zip(heads, lines, strict=True)
                )
                file.write(_number(1 << 3 | 2) + _number(len(before) + bodies + len(tables)) + before)
                for head, (_, template) in zip(heads, lines, strict=True):
                    file.write(head)
                    for first in range(0, copies, COPIES_AT_ONCE):
                        count = min(COPIES_AT_ONCE, copies - first)
                        file.write(template.copies(first, count, self.period, self.steps))
                file.write(tables)
            file.write(self._behind)
        return copies
