"""Regions of interest: a program says when something begins and ends, by a line in a file.

`$SONDA_REGIONS` names the file while `sonda energy` measures. A program appends `begin NAME` and `end NAME`; a shell
writes `echo begin training >> "$SONDA_REGIONS"`. `begin@NS NAME` gives the moment too (ns, CLOCK_MONOTONIC), which is
more exact than when the file's reader sees the line. It is a file and not a pipe, so that no program waits for its
reader or dies with it.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import perf_counter_ns
from typing import NamedTuple

VARIABLE = "SONDA_REGIONS"
LONGEST = 200
"""Characters of a name."""
LINE = re.compile(r"(begin|end)(?:@(\d{1,19}))?\s+(\S.*)")
IN_MODIFY = 0x2


class Mark(NamedTuple):
    """The beginning or end of a region; `time` in ns, 0 where the program did not say."""

    begins: bool
    name: str
    time: int = 0


@contextmanager
def region(name: str) -> Iterator[None]:
    """Announce a region to `sonda energy`; does nothing where nobody measures.

    >>> with region("training"):
    ...     pass
    """
    _append_mark("begin", name)
    try:
        yield
    finally:
        _append_mark("end", name)


def _append_mark(word: str, name: str) -> None:
    path = os.environ.get(VARIABLE)
    if not path:
        return
    line = f"{word}@{perf_counter_ns()} {' '.join(name.split())[:LONGEST]}\n"
    with suppress(OSError):  # measuring must not make a program fail
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(descriptor, line.encode(errors="backslashreplace"))
        finally:
            os.close(descriptor)


def parse_mark(line: str) -> Mark | None:
    """`begin NAME`, `end NAME`, or either with `@NS` behind its first word; None for anything else."""
    match = LINE.fullmatch(line.strip())
    return Mark(match[1] == "begin", match[3][:LONGEST], int(match[2] or 0)) if match else None


class RegionFile:
    """Follows the file. `changed` is a descriptor that becomes readable when the file grows, or -1."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb")  # noqa: SIM115 (open as long as the program runs)
        self._rest = b""
        self.changed = _watch_file(path)

    def read_marks(self) -> list[Mark]:
        """The marks that were added since the last call."""
        if self.changed >= 0:
            with suppress(BlockingIOError):
                os.read(self.changed, 4096)
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        parsed = [parse_mark(line.decode(errors="backslashreplace")) for line in lines]
        return [mark for mark in parsed if mark is not None]

    def close(self) -> None:
        self._file.close()
        if self.changed >= 0:
            os.close(self.changed)


def _watch_file(path: str) -> int:
    """An inotify descriptor that is readable when the file was written to; -1 where there is none."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        descriptor = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        if descriptor >= 0 and libc.inotify_add_watch(descriptor, os.fsencode(path), IN_MODIFY) < 0:
            os.close(descriptor)
            return -1
    except AttributeError:
        return -1
    return descriptor
