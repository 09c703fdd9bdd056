"""Large traces made from a real small one: the same steps again and again, later each time, with numbers of their own.

As in a trace of a long run, all operations of the host come first and the device's activities behind them.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path

REAL = Path(__file__).parent.parent / "tests" / "data" / "gpu" / "kineto" / "resnet18.json.gz"
SLOT = re.compile(
    rb'("ts": )(\d+\.\d{3})|("External id": )(\d+)|("correlation": )(\d+)|("id": )(\d+)(?=, "pid")|(ProfilerStep#)(\d+)'
)
STEPS = 3
"""Of the real trace."""
FIRST_OF_DEVICE = b'"cat": "overhead"'
FIRST_BEHIND = b'"name": "process_name"'


class TraceMaker:
    """The real trace, taken apart where its numbers are."""

    def __init__(self, real: Path = REAL) -> None:
        text = gzip.decompress(real.read_bytes())
        begin = text.index(b'"traceEvents": [') + len(b'"traceEvents": [')
        device = text.rindex(b"{", 0, text.index(FIRST_OF_DEVICE))
        behind = text.rindex(b"{", 0, text.index(FIRST_BEHIND))
        self._head, self._tail = text[:begin], text[behind:]
        self._halves = [_Template(text[begin:device].strip()), _Template(text[device:behind].strip())]
        times = [number for half in self._halves for kind, number in half.slots if kind == "ts"]
        self.period = max(times) - min(times) + 1_000_000
        """ns from one copy to the next."""
        self.numbers = 1 + max(number for half in self._halves for kind, number in half.slots if kind == "number")
        self.copy_bytes = sum(half.size for half in self._halves)

    def write(self, path: Path, size: int) -> int:
        """Write a trace of about `size` bytes; returns how often the real one is in it."""
        copies = max(1, size // self.copy_bytes)
        with open(path, "wb") as file:
            file.write(self._head)
            for half in self._halves:
                for copy in range(copies):
                    file.write(half.shifted(copy * self.period, copy * self.numbers, copy * STEPS))
                    file.write(b"\n  ")
            file.write(self._tail)
        return copies


class _Template:
    def __init__(self, text: bytes) -> None:
        self.size = len(text)
        self.slots: list[tuple[str, int]] = []
        self._pieces: list[bytes] = []
        end = 0
        for found in SLOT.finditer(text):
            at = next(index for index in range(2, 11, 2) if found[index] is not None)
            number = found[at]
            self._pieces.append(text[end : found.start(at)])
            end = found.end()
            kind = {2: "ts", 10: "step"}.get(at, "number")
            self.slots.append((kind, int(number.replace(b".", b""))))
        self._pieces.append(text[end:])

    def shifted(self, later: int, numbers: int, steps: int) -> bytes:
        written = [b""] * (2 * len(self.slots) + 1)
        written[::2] = self._pieces
        written[1::2] = [
            b"%d.%03d" % divmod(number + later, 1000)
            if kind == "ts"
            else b"%d" % (number + (numbers if kind == "number" else steps))
            for kind, number in self.slots
        ]
        return b"".join(written)
