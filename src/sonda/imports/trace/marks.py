"""Events of Chrome's format that are no spans by themselves: beginnings and ends, readings of counters, names.

Beginnings and ends are spilled as they come; `MarkPairing` pairs them later, in the order of time. A counter's values,
and the moments at which PyTorch took or gave back memory, are readings, spilled the same way. Names of processes and
threads are kept in `EventTables`. Left out on purpose, because they have no duration and say nothing that spans lack:
instants (i, I, R), steps of asynchronous events (n, T, p), flows (s, t, f), objects and dumps (N, O, D, v, V, P, c).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Any

import msgspec
import numpy as np

from sonda.imports.trace.raw_events import ABSENT, OP, RAW, EventTables

PHASES = frozenset("BEbeSFCMi")
"""`ph` of the events that are read here; S and F are what b and e were called before."""
BEGIN, END, ASYNC_BEGIN, ASYNC_END, READING = range(32, 37)
"""`kind` of a mark's row. Of a beginning `correlation` is the kind of its span, of an asynchronous mark what tells it
from others; of a reading `bytes` holds the value as it lies in memory."""
KINDS = {"B": BEGIN, "E": END, "b": ASYNC_BEGIN, "S": ASYNC_BEGIN, "e": ASYNC_END, "F": ASYNC_END}
MEMORY = {"Total Allocated": "memory allocated", "Total Reserved": "memory reserved"}
"""Of PyTorch's events named [memory]: bytes in all on a device, before and after which the event stands."""
BETWEEN = "\x1f"
"""Between the words that name a reading in the table of names: sensor, unit, source, device."""


class ChromeMark(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: msgspec.Raw = msgspec.Raw(b"null")
    id: Any = None
    id2: Any = None
    scope: Any = None
    args: Any = None


_MANY = msgspec.json.Decoder(list[ChromeMark])
_ONE = msgspec.json.Decoder(ChromeMark, strict=False)


def decode_marks(text: bytes) -> list[ChromeMark]:
    """The marks of a JSON list of events. Raises msgspec.MsgspecError for anything else."""
    return [mark for mark in _MANY.decode(text) if mark.ph in PHASES]


def decode_mark(text: bytes) -> ChromeMark:
    """One mark, numbers in quotes allowed. Raises msgspec.MsgspecError when it is none."""
    return _ONE.decode(text)


def raw_marks(
    marks: list[ChromeMark],
    source: EventTables,
    kind_of: Callable[[Any], int],
    nanoseconds: Callable[[bytes], int | None],
) -> np.ndarray:
    """Marks as rows of `RAW`, in the order given; `source` learns names and what is left out.

    `kind_of` says what span a beginning belongs to, `nanoseconds` reads a time.
    """
    rows: list[tuple[int, ...]] = []
    for mark in marks:
        if mark.ph == "M":
            _learn_name(mark, source)
            continue
        if mark.ph == "i" and mark.name != "[memory]":
            continue
        start = nanoseconds(bytes(mark.ts))
        if start is None:
            source.leave_out("have no time that can be read", 1)
            continue
        if mark.ph in "Ci":
            values = _readings(mark) if mark.ph == "C" else _memory_readings(mark)
            if not values:
                source.leave_out("are counters without a number", 1)
            rows += [(start, 0, ABSENT, ABSENT, _bits(value), source.names[word], 0, ABSENT, ABSENT, READING)
                     for word, value in values]  # fmt: skip
            continue
        key = ABSENT if mark.ph == "E" else kind_of(mark) if mark.ph == "B" else _identity(mark)
        rows.append((start, 0, key, ABSENT, ABSENT, source.names[mark.name], source.places[mark.pid, mark.tid], ABSENT,
                     ABSENT, KINDS[mark.ph]))  # fmt: skip
    return np.array(rows, dtype=RAW)


def _learn_name(mark: ChromeMark, source: EventTables) -> None:
    name = mark.args.get("name") if isinstance(mark.args, dict) else None
    if isinstance(name, str) and mark.name == "process_name":
        source.processes[str(mark.pid)] = name
    elif isinstance(name, str) and mark.name == "thread_name":
        source.lines[source.places[mark.pid, mark.tid]] = name


def _readings(mark: ChromeMark) -> list[tuple[str, float]]:
    if not isinstance(mark.args, dict):
        return []
    readings = []
    for key, value in mark.args.items():
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            continue
        try:
            number = float(value)
        except (ValueError, OverflowError):
            continue
        if math.isfinite(number):
            name = mark.name if mark.name == key else f"{mark.name} {key}".strip()
            readings.append((BETWEEN.join((name, "1", "measured", f"process {mark.pid}")), number))
    return readings


def _memory_readings(mark: ChromeMark) -> list[tuple[str, float]]:
    about = mark.args if isinstance(mark.args, dict) else {}
    device = "cpu" if about.get("Device Type") == 0 else f"cuda:{about.get('Device Id', 0)}"
    return [
        (BETWEEN.join((sensor, "B", "counted", device)), float(value))
        for member, sensor in MEMORY.items()
        if isinstance(value := about.get(member), int) and abs(value) < 1 << 62
    ]


def _identity(mark: ChromeMark) -> int:
    """The same number for the same category, scope and id, in every process; ids that say so are a process's own."""
    identity, process = mark.id, ""
    if isinstance(mark.id2, dict):
        identity = mark.id2.get("global", mark.id2.get("local"))
        process = "" if "global" in mark.id2 else str(mark.pid)
    text = BETWEEN.join((mark.cat, str(mark.scope), str(identity), process))
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "little") >> 1


def _bits(value: float) -> int:
    return int(np.float64(value).view(np.int64))


def readings(rows: np.ndarray) -> Iterator[tuple[int, int, float]]:
    """Time in ns, name and value of the readings among rows of marks."""
    chosen = rows[rows["kind"] == READING]
    values = np.ascontiguousarray(chosen["bytes"]).view(np.float64)
    yield from zip(chosen["start"].tolist(), chosen["name"].tolist(), values.tolist(), strict=True)


# ---- Pairing beginnings with ends -----------------------------------------------------------------------------------

LANES = "asynchronous"
"""The process whose threads are the lanes."""


@dataclass(frozen=True)
class _OpenMark:
    start: int
    name: int
    kind: int
    thread: int


@dataclass
class MarkPairing:
    """Turns the beginnings and ends of one rank into spans. Give `spans` its blocks in the order of time.

    An end closes the last open beginning of its thread. An end with a name closes the last open one of that name; what
    began inside it and did not end has no end. Asynchronous marks belong together by their id and may overlap others of
    their thread: all marks of one id get a lane on which no other id overlaps them. Marks without a partner are
    counted. Only open marks are remembered.
    """

    source: EventTables
    _nameless: int = field(init=False)
    _open: dict[int, list[_OpenMark]] = field(default_factory=dict)
    _open_async: dict[int, list[_OpenMark]] = field(default_factory=dict)
    _lanes: dict[int, int] = field(default_factory=dict)
    _free: list[int] = field(default_factory=list)
    _lane_count: int = 0
    _unended: int = 0
    _unbegun: int = 0

    def __post_init__(self) -> None:
        self._nameless = self.source.names[""]

    def spans(self, marks: np.ndarray) -> np.ndarray:
        """Rows of `RAW` whose ends are in this block, in the order of their ends."""
        rows: list[tuple[int, ...]] = []
        columns = (marks[name].tolist() for name in ("start", "name", "thread", "correlation", "kind"))
        for time, name, thread, key, mark in zip(*columns, strict=True):
            if mark == BEGIN:
                self._open.setdefault(thread, []).append(_OpenMark(time, name, key, thread))
            elif mark == END:
                self._end(self._open.get(thread, []), time, name, rows, nested=True)
            elif mark == ASYNC_BEGIN:
                self._open_async.setdefault(key, []).append(_OpenMark(time, name, OP, self._lane(key)))
            elif mark == ASYNC_END:
                stack = self._open_async.get(key, [])
                self._end(stack, time, name, rows, nested=False)
                if not stack and key in self._lanes:
                    heappush(self._free, self._lanes.pop(key))
                    self._open_async.pop(key)
        return np.array(rows, dtype=RAW)

    def finish(self) -> None:
        """Count what was never ended."""
        stacks = (*self._open.values(), *self._open_async.values())
        self.source.leave_out("begin and never end", self._unended + sum(len(stack) for stack in stacks))
        self.source.leave_out("end and never began", self._unbegun)

    def _end(self, stack: list[_OpenMark], time: int, name: int, rows: list[tuple[int, ...]], nested: bool) -> None:
        at = len(stack) - 1
        if name != self._nameless:
            while at >= 0 and stack[at].name != name:
                at -= 1
        if at < 0:
            self._unbegun += 1
            return
        begun = stack[at]
        if nested:
            self._unended += len(stack) - at - 1
            del stack[at:]
        else:
            del stack[at]
        if begun.kind >= 0:
            rows.append((begun.start, time - begun.start, ABSENT, ABSENT, ABSENT, begun.name, begun.thread, ABSENT,
                          ABSENT, begun.kind))  # fmt: skip

    def _lane(self, key: int) -> int:
        """The thread of an asynchronous event: its own as long as anything with its id is open."""
        if key not in self._lanes:
            if not self._free:
                heappush(self._free, self._lane_count)
                self._lane_count += 1
            self._lanes[key] = heappop(self._free)
        return self.source.places[LANES, -1 - self._lanes[key]]
