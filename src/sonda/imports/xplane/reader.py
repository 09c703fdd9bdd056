"""Profiles as raw events: what every event of an XSpace file becomes in a run.

Planes named `/host:…` hold threads, planes named `/device:GPU:N` hold streams. Other lines of a device say again what
its streams say, by step or by module, and other devices' lines are not known: both are counted and left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sonda.imports.trace.devices import COPIES, DEVICE, STREAM
from sonda.imports.trace.ranks import RankEvents
from sonda.imports.trace.raw_events import (
    ABSENT,
    CALL,
    COLLECTIVE,
    COMPILE,
    COPY,
    EARLIEST,
    KERNEL,
    LATEST,
    OP,
    RAW,
    STEP,
    EventTables,
    is_collective,
)
from sonda.imports.trace.spill import Spill
from sonda.imports.xplane.file import open_space
from sonda.imports.xplane.names import BETWEEN, EventMeaning, device_path, host_meaning, launch_name
from sonda.imports.xplane.planes import EventBlock, XLine, XPlane, XSpace
from sonda.imports.xplane.steps import FoundSteps, StepFinder
from sonda.record.progress import Say
from sonda.record.spans import Spans, Words

HOST = "/host:"
LEFT_OUT = -1
SIZE = re.compile(r"\bsize:(\d{1,18})")
"""In `memcpy_details` and `memset_details`."""
VERSIONS = ("cuda_runtime_version", "cuda_driver_version", "jax_version", "jaxlib_version")
BACKWARD = re.compile(r"(?:^|/)(?:gradient_tape|gradients)/|transpose\(")
"""In paths of operations that compute gradients: TensorFlow's scopes, JAX' transformation."""


@dataclass
class _Reading:
    """A file on its way into a spill."""

    source: EventTables
    spill: Spill
    steps: StepFinder = field(default_factory=StepFinder)
    meanings: dict[int, EventMeaning] = field(default_factory=dict)
    """Of the line that is being read, by metadata."""


def read_xplane(path: Path, directory: Path, number: int, say: Say) -> RankEvents:
    """Spill the events of one profile into `directory`; `number` makes names of files that no other profile has.

    A file that ends in the middle gives what it has. Raises SondaError when it is no profile or cannot be read.
    """
    say(f"reading {path.name}")
    reading = _Reading(EventTables(), Spill(directory / f"events-{number}"))
    with open_space(path) as space:
        with reading.spill:
            for plane in space.planes:
                for line in plane.lines:
                    _spill_line(reading, plane, line)
            found_steps = [] if reading.steps.marked else reading.steps.steps()
            for steps in found_steps:
                reading.spill.add(_step_rows(reading.source, steps))
        lost = sum(line.unreadable for plane in space.planes for line in plane.lines)
        reading.source.leave_out("cannot be read", lost)
        return RankEvents(
            path.name, [reading.spill], reading.source, _head(space, reading.steps, found_steps), number,
            space.truncated, finish=split_paths, notes=_notes(space, found_steps),
        )  # fmt: skip


def split_paths(spans: Spans) -> Spans:
    """Spans whose names hold paths, with the two apart, and the direction that the path tells."""
    both = spans.words("name")
    pairs = [word.partition(BETWEEN)[::2] for word in both.words]
    words = {"name": [name for name, _ in pairs], "path": [path for _, path in pairs],
             "direction": ["backward" if BACKWARD.search(path) else "" for _, path in pairs]}  # fmt: skip
    columns = {}
    for column, values in words.items():
        used = Words.of(values)
        columns[column] = Words(used.codes[both.codes], used.words)
    unchanged = {name: spans.words(name) for name in ("kind", "pass", "node", "device", "clock")}
    numbers = {name: spans.number(name) for name in ("id", "parent", "call", "rank", "thread", "stream", "start",
                                                     "duration")}  # fmt: skip
    return Spans(numbers, unchanged | columns, spans.metrics)


def _spill_line(reading: _Reading, plane: XPlane, line: XLine) -> None:
    device = DEVICE.search(plane.name)
    stream = STREAM.match(line.name) if device is not None and device[1] == "GPU" else None
    if device is not None and stream is None:
        reading.source.leave_out("are on lines of a device that are no streams", line.count)
        return
    if device is None and not plane.name.startswith(HOST):
        reading.source.leave_out("are on planes that are neither a host nor a device", line.count)
        return
    reading.meanings = {}
    for block in line.blocks():
        timed = block.timed & _has_possible_start(block)
        reading.source.leave_out("have no time that can be read", int((~timed).sum()))
        if device is not None and stream is not None:
            reading.spill.add(_device_rows(reading, block, timed, int(device[2]), int(stream[1])))
        else:
            reading.spill.add(_host_rows(reading, block, timed))


def _has_possible_start(block: EventBlock) -> np.ndarray:
    start = block.start_ns
    return (start >= EARLIEST) & (start <= LATEST - (1 << 53))


def _rows(block: EventBlock) -> np.ndarray:
    rows = np.zeros(len(block), RAW)
    rows["start"], rows["duration"] = block.start_ns, block.duration_ns
    for name in ("correlation", "external", "bytes", "stream", "device"):
        rows[name] = ABSENT
    return rows


def _host_rows(reading: _Reading, block: EventBlock, timed: np.ndarray) -> np.ndarray:
    source, plane, line = reading.source, block.line.plane, block.line
    thread = source.places[plane.name, line.number]
    numbers, inverse = np.unique(block.metadata, return_inverse=True)
    names: list[tuple[int, str]] = []
    kinds, places = np.empty(len(numbers), np.int64), np.zeros(len(numbers), np.int64)
    for at, metadata in enumerate(numbers.tolist()):
        about = plane.about(metadata)
        meaning = reading.meanings.get(metadata)
        if meaning is None:
            meaning = reading.meanings[metadata] = host_meaning(about.name, about.shown, line.name)
        names.append((metadata, about.name))
        kinds[at] = LEFT_OUT if meaning.kind is None else meaning.kind
        if meaning.kind is None:
            source.leave_out(meaning.reason, int((timed & (inverse == at)).sum()))
        else:
            places[at] = source.names[f"{meaning.name}{BETWEEN}{meaning.path}"]
    shown = timed & (kinds[inverse] != LEFT_OUT)
    rows = _rows(block)
    rows["thread"], rows["kind"], rows["name"] = thread, np.maximum(kinds, OP)[inverse], places[inverse]
    correlation = block.numbers("correlation_id")
    calls = shown & (correlation >= 0) & (rows["kind"] == OP)
    _rename(source, rows, calls, lambda name, path: (launch_name(name), path))
    rows["correlation"][calls] = correlation[calls]
    rows["kind"][calls] = CALL
    _name_instructions(reading, block, rows, shown & ~calls & (rows["kind"] == OP))
    marked = shown & block.has("step_num") & (rows["kind"] == OP)
    if marked.any():
        reading.steps.mark()
        rows["kind"][marked] = STEP
    reading.steps.watch(thread, block, names, shown)
    compiling = shown & (rows["kind"] == COMPILE)
    reading.steps.add_compilations(thread, rows["start"][compiling], (rows["start"] + rows["duration"])[compiling])
    return rows[shown]


def _rename(
    source: EventTables, rows: np.ndarray, chosen: np.ndarray, how: Callable[[str, str], tuple[str, str]]
) -> None:
    """Give the chosen rows the names and paths that `how` makes of theirs."""
    if not chosen.any():
        return
    used, inverse = np.unique(rows["name"][chosen], return_inverse=True)
    names = list(source.names)
    renamed = [source.names[BETWEEN.join(how(*names[place].split(BETWEEN, 1)))] for place in used.tolist()]
    rows["name"][chosen] = np.array(renamed)[inverse]


def _name_instructions(reading: _Reading, block: EventBlock, rows: np.ndarray, candidates: np.ndarray) -> None:
    """Give a path to instructions of XLA that the host executes."""
    source = reading.source
    instruction, instructions = block.texts("hlo_op")
    module, modules = block.texts("hlo_module")
    mine = np.flatnonzero(candidates & (instruction >= 0))
    if not len(mine):
        return
    keys = (module[mine] + 1) * len(instructions) + instruction[mine]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    names, renamed = list(source.names), []
    for place in mine[first].tolist():
        path = device_path("", modules[module[place]] if module[place] >= 0 else "", instructions[instruction[place]])
        renamed.append(source.names[f"{names[rows['name'][place]].split(BETWEEN, 1)[0]}{BETWEEN}{path}"])
    rows["name"][mine] = np.array(renamed)[inverse]
    reading.steps.add_work(rows[mine], module[mine], modules)


def _device_rows(reading: _Reading, block: EventBlock, timed: np.ndarray, device: int, stream: int) -> np.ndarray:
    source, plane = reading.source, block.line.plane
    texts = [block.texts(name) for name in ("tf_op", "hlo_module", "hlo_op")]
    first, inverse = _distinct(block.metadata, *(which for which, _ in texts))
    kinds, places = np.empty(len(first), np.int8), np.empty(len(first), np.int32)
    for at, row in enumerate(first.tolist()):
        name = plane.about(int(block.metadata[row])).name
        labels = [words[which[row]] if which[row] >= 0 else "" for which, words in texts]
        kinds[at] = COPY if COPIES.match(name) else COLLECTIVE if is_collective(name) else KERNEL
        places[at] = source.names[f"{name}{BETWEEN}{device_path(*labels)}"]
    rows = _rows(block)
    rows["kind"], rows["name"] = kinds[inverse], places[inverse]
    rows["correlation"] = block.numbers("correlation_id")
    rows["device"], rows["stream"] = min(device, (1 << 15) - 1), stream if stream < 1 << 31 else ABSENT
    _write_sizes(block, rows)
    module, modules = texts[1]
    reading.steps.add_work(rows[timed], module[timed], modules)
    return rows[timed]


def _distinct(*columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows that are the first of their kind, and of every row its kind."""
    # Folded one column at a time, because sorting whole rows is many times slower.
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, inverse = np.unique(column, return_inverse=True)
        codes = np.unique(codes * len(values) + inverse, return_inverse=True)[1]
    return np.unique(codes, return_index=True)[1], codes


def _write_sizes(block: EventBlock, rows: np.ndarray) -> None:
    for name in ("memcpy_details", "memset_details"):
        which, words = block.texts(name)
        if words:
            sizes = [int(match[1]) if (match := SIZE.search(word)) else ABSENT for word in words]
            rows["bytes"] = np.where(which >= 0, np.array(sizes)[which], rows["bytes"])


def _step_rows(source: EventTables, steps: FoundSteps) -> np.ndarray:
    rows = np.zeros(len(steps.starts), RAW)
    rows["start"], rows["duration"] = steps.starts, steps.ends - steps.starts
    for name in ("correlation", "external", "bytes", "stream", "device"):
        rows[name] = ABSENT
    rows["thread"], rows["kind"], rows["name"] = steps.thread, STEP, source.names[f"{steps.name}{BETWEEN}"]
    return rows


def _head(space: XSpace, steps: StepFinder, found_steps: list[FoundSteps]) -> dict[str, Any]:
    """What the file says about itself, in the words of Kineto's traces."""
    devices: list[dict[str, str]] = []
    head: dict[str, Any] = {"baseTimeNanoseconds": space.began_ns}
    for plane in space.planes:
        stats = plane.stats
        if isinstance(stats.get("gpu_device_name"), str):
            devices.append({"name": str(stats["gpu_device_name"])})
        head.update({name: str(stats[name]) for name in VERSIONS if name in stats})
    traced = {name: {"calls": calls, "traced": anew} for name, (calls, anew) in steps.traced().items()}
    how = "marked" if steps.marked else found_steps[0].how if found_steps else ""
    return head | {"deviceProperties": devices, "profile": {"steps": how, "traced": traced}}


def _notes(space: XSpace, found_steps: list[FoundSteps]) -> list[str]:
    notes = [f"the profiler said: {error}" for error in space.errors[:3]]
    if found_steps:
        notes.append(f"the profile marks no steps: a step is taken {found_steps[0].how}")
    if any(plane.truncated and not plane.events and plane.lines for plane in space.planes):
        notes.append("the names of events stand behind the place where the file ends: they are numbered instead")
    return notes
