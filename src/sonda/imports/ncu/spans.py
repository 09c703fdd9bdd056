"""Kernel launches of Nsight Compute as spans with their counters, written to a run block by block."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from pathlib import Path

import numpy as np

from sonda.imports.ncu.metrics import counted_quantities, duration, is_unasked, precisions, roofs, unknown_metrics
from sonda.imports.ncu.tables import Damage, Launch
from sonda.record.files.tables import SpanWriter
from sonda.record.quantities import Metric
from sonda.record.spans import NUMBER_COLUMNS, TEXT_COLUMNS, Spans, Words

EXACT = 1 << 53
"""Whole numbers below are kept exactly."""
HALF = (
    "half-precision FLOPs are counted by instruction, and one that works on two packed numbers counts once: there may "
    "be up to twice as many"
)
BLOCK = 1 << 12
"""Launches that are held together; each takes some 20 kB until it is written."""
NAMED = 5
"""How many of what is missing are named."""


@dataclass
class Remarks:
    """What to know about launches, gathered while they go by."""

    absent: list[str] = field(default_factory=list)
    """Numbers that are not in the table, the first of them."""
    absents: int = 0
    kinds: dict[str, None] = field(default_factory=dict)
    without_flops: bool = False
    without_duration: int = 0
    half: bool = False
    rounded: bool = False
    lacking: set[str] = field(default_factory=set)
    names: dict[str, None] = field(default_factory=dict)
    before: tuple[int, int] | None = None
    """Table and number of the launch before."""

    def take(self, launch: Launch, values: Mapping[str, Decimal], length: int | None) -> None:
        if self.before is not None and self.before[0] == launch.table:
            gap = range(self.before[1] + 1, launch.number)
            self.absent += [str(number) for number in gap[: NAMED - len(self.absent)]]
            self.absents += len(gap)
        self.before = launch.table, launch.number
        self.kinds |= dict.fromkeys(precisions(launch, values))
        self.without_flops = self.without_flops or "flops" not in values
        self.without_duration += length is None
        self.half = self.half or bool(values.get("flops_half"))
        self.rounded = self.rounded or any(value >= EXACT for name, value in values.items() if name.startswith("flops"))
        self.lacking |= launch.missing
        self.names |= dict.fromkeys(launch.values)

    def notes(self, damage: Damage | None = None) -> list[str]:
        """Sentences; `damage` is what of the table could not be read."""
        notes = ["times under ncu are those of replayed kernels: take counts from here and times from a trace"]
        notes += [] if damage is None else damage.notes()
        if self.absents:
            notes.append(f"launches are missing from the table: {list_first(self.absent, self.absents)}")
        if self.kinds:
            notes.append(f"FLOPs were counted in: {', '.join(self.kinds)}")
        if self.without_flops:
            notes.append(
                "FLOPs are missing where fadd, fmul and ffma of a precision, or a tensor cores' type, were not all "
                "counted"
            )
        if self.without_duration:
            notes.append(f"{self.without_duration:,} launches have no duration: gpu__time_duration.sum was not counted")
        if self.half:
            notes.append(HALF)
        lacking = sorted(name for name in self.lacking if not is_unasked(name))
        if lacking:
            notes.append(f"ncu had no number for {list_first(lacking)}")
        if self.rounded:
            notes.append("counts of 2^53 and more are rounded")
        extra = unknown_metrics(self.names)
        if extra:
            notes.append(f"{len(extra)} metrics are not kept: {list_first(extra)}")
        return notes


def launch_blocks(launches: Iterable[Launch], remarks: Remarks, size: int = BLOCK) -> Iterator[Spans]:
    """A span per launch, one behind the other because ncu does not say when they ran, so many at once.

    Blocks differ in their metrics where launches do. `remarks` is told of every launch.
    """
    rest = iter(launches)
    clock = row = 0
    while block := list(islice(rest, size)):
        spans = _spans(block, remarks, clock, row)
        clock, row = clock + int(spans.number("duration").sum()), row + len(spans)
        yield spans


def launch_spans(launches: Iterable[Launch]) -> Spans:
    """All of them at once."""
    return next(launch_blocks(launches, Remarks(), sys.maxsize), Spans({"start": np.array([])}, {}))


def _spans(block: Sequence[Launch], remarks: Remarks, clock: int, row: int) -> Spans:
    values = [counted_quantities(launch) for launch in block]
    lengths = [duration(launch) for launch in block]
    for launch, counts, length in zip(block, values, lengths, strict=True):
        remarks.take(launch, counts, length)
    durations = np.array([length or 0 for length in lengths], dtype=np.int64)
    many = len(block)
    return Spans(
        {
            "id": np.arange(row, row + many),
            "start": clock + np.cumsum(durations) - durations,
            "duration": durations,
            "stream": np.array([launch.stream for launch in block]),
        },
        {
            "kind": Words.constant("kernel", many),
            "name": Words.of(launch.kernel for launch in block),
            "pass": Words.constant("kernels", many),
            "clock": Words.constant("device", many),
            "device": Words.of(f"cuda:{launch.device}" for launch in block),
        },
        _columns(values, "counted")
        | _columns([roofs(launch, counts) for launch, counts in zip(block, values, strict=True)], "derived"),
    )


def _columns(values: Sequence[Mapping[str, Decimal]], source: str) -> dict[str, np.ndarray]:
    """Columns `quantity:source` from one dictionary per row; NaN where a row has no value."""
    return {
        str(Metric(name, source)): np.array([float(row[name]) if name in row else np.nan for row in values])
        for name in dict.fromkeys(name for row in values for name in row)
    }


def list_first(words: Sequence[str], number: int | None = None) -> str:
    """The first few words, and how many more there are, of `number` in all."""
    more = (len(words) if number is None else number) - NAMED
    return ", ".join(words[:NAMED]) + (f" and {more:,} more" if more > 0 else "")


# ---- Writing the spans of a run -------------------------------------------------------------------------------------


def write_launches(launches: Iterable[Launch], directory: Path, damage: Damage) -> list[str]:
    """Write `spans.parquet` of a run into its directory; returns what to know about the launches.

    Which metrics a launch has is known for all of them only at the end, and every block of the file has the same: so
    blocks wait in files of their own. Raises OSError when the disk is full.
    """
    import pyarrow.feather as feather

    remarks = Remarks()
    metrics: dict[str, None] = {}
    waiting: list[Path] = []
    for number, block in enumerate(launch_blocks(launches, remarks)):
        waiting.append(directory / f"launches-{number}")
        feather.write_feather(block.to_arrow(), str(waiting[-1]), compression="uncompressed")
        metrics |= dict.fromkeys(block.metrics)
    with SpanWriter(directory) as writer:
        for path in waiting:
            block = Spans.from_arrow(feather.read_table(path, memory_map=False), part=True)
            writer.append(_with_metrics(block, metrics))
            path.unlink()
    return remarks.notes(damage)


def _with_metrics(spans: Spans, names: Iterable[str]) -> Spans:
    """The same spans with these metrics in this order."""
    nothing = np.full(len(spans), np.nan)
    return Spans(
        {name: spans.number(name) for name in NUMBER_COLUMNS},
        {name: spans.words(name) for name in TEXT_COLUMNS},
        {name: spans.metrics.get(name, nothing) for name in names},
    )
