"""The search for the tiles that take least, of many operations on many machines at once.

Every operation on every machine is a search of its own, as `search` does it where the buffer is unlimited, and ends
with the same tile. What they share is done once: tiles and what sums rightly do not depend on the ports, lower bounds
depend on the write ports only by how fast results leave, and trials of all searches are simulated in one go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines import flexible_dense
from sonda.accelerators.engines.kinds.flexible_dense import Form
from sonda.accelerators.engines.machines import picked, together
from sonda.accelerators.engines.result import largest
from sonda.accelerators.mapping import least_cycles
from sonda.accelerators.mapping.candidate_tiles import N, X, Y, candidates, extents, multiplied
from sonda.accelerators.mapping.search import MOST_TRIED
from sonda.accelerators.operations.layer import Layer, Tile

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
    place: int = -1
    """Of what was found in the order of trying; a start is before all."""
    least: Whole = field(default_factory=lambda: NOTHING)
    """Lower bounds of what is left to try, which ascend."""
    rows: Whole = field(default_factory=lambda: NOTHING)
    """Which tiles they belong to."""
    places: Whole = field(default_factory=lambda: NOTHING)
    """Their places in the order in which a search tries that makes one trial after the other."""

    def take(self, tiles: Tiled, row: int, cycles: int, place: int = -1) -> None:
        """A tile whose layer takes so many cycles; of those that take as long, the first in order is kept."""
        cycles *= int(tiles.count[row])
        if (cycles, place) < (self.cycles, self.place) and cycles < NEVER:
            self.found, self.cycles, self.place = (tiles, row), cycles, place

    def take_tried(self, tiles: Tiled, cycles: list[int]) -> None:
        """The first of what was left took so many cycles. What cannot be better any more is left out."""
        for row, place, taken in zip(self.rows.tolist(), self.places.tolist(), cycles, strict=False):
            self.take(tiles, row, taken, place)
        self.keep(slice(len(cycles), None))
        self.keep((self.least < self.cycles) | ((self.least == self.cycles) & (self.places < self.place)))

    def keep(self, which: Any) -> None:
        """Of what is left only these."""
        self.least, self.rows, self.places = self.least[which], self.rows[which], self.places[which]


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
        worthy.append(_order(some, *_listed(forms, machines[0], max(one.cycles for one in some)), forms, machines))
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
    for number in range(max(map(len, starts))):
        begun = [(row, own[number]) for row, own in zip(searches, starts, strict=True) if number < len(own)]
        ones = [one for row, _ in begun for one in row]
        tried = _joined([tiles for _, tiles in begun])
        of = np.array([one.machine for one in ones])
        able = flexible_dense.runs_all(picked(every, of), tried.layers, tried.tiles) & (tried.form >= 0)
        rows = np.flatnonzero(able)
        if number:
            # One that takes longer by its bound than the one before is not worth a simulation.
            so_far = np.array([ones[row].cycles for row in rows.tolist()], np.int64)
            some = tried.at(rows)
            least = least_cycles.of_tiles(picked(every, of[rows]), Layer(*some.layers.T), some.tiles)
            rows = rows[some.count * least < so_far]
        for row, taken in zip(rows.tolist(), _cycles(every, of[rows], tried.at(rows)).tolist(), strict=True):
            ones[row].take(tried, row, taken)


def _try(searches: list[_Search], tiles: Tiled, every: Hardware) -> None:
    """Simulate what searches have to try until none has anything left that may take less.

    Machines with the most write ports come first, because a tile takes no fewer cycles with fewer of them: lines of the
    bus are then joined, so results come no sooner to the buffer, which takes half of all that came, and blocks that
    wait for them begin no sooner. Only partial sums that go through memory could make room for each other.
    """
    layer, tile = Layer(*tiles.layers.T), Tile(*tiles.tiles.T)
    holds = ~np.asarray(tile.folds_through_memory(every, layer), dtype=bool)
    reads, writes = np.asarray(every.read_ports), np.asarray(every.write_ports)
    known = {ports: np.zeros(len(holds), np.int64) for ports in set(reads.tolist())}
    by_ports: dict[int, list[_Search]] = {}
    for one in searches:
        by_ports.setdefault(int(writes[one.machine]), []).append(one)
    for ports in sorted(by_ports, reverse=True):
        for one in by_ports[ports]:
            one.least = np.maximum(one.least, known[int(reads[one.machine])][one.rows])
            one.keep(np.argsort(one.least, kind="stable"))
            one.take_tried(tiles, [])
        _rounds(by_ports[ports], tiles, every, known, holds)


def _rounds(
    searches: list[_Search], tiles: Tiled, every: Hardware, known: dict[int, Whole], holds: NDArray[np.bool_]
) -> None:
    """Round by round, with more and more trials of each."""
    trials = FIRST
    while under_way := [one for one in searches if len(one.least)]:
        each = [min(trials, len(one.least)) for one in under_way]
        rows = np.concatenate([one.rows[:many] for one, many in zip(under_way, each, strict=True)])
        of = np.repeat([one.machine for one in under_way], each)
        cycles = _cycles(every, of, tiles.at(rows))
        for ports, taken in known.items():
            its = holds[rows] & (np.asarray(every.read_ports)[of] == ports)
            taken[rows[its]] = (tiles.count[rows] * cycles)[its]
        first = 0
        for one, many in zip(under_way, each, strict=True):
            one.take_tried(tiles, cycles[first : first + many].tolist())
            first += many
        trials *= 2


def _listed(forms: tuple[Form, ...], machine: Hardware, most: int) -> tuple[Tiled, Whole]:
    """All tiles of an operation that may take fewer cycles than these, whatever the ports, and that can be simulated;
    those of its forms one after the other. With them the cycles that they take at least, whatever the ports."""
    parts, bounds = [], []
    for number, form in enumerate(forms):
        layer = form.layer.check()
        tiles = candidates(machine, layer)
        parted = -(-extents(layer) // tiles)
        # Every step sends an element, and so does every fold before them.
        fewest = form.count * multiplied(parted[:, : N + 1]) * (1 + parted[:, X] * parted[:, Y])
        tiles, fewest = tiles[fewest < most], fewest[fewest < most]
        layers = np.tile(np.array(layer.sizes, np.int64), (len(tiles), 1))
        able = flexible_dense.runs_all(machine, layers, tiles)
        many = int(able.sum())
        parts.append(Tiled(np.full(many, number), layers[able], np.full(many, form.count), tiles[able]))
        bounds.append(fewest[able])
    return _joined(parts), np.concatenate(bounds)


def _order(
    searches: list[_Search], listed: Tiled, fewest: Whole, forms: tuple[Form, ...], machines: Sequence[Hardware]
) -> Tiled:
    """Gives every search what it has to try, in order: the tiles that take less than its start by their lower bounds.
    Returns those that any of them has."""
    alike: dict[int, list[_Search]] = {}
    for one in searches:
        alike.setdefault(machines[one.machine].read_ports, []).append(one)
    for read_ports, some in alike.items():
        # All that the write ports change is how fast results go; with the most of them that never counts.
        machine = replace(machines[0], read_ports=read_ports, write_ports=machines[0].multipliers)
        longest = max(one.cycles for one in some)
        worthy = np.flatnonzero(fewest < longest)
        bounds, results = _bounds(machine, forms, listed.form[worthy], listed.tiles[worthy])
        kept = bounds < longest
        worthy, bounds, results = worthy[kept], bounds[kept], results[kept]
        count = listed.count[worthy]
        for one in some:
            least = np.maximum(bounds, count * least_cycles.written(machines[one.machine], results))
            chosen = np.flatnonzero(least < one.cycles)
            if len(chosen) > MOST_TRIED:
                chosen = chosen[least[chosen] <= np.partition(least[chosen], MOST_TRIED)[MOST_TRIED]]
            # Of those that take as long at least, the first that is listed.
            chosen = chosen[np.argsort(least[chosen], kind="stable")][:MOST_TRIED]
            one.least, one.rows, one.places = least[chosen], worthy[chosen], np.arange(len(chosen))
    which, places = np.unique(np.concatenate([one.rows for one in searches]), return_inverse=True)
    first = 0
    for one in searches:
        one.rows = places[first : first + len(one.rows)]
        first += len(one.rows)
    return listed.at(which)


def _bounds(machine: Hardware, forms: tuple[Form, ...], form: Whole, tiles: Whole) -> tuple[Whole, Whole]:
    """Cycles that tiles of these forms, which ascend, take at least; and the results of one layer."""
    ends = np.searchsorted(form, np.arange(len(forms) + 1))
    parts = [(one, tiles[begin:end]) for one, begin, end in zip(forms, ends, ends[1:], strict=False)]
    bounds = [one.count * least_cycles.of_tiles(machine, one.layer, its) for one, its in parts]
    return np.concatenate(bounds), np.concatenate(
        [least_cycles.results_of(machine, one.layer, its) for one, its in parts]
    )


def _cycles(every: Hardware, of: Whole, tiles: Tiled) -> Whole:
    """Of layers under tiles, each on the machine of this number."""
    cycles = np.empty(len(of), np.int64)
    portion = max(1, AT_ONCE // largest(every.multipliers))
    for begin in range(0, len(of), portion):
        some = slice(begin, begin + portion)
        cycles[some] = flexible_dense.cycles_all(picked(every, of[some]), tiles.layers[some], tiles.tiles[some])
    return cycles
