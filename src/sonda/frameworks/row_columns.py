"""Columns of a thread's rows that follow from others: values of ancestors, numbers of calls, what layers held."""

from __future__ import annotations

import numpy as np

from sonda.frameworks.events import ProcessEvents
from sonda.frameworks.thread import ThreadSpans


def inherit(values: np.ndarray, parent: np.ndarray, level: np.ndarray) -> np.ndarray:
    """Give every row without a value that of its nearest ancestor."""
    values = values.copy()
    for which in range(2, int(level.max(initial=0)) + 1):
        rows = np.flatnonzero((level == which) & (values < 0) & (parent >= 0))
        values[rows] = values[parent[rows]]
    return values


def calls(step: np.ndarray, definition: np.ndarray, is_layer: np.ndarray) -> np.ndarray:
    """Which call of its layer each span is, within its step, counting from 0."""
    found = np.zeros(len(step), dtype=np.int32)
    rows = np.flatnonzero(is_layer)
    if len(rows):
        order = rows[np.lexsort((rows, definition[rows], step[rows]))]
        new = np.ones(len(order), dtype=bool)
        new[1:] = (np.diff(step[order]) != 0) | (np.diff(definition[order]) != 0)
        at = np.arange(len(order))
        found[order] = at - np.maximum.accumulate(np.where(new, at, 0))
    return found


def activations(
    events: ProcessEvents, definition: np.ndarray, phase: np.ndarray, spans: ThreadSpans
) -> np.ndarray | None:
    """What each layer held when its forward ended, on the first call of the layer in that forward."""
    stated = [fact for fact in events.facts if "activations" in fact]
    if not stated:
        return None
    values = np.full(len(definition), np.nan)
    starts, ends = spans.raw.start[spans.phase_rows], spans.raw.end[spans.phase_rows]
    for fact in stated:
        inside = np.flatnonzero((starts <= fact["at"]) & (fact["at"] <= ends))
        rows = np.flatnonzero(np.isin(phase, inside))
        layers, first = np.unique(definition[rows], return_index=True)
        first_call = dict(zip(layers.tolist(), rows[first].tolist(), strict=True))
        for code, size in fact["activations"].items():
            row = first_call.get(int(code) // 2)
            if row is not None:
                values[row] = size
    return values
