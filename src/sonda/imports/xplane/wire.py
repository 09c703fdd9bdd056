"""Protocol Buffers' wire format: the fields of a message that lies in a buffer, without a description of it.

A field is a number and a value: a whole number of 64 bits, eight or four bytes, or a stretch of the buffer. What is
written against the format ends the walk (Protocol Buffers, "Encoding": protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from mmap import mmap
from typing import NamedTuple

from sonda.imports.xplane.scanner import varint

NUMBER, EIGHT, STRETCH, FOUR = 0, 1, 2, 5
"""Wire types. Three and four are groups, which no file of today has."""

Buffer = bytes | mmap


class Field(NamedTuple):
    number: int
    wire: int
    value: int
    """Of a whole number itself, as 64 bits with a sign; of a stretch its first byte's place; of bytes their place."""
    stop: int
    """Behind its last byte. It may lie behind the end of the message, which was then cut short."""


def fields(data: Buffer, at: int, end: int) -> Iterator[Field]:
    """The fields between two places, in order. Ends early where they are not written as the format asks."""
    while at < end:
        tag, at = varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        if at < 0 or number <= 0:
            return
        if wire == NUMBER:
            value, at = varint(data, at, end)
            if at < 0:
                return
            yield Field(number, wire, value, at)
        elif wire == STRETCH:
            length, at = varint(data, at, end)
            if at < 0 or length < 0:
                return
            yield Field(number, wire, at, at + length)
            at += length
        elif wire in (EIGHT, FOUR):
            length = 8 if wire == EIGHT else 4
            yield Field(number, wire, at, at + length)
            at += length
        else:
            return


def text(data: Buffer, at: int, stop: int) -> str:
    """A stretch as text; bytes that are none are replaced."""
    return data[at:stop].decode("utf-8", "replace")


def double(bits: int) -> float:
    """The number that 64 bits with a sign stand for."""
    value: float = struct.unpack("<d", struct.pack("<q", bits))[0]
    return value
