"""The spans of a modelled step: counts that callgrind wrote at each boundary, added to the phases and layers around."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from sonda.frameworks.collector.callgrind import EMPTY
from sonda.frameworks.reconstruction.assembly import assemble
from sonda.frameworks.reconstruction.events import HEAD, MAGIC, ProcessEvents
from sonda.frameworks.reconstruction.phases import FACTS
from sonda.probes.callgrind.valgrind import EVENT_NAMES, QUANTITIES
from sonda.record.spans import Spans, Words, join_spans

CODE_MASK = (1 << 32) - 1
SPAN_KINDS = ("pass", "step", "phase", "layer")
"""Kinds of span that a modelled step is made of. What was counted under the emulator is not worth keeping."""
Counts = np.ndarray
"""One number per event of `EVENT_NAMES`."""


@dataclass
class Markers:
    """Counts of observing a boundary itself. Every part contains them, and they are subtracted."""

    span: Counts = field(default_factory=lambda: np.zeros(len(EVENT_NAMES)))
    """Between the begin and the end of an empty span."""
    phase: Counts = field(default_factory=lambda: np.zeros(len(EVENT_NAMES)))
    """The same of an empty phase."""


@dataclass
class ModelledStep:
    """One modelled step: its rows, the step first, and how it was modelled."""

    spans: Spans
    part: str
    markers: Markers
    complete: bool
    """False where the program ended before the step did; then only what was complete by then is there."""
    isa: str
    threads: int
    rank: int


def modelled_step(
    events: ProcessEvents, parts: dict[int, dict[str, int]], scratch: Path, begin: int
) -> ModelledStep | None:
    """The modelled step of one process; None where it did not get that far.

    `begin` is when the run began, ns. `scratch` is an empty directory for a file that is written and read back.
    """
    thread = next((identity for identity, pairs in events.threads.items() if _has_pass(events, pairs)), None)
    if thread is None or not parts:
        return None
    counts = {number: np.array([counters.get(name, 0) for name in EVENT_NAMES]) for number, counters in parts.items()}
    counter = _SpanCounter(events, counts)
    # Bits above the code say which counters were read there; none are under the emulator.
    counter.read_pairs((events.threads[thread] & (CODE_MASK, -1)).tolist())
    first = len(events.definitions)
    values = [
        {"id": first + at, "kind": "value", "quantity": QUANTITIES[name], "source": "modelled"}
        for at, name in enumerate(EVENT_NAMES)
    ]
    _write_events(scratch / "0.events", [*events.definitions, *values], events.facts, thread, counter.written)
    assembly = assemble(scratch, begin, begin)
    rank = int(events.fact("rank", 0))
    return ModelledStep(
        spans=_step_table(assembly.spans, counter.whole, rank),
        part=_part_name(assembly.spans),
        markers=counter.markers,
        complete=counter.complete,
        isa=str(events.fact("isa", "")),
        threads=int(events.fact("threads", 1)),
        rank=rank,
    )


def _has_pass(events: ProcessEvents, pairs: np.ndarray) -> bool:
    numbers = [
        definition["id"]
        for definition in events.definitions
        if definition.get("kind") == "pass" and definition.get("name") == "modelled"
    ]
    return bool(np.isin((pairs[:, 0] & CODE_MASK) >> 1, numbers).any())


class _SpanCounter:
    """Reads a thread's events once and adds the counts of every part to the spans around it.

    The counts of a layer include those of the layers inside it. Phases are exclusive: counts of a phase inside another
    one are not in the outer phase.
    """

    def __init__(self, events: ProcessEvents, parts: dict[int, Counts]) -> None:
        self.kind = [str(definition.get("kind", "")) for definition in events.definitions]
        self.name = [str(definition.get("name", "")) for definition in events.definitions]
        self.quantity = [str(definition.get("quantity", "")) for definition in events.definitions]
        self.parts = parts
        self.part = next(at for at, definition in enumerate(events.definitions) if definition.get("quantity") == "part")
        self.first_value = 2 * len(events.definitions)
        self.loss = next((2 * at for at, name in enumerate(self.name)
                          if name == "loss" and self.kind[at] == "phase"), -1)  # fmt: skip
        self.written: list[int] = []
        """Pairs as a collector would have written them, with the counters as values."""
        self.whole = np.zeros(len(EVENT_NAMES))
        self.complete = False
        self.markers = Markers()
        self._open: list[tuple[int, Counts, bool]] = []
        """Spans that are open: code, counters so far, and whether this is the phase that parts belong to."""
        self._inside = False
        self._gap = np.zeros(len(EVENT_NAMES))
        self._after = ("", 0)
        """The phase that ended last, and when."""

    def read_pairs(self, pairs: list[list[int]]) -> None:
        begins = [code for code, _ in pairs]
        self.markers = self._measure_markers(pairs)
        upcoming = [at for at, code in enumerate(begins) if self._is_kind(code, "phase") and not code & 1]
        for at, (code, value) in enumerate(pairs):
            kind = self.kind[code >> 1]
            if code >> 1 == self.part:
                if self._inside and value in self.parts:
                    self._add(self.parts[value] - self._marker_cost(begins, at))
            elif kind == "value":
                if self.quantity[code >> 1] in FACTS:
                    self.written += (code, value)
            elif kind not in SPAN_KINDS:
                continue
            elif not code & 1:
                self._begin(code, value, [begins[index] for index in upcoming if index > at][:1])
            else:
                self._end(code, value)

    def _is_kind(self, code: int, kind: str) -> bool:
        return self.kind[code >> 1] == kind

    def _measure_markers(self, pairs: list[list[int]]) -> Markers:
        costs_by_name: dict[str, list[Counts]] = {"span": [], "phase": []}
        open_name = ""
        for code, value in pairs:
            if self._is_kind(code, "calibration"):
                open_name = "" if code & 1 else self.name[code >> 1]
            elif code >> 1 == self.part and open_name and value in self.parts:
                costs_by_name[open_name].append(self.parts[value])
        costs = [
            np.median(costs_by_name[name][-EMPTY:], axis=0) if costs_by_name[name] else np.zeros(len(EVENT_NAMES))
            for name in costs_by_name
        ]
        return Markers(*costs)

    def _marker_cost(self, codes: list[int], at: int) -> Counts:
        """The counts of observing in a part: those of a phase where the part ends with one, else those of a span."""
        boundary = next((code for code in codes[at + 1 : at + 100] if self.kind[code >> 1] in SPAN_KINDS), 0)
        return self.markers.phase if boundary & 1 and self._is_kind(boundary, "phase") else self.markers.span

    def _add(self, counts: Counts) -> None:
        counts = np.maximum(counts, 0)
        self.whole += counts
        in_phase = False
        for code, sums, takes in self._open:
            in_phase |= self._is_kind(code, "phase")
            if takes:
                sums += counts
        if not in_phase:
            self._gap += counts

    def _begin(self, code: int, time: int, following: Sequence[int]) -> None:
        if self._is_kind(code, "pass"):
            self._inside = self._inside or self.name[code >> 1] == "modelled"
        takes = not self._is_kind(code, "pass")
        if self._is_kind(code, "phase"):
            phases = [index for index, (open_code, _, _) in enumerate(self._open) if self._is_kind(open_code, "phase")]
            if phases:
                in_layer = any(self._is_kind(open_code, "layer") for open_code, _, _ in self._open[phases[-1] + 1 :])
                same = self.name[self._open[phases[-1]][0] >> 1] == self.name[code >> 1]
                takes = not in_layer and not same
                if takes:
                    self._open[phases[-1]] = (*self._open[phases[-1]][:2], False)
            else:
                self._close_gap(self.name[code >> 1], time, following)
        self._open.append((code, np.zeros(len(EVENT_NAMES)), takes))
        self.written += (code, time)

    def _close_gap(self, name: str, time: int, following: Sequence[int]) -> None:
        """Write what ran between a forward and its backward, outside any module, as the loss, as in a timed step."""
        next_name = self.name[following[0] >> 1] if following else ""
        is_loss = self._after[0] == "forward" and (
            name == "backward" or (name == "optimizer" and next_name == "backward")
        )
        if self._inside and is_loss and self.loss >= 0 and time > self._after[1]:
            self.written += (self.loss, self._after[1])
            self._write_values(self._gap)
            self.written += (self.loss + 1, time)
        self._gap = np.zeros(len(EVENT_NAMES))

    def _end(self, code: int, time: int) -> None:
        if self._is_kind(code, "pass") and self.name[code >> 1] == "modelled":
            self._inside = False
            self.complete = True
        if any(open_code == code - 1 for open_code, _, _ in self._open):
            opened, sums, _ = self._open.pop()
            while opened != code - 1:  # an exception left this span without an end: its counts are not known
                opened, sums, _ = self._open.pop()
            if self._inside and (self._is_kind(code, "layer") or self._is_kind(code, "phase")):
                self._write_values(sums)
            if self._is_kind(code, "phase"):
                phases = [
                    index for index, (open_code, _, _) in enumerate(self._open) if self._is_kind(open_code, "phase")
                ]
                if phases:
                    self._open[phases[-1]] = (*self._open[phases[-1]][:2], True)
                else:
                    self._after = (self.name[code >> 1], time)
                    self._gap = np.zeros(len(EVENT_NAMES))
        self.written += (code, time)

    def _write_values(self, counts: Counts) -> None:
        for at, count in enumerate(counts.tolist()):
            self.written += (self.first_value + 2 * at, round(count))


def _write_events(
    path: Path, definitions: list[dict[str, Any]], facts: list[dict[str, Any]], thread: int, pairs: list[int]
) -> None:
    """Write a file like a collector's."""
    records = [(b"D", msgspec.json.encode(record)) for record in (*definitions, *facts)]
    records.append((b"E", struct.pack("<q", thread) + np.array(pairs, dtype="<i8").tobytes()))
    path.write_bytes(MAGIC + b"".join(HEAD.pack(kind, len(payload)) + payload for kind, payload in records))


def _part_name(spans: Spans) -> str:
    """The part that the modelled step belongs to: train, validate or test; '' for none."""
    kind, name, parent = spans.words("kind").decoded(), spans.words("name").decoded(), spans.number("parent")
    for row in np.flatnonzero(spans.where(kind="step", pass_="modelled")).tolist():
        while row >= 0 and kind[row] != "part":
            row = int(parent[row])
        if row >= 0:
            return str(name[row])
    return ""


def _step_table(spans: Spans, whole: Counts, rank: int) -> Spans:
    """The step, then its phases and layers that have counters. Other spans under the emulator are dropped."""
    counted = ~np.isnan(spans.metric("instructions", "modelled"))
    rows = np.flatnonzero(counted & (spans.where(kind="phase") | spans.where(kind="layer")))
    place = np.zeros(len(spans), dtype=np.int64)
    place[rows] = 1 + np.arange(len(rows))
    start, duration = spans.number("start")[rows], spans.number("duration")[rows]
    first = int(start.min(initial=0)) if len(rows) else 0
    last = int((start + duration).max()) if len(rows) else 0
    parent = spans.number("parent")[rows]
    numbers = {
        "start": np.concatenate(([first], start)),
        "duration": np.concatenate(([last - first], duration)),
        "parent": np.concatenate(([-1], place[np.maximum(parent, 0)])),
        **{name: np.concatenate(([0], spans.number(name)[rows])) for name in ("call", "thread")},
        "rank": np.full(1 + len(rows), rank),
    }
    words = {
        name: Words.of([step, *spans.words(name).decoded()[rows]])
        for name, step in (("kind", "step"), ("name", ""), ("path", ""), ("direction", ""))
    }
    words["pass"] = Words.constant("modelled", 1 + len(rows))
    metrics = {
        f"{QUANTITIES[name]}:modelled": np.concatenate(([value], spans.metric(QUANTITIES[name], "modelled")[rows]))
        for name, value in zip(EVENT_NAMES, whole, strict=True)
    }
    return Spans(numbers, words, metrics)


def append_modelled(native: Spans, modelled: Spans) -> Spans:
    """The native spans with the modelled step behind them, whose parent is the run's first span."""
    offset = len(native)
    parent = modelled.number("parent")
    return join_spans(native, modelled, np.where(parent >= 0, parent + offset, 0 if offset else -1))
