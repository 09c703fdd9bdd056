"""Events of Chrome's format that are no spans by themselves: beginnings and ends, readings of counters, names.

Beginnings and ends are spilled as they come and paired later, in the order of time (`pairing.py`). A counter's values,
and the moments at which PyTorch took or gave back memory, are readings, spilled the same way. Names of processes and
threads are kept in the `Source`. Left out on purpose, because they have no duration and say nothing that spans lack:
instants (i, I, R), steps of asynchronous events (n, T, p), flows (s, t, f), objects and dumps (N, O, D, v, V, P, c).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np

from sonda.imports.raw_event import ABSENT, RAW, Source

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


class Mark(msgspec.Struct, gc=False):
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


_MANY = msgspec.json.Decoder(list[Mark])
_ONE = msgspec.json.Decoder(Mark, strict=False)


def decode_marks(text: bytes) -> list[Mark]:
    """The marks of a JSON list of events. Raises msgspec.MsgspecError for anything else."""
    return [mark for mark in _MANY.decode(text) if mark.ph in PHASES]


def decode_mark(text: bytes) -> Mark:
    """One mark, numbers in quotes allowed. Raises msgspec.MsgspecError when it is none."""
    return _ONE.decode(text)


def raw_marks(
    marks: list[Mark], source: Source, kind_of: Callable[[Any], int], nanoseconds: Callable[[bytes], int | None]
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
            found = _readings(mark) if mark.ph == "C" else _memory(mark)
            if not found:
                source.leave_out("are counters without a number", 1)
            rows += [(start, 0, ABSENT, ABSENT, _bits(value), source.names[word], 0, ABSENT, ABSENT, READING)
                     for word, value in found]  # fmt: skip
            continue
        key = ABSENT if mark.ph == "E" else kind_of(mark) if mark.ph == "B" else _identity(mark)
        rows.append((start, 0, key, ABSENT, ABSENT, source.names[mark.name], source.places[mark.pid, mark.tid], ABSENT,
                     ABSENT, KINDS[mark.ph]))  # fmt: skip
    return np.array(rows, dtype=RAW)


def _learn_name(mark: Mark, source: Source) -> None:
    name = mark.args.get("name") if isinstance(mark.args, dict) else None
    if isinstance(name, str) and mark.name == "process_name":
        source.processes[str(mark.pid)] = name
    elif isinstance(name, str) and mark.name == "thread_name":
        source.lines[source.places[mark.pid, mark.tid]] = name


def _readings(mark: Mark) -> list[tuple[str, float]]:
    if not isinstance(mark.args, dict):
        return []
    found = []
    for key, value in mark.args.items():
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            continue
        try:
            number = float(value)
        except (ValueError, OverflowError):
            continue
        if math.isfinite(number):
            name = mark.name if mark.name == key else f"{mark.name} {key}".strip()
            found.append((BETWEEN.join((name, "1", "measured", f"process {mark.pid}")), number))
    return found


def _memory(mark: Mark) -> list[tuple[str, float]]:
    about = mark.args if isinstance(mark.args, dict) else {}
    device = "cpu" if about.get("Device Type") == 0 else f"cuda:{about.get('Device Id', 0)}"
    return [
        (BETWEEN.join((sensor, "B", "counted", device)), float(value))
        for member, sensor in MEMORY.items()
        if isinstance(value := about.get(member), int) and abs(value) < 1 << 62
    ]


def _identity(mark: Mark) -> int:
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
