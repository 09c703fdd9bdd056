"""A run as a file of events that TensorBoard reads: records with checksums (TFRecord), each an Event of few fields.

Field numbers are those of `event.proto`, `summary.proto` and `tensor.proto` (github.com/tensorflow/tensorboard).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from sonda.report.output import whole_file
from sonda.report.trace.xplane import varint
from sonda.report.trackers.metrics import TrackedRun

DT_STRING = 7
TEXT_PLUGIN = b"text"
POLYNOMIAL = 0x82F63B78
"""CRC-32C (Castagnoli), its bits reversed."""
MASK = 0xA282EAD8


def write_events(folder: Path, tracked: TrackedRun) -> Path:
    """Write the events of a run to a folder of its own in `folder`, where runs stand side by side; returns the file.

    Written again it is the same file. Raises SondaError where it cannot be written.
    """
    path = folder / tracked.id / f"events.out.tfevents.{int(tracked.began)}.sonda"
    with whole_file(path) as stream:
        for event in _events(tracked):
            stream.write(frame_record(event))
    return path


def _events(tracked: TrackedRun) -> Iterator[bytes]:
    yield _double(1, tracked.began) + _bytes(3, b"brain.Event:2")
    # A block of code, as Markdown has it: columns stay aligned.
    yield _event(tracked, 0, _text_value("sonda/explanation", f"```\n{tracked.text}\n```"))
    settings = "\n".join(f"* {name}: `{value}`" for name, value in tracked.settings.items())
    yield _event(tracked, 0, _text_value("sonda/settings", settings))
    drawn = {series.name for series in tracked.series}
    for name, value in tracked.totals.items():
        # What is there step by step is not there as a single point too.
        if name not in drawn:
            yield _event(tracked, 0, _scalar_value(name, value))
    for series in tracked.series:
        for step, value in series.points:
            yield _event(tracked, step, _scalar_value(series.name, value))


def _event(tracked: TrackedRun, step: int, value: bytes) -> bytes:
    return _double(1, tracked.began) + _number(2, step) + _bytes(5, _bytes(1, value))


def _scalar_value(name: str, value: float) -> bytes:
    return _bytes(1, name.encode()) + varint(2 << 3 | 5) + struct.pack("<f", value)


def _text_value(name: str, text: str) -> bytes:
    shape = _bytes(2, _number(1, 1))
    tensor = _number(1, DT_STRING) + _bytes(2, shape) + _bytes(8, text.encode("utf-8", "backslashreplace"))
    return _bytes(1, name.encode()) + _bytes(9, _bytes(1, _bytes(1, TEXT_PLUGIN))) + _bytes(8, tensor)


def _number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def _double(field: int, value: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", value)


def _bytes(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


# ---- Records --------------------------------------------------------------------------------------------------------


def frame_record(content: bytes) -> bytes:
    """A record: its length, the length's checksum, itself, and its own checksum."""
    length = struct.pack("<Q", len(content))
    return length + struct.pack("<I", masked_checksum(length)) + content + struct.pack("<I", masked_checksum(content))


def masked_checksum(content: bytes) -> int:
    """CRC-32C, rotated and shifted as records have it, so that a checksum of checksums is none of itself."""
    checksum = crc32c(content)
    return ((checksum >> 15 | checksum << 17) + MASK) & 0xFFFFFFFF


def crc32c(content: bytes) -> int:
    """CRC-32C of these bytes (RFC 3720, appendix B.4)."""
    table = _checksum_table()
    checksum = 0xFFFFFFFF
    for byte in content:
        checksum = table[(checksum ^ byte) & 0xFF] ^ checksum >> 8
    return checksum ^ 0xFFFFFFFF


@cache
def _checksum_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return tuple(table)
