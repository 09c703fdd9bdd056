"""New spans inside calls that were profiled: phases and layers of a compiled function, and its costs.

Phases are not nested: the row of the call becomes the first of its phases, and rows of the others are appended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sonda.frameworks.harness.attribution import Piece, lay_out
from sonda.record.spans import NUMBER_COLUMNS, TEXT_COLUMNS, Spans, Words, join_spans


class _Row(NamedTuple):
    """A new span. `parent` is a row of the whole table; the thread and the rank are those of the row `of`."""

    of: int
    parent: int
    start: int
    end: int
    kind: str
    name: str
    path: str = ""
    direction: str = ""
    pass_: str = "pieces"
    flops: float = np.nan
    bytes: float = np.nan


class CountedOperation(NamedTuple):
    """An operation of a counted step: its phase and path, its name, its FLOPs (NaN: not known) and bytes."""

    phase: str
    path: str
    name: str
    flops: float
    bytes: float


class CallLayers:
    """Gathers new spans of calls; `table` gives the old and the new ones."""

    def __init__(self, spans: Spans) -> None:
        self.spans = spans
        self._rows: list[_Row] = []
        self._firsts: dict[int, tuple[str, int]] = {}
        """Name and end of the first phase of calls, by their rows."""
        self._begins: dict[int, int] = {}
        """New begins of steps, by their rows."""
        self._left_out: set[int] = set()
        """Steps by their rows."""

    def _add(self, row: _Row) -> int:
        self._rows.append(row)
        return len(self.spans) + len(self._rows) - 1

    def lay_out(self, call: int, pieces: Sequence[Piece], classes: Mapping[str, str]) -> int:
        """Put phases and layers in the place of a call, whose row is given; returns the ns of all pieces together.

        `classes` are those of layers that hold others, by path.
        """
        begin, step = int(self.spans.number("start")[call]), int(self.spans.number("parent")[call])
        end = begin + int(self.spans.number("duration")[call])
        rows: list[int] = []
        for laid in lay_out(begin, end, pieces, classes):
            if not rows:
                self._firsts[call] = (laid.name, laid.end)
                rows.append(call)
                continue
            parent = rows[laid.inside] if laid.inside >= 0 else step
            rows.append(
                self._add(_Row(call, parent, laid.start, laid.end, laid.kind, laid.name, laid.path, laid.direction))
            )
        return sum(piece.lasted for piece in pieces)

    def shorten(self, call: int, lasted: int) -> None:
        """Shorten a call to `lasted` ns, the time of its operations, as for calls that are laid out."""
        names = self.spans.words("name")
        self._firsts[call] = (names.words[names.codes[call]], int(self.spans.number("start")[call]) + lasted)

    def leave_out(self, call: int) -> None:
        """Leave the step of a call out of all figures, by putting it into the pass `warmup`."""
        self._left_out.add(int(self.spans.number("parent")[call]))

    def begin_with_calls(self) -> None:
        """Let steps with calls that were laid out begin with their first phase: before it the profiler started."""
        start, parent = self.spans.number("start"), self.spans.number("parent")
        steps = np.unique(parent[list(self._firsts)]) if self._firsts else np.zeros(0, dtype=np.int64)
        for phase in np.flatnonzero(self.spans.where(kind="phase") & np.isin(parent, steps)).tolist():
            step = int(parent[phase])
            self._begins[step] = min(int(start[phase]), self._begins.get(step, int(start[phase])))

    def count(self, after: int, operations: Iterable[CountedOperation], classes: Mapping[str, str]) -> None:
        """Add a counted step, which takes no time, at the end of the part or epoch of the step in row `after`.

        `classes` are those of layers, by path.
        """
        around = int(self.spans.number("parent")[after])
        at = int(self.spans.number("start")[around] + self.spans.number("duration")[around])
        name = str(self.spans.words("name").decoded()[after])

        def add(parent: int, kind: str, name: str, **more: object) -> int:
            return self._add(_Row(after, parent, at, at, kind, name, pass_="count", **more))  # type: ignore[arg-type]

        step = add(around, "step", name)
        phases: dict[str, int] = {}
        layers: dict[tuple[str, str], int] = {}
        for operation in operations:
            if operation.phase not in phases:
                phases[operation.phase] = add(step, "phase", operation.phase)
            holder = phases[operation.phase]
            direction = "backward" if operation.phase == "backward" else "forward"
            parts = operation.path.split(".") if operation.path else []
            for count in range(1, len(parts) + 1):
                path = ".".join(parts[:count])
                if path in classes and (count == len(parts) or direction == "forward"):
                    if (operation.phase, path) not in layers:
                        layers[operation.phase, path] = add(
                            holder, "layer", classes[path], path=path, direction=direction
                        )
                    holder = layers[operation.phase, path]
            add(holder, "op", operation.name, flops=operation.flops, bytes=operation.bytes)

    def table(self) -> Spans:
        spans = self._with_first_phases() if self._firsts or self._left_out else self.spans
        if not self._rows:
            return spans
        rows = self._rows
        origins = np.array([row.of for row in rows], dtype=np.int64)
        added = Spans(
            {
                "start": np.array([row.start for row in rows]),
                "duration": np.array([row.end - row.start for row in rows]),
                **{name: spans.number(name)[origins] for name in ("rank", "thread")},
            },
            {
                **{
                    name: Words.of(getattr(row, name) for row in rows) for name in ("kind", "name", "path", "direction")
                },
                "pass": Words.of(self._row_pass(row) for row in rows),
            },
            {
                f"{name}:nominal": np.array([getattr(row, name) for row in rows])
                for name in ("flops", "bytes")
                if any(row.kind == "op" for row in rows)
            },
        )
        return join_spans(spans, added, np.array([row.parent for row in rows], dtype=np.int64))

    def _row_pass(self, row: _Row) -> str:
        return "warmup" if int(self.spans.number("parent")[row.of]) in self._left_out else row.pass_

    def _pass_words(self) -> Words:
        """The passes of the old spans, with `warmup` for steps that are left out."""
        if not self._left_out:
            return self.spans.words("pass")
        parent = self.spans.number("parent")
        inside = np.isin(np.arange(len(parent)), list(self._left_out))
        while (below := ~inside & (parent >= 0) & inside[parent]).any():
            inside |= below
        return Words.of(np.where(inside, "warmup", self.spans.words("pass").decoded()).tolist())

    def _with_first_phases(self) -> Spans:
        """The old spans, where calls have become their first phases. Counts of the whole call are dropped there."""
        spans = self.spans
        names, lasted = spans.words("name").decoded().astype(object), spans.number("duration").copy()
        start = spans.number("start").copy()
        for row, begin in self._begins.items():
            lasted[row] -= begin - start[row]
            start[row] = begin
        for row, (name, end) in self._firsts.items():
            names[row], lasted[row] = name, end - int(spans.number("start")[row])
        rows = list(self._firsts)
        metrics = {column: values.copy() for column, values in spans.metrics.items()}
        for values in metrics.values():
            values[rows] = np.nan
        numbers = {name: spans.number(name) for name in NUMBER_COLUMNS} | {"duration": lasted, "start": start}
        words = {name: spans.words(name) for name in TEXT_COLUMNS}
        words |= {"name": Words.of(names.tolist()), "pass": self._pass_words()}
        return Spans(numbers, words, metrics)
