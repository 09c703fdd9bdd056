"""Operations of a profile: how often each ran, how long, and where, on the host or on a device."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sonda.analysis.device.kernels import on_device as activities
from sonda.analysis.traces.step_breakdown import COMMUNICATION, INPUT, OPERATIONS
from sonda.record.conventions.profile_names import PIPELINE_PATH
from sonda.record.spans import Spans

NONE = -1
PLACES = ("host", "device")


@dataclass
class OperationTotals:
    """All calls of one operation, times in ns."""

    name: str
    """Its type."""
    path: str
    """Where it stands in the model."""
    place: str
    """host or device."""
    calls: int = 0
    total: int = 0
    own: int = 0
    """Without the operations inside it."""
    in_steps: int = 0
    """Own time of calls that begin in a step."""

    @property
    def in_pipeline(self) -> bool:
        """Whether it prepares input that a step will ask for."""
        return self.path.startswith(f"{PIPELINE_PATH}/")


@dataclass
class OperationTable:
    """Collects blocks of spans, which must come in the order of time and with the rows of the whole run."""

    _found: dict[tuple[str, str, str], int] = field(default_factory=dict)
    _totals: list[OperationTotals] = field(default_factory=list)
    _open: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By row: until when a span lasts, and the operation that it is or lies in."""

    def feed(self, spans: Spans, kinds: np.ndarray, in_step: np.ndarray) -> None:
        """A block, the classes of its spans, and which of them begin in a step."""
        if not len(spans):
            return
        on_device = np.zeros(len(spans), dtype=bool)
        on_device[activities(spans)] = True
        path = spans.words("path")
        ahead = np.array([word.startswith(f"{PIPELINE_PATH}/") for word in path.words])[path.codes]
        mine = np.flatnonzero(on_device | ahead | np.isin(kinds, (OPERATIONS, INPUT, COMMUNICATION)))
        operation = np.full(len(spans), NONE, np.int64)
        operation[mine] = self._numbered(spans, mine, on_device)
        duration = spans.number("duration")
        calls = np.bincount(operation[mine], minlength=len(self._totals))
        time = np.bincount(operation[mine], duration[mine], len(self._totals)).astype(np.int64)
        stepping = mine[in_step[mine]]
        stepped = np.bincount(operation[stepping], duration[stepping], len(self._totals)).astype(np.int64)
        operation[on_device] = NONE  # what a device does takes no time of the host's operations
        host = np.flatnonzero(operation != NONE)
        around = self._around(spans, operation, host)
        inside = np.bincount(around[around >= 0], duration[host[around >= 0]], len(self._totals)).astype(np.int64)
        within = (around >= 0) & in_step[host]
        stepped -= np.bincount(around[within], duration[host[within]], len(self._totals)).astype(np.int64)
        columns = (column.tolist() for column in (calls, time, inside, stepped))
        for totals, more, total, own_time, in_steps in zip(self._totals, *columns, strict=True):
            totals.calls += more
            totals.total += total
            totals.own += total - own_time
            totals.in_steps += in_steps
        self._keep_open(spans, operation)

    def _numbered(self, spans: Spans, rows: np.ndarray, on_device: np.ndarray) -> np.ndarray:
        """The number of each row's operation."""
        name, path = spans.words("name"), spans.words("path")
        keys = (name.codes[rows].astype(np.int64) * len(path.words) + path.codes[rows]) * 2 + on_device[rows]
        used, inverse = np.unique(keys, return_inverse=True)
        numbers = []
        for key in used.tolist():
            pair = key // 2
            what = name.words[pair // len(path.words)], path.words[pair % len(path.words)], PLACES[key % 2]
            if what not in self._found:
                self._found[what] = len(self._totals)
                self._totals.append(OperationTotals(*what))
            numbers.append(self._found[what])
        return np.array(numbers, np.int64)[inverse]

    def _around(self, spans: Spans, operation: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The nearest operation that each of these rows lies in, or `NONE`."""
        first = int(spans.number("id")[0])
        parent = spans.number("parent")
        around = np.full(len(rows), NONE, np.int64)
        asking, at = np.arange(len(rows)), parent[rows]
        while len(asking):
            before = at < first
            for row in np.unique(at[before]).tolist():
                around[asking[at == row]] = self._open.get(row, (0, NONE))[1]
            asking, at = asking[~before], at[~before]
            here = operation[at - first]
            around[asking[here != NONE]] = here[here != NONE]
            asking, at = asking[here == NONE], parent[at[here == NONE] - first]
        return around

    def _keep_open(self, spans: Spans, operation: np.ndarray) -> None:
        start = spans.number("start")
        end = start + spans.number("duration")
        last, first = int(start[-1]), int(spans.number("id")[0])
        self._open = {row: entry for row, entry in self._open.items() if entry[0] > last}
        still = np.flatnonzero((end > last) & spans.words("clock").equal("host"))
        own = operation[still]
        holder = np.where(own != NONE, own, self._around(spans, operation, still))
        for row, until, holding in zip(still.tolist(), end[still].tolist(), holder.tolist(), strict=True):
            if holding != NONE:
                self._open[first + row] = until, holding

    def rows(self) -> tuple[OperationTotals, ...]:
        """Longest own time first."""
        return tuple(sorted(self._totals, key=lambda totals: (-totals.own, totals.place, totals.path, totals.name)))
