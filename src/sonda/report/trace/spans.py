"""The spans of a run in the order in which they are drawn: track by track, parents before children.

They are sorted outside memory, so a run of any size can be drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np

from sonda.record.files.rows import RowFile, SortedRows
from sonda.record.files.tables import read_blocks
from sonda.record.run import Run
from sonda.record.spans import TEXT_COLUMNS, Spans
from sonda.report.trace.counters import CounterRows
from sonda.report.trace.tracks import TRACK_WORDS, Lanes, Track, fold_rows, in_cycles, timed_spans, track, track_columns

NUMBERS = ("parent", "call")
WORDS = ("name", "kind", "path", "direction", "pass")
THREAD = np.dtype([("thread", np.int64)])
AT_ONCE = 1 << 16
"""Spans that are handed out together, at most."""


class DrawnSpans:
    """Spans of a run, sorted. To be closed.

    A row of `blocks` has `code` (of its track), `start`, `shorter` (minus the duration), `id`, `parent`, `call`, the
    numbers of its words in `words`, and its metrics.
    """

    def __init__(self, run: Run) -> None:
        self.words: dict[str, list[str]] = {name: [] for name in TEXT_COLUMNS}
        self.tracks: list[Track] = []
        self.threads: dict[tuple[int, int], int] = {}
        """By track and lane, in the order in which they are drawn, counted from 1."""
        self._known: dict[str, dict[str, int]] = {name: {} for name in TEXT_COLUMNS}
        self._stack = ExitStack()
        self._lanes = self._stack.enter_context(RowFile(THREAD))
        self.counters: CounterRows | None = None
        """Without a clock there are no rates."""
        self.count = 0
        """Of all spans."""
        blocks = _source(run)
        keys: set[tuple[int, ...]] = set()
        self.metrics: tuple[str, ...] = ()
        for spans in blocks():
            self.metrics = tuple(spans.metrics)
            for name in TEXT_COLUMNS:
                known = self._known[name]
                for word in spans.words(name).words:
                    known.setdefault(word, len(known))
            columns = self._columns(spans)
            keys |= {tuple(int(column[row]) for column in columns) for row in fold_rows(columns)[1]}
        self.words = {name: list(known) for name, known in self._known.items()}
        ordered = sorted(keys)
        self.tracks = [track(key, self.words) for key in ordered]
        self._rows = self._stack.enter_context(SortedRows(self._shape(), ("code", "start", "shorter", "id")))
        if not in_cycles(run):
            self.counters = self._stack.enter_context(CounterRows(self.metrics))
        self._sort(blocks, {key: code for code, key in enumerate(ordered)})
        self._thread()

    def __enter__(self) -> DrawnSpans:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def blocks(self) -> Iterator[tuple[np.ndarray, list[int]]]:
        """All spans in their order, each with its thread."""
        at = 0
        for rows in self._rows.blocks():
            for begin in range(0, len(rows), AT_ONCE):
                some = rows[begin : begin + AT_ONCE]
                yield some, self._lanes.read(at, at + len(some))["thread"].tolist()
                at += len(some)

    def metric(self, rows: np.ndarray, number: int) -> np.ndarray:
        """The values of the metric with this number in `metrics`."""
        values: np.ndarray = rows[f"metric {number}"]
        return values

    def _columns(self, spans: Spans) -> list[np.ndarray]:
        return track_columns(spans, {name: self._codes(spans, name) for name in TRACK_WORDS})

    def _codes(self, spans: Spans, name: str) -> np.ndarray:
        """The words of a block by their numbers in the whole run."""
        column, known = spans.words(name), self._known[name]
        codes: np.ndarray = np.array([known[word] for word in column.words], dtype=np.int64)[column.codes]
        return codes

    def _shape(self) -> np.dtype:
        fields: list[tuple[str, type]] = [(name, np.int64) for name in ("code", "start", "shorter", "id", *NUMBERS)]
        fields += [(name, np.int32) for name in WORDS]
        fields += [(f"metric {number}", np.float64) for number in range(len(self.metrics))]
        return np.dtype(fields)

    def _sort(self, blocks: Callable[[], Iterator[Spans]], codes: dict[tuple[int, ...], int]) -> None:
        shape = self._shape()
        # Metrics of a place go on whatever the pass: its counters have no track for each.
        places = {key: number for number, key in enumerate(dict.fromkeys(key[:5] for key in codes))}
        place_of = np.array([places[key[:5]] for key in codes], dtype=np.int64)
        if self.counters is not None:
            self.counters.places = [
                (place.node, place.rank, place.clock, place.name)
                for place in (track((*key, -1), self.words) for key in places)
            ]  # fmt: skip
        first = 0
        for spans in blocks():
            columns = self._columns(spans)
            local, rows = fold_rows(columns)
            mine = np.array([codes[tuple(int(column[row]) for column in columns)] for row in rows], dtype=np.int64)
            made = np.zeros(len(spans), dtype=shape)
            made["code"] = mine[local] if len(mine) else 0
            made["start"], made["shorter"] = spans.number("start"), -spans.number("duration")
            made["id"] = spans.number("id")
            for name in NUMBERS:
                made[name] = spans.number(name)
            for name in WORDS:
                made[name] = self._codes(spans, name)
            for number, name in enumerate(self.metrics):
                made[f"metric {number}"] = spans.metrics[name]
            self._rows.add(made)
            if self.counters is not None and len(made):
                self.counters.add(spans, place_of[made["code"]], first)
            first += len(spans)
        self.count = first

    def _thread(self) -> None:
        """Give every span a lane of its track, and every lane that is used a number."""
        lanes = Lanes()
        for rows in self._rows.blocks():
            lane = lanes.assign(rows["code"], rows["start"], -rows["shorter"])
            threads = [
                self.threads.setdefault(key, len(self.threads) + 1)
                for key in zip(rows["code"].tolist(), lane, strict=True)
            ]
            self._lanes.append(np.array([(thread,) for thread in threads], dtype=THREAD))


def _source(run: Run) -> Callable[[], Iterator[Spans]]:
    """The spans in blocks, as often as wanted. What is in memory already, or has no times, is one."""
    if "spans" in run.__dict__ or in_cycles(run):
        whole = timed_spans(run)
        return lambda: iter([whole])
    return lambda: read_blocks(run, None)
