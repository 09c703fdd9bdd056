"""Counts of `perf stat -j`: one JSON object a line, for the whole program or for every interval (`-I`).

Intervals become samples; sums over the program become metrics of one span. perf writes counts as text, read here as
decimal numbers. A count that perf extrapolated, because counters took turns, is called estimated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import msgspec
import numpy as np

from sonda.imports.text_lines import TextLines
from sonda.imports.trace.marks import BETWEEN
from sonda.imports.trace.readings import ReadingWriter
from sonda.record.errors import SondaError
from sonda.record.files.tables import SpanWriter
from sonda.record.quantities import QUANTITIES, Metric
from sonda.record.spans import Spans, Words

NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
OBJECT = re.compile(rb"\{[^{}]*\}")
"""One of perf's, which have no others in them."""
COUNT = b'"counter-value"'
EVENTS = {
    "task-clock": "task_clock", "page-faults": "page_faults", "faults": "page_faults", "cs": "context_switches",
    "context-switches": "context_switches", "cpu-migrations": "cpu_migrations", "migrations": "cpu_migrations",
    "instructions": "instructions", "branches": "branches", "branch-misses": "branch_misses", "cycles": "cycles",
}  # fmt: skip
"""perf's names of what Sonda counts itself."""
UNITS = {"msec": ("ns", 10**6), "ns": ("ns", 1), "Joules": ("J", 1), "": ("1", 1)}
"""perf's units: Sonda's, and how many of it."""
FULL = 100
LATEST_S = 10**9
LARGEST = Decimal(10) ** 24
"""No count is as large."""
MOST_EVENTS = 1_000
"""perf is not asked for as many; what is named beyond them is left out and counted."""
BAD_LINE = (msgspec.MsgspecError, ValueError, ArithmeticError)
"""What decoding raises for text that is no JSON or no UTF-8, and for numbers that no decimal can hold."""


class PerfCount(msgspec.Struct, gc=False):
    event: str = ""
    value: str = msgspec.field(name="counter-value", default="")
    unit: str = ""
    interval: Decimal | None = None
    """Seconds since perf began, at the end of the interval."""
    running: float = msgspec.field(name="pcnt-running", default=100.0)
    cpu: int | str | None = None


@dataclass
class PerfCounts:
    """What a file says, but for its samples."""

    names: list[str] = field(default_factory=list)
    """Sensor, unit, source and device of samples, as `ReadingWriter` takes them."""
    sums: dict[tuple[str, str], Decimal] = field(default_factory=dict)
    """By event and unit."""
    estimated: set[str] = field(default_factory=set)
    missing: dict[str, int] = field(default_factory=dict)
    """Counts that are not there, by event and reason."""
    said: dict[str, int] = field(default_factory=dict)
    """How many lines each event has."""
    end: int = 0
    """ns of the last interval."""
    repeated: bool = False
    by_cpu: bool = False
    unreadable: int = 0
    """Counts that look like perf's and cannot be read."""
    cut: bool = False
    """The file ends in the middle."""
    _places: dict[str, int] = field(default_factory=dict)

    def place(self, name: str) -> int:
        """Where a name is in `names`."""
        if name not in self._places:
            self._places[name] = len(self.names)
            self.names.append(name)
        return self._places[name]

    def lack(self, reason: str) -> None:
        if len(self.missing) >= MOST_EVENTS and reason not in self.missing:
            self.unreadable += 1
        else:
            self.missing[reason] = self.missing.get(reason, 0) + 1


def read_perf(lines: Iterable[bytes], counts: PerfCounts) -> Iterator[tuple[int, int, float]]:
    """Samples: ns, the place of their name in `counts.names`, value; everything else goes into `counts`.

    A count that output of the program ran into is found where it is whole; one that is not is counted. Other lines are
    passed over. Raises SondaError when there is no count.
    """
    decoder = msgspec.json.Decoder(PerfCount)
    line = b""
    broken = False
    for line in lines:
        broken = False
        if b"{" not in line and COUNT not in line:
            continue
        decoded = _decode_line(decoder, line)
        counted = [entry for entry in decoded if entry.event]
        lost = max(line.count(COUNT) - len(counted), int(not decoded and line.lstrip().startswith(b'{"')))
        broken = lost > 0
        counts.unreadable += lost
        counts.repeated = counts.repeated or (bool(counted) and b'"variance"' in line)
        for entry in counted:
            sample = _add_count(counts, entry)
            if sample is not None:
                yield sample
    if not line.endswith(b"\n") and (broken or line.lstrip() == b"{"):
        counts.cut = True
        counts.unreadable -= int(broken)
    if not counts.said:
        raise SondaError("it holds no counts", "make it with: perf stat -j -o counts.json PROGRAM")


def _decode_line(decoder: msgspec.json.Decoder[PerfCount], line: bytes) -> list[PerfCount]:
    """The objects of a line, where it is one, or holds them among other things."""
    try:
        return [decoder.decode(line)]
    except BAD_LINE:
        pass
    entries = []
    for text in OBJECT.findall(line):
        try:
            entries.append(decoder.decode(text))
        except BAD_LINE:
            continue
    return entries


def _add_count(counts: PerfCounts, line: PerfCount) -> tuple[int, int, float] | None:
    if line.event not in counts.said and len(counts.said) >= MOST_EVENTS:
        counts.unreadable += 1
        return None
    counts.said[line.event] = counts.said.get(line.event, 0) + 1
    counts.by_cpu = counts.by_cpu or line.cpu is not None
    if line.interval is not None and not 0 <= line.interval < LATEST_S:
        counts.lack(f"{line.event} has a time that cannot be")
        return None
    value = Decimal(line.value) if NUMBER.fullmatch(line.value) else LARGEST
    if value >= LARGEST:
        text = line.value[:40]
        counts.lack(f"{line.event} {text.strip('<>') if text.startswith('<') else f'says {text!r}, which is no count'}")
        return None
    unit, factor = UNITS.get(line.unit, (line.unit.replace(BETWEEN, " "), 1))
    key = (line.event, unit)
    counts.sums[key] = counts.sums.get(key, Decimal(0)) + value * factor
    if line.running < FULL:
        counts.estimated.add(line.event)
    if line.interval is None:
        return None
    moment = int(line.interval * 10**9)
    counts.end = max(counts.end, moment)
    source = "estimated" if line.running < FULL else "counted"
    device = "cpu" if line.cpu is None else f"cpu {line.cpu}".replace(BETWEEN, " ")
    return moment, counts.place(BETWEEN.join((line.event, unit, source, device))), float(value * factor)


def counted_span(counts: PerfCounts, name: str) -> tuple[Spans, list[str]]:
    """One span with the sums, and what to know about them."""
    metrics: dict[str, np.ndarray] = {}
    unknown: list[str] = []
    for (event, unit), value in counts.sums.items():
        quantity = EVENTS.get(event, event.replace(":", "."))
        expected = QUANTITIES[quantity].unit if quantity in QUANTITIES else "1"
        if unit not in (expected, "1") or (unit == "1" and expected not in ("1", "cycle")):
            unknown.append(f"{event} {value.normalize():f} {unit}")
            continue
        source = "estimated" if event in counts.estimated else "counted"
        metrics[str(Metric(quantity, source))] = np.array([float(value)])
    spans = Spans({"start": np.array([0]), "duration": np.array([counts.end])},
                  {"kind": Words.of(["run"]), "name": Words.of([name])}, metrics)  # fmt: skip
    notes = [
        f"perf: {reason}{f' in {many:,} intervals' if many > 1 else ''}" for reason, many in counts.missing.items()
    ]
    if counts.cut:
        notes.append("the file ends in the middle: what was counted then is left out")
    if counts.unreadable:
        notes.append(f"{counts.unreadable:,} counts cannot be read: left out")
    most = max(counts.said.values(), default=0)
    for event, times in counts.said.items():
        if times < most and not counts.by_cpu:
            notes.append(f"{event} was counted in {times:,} intervals, others in {most:,}")
    if unknown:
        notes.append(f"perf also says: {', '.join(unknown)}")
    if counts.estimated:
        notes.append(f"counters took turns: {', '.join(sorted(counts.estimated))} estimated from part of the time")
    if counts.repeated:
        notes.append("the counts are means over repetitions (perf stat -r)")
    if not counts.end:
        notes.append("perf stat -j does not say how long the program took: record with -I to have times")
    return spans, notes


def is_perf(head: bytes) -> bool:
    """Whether the first lines of a file are perf's."""
    return any(line.startswith(b"{") and COUNT in line for line in head.splitlines())


def write_counts(path: Path, directory: Path) -> tuple[list[str], bool]:
    """Write the samples and the one span of a file into the directory of a run.

    Returns what to know about it, and whether the file ends in the middle. Raises SondaError when it holds no counts.
    """
    counts = PerfCounts()
    lines = TextLines(path)
    with ReadingWriter(directory, 0) as samples:
        samples.append(read_perf(lines, counts), counts.names)
    counts.cut = counts.cut or lines.cut
    spans, notes = counted_span(counts, path.name)
    with SpanWriter(directory) as writer:
        writer.append(spans)
    return notes, counts.cut
