"""The index of a store: what a listing says of each run, remembered, so that no run is read twice for it.

It is a cache and nothing more: `.index/VERSION/` may be removed at any time. A segment is a file of rows that appears
whole under its name and is never changed, so readers and writers on several machines need no lock. A row holds for as
long as the sizes of its run's files are those that it was made from.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from sonda.record.files.partial import write_whole
from sonda.record.run import SPANS

FOLDER = ".index"
SEGMENT = re.compile(r"([0-9]{8}T[0-9]{6,9})_([0-9]{8}T[0-9]{6,9})_([0-9]+)_[0-9a-f]{12}\.jsonl")
"""Oldest and newest moment of its runs, how many rows: a reader opens only segments that can help."""
FULL = 2_000
"""Rows of a segment: what a listing of the newest runs reads."""
POINT_NODE = "node"
"""The key of the kind of node in a point of a study."""
MOST_SMALL = 32
"""Segments that are not full; more than these are merged."""


class IndexEntry(msgspec.Struct, frozen=True):
    """A row of the index. `name` is the run's directory; `sizes` those of its files when the row was made."""

    name: str
    sizes: tuple[int, int]
    row: dict[str, Any]
    whole: bool = True
    """False where only `run.json` was read."""
    study: str | None = None
    """The study that the run is a point of, '' where it is none; None in rows that were made before this was kept."""
    node: str = ""
    """The kind of node that the point is for; '' where it names none."""


class Index:
    """Rows by the name of a run's directory. Rows of another version of Sonda are not seen."""

    def __init__(self, root: Path, version: str) -> None:
        self.root = root
        self.folder = root / FOLDER / version

    def known(self, names: Iterable[str]) -> dict[str, IndexEntry]:
        """The entries of these runs, as far as they are known and the runs' files have not changed."""
        wanted = set(names)
        if not wanted:
            return {}
        first, last = _moment(min(wanted)), _moment(max(wanted))
        entries: dict[str, IndexEntry] = {}
        for path, begin, end, _ in self._segments():
            if end < first or begin > last:
                continue
            for entry in _read(path):
                if entry.name in wanted:
                    _keep(entries, entry)
        return {name: entry for name, entry in entries.items() if entry.sizes == sizes_of(self.root / name)}

    def add(self, entries: Iterable[IndexEntry]) -> None:
        """Remember entries. A store that cannot be written is listed all the same, only slower."""
        ordered = sorted(entries, key=lambda entry: entry.name)
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            for at in range(0, len(ordered), FULL):
                self._write(ordered[at : at + FULL])
            self._merge()

    def clear(self) -> None:
        """Forget everything, rows of other versions too."""
        shutil.rmtree(self.root / FOLDER, ignore_errors=True)

    def _segments(self) -> list[tuple[Path, str, str, int]]:
        try:
            names = os.listdir(self.folder)
        except OSError:
            return []
        segments = [(name, SEGMENT.fullmatch(name)) for name in sorted(names)]
        return [(self.folder / name, match[1], match[2], int(match[3])) for name, match in segments if match]

    def _write(self, entries: list[IndexEntry]) -> None:
        name = f"{_moment(entries[0].name)}_{_moment(entries[-1].name)}_{len(entries)}_{secrets.token_hex(6)}.jsonl"
        write_whole(self.folder / name, b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries))

    def _merge(self) -> None:
        """Make full segments of small ones. What two writers merge at once stands in two segments, which is no harm."""
        small = [path for path, _, _, count in self._segments() if count < FULL]
        if len(small) <= MOST_SMALL:
            return
        merged: dict[str, IndexEntry] = {}
        for path in small:
            for entry in _read(path):
                _keep(merged, entry)
        there = [entry for name, entry in sorted(merged.items()) if (self.root / name).exists()]
        for at in range(0, len(there), FULL):
            self._write(there[at : at + FULL])
        for path in small:
            path.unlink(missing_ok=True)


def sizes_of(directory: Path) -> tuple[int, int]:
    """Sizes of a run's `run.json` and spans; -1 for a file that is not there."""
    return _size(directory / "run.json"), _size(directory / SPANS)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _moment(name: str) -> str:
    return name.partition("-")[0]


def _keep(entries: dict[str, IndexEntry], entry: IndexEntry) -> None:
    """Of two rows of one run, the one for which more was read."""
    there = entries.get(entry.name)
    if there is None or _knows(entry) >= _knows(there):
        entries[entry.name] = entry


def _knows(entry: IndexEntry) -> tuple[bool, bool]:
    return entry.whole, entry.study is not None


def _read(path: Path) -> list[IndexEntry]:
    """The rows of a segment; one that is damaged is removed, its rows are made anew when they are asked for."""
    try:
        return msgspec.json.decode(b"[" + b",".join(path.read_bytes().splitlines()) + b"]", type=list[IndexEntry])
    except OSError:
        return []  # merged by somebody else meanwhile
    except (msgspec.DecodeError, ValueError):
        with suppress(OSError):
            path.unlink()
        return []
