"""Phases and layers of programs side by side: how much company slows each.

A layer's time is its own: what the layers inside it take is theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sonda.analysis.corun.slowdown import paired_slowdown, rate
from sonda.analysis.span_tree import nearest
from sonda.analysis.statistics import median
from sonda.analysis.summary import Value
from sonda.record.run import Run
from sonda.record.spans import PHASES, Spans

Key = tuple[str, ...]
Table = dict[Key, np.ndarray]
"""ns in every step that was observed, by phase or by layer."""
Place = tuple[int, int]
"""A window and a participant."""


@dataclass(frozen=True)
class LayerSlowdown:
    """A layer of a participant in one direction, alone and beside others. Times are ns per step."""

    layer: str
    """Its path; empty for the model itself."""
    kind: str
    """Its class."""
    direction: str
    alone: Value
    together: Value
    slowdown: Value
    lost: Value
    """What company adds to a step."""


def phase_tables(run: Run) -> dict[Place, Table]:
    """Phases, by window and participant."""
    spans = run.spans
    return dict(_tables(spans, np.flatnonzero(spans.where(kind="phase")), ("name",), spans.number("duration")))


def layer_tables(run: Run) -> dict[Place, Table]:
    """Layers by path, class and direction, by window and participant."""
    spans = run.spans
    layers = spans.where(kind="layer")
    parent, duration = spans.number("parent"), spans.number("duration").astype(np.float64)
    inside = np.flatnonzero(layers & (parent >= 0))
    inside = inside[layers[parent[inside]]]
    own = duration - np.bincount(parent[inside], duration[inside], len(spans))
    return dict(_tables(spans, np.flatnonzero(layers), ("path", "name", "direction"), own))


def phase_slowdowns(pairs: Sequence[tuple[Table, Table]]) -> dict[str, Value]:
    """Slowdown of every phase, from its tables alone and together, a pair for each repetition."""
    names = [name for name in PHASES if all((name,) in table for pair in pairs for table in pair)]
    if len(names) < 2:
        return {}  # one phase is the step itself
    return {name: _slowdown(pairs, (name,)) for name in names}


def layer_slowdowns(pairs: Sequence[tuple[Table, Table]]) -> tuple[LayerSlowdown, ...]:
    """Layers that ran in every repetition: those that lose time beyond doubt first, of these those that lose most."""
    if not pairs:
        return ()
    known = [key for key in pairs[0][0] if all(key in table for pair in pairs for table in pair)]
    slowdowns = []
    for key in known:
        alone, together = (_time(tables, key) for tables in zip(*pairs, strict=True))
        slowdown = _slowdown(pairs, key)
        path, kind, direction = key
        slowdowns.append(LayerSlowdown(path, kind, direction, alone, together, slowdown, _lost(alone, slowdown)))
    return tuple(sorted(slowdowns, key=order))


def order(layer: LayerSlowdown) -> tuple[bool, float]:
    """Beyond doubt first, then by what is lost."""
    return not (layer.lost.low is not None and layer.lost.low > 0), -(layer.lost.value or 0.0)


def _lost(alone: Value, slowdown: Value) -> Value:
    """What the slowdown adds to the time alone, so that the two agree where a machine is not quiet."""
    time = alone.value or 0.0
    low, middle, high = ((bound - 1) * time if bound is not None else None
                         for bound in (slowdown.low, slowdown.value, slowdown.high))  # fmt: skip
    return Value(middle, "ns", "derived", low, high, slowdown.reason)


def _slowdown(pairs: Sequence[tuple[Table, Table]], key: Key) -> Value:
    return paired_slowdown([(rate(before[key]), rate(after[key])) for before, after in pairs]).value()


def _time(tables: Sequence[Mapping[Key, np.ndarray]], key: Key) -> Value:
    estimate = median([float(table[key].mean()) for table in tables])
    return Value(estimate.value, "ns", "measured", estimate.low, estimate.high, few=estimate.few)


def _tables(
    spans: Spans, rows: np.ndarray, columns: Sequence[str], amounts: np.ndarray
) -> Iterator[tuple[Place, Table]]:
    """Amounts of these rows by step, of all steps that have any, for every window and participant."""
    call, rank = spans.number("call"), spans.number("rank")
    step = nearest(spans.number("parent"), spans.where(kind="step"))[rows]
    rows, step = rows[step >= 0], step[step >= 0]
    words = [spans.words(name) for name in columns]
    for epoch in np.flatnonzero(spans.where(kind="epoch")):
        place = int(call[epoch]), int(rank[epoch])
        here = (call[rows] == place[0]) & (rank[rows] == place[1])
        inner, (steps, number) = rows[here], np.unique(step[here], return_inverse=True)
        codes = np.stack([column.codes[inner] for column in words]) if len(inner) else np.zeros((len(words), 0), int)
        keys, which = np.unique(codes, axis=1, return_inverse=True)
        table: Table = {}
        for at in range(keys.shape[1]):
            mine = which.ravel() == at
            key = tuple(column.words[code] for column, code in zip(words, keys[:, at], strict=True))
            table[key] = np.bincount(number[mine], amounts[inner[mine]].astype(np.float64), len(steps))
        yield place, table
