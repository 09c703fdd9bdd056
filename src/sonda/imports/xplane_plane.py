"""What an XSpace file holds: planes, their tables of names, lines, and blocks of events. See `xplane.py`."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from sonda.imports.wire import Buffer, double, text
from sonda.imports.xplane_kernel import (
    DAMAGED,
    DURATION,
    FIELD,
    FIRST_STAT,
    FULL,
    LAST_STAT,
    METADATA,
    OCCURRENCES,
    OFFSET,
    STAT,
    STOP,
    VALUE,
    scan_events,
    varint,
)
from sonda.record.compiled import compiled

EVENTS, STATS = 1 << 16, 1 << 19
"""Of one block."""
GIVEN_BACK = 8 << 20
"""Bytes of a file that may stay in memory behind what is being read."""
ABSENT = -1
PS_PER_NS = 1000
DOUBLE, UNSIGNED, SIGNED, TEXT, BYTES, REFERENCE = 2, 3, 4, 5, 6, 7
"""Fields of XStat that hold its value. A reference is the id of stat metadata whose name is the value."""
ENVIRONMENT = "Task Environment"
"""The plane that says when the profile began and ended."""

Stat = int | float | str | bytes


@dataclass(frozen=True)
class Event:
    name: str
    start_ns: int
    duration_ns: int
    stats: dict[str, Stat]
    """By name; those of the event itself hide those that all events of its name share."""
    shown: str = ""
    """Its short name: of an operation of TensorFlow the type; the name itself where the file has no other."""
    occurrences: int = 0
    """How many it stands for, where it is a sum without a moment of its own."""


@dataclass(frozen=True)
class Metadata:
    """What all events of one name share."""

    name: str
    shown: str
    """The short name; of a TPU's operations the long one is a whole line of HLO."""
    stats: tuple[tuple[int, int, int, int], ...] = ()
    """As in the table of a block."""


@dataclass
class Space:
    """A file. `planes` are in its order; `truncated` says that it ends in the middle of something."""

    planes: list[Plane]
    truncated: bool = False
    hosts: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """What the profiler complained about."""

    @property
    def began_ns(self) -> int:
        """ns since 1970 at the zero of its times; 0 where the file does not say so, or its times are such already."""
        said = [one.stats.get("profile_start_time") for one in self.planes if one.name == ENVIRONMENT]
        began = next((value for value in said if isinstance(value, int)), 0)
        first = [line.timestamp_ns for plane in self.planes for line in plane.lines if line.count]
        return began if 0 < began < 1 << 62 and first and min(first) < began // 2 else 0


@dataclass
class Plane:
    """A host or a device, with the tables that its events refer to."""

    data: Buffer
    compiled: bool
    number: int = 0
    name: str = ""
    lines: list[Line] = field(default_factory=list)
    events: dict[int, Metadata] = field(default_factory=dict)
    """By id."""
    stat_names: dict[int, str] = field(default_factory=dict)
    stats: dict[str, Stat] = field(default_factory=dict)
    """Of the plane itself: what is known about the device, …"""
    truncated: bool = False

    @cached_property
    def stat_ids(self) -> dict[str, int]:
        return {name: number for number, name in self.stat_names.items()}

    def about(self, metadata: int) -> Metadata:
        """What is known of events; where the table lacks them, a name made from their number."""
        found = self.events.get(metadata)
        if found is None or not found.name:
            return Metadata(f"event {metadata}", f"event {metadata}", found.stats if found is not None else ())
        return found

    def decoded(self, rows: Any) -> dict[str, Stat]:
        """Stats by name from rows of a block's table; those without a value or a name are left out."""
        found: dict[str, Stat] = {}
        for metadata, kind, value, stop in rows:
            name = self.stat_names.get(metadata)
            one = self._value(kind, value, stop)
            if name is not None and one is not None:
                found[name] = one
        return found

    def _value(self, kind: int, value: int, stop: int) -> Stat | None:
        if kind == DOUBLE:
            return double(value)
        if kind == UNSIGNED:
            return value & (1 << 64) - 1
        if kind == SIGNED:
            return value
        if kind == TEXT:
            return text(self.data, value, stop)
        if kind == BYTES:
            return self.data[value:stop]
        return self.stat_names.get(value) if kind == REFERENCE else None


@dataclass
class Line:
    """A thread or a stream."""

    plane: Plane
    at: int
    stop: int
    """Where it lies in the file."""
    number: int = 0
    name: str = ""
    timestamp_ns: int = 0
    """When it begins; events count from there."""
    count: int = 0
    """Events, broken ones included."""
    truncated: bool = False
    unreadable: int = 0
    """Events that could not be read, once `blocks` is through."""

    def blocks(self) -> Iterator[Block]:
        """Its events in the order of the file, at most `EVENTS` at a time."""
        data: Any = np.frombuffer(self.plane.data, np.uint8) if self.plane.compiled else self.plane.data
        scan = compiled(scan_events, varint) if self.plane.compiled else scan_events
        at, given_back, room = self.at, self.at, min(EVENTS, self.count)
        stat_room = min(STATS, max(self.stop - self.at, 1))
        ended = np.zeros(5, np.int64)
        while at < self.stop and room:
            events, stats = np.empty((room, 6), np.int64), np.empty((stat_room, 4), np.int64)
            scan(data, at, self.stop, events, stats, ended)
            at, count, used, how, broken = (int(one) for one in ended)
            self.unreadable += broken
            if count:
                yield Block(self, events[:count], stats[:used])
            if how == DAMAGED:
                break
            if how == FULL and not count and not broken:
                stat_room *= 2  # one event has more stats than the table
            if at - given_back > GIVEN_BACK:
                given_back = give_back(self.plane.data, given_back, at)

    def events(self) -> Iterator[Event]:
        """The same, one by one, with their names and stats."""
        for block in self.blocks():
            yield from block.events()


@dataclass(frozen=True)
class Block:
    """Events of one line as columns."""

    line: Line
    rows: np.ndarray
    stats: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def metadata(self) -> np.ndarray:
        return self.rows[:, METADATA]

    @property
    def timed(self) -> np.ndarray:
        """Which events have a moment and a duration that can be: sums have none, and times outside ±146 years, or
        that end before they begin, are no times."""
        offset, duration = self.rows[:, OFFSET], self.rows[:, DURATION]
        limit = 1 << 62
        possible = (offset > -limit) & (offset < limit) & (duration >= 0) & (duration < limit)
        return possible & (self.rows[:, OCCURRENCES] == 0) & (abs(self.line.timestamp_ns) < limit)

    @property
    def start_ns(self) -> np.ndarray:
        return self.line.timestamp_ns + self.rows[:, OFFSET] // PS_PER_NS

    @property
    def duration_ns(self) -> np.ndarray:
        """From the ns in which it begins to the one in which it ends, so that what lies inside stays inside."""
        offset = self.rows[:, OFFSET]
        return (offset + self.rows[:, DURATION]) // PS_PER_NS - offset // PS_PER_NS

    def numbers(self, name: str) -> np.ndarray:
        """Of every event its stat of this name as a whole number, `ABSENT` where it has none, or text."""
        found = np.full(len(self.rows), ABSENT, np.int64)
        wanted = self.line.plane.stat_ids.get(name)
        if wanted is None:
            return found
        mine = (self.stats[:, STAT] == wanted) & np.isin(self.stats[:, FIELD], (UNSIGNED, SIGNED, REFERENCE))
        places = np.flatnonzero(mine)
        found[self.owner(places)] = self.stats[places, VALUE]
        return found

    def texts(self, name: str) -> tuple[np.ndarray, list[str]]:
        """Of every event its stat of this name as a place in a list of texts, -1 where it has none."""
        found = np.full(len(self.rows), ABSENT, np.int64)
        wanted = self.line.plane.stat_ids.get(name)
        known: dict[str, int] = {}
        if wanted is not None:
            mine = (self.stats[:, STAT] == wanted) & np.isin(self.stats[:, FIELD], (TEXT, REFERENCE))
            places = np.flatnonzero(mine)
            owner = self.owner(places)
            referring = self.stats[places, FIELD] == REFERENCE
            for number in np.unique(self.stats[places[referring], VALUE]).tolist():
                text_of = self.line.plane.stat_names.get(number, "")
                rows = owner[referring & (self.stats[places, VALUE] == number)]
                found[rows] = known.setdefault(text_of, len(known))
            for row, place in zip(owner[~referring].tolist(), places[~referring].tolist(), strict=True):
                one = text(self.line.plane.data, int(self.stats[place, VALUE]), int(self.stats[place, STOP]))
                found[row] = known.setdefault(one, len(known))
        return found, list(known)

    def owner(self, places: np.ndarray) -> np.ndarray:
        """Rows of the events that stats belong to."""
        return np.searchsorted(self.rows[:, LAST_STAT], places, "right")

    def has(self, name: str) -> np.ndarray:
        """Which events have a stat of this name, whatever it holds."""
        found = np.zeros(len(self.rows), bool)
        wanted = self.line.plane.stat_ids.get(name)
        if wanted is not None:
            found[self.owner(np.flatnonzero(self.stats[:, STAT] == wanted))] = True
        return found

    def stats_of(self, row: int) -> dict[str, Stat]:
        """By name, of one event."""
        first, last = int(self.rows[row, FIRST_STAT]), int(self.rows[row, LAST_STAT])
        plane = self.line.plane
        shared = plane.events.get(int(self.rows[row, METADATA]))
        found = plane.decoded(shared.stats) if shared is not None and shared.stats else {}
        return found | plane.decoded(self.stats[first:last].tolist())

    def events(self) -> Iterator[Event]:
        plane = self.line.plane
        columns = (self.start_ns, self.duration_ns, self.metadata, self.rows[:, OCCURRENCES])
        for row, (start, duration, metadata, occurrences) in enumerate(
            zip(*(one.tolist() for one in columns), strict=True)
        ):
            found = plane.about(metadata)
            yield Event(found.name, start, duration, self.stats_of(row), found.shown, occurrences)


def give_back(data: Buffer, begin: int, end: int) -> int:
    """Let the memory of a stretch of the file go; returns where what was not let go begins."""
    if not isinstance(data, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return end
    first, last = (place // mmap.PAGESIZE * mmap.PAGESIZE for place in (begin, end))
    if last > first:
        data.madvise(mmap.MADV_DONTNEED, first, last - first)
    return last
