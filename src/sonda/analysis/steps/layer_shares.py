"""Layers and phases that agree: what the layers of a phase take and what is outside of them is the phase's time.

Layers of the timed steps are medians over these, as phases are; what a phase has beside them is outside layers. Where
layers together would take more than their phase, which medians of noisy steps can do, they are the smaller for it.

Layers of other steps (in which every layer is a function of its own, or which a profiler recorded) have the part of
the timed phase that they have of the same phase there: the median over those steps of their shares, these together
being the whole. A step that took twice as long for being watched, or one that was held up, changes no share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sonda.analysis.statistics import ENOUGH_STEPS, medians
from sonda.analysis.steps.costs import times
from sonda.analysis.steps.operation_counts import FUSED
from sonda.analysis.steps.parts import Part
from sonda.analysis.summary import Value

INSIDE_FUSED = (*FUSED, "communicate")
"""Phases of a training step that is one function."""
OTHER = "other"


@dataclass(frozen=True)
class LayerShares:
    """Layers by path, ns of a step; `own` is without the layers inside, `total` forward and backward."""

    forward: list[Value]
    backward: list[Value]
    own: list[Value]
    total: list[Value]
    outside: dict[str, Value]
    """ns of each phase with layers that are in none of them. Of phases that are one function, those it consists of."""
    inside: dict[str, Value] = field(default_factory=dict)
    """ns of the phases that a step which is one function consists of; `other` is what no phase covers."""


def share_layers(
    part: Part, phases: Mapping[str, Value], effective: int, reason: str, steps: np.ndarray | None
) -> LayerShares:
    """The layers of a part, beside its phases; `reason` for what is missing, `steps` as `times` takes them."""
    return _of_other_steps(part, phases) if len(part.pieces) else _of_same_steps(part, phases, effective, reason, steps)


def _of_same_steps(
    part: Part, phases: Mapping[str, Value], effective: int, reason: str, steps: np.ndarray | None
) -> LayerShares:
    layers = part.layers
    both = layers.forward + layers.backward
    forward, backward, own, total = (
        times(table, effective, reason, steps) for table in (layers.forward, layers.backward, layers.own, both)
    )
    shown = np.array([value.value or 0.0 for value in own])
    names = [name for name in phases if (layers.spans.phase == name).any()]
    if not names or not layers.spans.steps:
        return LayerShares(forward, backward, own, total, {})
    # Each layer's own time, divided among its phases as they have it.
    of_phase = {name: tuple(_middle(table) for table in layers.of_phase(name)) for name in names}
    whole = sum((ahead + back for ahead, back in of_phase.values()), np.zeros(len(shown)))
    part_of = np.divide(shown, whole, out=np.zeros(len(shown)), where=whole > 0)
    outside: dict[str, Value] = {}
    factors: dict[str, float] = {}
    for name, (ahead, back) in of_phase.items():
        taken, spent = float(((ahead + back) * part_of).sum()), phases[name].value or 0.0
        factors[name] = min(1.0, spent / taken) if taken else 1.0
        outside[name] = Value(max(spent - taken, 0.0), "ns", "derived")
    if min(factors.values()) == 1.0:
        return LayerShares(forward, backward, own, total, outside)
    tree = layers.spans.tree

    def kept(tables: Sequence[tuple[float, np.ndarray]]) -> np.ndarray:
        """The part of each row that is left when each of its tables is as much smaller."""
        before = sum((table for _, table in tables), np.zeros(len(shown)))
        after = sum((factor * table for factor, table in tables), np.zeros(len(shown)))
        return np.divide(after, before, out=np.ones(len(shown)), where=before > 0)

    def inclusive(which: int) -> list[tuple[float, np.ndarray]]:
        return [(factors[name], tree.inclusive(tables[which])) for name, tables in of_phase.items()]

    alone = [(factors[name], ahead + back) for name, (ahead, back) in of_phase.items()]
    return LayerShares(
        _scaled(forward, kept(inclusive(0))), _scaled(backward, kept(inclusive(1))), _scaled(own, kept(alone)),
        _scaled(total, kept([*inclusive(0), *inclusive(1)])), outside,
    )  # fmt: skip


def _middle(table: np.ndarray) -> np.ndarray:
    """The median of every row; of one that most steps lack, the mean."""
    middle = np.median(table, axis=1)
    shares: np.ndarray = np.where(middle > 0, middle, table.mean(axis=1))
    return shares


def _scaled(values: Sequence[Value], factors: np.ndarray) -> list[Value]:
    return [
        value
        if value.value is None or factor == 1.0
        else replace(
            value,
            value=value.value * factor,
            low=None if value.low is None else value.low * factor,
            high=None if value.high is None else value.high * factor,
        )
        for value, factor in zip(values, factors.tolist(), strict=True)
    ]


def _of_other_steps(part: Part, phases: Mapping[str, Value]) -> LayerShares:
    layers, tree = part.layers, part.layers.spans.tree
    size = 3, 2, len(layers.spans.paths)  # median, low and high end; forward and backward; paths
    own = np.zeros(size)
    outside: dict[str, Value] = {}
    inside: dict[str, Value] = {}
    for timed, members in _groups(part, phases):
        spent = np.array([_spent(part, name, phases) for name in members])
        lasted = spent.sum(axis=0)
        tables = np.array([layers.of_phase(name) for name in members]).reshape(len(members), 2, size[2], -1)
        beside = np.maximum(spent - tables.sum((1, 2)), 0)
        known = lasted > 0
        if not known.any():
            continue
        pieces = np.concatenate([tables.reshape(-1, len(lasted)), beside])[:, known] / lasted[known]
        ends = np.array(medians(pieces.T))
        scale = timed / (ends[0].sum() or 1.0)
        ends = scale * np.where(np.isnan(ends), ends[0], ends)
        of_layers = ends[:, : -len(members)].reshape(3, len(members), 2, -1)
        own += of_layers.sum(axis=1)
        for at, name in enumerate(members):
            rest = ends[:, at - len(members)]
            whole = float(of_layers[0, at].sum() + rest[0])
            if len(members) > 1 and whole:
                inside[name] = Value(whole, "ns", "derived")
            if of_layers[0, at].any():
                outside[name] = _with_ends(rest, len(part.pieces))

    def values(table: np.ndarray) -> list[Value]:
        return [_with_ends(ends, len(part.pieces)) for ends in table.T]

    forward, backward = (np.array([tree.inclusive(end) for end in own[:, way]]) for way in (0, 1))
    return LayerShares(
        values(forward), values(backward), values(own.sum(axis=1)), values(forward + backward), outside, inside
    )


def _with_ends(ends: np.ndarray, steps: int) -> Value:
    """ns: the median over so many steps with its low and high end, which a single step has not."""
    middle, low, high = ends.tolist()
    if steps < 2:
        return Value(middle, "ns", "derived")
    return Value(middle, "ns", "derived", low, high, few=steps if steps < ENOUGH_STEPS else 0)


def _groups(part: Part, phases: Mapping[str, Value]) -> list[tuple[float, list[str]]]:
    """ns of timed phases, each with the phases of the steps in pieces that it consists of.

    A function that learns is forward, loss, backward and mostly the optimizer; what its profile gives to none of these
    is `other` there.
    """
    lasted = {name: value.value or 0.0 for name, value in phases.items()}
    fused = [name for name in part.piece_phases if name in (*INSIDE_FUSED, OTHER)] if "fused" in lasted else []
    groups = [(lasted[name], [name]) for name in part.piece_phases if name in lasted and name not in (*fused, OTHER)]
    if fused:
        whole = lasted["fused"] + sum(lasted.get(name, 0.0) for name in fused if name != OTHER)
        groups.append((whole, fused))
    return groups


def _spent(part: Part, phase: str, phases: Mapping[str, Value]) -> np.ndarray:
    """ns of a phase in the steps in pieces; of `other` without what timed steps have of it too, which is no part of a
    function."""
    spent = part.piece_phases[phase]
    known = phases[OTHER].value if phase == OTHER and OTHER in phases else 0.0
    return np.maximum(spent - (known or 0.0), 0)
