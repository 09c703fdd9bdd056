"""XSpace files for tests, written byte by byte: names, times and stats as a test gives them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from places import DATA

PROFILES = DATA / "xplane"
H200 = DATA / "gpu" / "jax" / "h200.xplane.pb"


def varint(value: int) -> bytes:
    value %= 1 << 64
    found = b""
    while value > 127:
        found += bytes([value % 128 + 128])
        value //= 128
    return found + bytes([value])


def number(place: int, value: int) -> bytes:
    return varint(8 * place) + varint(value)


def stretch(place: int, content: bytes) -> bytes:
    return varint(8 * place + 2) + varint(len(content)) + content


@dataclass
class PlaneMaker:
    """A plane of which lines are added one by one; its tables fill themselves."""

    name: str
    lines: list[bytes] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)
    """Short names of some events."""
    stats: dict[str, int] = field(default_factory=dict)
    own: dict[str, int | float | str | bytes] = field(default_factory=dict)

    def stat(self, name: str, value: int | float | str | bytes) -> bytes:
        head = number(1, self.stats.setdefault(name, len(self.stats) + 1))
        if isinstance(value, str):
            return head + stretch(5, value.encode())
        if isinstance(value, bytes):
            return head + stretch(6, value)
        return head + (bytes([17]) + struct.pack("<d", value) if isinstance(value, float) else number(4, value))

    def event(self, name: str, start: int, duration: int, **stats: int | float | str | bytes) -> bytes:
        """Times in ns since the line's beginning."""
        known = number(1, self.names.setdefault(name, len(self.names) + 1))
        times = number(2, start * 1000) + number(3, duration * 1000)
        return known + times + b"".join(stretch(4, self.stat(*pair)) for pair in stats.items())

    def line(self, identity: int, name: str, events: list[bytes], begin: int = 0) -> PlaneMaker:
        head = number(1, identity) + stretch(2, name.encode()) + number(3, begin)
        self.lines.append(head + b"".join(stretch(4, event) for event in events))
        return self

    def encoded(self) -> bytes:
        own = [stretch(6, self.stat(*pair)) for pair in self.own.items()]
        tables = []
        for name, key in self.names.items():
            about = number(1, key) + stretch(2, name.encode())
            about += stretch(4, self.shown[name].encode()) if name in self.shown else b""
            tables.append(stretch(4, number(1, key) + stretch(2, about)))
        for name, key in self.stats.items():
            tables.append(stretch(5, number(1, key) + stretch(2, number(1, key) + stretch(2, name.encode()))))
        lines = [stretch(3, line) for line in self.lines]
        return stretch(2, self.name.encode()) + b"".join([*lines, *tables, *own])


def space(*planes: PlaneMaker, host: str = "one") -> bytes:
    return b"".join(stretch(1, plane.encoded()) for plane in planes) + stretch(4, host.encode())


def training(steps: int = 3) -> bytes:
    """Marked steps of 100 ns, each with 30 ns of an operation; times are simple enough to add up by hand."""
    plane = PlaneMaker("/host:CPU", shown={"model/dense/MatMul:MatMul": "MatMul"})
    main, worker = [], []
    for step in range(steps):
        main.append(plane.event("train", 100 * step, 90, step_num=step, _r=1))
        main.append(plane.event("Session", 100 * step + 10, 60))
        worker.append(plane.event("model/dense/MatMul:MatMul", 100 * step + 20, 30))
    return space(plane.line(7, "python", main).line(8, "tf_Compute/8", worker))
