"""Counts of `perf stat -j`: one JSON object a line, for the whole program or for every interval (`-I`).

Intervals become samples; sums over the program become metrics of one span. perf writes counts as text, read here as
decimal numbers. A count that perf extrapolated, because counters took turns, is called estimated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import msgspec
import numpy as np

from sonda.imports.text_lines import TextLines
from sonda.record.errors import SondaError
from sonda.record.quantity import QUANTITIES, Metric
from sonda.record.sample import Sample
from sonda.record.span import Spans, Words

NUMBER = re.compile(r"\d+(?:\.\d+)?")
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


class Line(msgspec.Struct, gc=False):
    event: str = ""
    value: str = msgspec.field(name="counter-value", default="")
    unit: str = ""
    interval: Decimal | None = None
    """Seconds since perf began, at the end of the interval."""
    running: float = msgspec.field(name="pcnt-running", default=100.0)
    cpu: int | str | None = None


@dataclass
class Counts:
    """What a file says."""

    samples: list[Sample] = field(default_factory=list)
    sums: dict[tuple[str, str], Decimal] = field(default_factory=dict)
    """By event and unit."""
    estimated: set[str] = field(default_factory=set)
    missing: dict[str, int] = field(default_factory=dict)
    """Counts that are not there, by event and reason."""
    end: int = 0
    """ns of the last interval."""
    repeated: bool = False
    unreadable: int = 0
    """Lines that begin like perf's and cannot be read."""


def read_perf(lines: Iterable[bytes]) -> Counts:
    """Counts from lines; those that are no JSON object of perf's are passed over. Raises SondaError when all are."""
    counts = Counts()
    decoder = msgspec.json.Decoder(Line)
    seen = 0
    for line in lines:
        if not line.lstrip().startswith(b"{"):
            continue
        try:
            found = decoder.decode(line)
        except (msgspec.MsgspecError, ValueError):
            counts.unreadable += 1
            continue
        if not found.event:
            continue
        seen += 1
        counts.repeated = counts.repeated or b'"variance"' in line
        _take(counts, found)
    if not seen:
        raise SondaError("it holds no counts", "make it with: perf stat -j -o counts.json PROGRAM")
    return counts


def _take(counts: Counts, line: Line) -> None:
    if line.interval is not None and not 0 <= line.interval < LATEST_S:
        counts.missing[f"{line.event} has a time that cannot be"] = 1
        return
    if not NUMBER.fullmatch(line.value):
        said = line.value.strip("<>") if line.value.startswith("<") else f"says {line.value!r}, which is no number"
        reason = f"{line.event} {said}"
        counts.missing[reason] = counts.missing.get(reason, 0) + 1
        return
    unit, factor = UNITS.get(line.unit, (line.unit, 1))
    value = Decimal(line.value) * factor
    key = (line.event, unit)
    counts.sums[key] = counts.sums.get(key, Decimal(0)) + value
    if line.running < FULL:
        counts.estimated.add(line.event)
    if line.interval is None:
        return
    moment = int(line.interval * 10**9)
    counts.end = max(counts.end, moment)
    source = "estimated" if line.running < FULL else "counted"
    device = "cpu" if line.cpu is None else f"cpu {line.cpu}"
    counts.samples.append(Sample(moment, line.event, float(value), unit, source, device=device))


def counted_span(counts: Counts, name: str) -> tuple[Spans, list[str]]:
    """One span with the sums, and what to know about them."""
    metrics: dict[str, np.ndarray] = {}
    other: list[str] = []
    for (event, unit), value in counts.sums.items():
        quantity = EVENTS.get(event, event.replace(":", "."))
        expected = QUANTITIES[quantity].unit if quantity in QUANTITIES else "1"
        if unit not in (expected, "1") or (unit == "1" and expected not in ("1", "cycle")):
            other.append(f"{event} {value.normalize():f} {unit}")
            continue
        source = "estimated" if event in counts.estimated else "counted"
        metrics[str(Metric(quantity, source))] = np.array([float(value)])
    spans = Spans({"start": np.array([0]), "duration": np.array([counts.end])},
                  {"kind": Words.of(["run"]), "name": Words.of([name])}, metrics)  # fmt: skip
    notes = [
        f"perf: {reason}{f' in {many:,} intervals' if many > 1 else ''}" for reason, many in counts.missing.items()
    ]
    if counts.unreadable:
        notes.append(f"{counts.unreadable:,} lines cannot be read: left out")
    if other:
        notes.append(f"perf also says: {', '.join(other)}")
    if counts.estimated:
        notes.append(f"counters took turns: {', '.join(sorted(counts.estimated))} estimated from part of the time")
    if counts.repeated:
        notes.append("the counts are means over repetitions (perf stat -r)")
    if not counts.end:
        notes.append("perf stat -j does not say how long the program took: record with -I to have times")
    return spans, notes


def is_perf(head: bytes) -> bool:
    """Whether the first lines of a file are perf's."""
    return any(line.startswith(b"{") and b'"counter-value"' in line for line in head.splitlines())


def read_file(path: Path) -> tuple[Spans, list[Sample], list[str]]:
    """The span, the samples and the notes of a file; raises SondaError when it holds no counts."""
    counts = read_perf(TextLines(path))
    spans, notes = counted_span(counts, path.name)
    return spans, counts.samples, notes
