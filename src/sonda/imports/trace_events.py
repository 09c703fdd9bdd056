"""Events of Chrome and Kineto traces: decoded with the members that matter, then columns of raw events.

Times are µs with decimals. A double holds a ns exactly below 2^43 µs, which is where Kineto's clocks are; beyond, the
text itself is read as a decimal number.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import numpy as np

from sonda.imports.raw_event import (
    ABSENT,
    CALL,
    COLLECTIVE,
    COPY,
    EARLIEST,
    FIRST_ON_DEVICE,
    KERNEL,
    LATEST,
    LAYER,
    OP,
    RAW,
    STEP,
    Source,
)

EXACT_BELOW = float(1 << 43)
"""µs. Half the distance between two doubles is below half a ns there."""
LARGEST = (1 << 63) - 1
DECIMAL = re.compile(rb"(-?\d{1,19})(?:\.(\d{1,3}))?")
SKIP, PYTHON, ANNOTATION = -1, -2, -3
CATEGORIES = {
    "cpu_op": OP, "Operator": OP, "kernel": KERNEL, "Kernel": KERNEL, "gpu_memcpy": COPY, "Memcpy": COPY,
    "gpu_memset": COPY, "Memset": COPY, "cuda_runtime": CALL, "cuda_driver": CALL, "Runtime": CALL,
    "hip_runtime": CALL, "xpu_runtime": CALL, "privateuse1_runtime": CALL, "privateuse1_driver": CALL,
    "user_annotation": ANNOTATION, "python_function": PYTHON, "gpu_user_annotation": SKIP, "Trace": SKIP,
    "overhead": SKIP, "cuda_sync": SKIP, "cpu_instant_event": SKIP, "cuda_profiler_range": SKIP,
    "collective_comm": SKIP, "mtia_counters": SKIP,
}  # fmt: skip
"""Kineto's categories (libkineto, `ActivityType.h`); others are work of the host. What is skipped repeats something
or is the profiler's own."""
MODULE = "nn.Module: "


class Arguments(msgspec.Struct, gc=False):
    external: int = msgspec.field(name="External id", default=ABSENT)
    older_external: int = msgspec.field(name="external id", default=ABSENT)
    correlation: int = ABSENT
    stream: int = ABSENT
    device: int = ABSENT
    size: int | None = msgspec.field(name="bytes", default=None)
    older_size: int | None = msgspec.field(name="Bytes", default=None)


NO_ARGUMENTS = Arguments()


class Event(msgspec.Struct, gc=False):
    """An event whose times are doubles: enough for most traces."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = math.nan
    dur: float = math.nan
    args: Arguments | None = None


class ExactEvent(msgspec.Struct, gc=False):
    """The same event, its times as they are written."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: msgspec.Raw = msgspec.Raw(b"null")
    dur: msgspec.Raw = msgspec.Raw(b"null")
    args: Arguments | None = None


class _Loose(msgspec.Struct, gc=False):
    """An event whose arguments may be anything."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: msgspec.Raw = msgspec.Raw(b"null")
    dur: msgspec.Raw = msgspec.Raw(b"null")
    args: Any = None


_FAST = msgspec.json.Decoder(list[Event])
_EXACT = msgspec.json.Decoder(list[ExactEvent])
_ONE = msgspec.json.Decoder(_Loose, strict=False)


def decode_events(text: bytes) -> list[Any]:
    """Events of a JSON list. Raises msgspec.MsgspecError for anything else."""
    events = _FAST.decode(text)
    times = np.array([event.ts for event in events])
    return _EXACT.decode(text) if (np.abs(times) >= EXACT_BELOW).any() else events


def decode_event(text: bytes) -> Any:
    """One event, numbers in quotes allowed. Raises msgspec.MsgspecError when it is none."""
    event = _ONE.decode(text)
    known: dict[str, int] = {}
    if isinstance(event.args, dict):
        for member in msgspec.structs.fields(Arguments):
            value = event.args.get(member.encode_name)
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if isinstance(value, int) and abs(value) <= LARGEST:
                known[member.name] = value
    return ExactEvent(event.ph, event.cat, event.name, event.pid, event.tid, event.ts, event.dur, Arguments(**known))


def raw_events(events: list[Any], source: Source) -> np.ndarray:
    """The events that are spans, as rows of `RAW`, in the order given; `source` learns names and what is left out."""
    phases = [event.ph for event in events]
    chosen = [event for event, phase in zip(events, phases, strict=True) if phase == "X"]
    source.leave_out("begin or end without being one (ph B or E)", phases.count("B") + phases.count("E"))
    kinds = [CATEGORIES.get(event.cat, OP) for event in chosen]
    if kinds and min(kinds) < 0:
        kinds = [
            kind if kind >= 0 else _unusual(event, kind, source) for event, kind in zip(chosen, kinds, strict=True)
        ]
        chosen = [event for event, kind in zip(chosen, kinds, strict=True) if kind >= 0]
        kinds = [kind for kind in kinds if kind >= 0]
    rows = np.empty(len(chosen), dtype=RAW)
    rows["start"], rows["duration"], timed = _times(chosen)
    names, places = source.names, source.places
    rows["kind"] = kinds
    rows["name"] = [names[event.name] for event in chosen]
    rows["thread"] = [places[event.pid, event.tid] for event in chosen]
    arguments = [event.args or NO_ARGUMENTS for event in chosen]
    try:
        _arguments(rows, arguments)
    except OverflowError:
        _arguments(rows, [_within(one) for one in arguments])
    on_device = rows["kind"] >= FIRST_ON_DEVICE
    communicating = source.collectives()
    if communicating.any():
        rows["kind"][on_device & communicating[rows["name"]]] = COLLECTIVE
    source.leave_out("have no time that can be read", int((~timed).sum()))
    backwards = timed & (rows["duration"] < 0)
    source.leave_out("end before they begin", int(backwards.sum()))
    return rows[timed & ~backwards]


def _unusual(event: Any, kind: int, source: Source) -> int:
    if kind == ANNOTATION:
        return STEP if event.name.startswith("ProfilerStep") else OP
    if kind == PYTHON:
        if event.name.startswith(MODULE):
            return LAYER
        source.leave_out("are frames of Python", 1)
    return SKIP


def _arguments(rows: np.ndarray, arguments: list[Arguments]) -> None:
    rows["external"] = [one.external if one.external != ABSENT else one.older_external for one in arguments]
    for name in ("correlation", "stream", "device", "bytes"):
        rows[name] = ABSENT
    # Most events are operations, which have none of these.
    places = np.flatnonzero((rows["kind"] == CALL) | (rows["kind"] >= FIRST_ON_DEVICE))
    rows["correlation"][places] = [arguments[place].correlation for place in places.tolist()]
    places = places[rows["kind"][places] >= FIRST_ON_DEVICE]
    mine = [arguments[place] for place in places.tolist()]
    rows["stream"][places] = [one.stream for one in mine]
    rows["device"][places] = [one.device for one in mine]
    rows["bytes"][places] = [_size(one) for one in mine]


def _size(arguments: Arguments) -> int:
    if arguments.size is not None:
        return arguments.size
    return ABSENT if arguments.older_size is None else arguments.older_size


def _within(arguments: Arguments) -> Arguments:
    """The same without numbers that are too large to be what they are called; the device's streams are 32-bit."""
    small = {name: value for name in ("stream", "device") if abs(value := getattr(arguments, name)) < 1 << 15}
    stream = arguments.stream
    if 1 << 15 <= stream < 1 << 31:
        small["stream"] = stream
    large = {
        name: value
        for name in ("external", "older_external", "correlation", "size", "older_size")
        if (value := getattr(arguments, name)) is not None and abs(value) <= LARGEST
    }
    return Arguments(**small, **large)


def _times(events: list[Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Starts and durations in ns, and which of them are known."""
    if not events:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, bool)
    if isinstance(events[0], Event):  # then all are: a piece is decoded in one way
        starts, durations = np.array([event.ts for event in events]), np.array([event.dur for event in events])
        timed = np.isfinite(starts) & (np.abs(durations) < EXACT_BELOW)
        return _rounded(starts, timed), _rounded(durations, timed), timed
    pairs = [(nanoseconds(bytes(event.ts)), nanoseconds(bytes(event.dur))) for event in events]
    timed = np.array([start is not None and length is not None and start + length <= LATEST
                      for start, length in pairs])  # fmt: skip
    return (
        np.array([start if known else 0 for (start, _), known in zip(pairs, timed, strict=True)], dtype=np.int64),
        np.array([length if known else 0 for (_, length), known in zip(pairs, timed, strict=True)], dtype=np.int64),
        timed,
    )


def _rounded(micro: np.ndarray, known: np.ndarray) -> np.ndarray:
    micro = np.where(known, micro, 0.0)
    whole = np.floor(micro)
    return whole.astype(np.int64) * 1000 + np.rint((micro - whole) * 1000).astype(np.int64)


def nanoseconds(text: bytes) -> int | None:
    """`b"3869232170605.514"` µs -> 3869232170605514; None for what is no number, or none that 64 bits hold in ns."""
    text = text.strip(b'"')
    plain = DECIMAL.fullmatch(text)
    if plain:
        whole, decimals = plain[1], plain[2] or b""
        found = int(whole + decimals.ljust(3, b"0"))
    else:
        try:
            number = Decimal(text.decode("ascii", "replace"))
            if not number.is_finite() or number.adjusted() > 19:
                return None
            found = int((number * 1000).to_integral_value())
        except (InvalidOperation, ValueError, OverflowError):
            return None
    return found if EARLIEST <= found <= LATEST else None
