"""Launches as spans: every one becomes a kernel with what was counted in it, block by block."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice

import numpy as np

from sonda.imports.ncu_metrics import counted, duration, not_kept, precisions, roofs, unasked
from sonda.imports.ncu_table import Damage, Launch
from sonda.record.quantity import Metric
from sonda.record.span import Spans, Words

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
        said = ["times under ncu are those of replayed kernels: take counts from here and times from a trace"]
        said += [] if damage is None else damage.notes()
        if self.absents:
            said.append(f"launches are missing from the table: {listed(self.absent, self.absents)}")
        if self.kinds:
            said.append(f"FLOPs were counted in: {', '.join(self.kinds)}")
        if self.without_flops:
            said.append(
                "FLOPs are missing where fadd, fmul and ffma of a precision, or a tensor cores' type, were not all "
                "counted"
            )
        if self.without_duration:
            said.append(f"{self.without_duration:,} launches have no duration: gpu__time_duration.sum was not counted")
        if self.half:
            said.append(HALF)
        lacking = sorted(name for name in self.lacking if not unasked(name))
        if lacking:
            said.append(f"ncu had no number for {listed(lacking)}")
        if self.rounded:
            said.append("counts of 2^53 and more are rounded")
        extra = not_kept(self.names)
        if extra:
            said.append(f"{len(extra)} metrics are not kept: {listed(extra)}")
        return said


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
    values = [counted(launch) for launch in block]
    lengths = [duration(launch) for launch in block]
    for launch, one, length in zip(block, values, lengths, strict=True):
        remarks.take(launch, one, length)
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
        | _columns([roofs(launch, one) for launch, one in zip(block, values, strict=True)], "derived"),
    )


def _columns(values: Sequence[Mapping[str, Decimal]], source: str) -> dict[str, np.ndarray]:
    """Columns `quantity:source` from one dictionary per row; NaN where a row has no value."""
    return {
        str(Metric(name, source)): np.array([float(one[name]) if name in one else np.nan for one in values])
        for name in dict.fromkeys(name for one in values for name in one)
    }


def listed(words: Sequence[str], number: int | None = None) -> str:
    """The first of them, and how many more there are, of `number` in all."""
    more = (len(words) if number is None else number) - NAMED
    return ", ".join(words[:NAMED]) + (f" and {more:,} more" if more > 0 else "")
