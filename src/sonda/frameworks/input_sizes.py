"""Sizes of inputs that differ from step to step: a batch's, a text's, a graph's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from sonda.frameworks.phase import FORWARDS, Phase
from sonda.frameworks.steps import Section
from sonda.record.quantity import INPUT_SIZES

Dims = Sequence[Sequence[int]]
"""The sizes of every tensor that a module was given."""


def differing_sizes(
    sections: Sequence[Section], phases: Sequence[Phase], dims: Mapping[int, Dims]
) -> dict[int, tuple[float, ...]]:
    """By the identity of a step (`id(step)`) the sizes in which the steps of its part differ; nothing of those alike.

    `dims` are those of every numbered shape. Sizes that change together are one. A part whose steps differ in more
    sizes than can be told, or in what they call, has none.
    """
    by_part: dict[str, dict[int, tuple[int, ...]]] = {}
    for section in sections:
        for step in section.steps:
            sizes = _sizes_of(
                [phases[at] for at in step.phases if phases[at].name in FORWARDS and not phases[at].gap], dims
            )
            if sizes:
                by_part.setdefault(section.part, {})[id(step)] = sizes
    told: dict[int, tuple[float, ...]] = {}
    for steps in by_part.values():
        told.update(_differing(steps))
    return told


def _sizes_of(forwards: Sequence[Phase], dims: Mapping[int, Dims]) -> tuple[int, ...]:
    """All sizes that a step's modules were first given, and how many forwards it had."""
    first: dict[object, Phase] = {}
    for phase in forwards:
        first.setdefault(phase.place, phase)
    if not first or any(phase.shape not in dims for phase in first.values()):
        return ()
    return (len(forwards), *chain.from_iterable(chain.from_iterable(dims[phase.shape] for phase in first.values())))


def _differing(steps: Mapping[int, tuple[int, ...]]) -> dict[int, tuple[float, ...]]:
    lengths = [len(sizes) for sizes in steps.values()]
    usual = max(set(lengths), key=lengths.count)
    alike = {step: sizes for step, sizes in steps.items() if len(sizes) == usual}
    table = np.array(list(alike.values()), dtype=np.float64)
    # What is always longer by the same amount, as targets are, is the same size.
    columns = {tuple(column - column[0]): column for column in reversed(table.T) if (column != column[0]).any()}
    if not columns or len(columns) > len(INPUT_SIZES):
        return {}
    chosen = np.array(list(columns.values())).T
    return {step: tuple(sizes) for step, sizes in zip(alike, chosen.tolist(), strict=True)}


def size_columns(sizes: Sequence[tuple[int, tuple[float, ...]]], count: int) -> dict[str, np.ndarray]:
    """Columns of `count` rows with the sizes (row, its sizes) in which inputs differ."""
    columns = {}
    for number, name in enumerate(INPUT_SIZES[: max((len(told) for _, told in sizes), default=0)]):
        values = np.full(count, np.nan)
        for row, told in sizes:
            values[row] = told[number] if number < len(told) else np.nan
        columns[f"{name}:counted"] = values
    return columns
