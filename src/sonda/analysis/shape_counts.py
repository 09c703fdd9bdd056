"""What the steps of a part did where their inputs differ in shape: counted for some, and from their sizes for others.

FLOPs and bytes of a network are polynomials in the sizes of its input: linear in the batch, quadratic in the length of
a text that attends to itself. A polynomial that foretells every counted shape from the other ones holds for those that
were not counted. Where none does (a program that decides by its data), the counted shapes stand for themselves only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sonda.analysis import wording
from sonda.analysis.counts import COLUMNS, Counts, Tally, count, counted_step
from sonda.analysis.parts import Part, shapes_of
from sonda.analysis.roofline import Ceilings
from sonda.record.quantity import INPUT_SIZES

FORETOLD = 0.01
"""A polynomial holds where it foretells FLOPs and bytes of each counted step within this, from the other ones."""
REACH = 2.0
"""Sizes beyond this factor of those that were counted are not foretold."""

_POLYNOMIALS: dict[int, list[tuple[tuple[int, ...], ...]]] = {
    1: [((0,), (1,)), ((0,), (1,), (2,))],
    2: [
        ((0, 0), (1, 0), (0, 1)),
        ((0, 0), (1, 0), (0, 1), (1, 1)),
        ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (0, 2)),
        ((0, 0), (1, 0), (0, 1), (1, 1), (2, 1), (1, 2)),
    ],
    3: [
        ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)),
        ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (1, 0, 1), (0, 1, 1)),
    ],
}
"""By the number of sizes that differ: the polynomials that are tried, each as the powers of its terms."""


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
    note: str = ""


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
        return PartCounts(counts)
    note = (
        f"{part.name}: the steps have several input shapes; FLOPs, rates and roofs are those of the most frequent one "
        f"that was counted ({_of_steps(part.alike)})"
    )
    return PartCounts(counts, covered=part.alike, note=note)


def _of_steps(covered: np.ndarray) -> str:
    share = f", {wording.percent(float(covered.mean()))}" if len(covered) else ""
    return f"{int(covered.sum())} of {len(covered)} steps{share}"


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
    sizes, wanted = (_sizes(part, where) for where in (np.array(list(rows.values())), part.rows[part.measured]))
    foretell = _find_polynomial(sizes, table)
    order = {shape: at for at, shape in enumerate(counted)}
    values: list[np.ndarray] = []
    covered = np.zeros(len(shapes), dtype=bool)
    for at, shape in enumerate(shapes):
        if shape in order:
            values.append(table.values[order[shape]])
        elif foretell is not None and _reached(wanted[at], sizes):
            values.append(foretell(wanted[at]))
        else:
            continue
        covered[at] = True
    if not covered.any() or (foretell is None and len({shape for shape in shapes if shape in order}) < 2):
        return None
    counts = table.counts(np.mean(values, axis=0), list(counted.values()))
    many = len(np.unique(shapes[~np.isnan(shapes)]))
    how = f"of which {len(counted)} were counted"
    if foretell is not None:
        how += " and the others follow from their sizes"
    note = f"{part.name}: the steps have {many} input shapes, {how}; FLOPs are means over {_of_steps(covered)}"
    return PartCounts(counts, covered=covered, means=True, note=note)


def _sizes(part: Part, rows: np.ndarray) -> np.ndarray:
    """The sizes in which inputs differ, steps x sizes; none where they are not known."""
    spans = part.index.spans
    columns = [spans.metric(name, "counted")[rows] for name in INPUT_SIZES]
    told = [column for column in columns if len(column) and not np.isnan(column).all()]
    return np.array(told).T if told else np.zeros((len(rows), 0))


def _reached(wanted: np.ndarray, sizes: np.ndarray) -> bool:
    """Whether sizes are near enough to those that were counted."""
    if len(wanted) != sizes.shape[1] or np.isnan(wanted).any():
        return False
    return bool(((wanted >= sizes.min(axis=0) / REACH) & (wanted <= sizes.max(axis=0) * REACH)).all())


def _find_polynomial(sizes: np.ndarray, table: _Table) -> _Polynomial | None:
    """What foretells all values of a step from its sizes, or None."""
    if np.isnan(sizes).any():
        return None
    for powers in _POLYNOMIALS.get(sizes.shape[1], []):
        terms = _terms(sizes, powers)
        if len(terms) <= len(powers):
            break
        if _foretells(terms, table):
            solved = np.linalg.lstsq(terms, table.values, rcond=None)[0]
            return _Polynomial(powers, solved)
    return None


@dataclass(frozen=True)
class _Polynomial:
    """All values of a step as polynomials in its sizes."""

    powers: Sequence[tuple[int, ...]]
    factors: np.ndarray

    def __call__(self, sizes: np.ndarray) -> np.ndarray:
        foretold: np.ndarray = np.maximum(_terms(sizes[None], self.powers)[0] @ self.factors, 0)
        return foretold


def _terms(sizes: np.ndarray, powers: Sequence[tuple[int, ...]]) -> np.ndarray:
    return np.array([np.prod(sizes ** np.array(power), axis=1) for power in powers]).T


def _foretells(terms: np.ndarray, table: _Table) -> bool:
    """Whether every counted step follows from the other ones."""
    true = table.totals
    for left_out in range(len(terms)):
        others = np.arange(len(terms)) != left_out
        scale = np.abs(terms[others]).max(axis=0)
        if np.linalg.matrix_rank(terms[others] / scale) < terms.shape[1]:
            return False
        solved = np.linalg.lstsq(terms[others] / scale, true[others], rcond=None)[0]
        foretold = (terms[left_out] / scale) @ solved
        if (np.abs(foretold - true[left_out]) > FORETOLD * np.maximum(true[left_out], 1)).any():
            return False
    return True


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
        return phases[:, [COLUMNS.index("flops"), COLUMNS.index("bytes")]]

    def counts(self, values: np.ndarray, counted: Sequence[Counts]) -> Counts:
        """These values as counts; what is held in memory is the most that any step held."""
        tallies = values.reshape(len(self.places), len(COLUMNS)).tolist()
        groups: dict[str, dict[str, Tally]] = {"phases": {}, "layers": {}, "own": {}}
        for (group, name), tally in zip(self.places, tallies, strict=True):
            groups[group][name] = Tally(*tally)

        def joined(field: str) -> dict:
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
