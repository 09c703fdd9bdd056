"""Sizes of inputs that differ from step to step: of a batch, a text, a graph.

What a network computes is a polynomial in the sizes of its input. A step of several forwards (gradients are accumulated
over batches, or images are processed one by one) computes the sum of these polynomials. That is the same polynomial in
the sums of the sizes and of their products.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import chain
from math import prod

import numpy as np

from sonda.frameworks.reconstruction.phases import FORWARDS, Phase
from sonda.frameworks.reconstruction.steps import StepSection
from sonda.record.quantities import INPUT_CALLS, INPUT_PRODUCTS, INPUT_SIZES

Dims = Sequence[Sequence[int]]
"""The sizes of every tensor that a module was given."""
Sums = dict[str, float]
"""By quantity (`INPUT_CALLS`, `INPUT_PRODUCTS`) the sum over the forwards of a step."""
Calls = dict[Hashable, list[int]]
"""By module the numbers of its inputs' shapes in a step, in order."""


def sum_differing_sizes(
    sections: Sequence[StepSection], phases: Sequence[Phase], dims: Mapping[int, Dims]
) -> dict[int, Sums]:
    """By the identity of a step (`id(step)`): sums of the sizes in which the steps of its part differ.

    `dims` are those of every numbered shape. Sizes that change together count as one. A part whose steps differ in too
    many sizes has no sums, nor has a step that calls other modules than most steps. Products of sizes are left out
    where each step has one forward: there they follow from the sizes.
    """
    by_part: dict[str, dict[int, Calls]] = {}
    for section in sections:
        for step in section.steps:
            forwards = [phases[at] for at in step.phases if phases[at].name in FORWARDS and not phases[at].gap]
            calls: Calls = {}
            for phase in forwards:
                calls.setdefault(phase.place, []).append(phase.shape)
            if calls and all(phase.shape in dims for phase in forwards):
                by_part.setdefault(section.part, {})[id(step)] = calls
    sums: dict[int, Sums] = {}
    for steps in by_part.values():
        sums.update(_sum_sizes(steps, dims))
    return sums


def _sum_sizes(steps: Mapping[int, Calls], dims: Mapping[int, Dims]) -> dict[int, Sums]:
    """The sums of one part's steps, by the identity of a step."""
    usual = Counter(frozenset(calls) for calls in steps.values()).most_common(1)[0][0]
    alike = {step: calls for step, calls in steps.items() if calls.keys() == usual}
    groups = _group_forwards(list(alike.values()))
    vectors = [_size_vectors(group, dims) for group in groups]
    sizes = [_differing_columns(np.array(list(vector.values()), dtype=np.float64)) for vector in vectors]
    counts: list[np.ndarray] = []
    sums: dict[str, np.ndarray] = {}
    singles = np.ones((len(alike), 1))
    first = 0
    several = any(len(keys) > 1 for group in groups for keys in group)
    whole = np.ones(len(alike), dtype=bool)
    # Groups with the most sizes come first: the inputs of an encoder are inputs of its decoder too.
    for group, vector, table in sorted(zip(groups, vectors, sizes, strict=True), key=lambda entry: -entry[2].shape[1]):
        row_of = {key: row for row, key in enumerate(vector)}
        whole &= np.array([all(key in row_of for key in keys) for keys in group])
        step_of = np.array([at for at, keys in enumerate(group) for key in keys if key in row_of])
        rows = np.array([row_of[key] for keys in group for key in keys if key in row_of])
        counts.append(np.bincount(step_of, minlength=len(group)).astype(np.float64))
        own_sums = [np.bincount(step_of, weights=size[rows], minlength=len(group)) for size in table.T]
        together = np.column_stack([singles, *(own_sum / max(own_sum.max(), 1) for own_sum in own_sums)])
        if np.linalg.matrix_rank(together) == np.linalg.matrix_rank(singles):
            continue
        singles = together
        own = range(first, first + table.shape[1])
        first = own.stop
        if first > len(INPUT_SIZES):
            return {}
        for powers, name in INPUT_PRODUCTS.items():
            if all(size in own for size in powers) and (several or len(powers) == 1):
                product = prod((table[:, size - own.start] for size in powers), start=np.ones(len(table)))
                sums[name] = np.bincount(step_of, weights=product[rows], minlength=len(group))
    numbers = _differing_columns(np.array(counts).T)
    sums.update(zip(INPUT_CALLS, numbers.T, strict=False))
    return {
        step: {name: float(column[at]) for name, column in sums.items()}
        for at, step in enumerate(alike)
        if whole[at] and sums
    }


def _group_forwards(steps: Sequence[Calls]) -> list[list[list[tuple[int, ...]]]]:
    """Groups of modules; for every step of a group the shapes of its forwards.

    Sizes within a group are multiplied with each other. Modules that are called in turns, as an encoder and its
    decoder, are one group; otherwise each module is a group.
    """
    places = list(steps[0])
    if all(len({len(shapes) for shapes in calls.values()}) == 1 for calls in steps):
        return [[list(zip(*(calls[place] for place in places), strict=True)) for calls in steps]]
    return [[[(shape,) for shape in calls[place]] for calls in steps] for place in places]


def _size_vectors(
    group: Sequence[Sequence[tuple[int, ...]]], dims: Mapping[int, Dims]
) -> dict[tuple[int, ...], list[int]]:
    """All sizes of every distinct forward, without those that have another number of sizes than most."""
    often = Counter(chain.from_iterable(group))
    flat = {key: list(chain.from_iterable(chain.from_iterable(dims[shape] for shape in key))) for key in often}
    lengths: Counter[int] = Counter()
    for key, sizes in flat.items():
        lengths[len(sizes)] += often[key]
    usual = lengths.most_common(1)[0][0]
    return {key: sizes for key, sizes in flat.items() if len(sizes) == usual}


def _differing_columns(table: np.ndarray) -> np.ndarray:
    """The columns that differ between rows. Columns that differ by a constant or a factor count as one."""
    columns: dict[tuple[float, ...], np.ndarray] = {}
    for column in reversed(table.T):
        change = column - column[:1]
        if change.any():
            columns[tuple(np.round(change / change[change != 0][0], 9))] = column
    return np.array(list(columns.values())).T if columns else np.zeros((len(table), 0))


def size_columns(sizes: Sequence[tuple[int, Sums]], count: int) -> dict[str, np.ndarray]:
    """Columns of `count` rows with these sums (row, its sums) of sizes in which inputs differ."""
    columns: dict[str, np.ndarray] = {}
    for row, sums in sizes:
        for name, value in sums.items():
            columns.setdefault(f"{name}:counted", np.full(count, np.nan))[row] = value
    return columns
