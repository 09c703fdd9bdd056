"""Spans of an experiment with several programs: windows as epochs, the steps measured in them, the phases of steps.

`rank` is the participant, `call` of an epoch the number of its window, its name who ran together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sonda.record.span import Spans, Words


@dataclass
class _Rows:
    parent: list[np.ndarray] = field(default_factory=list)
    start: list[np.ndarray] = field(default_factory=list)
    duration: list[np.ndarray] = field(default_factory=list)
    rank: list[np.ndarray] = field(default_factory=list)
    call: list[np.ndarray] = field(default_factory=list)
    kind: list[str] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    metrics: dict[str, list[tuple[int, np.ndarray]]] = field(default_factory=dict)
    count: int = 0


@dataclass(frozen=True)
class Measured:
    """One participant in one window: when its measured part began and ended (ns, CLOCK_MONOTONIC)."""

    window: int
    label: str
    slot: int
    begin: int
    end: int
    counters: dict[str, float]


class SpanGatherer:
    """Takes what each process saw and keeps what belongs to a window."""

    def __init__(self, origin: int) -> None:
        self.origin = origin
        self._rows = _Rows()
        self._add("run", "run", np.array([-1]), np.array([0]), np.array([0]), 0, 0)

    def add(self, spans: Spans, begin: int, measured: Sequence[Measured]) -> None:
        """`spans` of one process, whose times count from `begin`."""
        start = spans.number("start") + begin
        end = start + spans.number("duration")
        is_step = spans.where(kind="step")
        phases = np.flatnonzero(spans.where(kind="phase"))
        names = spans.words("name")
        for one in measured:
            epoch = self._add("epoch", one.label, np.array([0]), np.array([one.begin - self.origin]),
                              np.array([one.end - one.begin]), one.slot, one.window)  # fmt: skip
            for name, value in one.counters.items():
                self._metric(f"{name}:counted", epoch, np.array([value]))
            steps = np.flatnonzero(is_step & (start >= one.begin) & (end <= one.end))
            if not len(steps):
                continue
            first = self._add("step", "step", np.full(len(steps), epoch), start[steps] - self.origin,
                              end[steps] - start[steps], one.slot, one.window)  # fmt: skip
            place = np.full(len(spans), -1)
            place[steps] = first + np.arange(len(steps))
            own = phases[place[spans.number("parent")[phases]] >= 0]
            words = [names.words[code] for code in names.codes[own]]
            row = self._add(words, words, place[spans.number("parent")[own]], start[own] - self.origin,
                            end[own] - start[own], one.slot, one.window)  # fmt: skip
            for column, values in spans.metrics.items():
                kept = values[own]
                if not np.isnan(kept).all():
                    self._metric(column, row, kept)

    def _add(
        self,
        kind: str | list[str],
        name: str | list[str],
        parent: np.ndarray,
        start: np.ndarray,
        duration: np.ndarray,
        slot: int,
        window: int,
    ) -> int:
        rows = self._rows
        first, count = rows.count, len(start)
        rows.parent.append(parent)
        rows.start.append(start)
        rows.duration.append(duration)
        rows.rank.append(np.full(count, slot))
        rows.call.append(np.full(count, window))
        rows.kind += [kind] * count if isinstance(kind, str) else ["phase"] * count
        rows.name += [name] * count if isinstance(name, str) else name
        rows.count += count
        return first

    def _metric(self, column: str, row: int, values: np.ndarray) -> None:
        self._rows.metrics.setdefault(column, []).append((row, values))

    def table(self) -> Spans:
        """All of it."""
        rows = self._rows
        metrics = {}
        for column, pieces in rows.metrics.items():
            values = np.full(rows.count, np.nan)
            for row, piece in pieces:
                values[row : row + len(piece)] = piece
            metrics[column] = values
        end = int(max((start + duration).max() for start, duration in zip(rows.start, rows.duration, strict=True)
                      if len(start)))  # fmt: skip
        durations = np.concatenate(rows.duration)
        durations[0] = end
        return Spans(
            {
                "start": np.concatenate(rows.start),
                "duration": durations,
                "parent": np.concatenate(rows.parent),
                "rank": np.concatenate(rows.rank),
                "call": np.concatenate(rows.call),
            },
            {"kind": Words.of(rows.kind), "name": Words.of(rows.name)},
            metrics,
        )
