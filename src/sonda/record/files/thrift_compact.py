"""Thrift's compact protocol, in which Parquet writes what a file holds: read into plain values and written again.

A struct is a dictionary from the number of a field to its type and value, a list or set a pair of the type of its
elements and their values, a map a triple. Source: Apache Thrift, doc/specs/thrift-compact-protocol.md.
"""

from __future__ import annotations

from typing import Any

STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(13)
LONG_LIST = 15
"""In the head of a list: its length stands behind it."""

Struct = dict[int, tuple[int, Any]]


class CompactReader:
    """Reads values one after another. Raises ValueError for what is none, IndexError where the text ends too early."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._at = 0

    def struct(self) -> Struct:
        members: Struct = {}
        field = 0
        while (head := self._byte()) != STOP:
            kind, step = head & 15, head >> 4
            field = field + step if step else self._signed()
            members[field] = kind, self._value(kind)
        return members

    def _byte(self) -> int:
        self._at += 1
        return self._text[self._at - 1]

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def _signed(self) -> int:
        number = self._unsigned()
        return (number >> 1) ^ -(number & 1)

    def _bytes(self, length: int) -> bytes:
        self._at += length
        if self._at > len(self._text):
            raise IndexError("the text ends in the middle")
        return self._text[self._at - length : self._at]

    def _value(self, kind: int, in_list: bool = False) -> Any:
        if kind in (TRUE, FALSE):
            return self._byte() if in_list else None
        if kind == BYTE:
            return self._byte()
        if kind in (I16, I32, I64):
            return self._signed()
        if kind == DOUBLE:
            return self._bytes(8)
        if kind == BINARY:
            return self._bytes(self._unsigned())
        if kind in (LIST, SET):
            head = self._byte()
            length = head >> 4 if head >> 4 != LONG_LIST else self._unsigned()
            return head & 15, [self._value(head & 15, True) for _ in range(length)]
        if kind == MAP:
            length = self._unsigned()
            kinds = self._byte() if length else 0
            pairs = [(self._value(kinds >> 4, True), self._value(kinds & 15, True)) for _ in range(length)]
            return kinds >> 4, kinds & 15, pairs
        if kind == STRUCT:
            return self.struct()
        raise ValueError(f"{kind} is no type of a value")


def write_struct(struct: Struct) -> bytes:
    """A struct as text."""
    text = bytearray()
    _write_struct(text, struct)
    return bytes(text)


def _write_struct(to: bytearray, struct: Struct) -> None:
    before = 0
    for field, (kind, value) in sorted(struct.items()):
        if 0 < field - before < 16:
            to.append((field - before) << 4 | kind)
        else:
            to.append(kind)
            _write_signed(to, field)
        _write_value(to, kind, value)
        before = field
    to.append(STOP)


def _write_value(to: bytearray, kind: int, value: Any, in_list: bool = False) -> None:
    if kind in (TRUE, FALSE):
        if in_list:
            to.append(value)
    elif kind == BYTE:
        to.append(value)
    elif kind in (I16, I32, I64):
        _write_signed(to, value)
    elif kind == DOUBLE:
        to += value
    elif kind == BINARY:
        _write_unsigned(to, len(value))
        to += value
    elif kind in (LIST, SET):
        of, values = value
        to.append((min(len(values), LONG_LIST) << 4) | of)
        if len(values) >= LONG_LIST:
            _write_unsigned(to, len(values))
        for item in values:
            _write_value(to, of, item, True)
    elif kind == MAP:
        keys, of, pairs = value
        _write_unsigned(to, len(pairs))
        if pairs:
            to.append(keys << 4 | of)
        for key, item in pairs:
            _write_value(to, keys, key, True)
            _write_value(to, of, item, True)
    else:
        _write_struct(to, value)


def _write_unsigned(to: bytearray, number: int) -> None:
    while number > 127:
        to.append(number & 127 | 128)
        number >>= 7
    to.append(number)


def _write_signed(to: bytearray, number: int) -> None:
    _write_unsigned(to, number << 1 if number >= 0 else (-number << 1) - 1)
