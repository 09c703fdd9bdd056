"""Spans of a co-run: windows as epochs, the steps measured in them, their phases and layers.

`rank` is the participant, `call` the number of the window; the name of an epoch says who ran together. Layers are there
for some of the steps, evenly spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sonda.record.spans import Spans, Words

NUMBERS = ("parent", "start", "duration", "rank", "call")
WORDS = ("kind", "name", "path", "direction")


@dataclass(frozen=True)
class WindowMeasurement:
    """One participant in one window: when its measured part began and ended (ns, CLOCK_MONOTONIC)."""

    window: int
    label: str
    slot: int
    begin: int
    end: int
    counters: dict[str, float] = field(default_factory=dict)
    """By column, `quantity:source`."""


class SpanGatherer:
    """Gathers the spans of each process that belong to a window."""

    def __init__(self, origin: int) -> None:
        self.origin = origin
        self.count = 0
        self._numbers: dict[str, list[np.ndarray]] = {name: [] for name in NUMBERS}
        self._codes: dict[str, list[np.ndarray]] = {name: [] for name in WORDS}
        self._words: dict[str, dict[str, int]] = {name: {} for name in WORDS}
        self._metrics: dict[str, list[tuple[int, np.ndarray]]] = {}
        self._add_one("run", "run", -1, 0, 0, 0, 0)

    def add(self, spans: Spans, begin: int, measured: Sequence[WindowMeasurement]) -> None:
        """Add what one process `measured`; `spans` are its own, with times in ns since `begin`."""
        start = spans.number("start") + begin
        end = start + spans.number("duration")
        is_step = spans.where(kind="step")
        inner = spans.where(kind="phase") | spans.where(kind="layer")
        for measurement in measured:
            begun, lasted = measurement.begin - self.origin, measurement.end - measurement.begin
            epoch = self._add_one("epoch", measurement.label, 0, begun, lasted, measurement.slot, measurement.window)
            for column, value in measurement.counters.items():
                self._metric(column, epoch, np.array([value]))
            in_window = is_step & (start >= measurement.begin) & (end <= measurement.end)
            if in_window.any():
                self._add_below(spans, epoch, in_window, inner, start - self.origin, measurement)

    def _add_below(
        self,
        spans: Spans,
        epoch: int,
        steps: np.ndarray,
        inner: np.ndarray,
        start: np.ndarray,
        measurement: WindowMeasurement,
    ) -> None:
        """Add steps and all phases and layers in them. A parent's row comes before those of its children."""
        above = spans.number("parent")
        selected = steps.copy()
        while True:
            extended = selected | (inner & (above >= 0) & selected[above])
            if (extended == selected).all():
                break
            selected = extended
        rows = np.flatnonzero(selected)
        place = np.full(len(spans), -1, dtype=np.int64)
        place[rows] = self.count + np.arange(len(rows))
        parent = np.where(steps[rows], epoch, place[above[rows]])
        words = {}
        for name in WORDS:
            column = spans.words(name)
            code_by_word = self._words[name]
            codes = np.array(
                [code_by_word.setdefault(word, len(code_by_word)) for word in column.words], dtype=np.int32
            )
            words[name] = codes[column.codes[rows]]
        first = self._add(
            parent, start[rows], spans.number("duration")[rows], measurement.slot, measurement.window, words
        )
        phases = spans.where(kind="phase")[rows]
        for metric, values in spans.metrics.items():
            # What was counted of layers is left out: windows and phases have it.
            of_phases = np.where(phases, values[rows], np.nan)
            if not np.isnan(of_phases).all():
                self._metric(metric, first, of_phases)

    def _add_one(self, kind: str, name: str, parent: int, start: int, duration: int, slot: int, window: int) -> int:
        texts = {"kind": kind, "name": name, "path": "", "direction": ""}
        words = {}
        for column, text in texts.items():
            code_by_word = self._words[column]
            words[column] = np.array([code_by_word.setdefault(text, len(code_by_word))], dtype=np.int32)
        return self._add(np.array([parent]), np.array([start]), np.array([duration]), slot, window, words)

    def _add(
        self, parent: np.ndarray, start: np.ndarray, duration: np.ndarray, slot: int, window: int,
        words: dict[str, np.ndarray],
    ) -> int:  # fmt: skip
        first, count = self.count, len(start)
        values = (parent, start, duration, np.full(count, slot), np.full(count, window))
        for name, column in zip(NUMBERS, values, strict=True):
            self._numbers[name].append(column)
        for name, codes in words.items():
            self._codes[name].append(codes)
        self.count += count
        return first

    def _metric(self, column: str, row: int, values: np.ndarray) -> None:
        self._metrics.setdefault(column, []).append((row, values))

    def table(self) -> Spans:
        """The table of all spans."""
        metrics = {}
        for column, pieces in self._metrics.items():
            values = np.full(self.count, np.nan)
            for row, piece in pieces:
                values[row : row + len(piece)] = piece
            metrics[column] = values
        numbers = {name: np.concatenate(pieces) for name, pieces in self._numbers.items()}
        numbers["duration"][0] = int((numbers["start"] + numbers["duration"]).max())
        words = {
            name: Words(np.concatenate(self._codes[name]), tuple(code_by_word))
            for name, code_by_word in self._words.items()
        }
        return Spans(numbers, words, metrics)
