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

from sonda.imports.trace.marks import PHASES, ChromeMark, decode_mark, decode_marks, raw_marks
from sonda.imports.trace.raw_events import (
    ABSENT,
    ANNOTATION,
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
    WAIT,
    EventTables,
    pack_group,
)
from sonda.record.conventions.profile_names import LOADING, communicates
from sonda.record.conventions.rank_group import label, parse_group

EXACT_BELOW = float(1 << 43)
"""µs. Half the distance between two doubles is below half a ns there."""
LARGEST = (1 << 63) - 1
DECIMAL = re.compile(rb"(-?\d{1,19})(?:\.(\d{1,3}))?")
SKIP, PYTHON, ANNOTATED, UNNAMED = -1, -2, -3, -4
CATEGORIES = {
    "": UNNAMED,
    "cpu_op": OP, "Operator": OP, "kernel": KERNEL, "Kernel": KERNEL, "gpu_memcpy": COPY, "Memcpy": COPY,
    "gpu_memset": COPY, "Memset": COPY, "cuda_runtime": CALL, "cuda_driver": CALL, "Runtime": CALL,
    "hip_runtime": CALL, "xpu_runtime": CALL, "privateuse1_runtime": CALL, "privateuse1_driver": CALL,
    "user_annotation": ANNOTATED, "python_function": PYTHON, "gpu_user_annotation": SKIP, "Trace": SKIP,
    "overhead": SKIP, "cuda_sync": WAIT, "cpu_instant_event": SKIP, "cuda_profiler_range": SKIP,
    "collective_comm": SKIP, "mtia_counters": SKIP,
}  # fmt: skip
"""Kineto's categories (libkineto, `ActivityType.h`); others are work of the host. What is skipped repeats something
or is the profiler's own."""
MODULE = "nn.Module: "
FRAME = "$"
"""How JAX begins the name of a frame of Python."""


class Arguments(msgspec.Struct, gc=False):
    external: int = msgspec.field(name="External id", default=ABSENT)
    older_external: int = msgspec.field(name="external id", default=ABSENT)
    correlation: int = ABSENT
    stream: int = ABSENT
    device: int = ABSENT
    size: int | None = msgspec.field(name="bytes", default=None)
    older_size: int | None = msgspec.field(name="Bytes", default=None)
    awaited: int = msgspec.field(name="wait_on_stream", default=ABSENT)
    recorded: int = msgspec.field(name="wait_on_cuda_event_record_corr_id", default=ABSENT)
    xla_correlation: int | str | None = msgspec.field(name="correlation_id", default=None)
    xla_step: int | str | None = msgspec.field(name="step_num", default=None)
    group: Any = msgspec.field(name="Process Group Name", default=None)
    group_description: Any = msgspec.field(name="Process Group Description", default=None)
    group_ranks: Any = msgspec.field(name="Process Group Ranks", default=None)
    group_collective: Any = msgspec.field(name="Collective name", default=None)
    group_number: Any = msgspec.field(name="Seq", default=None)


NO_ARGUMENTS = Arguments()


class ChromeEvent(msgspec.Struct, gc=False):
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
    """An event whose members may be anything."""

    ph: str = ""
    cat: Any = ""
    name: Any = ""
    pid: Any = 0
    tid: Any = 0
    ts: msgspec.Raw = msgspec.Raw(b"null")
    dur: msgspec.Raw = msgspec.Raw(b"null")
    args: Any = None


_FAST = msgspec.json.Decoder(list[ChromeEvent])
_EXACT = msgspec.json.Decoder(list[ExactEvent])
_ONE = msgspec.json.Decoder(_Loose, strict=False)


def decode_events(text: bytes) -> list[Any]:
    """Events of a JSON list. Raises msgspec.MsgspecError for anything else."""
    events: list[Any] = _FAST.decode(text)
    times = np.array([event.ts for event in events])
    if (np.abs(times) >= EXACT_BELOW).any():
        events = _EXACT.decode(text)
    if not PHASES.isdisjoint({event.ph for event in events}):
        events = [event for event in events if event.ph not in PHASES] + decode_marks(text)
    return events


def decode_event(text: bytes) -> Any:
    """One event, numbers in quotes allowed. Raises msgspec.MsgspecError when it is none."""
    event = _ONE.decode(text)
    if event.ph in PHASES:
        return decode_mark(text)
    known: dict[str, Any] = {}
    if isinstance(event.args, dict):
        for member in msgspec.structs.fields(Arguments):
            value = event.args.get(member.encode_name)
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            spoken = isinstance(value, str) and member.name.startswith(("xla", "group"))
            if (
                spoken
                or (member.name == "group_ranks" and isinstance(value, list))
                or (isinstance(value, int) and abs(value) <= LARGEST)
            ):
                known[member.name] = value
    category, name = (word if isinstance(word, str) else "" for word in (event.cat, event.name))
    process, thread = (
        place if isinstance(place, int | str) else str(place) if isinstance(place, float) else 0
        for place in (event.pid, event.tid)
    )
    return ExactEvent(event.ph, category, name, process, thread, event.ts, event.dur, Arguments(**known))


def raw_events(events: list[Any], source: EventTables) -> tuple[np.ndarray, np.ndarray]:
    """The events that are spans, and the marks, as rows of `RAW`, each in the order given.

    `source` learns names and what is left out.
    """
    marks: list[ChromeMark] = [event for event in events if isinstance(event, ChromeMark)]
    return _spans(events, source), raw_marks(marks, source, lambda mark: _kind(mark, source), nanoseconds)


def _kind(event: Any, source: EventTables) -> int:
    kind = CATEGORIES.get(event.cat, OP)
    return kind if kind >= 0 else _unusual_kind(event, kind, source)


def _spans(events: list[Any], source: EventTables) -> np.ndarray:
    chosen = [event for event in events if event.ph == "X"]
    kinds = [CATEGORIES.get(event.cat, OP) for event in chosen]
    if kinds and min(kinds) < 0:
        kinds = [
            kind if kind >= 0 else _unusual_kind(event, kind, source) for event, kind in zip(chosen, kinds, strict=True)
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
        _write_arguments(rows, arguments)
    except OverflowError:
        _write_arguments(rows, [_drop_impossible(values) for values in arguments])
    on_device = rows["kind"] >= FIRST_ON_DEVICE
    communicating = source.collectives()
    if communicating.any():
        rows["kind"][on_device & communicating[rows["name"]]] = COLLECTIVE
    in_groups = [place for place, values in enumerate(arguments) if values.group is not None]
    if in_groups:
        _write_groups(rows, [(place, arguments[place]) for place in in_groups], source)
    source.leave_out("have no time that can be read", int((~timed).sum()))
    backwards = timed & (rows["duration"] < 0)
    source.leave_out("end before they begin", int(backwards.sum()))
    return rows[timed & ~backwards]


def _unusual_kind(event: Any, kind: int, source: EventTables) -> int:
    if kind == ANNOTATED:
        if event.name.startswith("ProfilerStep"):
            return STEP
        # PyTorch marks what gloo does, and waiting for a batch, as a user would.
        return OP if communicates(event.name) or event.name.startswith(LOADING) else ANNOTATION
    if kind == PYTHON:
        if event.name.startswith(MODULE):
            return LAYER
        source.leave_out("are frames of Python", 1)
    if kind == UNNAMED:
        return _xla_kind(event, source)
    return SKIP


def _xla_kind(event: Any, source: EventTables) -> int:
    """Of an event without a category: JAX and TensorFlow mark steps and launches by their arguments."""
    arguments = event.args if isinstance(event.args, Arguments) else NO_ARGUMENTS
    if arguments.xla_step is not None:
        return STEP
    if arguments.xla_correlation is not None:
        return CALL
    if event.name.startswith(FRAME):
        source.leave_out("are frames of Python", 1)
        return SKIP
    return OP


def _write_arguments(rows: np.ndarray, arguments: list[Arguments]) -> None:
    rows["external"] = [values.external if values.external != ABSENT else values.older_external for values in arguments]
    for name in ("correlation", "stream", "device", "bytes"):
        rows[name] = ABSENT
    # Most events are operations, which have none of these.
    places = np.flatnonzero((rows["kind"] == CALL) | (rows["kind"] >= WAIT))
    rows["correlation"][places] = [_correlation(arguments[place]) for place in places.tolist()]
    places = places[rows["kind"][places] >= WAIT]
    mine = [arguments[place] for place in places.tolist()]
    rows["stream"][places] = [values.stream for values in mine]
    rows["device"][places] = [values.device for values in mine]
    rows["bytes"][places] = [_size(values) for values in mine]
    waits = np.flatnonzero(rows["kind"] == WAIT)
    rows["bytes"][waits] = [arguments[place].awaited for place in waits.tolist()]
    rows["external"][waits] = [arguments[place].recorded for place in waits.tolist()]


def _write_groups(rows: np.ndarray, in_groups: list[tuple[int, Arguments]], source: EventTables) -> None:
    """Which group of ranks a collective is of: said by its kernel, and by the operation that launches it."""
    for place, values in in_groups:
        kind = rows["kind"][place]
        group = parse_group(values.group, values.group_description, values.group_ranks, values.group_collective)
        if group is None or kind not in (OP, KERNEL, COLLECTIVE):
            continue
        if kind == KERNEL:
            rows["kind"][place] = COLLECTIVE  # whatever its name is
        number = values.group_number if type(values.group_number) is int else ABSENT
        rows["bytes"][place] = pack_group(source.names[label(group)], number)


def _correlation(arguments: Arguments) -> int:
    if arguments.xla_correlation is None:
        return arguments.correlation
    text = str(arguments.xla_correlation)
    return int(text) if text.isdecimal() and len(text) < 19 else ABSENT


def _size(arguments: Arguments) -> int:
    if arguments.size is not None:
        return arguments.size
    return ABSENT if arguments.older_size is None else arguments.older_size


def _drop_impossible(arguments: Arguments) -> Arguments:
    """The same without numbers that are too large to be what they are called; the device's streams are 32-bit."""
    small = {name: value for name in ("stream", "device") if abs(value := getattr(arguments, name)) < 1 << 15}
    stream = arguments.stream
    if 1 << 15 <= stream < 1 << 31:
        small["stream"] = stream
    large = {
        name: value
        for name in ("external", "older_external", "correlation", "size", "older_size", "awaited", "recorded")
        if (value := getattr(arguments, name)) is not None and abs(value) <= LARGEST
    }
    spoken = {name: getattr(arguments, name) for name in Arguments.__struct_fields__ if name.startswith("group")}
    return Arguments(**small, **large, **spoken, xla_correlation=arguments.xla_correlation)


def _times(events: list[Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Starts and durations in ns, and which of them are known."""
    if not events:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, bool)
    if isinstance(events[0], ChromeEvent):  # then all are: a piece is decoded in one way
        starts, durations = np.array([event.ts for event in events]), np.array([event.dur for event in events])
        timed = np.isfinite(starts) & (np.abs(durations) < EXACT_BELOW)
        return _round_to_ns(starts, timed), _round_to_ns(durations, timed), timed
    pairs = [(nanoseconds(bytes(event.ts)), nanoseconds(bytes(event.dur))) for event in events]
    timed = np.array([start is not None and length is not None and start + length <= LATEST
                      for start, length in pairs])  # fmt: skip
    return (
        np.array([start if known else 0 for (start, _), known in zip(pairs, timed, strict=True)], dtype=np.int64),
        np.array([length if known else 0 for (_, length), known in zip(pairs, timed, strict=True)], dtype=np.int64),
        timed,
    )


def _round_to_ns(micro: np.ndarray, known: np.ndarray) -> np.ndarray:
    micro = np.where(known, micro, 0.0)
    whole = np.floor(micro)
    return whole.astype(np.int64) * 1000 + np.rint((micro - whole) * 1000).astype(np.int64)


def nanoseconds(text: bytes) -> int | None:
    """`b"3869232170605.514"` µs -> 3869232170605514; None for what is no number, or none that 64 bits hold in ns."""
    text = text.strip(b'"')
    plain = DECIMAL.fullmatch(text)
    if plain:
        whole, decimals = plain[1], plain[2] or b""
        nanos = int(whole + decimals.ljust(3, b"0"))
    else:
        try:
            number = Decimal(text.decode("ascii", "replace"))
            if not number.is_finite() or number.adjusted() > 19:
                return None
            nanos = int((number * 1000).to_integral_value())
        except (InvalidOperation, ValueError, OverflowError):
            return None
    return nanos if EARLIEST <= nanos <= LATEST else None
