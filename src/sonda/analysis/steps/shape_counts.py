"""What the steps of a part did where their inputs differ in shape: counted for some, and from their sizes for others.

FLOPs and bytes of a network are polynomials in the sizes of its input: linear in the batch, quadratic in the length of
a text that attends to itself. Those of a step of several forwards are the same polynomials in sums over them. One that
foretells every counted step from the other ones holds for those that were not counted. Where none does (a program that
decides by its data), the counted shapes stand for themselves only, and where no other step has such a shape the mean of
the counted steps is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sonda.analysis.doubts import Covered, OneShapeCounted, OtherLayers, ShapesAveraged, ShapesNotForetold
from sonda.analysis.findings import Finding
from sonda.analysis.roofline import Ceilings
from sonda.analysis.steps.operation_counts import COLUMNS, Counts, Tally, count, counted_step
from sonda.analysis.steps.parts import Part, shapes_of
from sonda.analysis.summary import Value
from sonda.record.quantities import INPUT_CALLS, INPUT_PRODUCTS, INPUT_SIZES

FORETOLD = 0.03
"""A polynomial holds where it foretells FLOPs and bytes of each counted step within this, from the other ones. Strides
that do not divide an image, and tiles, add what is no polynomial."""
MOSTLY = 0.5
"""A counted shape that this part of the steps has stands for them."""
RARELY = 0.05
"""Steps that called other layers than the counted one are worth a note beyond this share."""
REACH = 2.0
"""Sizes beyond this factor of those that were counted are not foretold."""

_FAMILIES: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((0, 1),),
    ((0, 1, 2),),
    ((0,), (1,), (2,)),
    ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2)),
    ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 0), (1, 1), (2, 2)),
    ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 0, 1), (0, 1, 1), (0, 1, 2)),
)
"""Polynomials that are tried: each as its terms, by the numbers of the sizes that are multiplied. Terms of sizes that
do not differ are left out; a constant and the number of forwards belong to all."""
FEWEST = 2
"""Counted steps whose mean is shown where nothing foretells the others."""


@dataclass(frozen=True)
class PartCounts:
    """What a measured step of a part did."""

    counts: Counts | None
    reason: str = ""
    """Why there are none."""
    covered: np.ndarray | None = None
    """Mask over the measured steps: those that the counts stand for; None for all."""
    means: bool = False
    """Whether the counts are means over these steps, and not those of one shape."""
    note: Finding | None = None
    """How the counts came about."""


def count_part(part: Part, roofs: Ceilings | None) -> PartCounts:
    """The counts of a step of this part; where inputs differ in shape, means over the steps that they stand for."""
    row, reason = counted_step(part)
    if len(part.counted) and not part.alike.all():
        together = _count_shapes(part, roofs)
        if together is not None:
            return together
    if row is None:
        return PartCounts(None, reason)
    counts = count(part, row, roofs)
    if part.alike.all():
        return PartCounts(counts, note=_note_other_layers(part, counts))
    return PartCounts(counts, covered=part.alike, note=OneShapeCounted(part.name, _covered(part.alike)))


def _note_other_layers(part: Part, counts: Counts) -> OtherLayers | None:
    """A note where steps called other layers than the counted one; None where all did the same.

    Also None where layers come from steps of their own: those are what a profile could tell apart of one function.
    """
    if len(part.pieces):
        return None
    layers = part.host_layers.spans
    called = np.zeros((len(layers.paths), layers.steps), dtype=bool)
    called[layers.module, layers.step] = True
    counted = np.array([path in counts.layers for path in layers.paths], dtype=bool)
    alike = (called == counted[:, None]).all(axis=0)
    if not len(alike) or not len(counted) or 1 - alike.mean() <= RARELY:
        return None
    return OtherLayers(part.name, Value(1 - float(alike.mean()), "1", "derived"))


def _covered(mask: np.ndarray) -> Covered:
    return Covered(int(mask.sum()), len(mask))


def _count_shapes(part: Part, roofs: Ceilings | None) -> PartCounts | None:
    """Means over all steps whose counts are known or follow from their sizes; None where one shape says as much."""
    spans = part.index.spans
    shapes = part.shapes[part.measured]
    known = shapes_of(spans, part.counted)
    rows = {shape: int(row) for shape, row in zip(known, part.counted, strict=True) if shape == shape}
    if not rows:
        return None
    counted = {shape: count(part, row, roofs) for shape, row in rows.items()}
    table = _Table.of(list(counted.values()))
    terms = _Terms.of(part, np.array(list(rows.values())))
    foretell = terms.find_polynomial(table)
    order = {shape: at for at, shape in enumerate(counted)}
    values: list[np.ndarray] = []
    covered = np.zeros(len(shapes), dtype=bool)
    for at, shape in enumerate(shapes):
        if shape in order:
            values.append(table.values[order[shape]])
        elif foretell is not None and terms.reached[at]:
            values.append(foretell(terms.wanted[at]))
        else:
            continue
        covered[at] = True
    many = len(np.unique(shapes[~np.isnan(shapes)]))
    own = len({shape for shape in shapes if shape in order})
    if foretell is None and own < 2:
        # A shape that most steps have says more than a mean.
        if len(counted) < FEWEST or not len(shapes) or covered.mean() > MOSTLY:
            return None
        counts = table.counts(table.values.mean(axis=0), list(counted.values()))
        every = np.arange(len(part.rows) + len(part.counted)) < len(part.counted)
        alone = ShapesNotForetold(part.name, many, _covered(every))
        return PartCounts(counts, covered=np.ones(len(shapes), dtype=bool), means=True, note=alone)
    if not covered.any():
        return None
    counts = table.counts(np.mean(values, axis=0), list(counted.values()))
    note = ShapesAveraged(part.name, many, len(counted), foretell is not None, _covered(covered))
    return PartCounts(counts, covered=covered, means=True, note=note)


@dataclass(frozen=True)
class _Polynomial:
    """All values of a step by the terms that were chosen."""

    chosen: list[int]
    base: np.ndarray
    """The values of one counted step: what is the same in all stays as it is, to the last digit."""
    factors: np.ndarray

    def __call__(self, terms: np.ndarray) -> np.ndarray:
        foretold: np.ndarray = np.maximum(self.base + terms[self.chosen] @ self.factors, 0)
        return foretold


@dataclass(frozen=True)
class _Terms:
    """What FLOPs and bytes may be proportional to: a constant, the number of forwards, sums of products of sizes."""

    families: list[list[int]]
    """Columns of the polynomials that are tried: of those that foretell as well, the one with the fewest is taken."""
    counted: np.ndarray
    """Of the counted steps, steps x terms, each as part of the largest."""
    wanted: np.ndarray
    """The same of the measured steps; NaN where it is not known."""
    reached: np.ndarray
    """Mask over the measured steps: those with sizes near enough to counted ones."""

    @classmethod
    def of(cls, part: Part, counted: np.ndarray) -> _Terms:
        spans = part.index.spans
        rows = np.concatenate((counted, part.rows[part.measured]))
        columns = {name: spans.metric(name, "counted")[rows] for name in (*INPUT_CALLS, *INPUT_PRODUCTS.values())}
        known_columns = {name: column for name, column in columns.items() if not np.isnan(column).all()}
        if not any(name in known_columns for powers, name in INPUT_PRODUCTS.items() if len(powers) > 1):
            sizes = [known_columns[name] for name in INPUT_SIZES if name in known_columns]
            known_columns.update(
                (name, np.prod([sizes[size] for size in powers], axis=0))
                for powers, name in INPUT_PRODUCTS.items()
                if max(powers) < len(sizes)
            )
        names = list(known_columns)
        table = np.column_stack([np.ones(len(rows)), *known_columns.values()])
        known = np.isnan(table).sum(axis=1) == 0
        scale = np.abs(table[known]).max(axis=0, initial=0)
        table = table / np.where(scale > 0, scale, 1)
        always = [0, *(1 + at for at, name in enumerate(names) if name in INPUT_CALLS)]
        families = [
            [
                *always,
                *(1 + names.index(INPUT_PRODUCTS[term]) for term in family if INPUT_PRODUCTS[term] in known_columns),
            ]
            for family in _FAMILIES
        ]
        single = [1 + at for at, name in enumerate(names) if name in (*INPUT_CALLS, *INPUT_SIZES)]
        mine, rest = table[: len(counted), single], table[len(counted) :, single]
        reached = np.zeros(len(rest), dtype=bool)
        if known[: len(counted)].all() and names:
            near = (rest >= mine.min(axis=0) / REACH) & (rest <= mine.max(axis=0) * REACH)
            reached = near.all(axis=1) & known[len(counted) :]
        families = sorted({tuple(family): family for family in families}.values(), key=len)
        return cls(families, table[: len(counted)], table[len(counted) :], reached)

    def find_polynomial(self, table: _Table) -> _Polynomial | None:
        """What foretells all values of a step, or None."""
        if not self.reached.any():
            return None
        errors = [self._error(family, table.totals) for family in self.families]
        family = self.families[int(np.argmin(errors))]
        if min(errors) > FORETOLD:
            return None
        base = table.values[0]
        return _Polynomial(family, base, np.linalg.lstsq(self.counted[:, family], table.values - base, rcond=None)[0])

    def _error(self, family: list[int], true: np.ndarray) -> float:
        """By how much a counted step may differ from what the other ones foretell; infinity where they cannot."""
        terms = self.counted[:, family]
        # Counted steps must tell all that they differ in, and one more tell that the polynomial holds.
        rank = int(np.linalg.matrix_rank(np.concatenate((terms, self.wanted[self.reached][:, family]))))
        if not 1 < rank < len(terms):
            return np.inf
        worst = 0.0
        for left_out in range(len(terms)):
            remaining = np.arange(len(terms)) != left_out
            if np.linalg.matrix_rank(terms[remaining]) < rank:
                return np.inf
            foretold = terms[left_out] @ np.linalg.lstsq(terms[remaining], true[remaining], rcond=None)[0]
            worst = max(worst, float((np.abs(foretold - true[left_out]) / np.maximum(true[left_out], 1)).max()))
        return worst


@dataclass(frozen=True)
class _Table:
    """The tallies of several counted steps as numbers: steps x (places x columns)."""

    places: tuple[tuple[str, str], ...]
    """Which group of tallies (`phases`, `layers`, `own`) and which name in it."""
    values: np.ndarray

    @classmethod
    def of(cls, counted: Sequence[Counts]) -> _Table:
        places = tuple(
            dict.fromkeys(
                (group, name)
                for counts in counted
                for group in ("phases", "layers", "own")
                for name in _group(counts, group)
            )
        )
        nothing = Tally()
        rows = []
        for counts in counted:
            tallies = [_group(counts, group).get(name, nothing) for group, name in places]
            rows.append([[getattr(tally, column) for column in COLUMNS] for tally in tallies])
        cells = np.array(rows, dtype=np.float64)
        # What an optimizer does depends on no input; in its first step it makes its state besides.
        fixed = [place == ("phases", "optimizer") for place in places]
        cells[:, fixed] = np.median(cells[:, fixed], axis=0)
        return cls(places, cells.reshape(len(rows), -1))

    @property
    def totals(self) -> np.ndarray:
        """FLOPs and bytes of each step's phases together."""
        cells = self.values.reshape(len(self.values), len(self.places), len(COLUMNS))
        phases = cells[:, [group == "phases" for group, _ in self.places]].sum(axis=1)
        work: np.ndarray = phases[:, [COLUMNS.index("flops"), COLUMNS.index("bytes")]]
        return work

    def counts(self, values: np.ndarray, counted: Sequence[Counts]) -> Counts:
        """These values as counts; what is held in memory is the most that any step held."""
        tallies = values.reshape(len(self.places), len(COLUMNS)).tolist()
        groups: dict[str, dict[str, Tally]] = {"phases": {}, "layers": {}, "own": {}}
        for (group, name), tally in zip(self.places, tallies, strict=True):
            groups[group][name] = Tally(*tally)

        def joined(field: str) -> dict[str, Any]:
            return {key: value for counts in counted for key, value in getattr(counts, field).items()}

        def most(field: str) -> dict[str, float]:
            names = joined(field)
            return {name: max(getattr(counts, field).get(name, 0.0) for counts in counted) for name in names}

        return replace(
            counted[0],
            phases=groups["phases"],
            layers=groups["layers"],
            own=groups["own"],
            names=joined("names"),
            calls=joined("calls"),
            leaves=joined("leaves"),
            depths=joined("depths"),
            activations=most("activations"),
            peak_memory=most("peak_memory"),
            phase_names=tuple(dict.fromkeys(name for counts in counted for name in counts.phase_names)),
        )


def _group(counts: Counts, group: str) -> dict[str, Tally]:
    tallies: dict[str, Tally] = getattr(counts, group)
    return tallies
