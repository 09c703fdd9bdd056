"""What the counted step did: FLOPs, bytes, operations and memory of phases and layers, and the least time they take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sonda.analysis import reasons
from sonda.analysis.roofline import Ceilings
from sonda.analysis.span_tree import subtotals
from sonda.analysis.steps.layers import LayerSpans, layer_spans
from sonda.analysis.steps.parts import Part, shapes_of


@dataclass(frozen=True)
class Tally:
    """Sums over the operations of a phase or layer in one step."""

    flops: float = 0.0
    bytes: float = 0.0
    operations: float = 0.0
    unknown: float = 0.0
    """Operations without a formula; their FLOPs and bytes are missing from the sums."""
    cached_bytes: float = 0.0
    """Bytes of the operations that fit in the cache."""
    compute: float = 0.0
    """Least ns of the operations that arithmetic limits."""
    memory: float = 0.0
    """Least ns of the operations that memory limits."""
    skipped: float = 0.0
    """FLOPs of products with padding, which libraries skip: the roof is held against the others."""

    @property
    def attainable(self) -> float:
        """Least ns: every operation at its own roof."""
        return self.compute + self.memory

    @property
    def all_unknown(self) -> bool:
        return self.operations > 0 and self.unknown >= self.operations


COLUMNS = tuple(Tally.__dataclass_fields__)
FUSED = ("forward", "loss", "backward", "optimizer")
"""Phases that are one where a training step is one compiled function."""


@dataclass(frozen=True)
class Counts:
    """Of one counted step."""

    phases: dict[str, Tally]
    layers: dict[str, Tally]
    """By path; modules inside included."""
    own: dict[str, Tally]
    """By path; without the modules inside."""
    names: dict[str, str]
    """Class of the module at each path."""
    calls: dict[str, int]
    leaves: dict[str, bool]
    depths: dict[str, int]
    activations: dict[str, float]
    """B by path."""
    peak_memory: dict[str, float]
    """B by phase."""
    phase_names: tuple[str, ...]

    def phase(self, name: str) -> Tally | None:
        """Of one phase. `fused` is all that a step computes, where the counted step has phases for each."""
        if name != "fused" or name in self.phases:
            return self.phases.get(name)
        inside = [tally for phase, tally in self.phases.items() if phase in FUSED]
        return Tally(*(sum(getattr(tally, column) for tally in inside) for column in COLUMNS)) if inside else None


def counted_step(part: Part) -> tuple[int | None, str]:
    """Row of the counted step with the shape of most measured steps, or None and the reason."""
    if len(part.counted) == 0:
        return None, reasons.NO_STEP_COUNTED
    shape = part.shape
    known = shapes_of(part.index.spans, part.counted)
    if shape is None or np.isnan(known).all():
        return int(part.counted[0]), ""
    same = part.counted[known == shape]
    if len(same) == 0:
        return None, reasons.OTHER_SHAPE_COUNTED
    return int(same[0]), ""


def count(part: Part, step: int, roofs: Ceilings | None) -> Counts:
    """Add up the operations of one counted step. Without ceilings the least times are 0."""
    index = part.index
    spans = index.spans
    parent = spans.number("parent")
    inside = index.step_of == step
    is_op = spans.where(kind="op")
    rows = np.flatnonzero(is_op & inside & ~(is_op[np.maximum(parent, 0)] & (parent >= 0)))
    name = spans.words("name")
    convolution = np.array(["convolution" in word for word in name.words])[name.codes[rows]]
    flops, fewer = spans.metric("flops", "nominal")[rows], spans.metric("executed_flops", "nominal")[rows]
    executed = np.where(np.isnan(fewer), flops, fewer)
    table = _operations(flops, executed, spans.metric("bytes", "nominal")[rows], convolution, roofs)

    phase_rows = np.flatnonzero(spans.where(kind="phase") & inside)
    phase_names = [name.words[name.codes[row]] for row in phase_rows]
    phases = {}
    for phase in dict.fromkeys(phase_names):
        wanted = phase_rows[[phase_name == phase for phase_name in phase_names]]
        phases[phase] = Tally(*table[np.isin(index.phase_of[rows], wanted)].sum(axis=0).tolist())

    step_index = np.where(inside, 0, -1)
    layers = layer_spans(spans, step_index, 1, index.phase_of)
    number = np.full(len(spans), -1, dtype=np.int64)
    number[layers.rows] = np.arange(len(layers.rows))
    own = np.zeros((len(layers.rows), len(COLUMNS)))
    holder = number[np.maximum(parent[rows], 0)]
    layered = (parent[rows] >= 0) & (holder >= 0)
    np.add.at(own, holder[layered], table[layered])
    outer = parent[layers.rows]
    nested = subtotals(np.where(outer >= 0, number[np.maximum(outer, 0)], -1), own)
    total = np.zeros((len(layers.paths), len(COLUMNS)))
    mine = np.zeros_like(total)
    for column in range(len(COLUMNS)):
        forward, backward, alone = layers.fold(nested[:, column], own[:, column])
        total[:, column] = (forward + backward)[:, 0]
        mine[:, column] = alone[:, 0]

    paths = layers.paths
    return Counts(
        phases=phases,
        layers={path: Tally(*total[i].tolist()) for i, path in enumerate(paths)},
        own={path: Tally(*mine[i].tolist()) for i, path in enumerate(paths)},
        names=dict(zip(paths, layers.names, strict=True)),
        calls=dict(zip(paths, (int(calls) for calls in layers.calls()), strict=True)),
        leaves=dict(zip(paths, (bool(leaf) for leaf in layers.tree.leaf), strict=True)),
        depths=dict(zip(paths, (int(depth) for depth in layers.tree.depth), strict=True)),
        activations=_activations(layers, spans.metric("activations", "counted")[layers.rows]),
        peak_memory=_peaks(phase_names, spans.metric("peak_memory", "counted")[phase_rows]),
        phase_names=tuple(dict.fromkeys(phase_names)),
    )


def _activations(layers: LayerSpans, kept: np.ndarray) -> dict[str, float]:
    """Bytes by the path of a layer, of all its calls; `kept` by span of a layer, NaN where none were counted."""
    activations: dict[str, float] = {}
    for row in np.flatnonzero(~np.isnan(kept) & layers.outermost):
        path = layers.paths[layers.module[row]]
        activations[path] = activations.get(path, 0.0) + float(kept[row])
    return activations


def _peaks(phase_names: Sequence[str], peak_memory: np.ndarray) -> dict[str, float]:
    """The highest memory of each phase that has any."""
    peaks: dict[str, float] = {}
    for phase, peak in zip(phase_names, peak_memory, strict=True):
        if not np.isnan(peak):
            peaks[phase] = max(peaks.get(phase, 0.0), float(peak))
    return peaks


def _operations(
    flops: np.ndarray, executed: np.ndarray, traffic: np.ndarray, convolution: np.ndarray, roofs: Ceilings | None
) -> np.ndarray:
    """One row of `COLUMNS` per operation."""
    unknown = np.isnan(flops) | np.isnan(traffic)
    arithmetic = memory = np.zeros(len(flops))
    cached = np.zeros(len(flops), dtype=bool)
    if roofs is not None:
        arithmetic, memory, cached = roofs.bounds(executed, traffic, convolution)
    limited_by_memory = memory > arithmetic
    moved = np.nan_to_num(traffic)
    return np.column_stack(
        [
            np.nan_to_num(flops), moved, np.ones(len(flops)), unknown, np.where(cached, moved, 0.0),
            np.where(limited_by_memory, 0.0, arithmetic), np.where(limited_by_memory, memory, 0.0),
            np.nan_to_num(flops - executed),
        ]
    ).astype(np.float64)  # fmt: skip
