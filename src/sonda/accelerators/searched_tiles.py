"""The search for the tiles that take least, of many operations on many machines at once.

Every operation on every machine is a search of its own, as `search` does it where the buffer is unlimited, and ends
with the same tile. What they share is done once: tiles and what sums rightly do not depend on the ports, lower bounds
depend on the write ports only by how fast results leave, and trials of all searches are simulated in one go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators import least_cycles
from sonda.accelerators.candidate_tiles import N, X, Y, candidates, extents, multiplied
from sonda.accelerators.dense_operation import Form
from sonda.accelerators.engines import flexible_dense
from sonda.accelerators.hardware import Hardware
from sonda.accelerators.machines import together
from sonda.accelerators.result import largest
from sonda.accelerators.search import MOST_TRIED

Whole = NDArray[np.int64]
AT_ONCE = 1 << 18
"""Multipliers of all trials that are simulated in one go: their paths fill a cache."""
FIRST = 4
"""Trials of a search in its first round; every round has twice as many."""
NEVER = np.iinfo(np.int64).max
NOTHING = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Tiled:
    """Tiles, each of a form of an operation: rows of arrays."""

    form: Whole
    """Its number among the forms of its operation."""
    layers: Whole
    count: Whole
    """Layers like it that follow each other."""
    tiles: Whole

    def at(self, rows: Whole) -> Tiled:
        """Some of them."""
        return Tiled(self.form[rows], self.layers[rows], self.count[rows], self.tiles[rows])


@dataclass
class _Search:
    """One operation on one machine: what it has found, and what is left to try."""

    machine: int
    found: tuple[Tiled, int] | None = None
    """A row of tiles."""
    cycles: int = NEVER
    least: Whole = field(default_factory=lambda: NOTHING)
    """Lower bounds, which ascend."""
    rows: Whole = field(default_factory=lambda: NOTHING)
    """Which tiles they belong to."""

    def take(self, tiles: Tiled, row: int, cycles: int) -> None:
        """A tile whose layer takes so many cycles; of those that take as long, the first is kept."""
        cycles *= int(tiles.count[row])
        if cycles < self.cycles:
            self.found, self.cycles = (tiles, row), cycles

    def take_tried(self, tiles: Tiled, cycles: list[int]) -> None:
        """Go through trials in their order, as a search does that makes one after the other."""
        for row, least, taken in zip(self.rows.tolist(), self.least.tolist(), cycles, strict=False):
            if least >= self.cycles:
                break
            self.take(tiles, row, taken)
        self.least, self.rows = self.least[len(cycles) :], self.rows[len(cycles) :]
        if len(self.least) and self.least[0] >= self.cycles:
            self.least = self.rows = NOTHING


def search_all(
    operations: Sequence[tuple[Form, ...]], machines: Sequence[Hardware], starts: Sequence[Sequence[Tiled]]
) -> list[Tiled | None]:
    """The tiles of all operations on each machine: of its starts, which have a row for each operation (-1 instead of
    the form where there is none), and of all tiles of all forms, those of the fewest cycles.

    Machines have all but their ports in common. Nothing for a machine where an operation has no tile.
    """
    searches = [[_Search(number) for _ in operations] for number in range(len(machines))]
    every = together(machines, 1)
    _begin(searches, every, starts)
    worthy = []
    first = 0
    for place, forms in enumerate(operations):
        some = [row[place] for row in searches]
        worthy.append(_order(some, _listed(forms, machines[0], max(one.cycles for one in some)), forms, machines))
        for one in some:
            one.rows = one.rows + first
        first += len(worthy[-1].form)
    _try([one for row in searches for one in row], _joined(worthy), every)
    return [_found(row) for row in searches]


def _joined(parts: Sequence[Tiled]) -> Tiled:
    return Tiled(*(np.concatenate([getattr(one, part.name) for one in parts]) for part in fields(Tiled)))


def _found(searches: list[_Search]) -> Tiled | None:
    rows = [one.found[0].at(np.array([one.found[1]])) for one in searches if one.found is not None]
    return _joined(rows) if len(rows) == len(searches) else None


def _begin(searches: list[list[_Search]], every: Hardware, starts: Sequence[Sequence[Tiled]]) -> None:
    """The first of the starts that take least is what a search has found so far."""
    begun = [(row, tiles) for row, own in zip(searches, starts, strict=True) for tiles in own]
    tried = _joined([tiles for _, tiles in begun])
    of = np.repeat([row[0].machine for row, _ in begun], [len(tiles.form) for _, tiles in begun])
    able = np.flatnonzero((tried.form >= 0) & flexible_dense.runs_all(_some(every, of), tried.layers, tried.tiles))
    cycles = np.full(len(of), NEVER)
    cycles[able] = _cycles(every, of[able], tried.at(able))
    first = 0
    for row, tiles in begun:
        for place, one in enumerate(row):
            if cycles[first + place] < NEVER:
                one.take(tiles, place, int(cycles[first + place]))
        first += len(row)


def _try(searches: list[_Search], tiles: Tiled, every: Hardware) -> None:
    """Simulate what searches have to try, round by round, until none has anything left that may take less."""
    trials = FIRST
    while under_way := [one for one in searches if len(one.least)]:
        each = [min(trials, int(np.searchsorted(one.least, one.cycles))) for one in under_way]
        rows = np.concatenate([one.rows[:many] for one, many in zip(under_way, each, strict=True)])
        cycles = _cycles(every, np.repeat([one.machine for one in under_way], each), tiles.at(rows)).tolist()
        first = 0
        for one, many in zip(under_way, each, strict=True):
            one.take_tried(tiles, cycles[first : first + many])
            first += many
        trials *= 2


def _listed(forms: tuple[Form, ...], machine: Hardware, most: int) -> Tiled:
    """All tiles of an operation that may take fewer cycles than these, whatever the ports, and that can be simulated;
    those of its forms one after the other."""
    parts = []
    for number, form in enumerate(forms):
        layer = form.layer.check()
        tiles = candidates(machine, layer)
        parted = -(-extents(layer) // tiles)
        # Every step sends an element, and so does every fold before them.
        fewest = multiplied(parted[:, : N + 1]) * (1 + parted[:, X] * parted[:, Y])
        tiles = tiles[form.count * fewest < most]
        layers = np.tile(np.array(layer.sizes, np.int64), (len(tiles), 1))
        able = flexible_dense.runs_all(machine, layers, tiles)
        many = int(able.sum())
        parts.append(Tiled(np.full(many, number), layers[able], np.full(many, form.count), tiles[able]))
    return _joined(parts)


def _order(searches: list[_Search], listed: Tiled, forms: tuple[Form, ...], machines: Sequence[Hardware]) -> Tiled:
    """Gives every search what it has to try, in order: the tiles that take less than its start by their lower bounds.
    Returns those that any of them has."""
    ends = np.searchsorted(listed.form, np.arange(len(forms) + 1))
    parts = [(form, listed.tiles[begin:end]) for form, begin, end in zip(forms, ends, ends[1:], strict=False)]
    results = np.concatenate([least_cycles.results_of(machines[0], form.layer, tiles) for form, tiles in parts])
    alike: dict[int, list[_Search]] = {}
    for one in searches:
        alike.setdefault(machines[one.machine].read_ports, []).append(one)
    for read_ports, some in alike.items():
        # All that the write ports change is how fast results go; with the most of them that never counts.
        machine = replace(machines[0], read_ports=read_ports, write_ports=machines[0].multipliers)
        bounds = np.concatenate(
            [form.count * least_cycles.of_tiles(machine, form.layer, tiles) for form, tiles in parts]
        )
        worthy = np.flatnonzero(bounds < max(one.cycles for one in some))
        bounds, count, sent = bounds[worthy], listed.count[worthy], results[worthy]
        for one in some:
            least = np.maximum(bounds, count * least_cycles.written(machines[one.machine], sent))
            chosen = np.flatnonzero(least < one.cycles)
            if len(chosen) > MOST_TRIED:
                chosen = chosen[least[chosen] <= np.partition(least[chosen], MOST_TRIED)[MOST_TRIED]]
            # Of those that take as long at least, the first that is listed.
            chosen = chosen[np.argsort(least[chosen], kind="stable")][:MOST_TRIED]
            one.least, one.rows = least[chosen], worthy[chosen]
    which, places = np.unique(np.concatenate([one.rows for one in searches]), return_inverse=True)
    first = 0
    for one in searches:
        one.rows = places[first : first + len(one.rows)]
        first += len(one.rows)
    return listed.at(which)


def _cycles(every: Hardware, of: Whole, tiles: Tiled) -> Whole:
    """Of layers under tiles, each on the machine of this number."""
    cycles = np.empty(len(of), np.int64)
    portion = max(1, AT_ONCE // largest(every.multipliers))
    for begin in range(0, len(of), portion):
        some = slice(begin, begin + portion)
        cycles[some] = flexible_dense.cycles_all(_some(every, of[some]), tiles.layers[some], tiles.tiles[some])
    return cycles


def _some(every: Hardware, of: Whole) -> Hardware:
    """Of many machines at once those of these numbers."""
    return replace(
        every,
        multipliers=every.multipliers[of],  # type: ignore[index]  # arrays
        read_ports=every.read_ports[of],  # type: ignore[index]
        write_ports=every.write_ports[of],  # type: ignore[index]
    )
