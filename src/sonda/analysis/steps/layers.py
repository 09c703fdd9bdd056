"""Layers of one part: what every module took, step by step, with and without the modules inside it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sonda.analysis.span_tree import PathTree, subtotals
from sonda.record.spans import Spans


@dataclass(frozen=True)
class LayerSpans:
    """The layer spans of some steps, with what is needed to add them up by module path."""

    rows: np.ndarray
    """Rows of the spans."""
    step: np.ndarray
    """Which of the steps each belongs to, 0 to `steps` - 1."""
    steps: int
    module: np.ndarray
    """Which of `paths` each belongs to."""
    backward: np.ndarray
    """Whether it counts as backward: its direction, or a forward that backward recomputes."""
    outermost: np.ndarray
    """False for a module that its own call calls again, which must not be counted twice."""
    paths: tuple[str, ...]
    names: tuple[str, ...]
    """Class of the module at each path."""
    tree: PathTree
    phase: np.ndarray
    """Name of the phase that each lies in; '' for none."""

    def fold(self, inclusive: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Forward, backward and own values by path and step (paths x steps), from one value per layer span.

        `inclusive` counts what is nested in the span, `own` does not. Forward follows how calls nest (a module may be
        called from outside the module that holds it); backward has no nesting, so it is added up along the paths.
        """
        cell = self.module * self.steps + self.step

        def table(mask: np.ndarray, values: np.ndarray) -> np.ndarray:
            size = len(self.paths) * self.steps
            return np.bincount(cell[mask], weights=values[mask], minlength=size).reshape(len(self.paths), self.steps)

        everything = np.ones(len(self.rows), dtype=bool)
        forward = table(~self.backward & self.outermost, inclusive)
        backward = self.tree.inclusive(table(self.backward, own))
        return forward, backward, table(everything, own)

    def calls(self) -> np.ndarray:
        """Calls per step by path, median over steps; backward is no call."""
        count_ones = np.ones(len(self.rows))
        counted = np.where(self.backward, 0.0, count_ones)
        cell = self.module * self.steps + self.step
        table = np.bincount(cell, weights=counted, minlength=len(self.paths) * self.steps).reshape(
            len(self.paths), self.steps
        )
        return np.median(table, axis=1).astype(np.int64) if self.steps else np.zeros(len(self.paths), dtype=np.int64)


@dataclass(frozen=True)
class LayerTimes:
    """ns by path and step (paths x steps)."""

    spans: LayerSpans
    forward: np.ndarray
    backward: np.ndarray
    own: np.ndarray
    alone: np.ndarray
    """ns of each layer span without those nested in it."""

    def of_phase(self, phase: str) -> tuple[np.ndarray, np.ndarray]:
        """ns that layers themselves took in a phase by path and step, without those inside: forward and backward."""
        spans = self.spans
        here = spans.phase == phase
        cell = spans.module * spans.steps + spans.step
        size = len(spans.paths), spans.steps

        def table(mask: np.ndarray) -> np.ndarray:
            sums = np.bincount(cell[mask], weights=self.alone[mask], minlength=size[0] * size[1])
            return sums.reshape(size)

        return table(here & ~spans.backward), table(here & spans.backward)


def layer_spans(spans: Spans, step_index: np.ndarray, steps: int, phase_of: np.ndarray) -> LayerSpans:
    """The layer spans inside the steps that `step_index` (one entry per span, -1: none of them) numbers.

    Paths are in the order of their first call.
    """
    is_layer = spans.where(kind="layer")
    rows = np.flatnonzero(is_layer & (step_index >= 0))
    codes = spans.words("path").codes
    parent = spans.number("parent")
    seen, first, module = np.unique(codes[rows], return_index=True, return_inverse=True)
    starts = spans.number("start")[rows]
    earliest = np.full(len(seen), np.iinfo(np.int64).max)
    np.minimum.at(earliest, module, starts)
    all_paths = spans.words("path").words
    order = sorted(range(len(seen)), key=lambda i: (earliest[i], _depth(all_paths[seen[i]]), first[i]))
    position = np.empty(len(seen), dtype=np.int64)
    position[order] = np.arange(len(seen))
    paths = tuple(all_paths[seen[i]] for i in order)
    name = spans.words("name")
    names = tuple(name.words[name.codes[rows[first[i]]]] for i in order)

    outer = parent[rows]
    inside = (outer >= 0) & is_layer[np.maximum(outer, 0)]
    outermost = ~(inside & (codes[np.maximum(outer, 0)] == codes[rows]))
    phase = np.where(phase_of[rows] >= 0, np.array(name.words, dtype=object)[name.codes[phase_of[rows]]], "")
    backward = spans.words("direction").equal("backward")[rows] | (phase == "backward")
    return LayerSpans(
        rows=rows, step=step_index[rows], steps=steps, module=position[module], backward=backward, outermost=outermost,
        paths=paths, names=names, tree=PathTree(paths), phase=phase,
    )  # fmt: skip


def _depth(path: str) -> int:
    return path.count(".") + 1 if path else 0


def layer_times(spans: Spans, layers: LayerSpans) -> LayerTimes:
    """Durations of the layers by path and step, without what ranks exchanged meanwhile: that is no work of a layer."""
    duration = spans.number("duration").astype(np.float64)
    exchanged = np.nan_to_num(spans.metric("communication", "measured")[layers.rows])
    parent = spans.number("parent")[layers.rows]
    if exchanged.any():
        number = np.full(len(spans), -1, dtype=np.int64)
        number[layers.rows] = np.arange(len(layers.rows))
        outer = np.where(parent >= 0, number[np.maximum(parent, 0)], -1)
        duration[layers.rows] -= subtotals(outer, exchanged[:, None])[:, 0]
        np.maximum(duration, 0, out=duration)
    within = np.bincount(parent[parent >= 0], weights=duration[layers.rows][parent >= 0], minlength=len(spans))
    inclusive = duration[layers.rows]
    alone = np.maximum(inclusive - within[layers.rows], 0)
    return LayerTimes(layers, *layers.fold(inclusive, alone), alone)
