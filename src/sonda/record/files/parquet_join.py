"""Parquet files of the same columns put behind one another without unpacking them.

What a file holds stands in its footer, with the places of its columns in bytes; behind other files they stand further
on by what is before them. Nothing else changes. Source: apache/parquet-format, parquet.thrift.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from sonda.record.files.thrift_compact import I16, CompactReader, Struct, write_struct

MAGIC = b"PAR1"
TAIL = 8
"""Bytes behind a footer: its length, and the magic word."""
SCHEMA, ROWS, GROUPS, KEYS = 2, 3, 4, 5
"""Fields of a footer."""
CHUNKS, GROUP_OFFSET, ORDINAL = 1, 5, 7
"""Of a group of rows."""
CHUNK_OFFSETS, METADATA = (2, 4, 6), 3
"""Of a column in a group: its own place, those of its two indexes; what is said about it."""
PAGE_OFFSETS = (9, 10, 11, 14)
"""Of what is said about it: places of data, index, dictionary, filter."""
MOST_ORDINALS = 1 << 15


def join_files(parts: Sequence[Path], path: Path) -> int:
    """Write at `path` the rows of all `parts`, in this order; returns how many.

    Raises ValueError where one is no Parquet file or has other columns than the first, OSError where the disk is full.
    """
    first: Struct | None = None
    groups: list[Struct] = []
    rows = 0
    with open(path, "wb") as to:
        to.write(MAGIC)
        for part in parts:
            with open(part, "rb") as file:
                footer, end = _footer(file, part)
                if first is None:
                    first = footer
                elif any(footer.get(field) != first.get(field) for field in (SCHEMA, KEYS)):
                    raise ValueError(f"{part.name} has other columns than {parts[0].name}")
                later = to.tell() - len(MAGIC)
                to.flush()
                _copy(file, len(MAGIC), end, to)
            for group in footer[GROUPS][1][1]:
                _move(group, later, len(groups))
                groups.append(group)
            rows += footer[ROWS][1]
        if first is None:
            raise ValueError("there is nothing to join")
        first[ROWS] = first[ROWS][0], rows
        first[GROUPS] = first[GROUPS][0], (first[GROUPS][1][0], groups)
        text = write_struct(first)
        to.write(text + len(text).to_bytes(4, "little") + MAGIC)
    return rows


def _footer(file: BinaryIO, path: Path) -> tuple[Struct, int]:
    """What a file says it holds, and the byte where that begins."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - TAIL))
    tail = file.read()
    length = int.from_bytes(tail[:4], "little")
    if size < len(MAGIC) + TAIL or tail[4:] != MAGIC or length > size - TAIL - len(MAGIC):
        raise ValueError(f"{path.name} is no Parquet file, or ends in the middle")
    begin = size - TAIL - length
    file.seek(begin)
    try:
        return CompactReader(file.read(length)).struct(), begin
    except (IndexError, ValueError) as error:
        raise ValueError(f"{path.name}: its footer cannot be read: {error}") from None


def _copy(file: BinaryIO, begin: int, end: int, to: BinaryIO) -> None:
    """Bytes of a file from `begin` to `end`, without taking them into memory."""
    source, sink = file.fileno(), to.fileno()
    while begin < end:
        sent = os.sendfile(sink, source, begin, min(end - begin, 1 << 30))
        if not sent:
            raise ValueError("a file became shorter while it was read")
        begin += sent
    to.seek(0, os.SEEK_END)


def _move(group: Struct, later: int, number: int) -> None:
    """Say that a group of rows stands `later` bytes further on, and is the one with this number."""
    _shift(group, (GROUP_OFFSET,), later)
    group.pop(ORDINAL, None)
    if number < MOST_ORDINALS:
        group[ORDINAL] = I16, number
    for chunk in group[CHUNKS][1][1]:
        _shift(chunk, CHUNK_OFFSETS, later)
        if METADATA in chunk:
            _shift(chunk[METADATA][1], PAGE_OFFSETS, later)


def _shift(struct: Struct, fields: Sequence[int], later: int) -> None:
    for field in fields:
        kind, value = struct.get(field, (0, 0))
        if value:  # 0 is no place: the magic word stands there
            struct[field] = kind, value + later
