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
from sonda.accelerators.engines.machines import select_machines, stack_machines
from sonda.accelerators.engines.result import largest
from sonda.accelerators.mapping import least_cycles
from sonda.accelerators.mapping.candidate_tiles import N, X, Y, candidates, extents, row_products
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
    best: tuple[Tiled, int] | None = None
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
            self.best, self.cycles, self.place = (tiles, row), cycles, place

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
    stacked = stack_machines(machines, 1)
    _try_starts(searches, stacked, starts)
    worthy = []
    first = 0
    for place, forms in enumerate(operations):
        some = [row[place] for row in searches]
        worthy.append(
            _assign_trials(
                some, *_list_tiles(forms, machines[0], max(search.cycles for search in some)), forms, machines
            )
        )
        for search in some:
            search.rows = search.rows + first
        first += len(worthy[-1].form)
    _try_all([search for row in searches for search in row], _concatenate(worthy), stacked)
    return [_best_tiles(row) for row in searches]


def _concatenate(parts: Sequence[Tiled]) -> Tiled:
    return Tiled(*(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(Tiled)))


def _best_tiles(searches: list[_Search]) -> Tiled | None:
    rows = [search.best[0].at(np.array([search.best[1]])) for search in searches if search.best is not None]
    return _concatenate(rows) if len(rows) == len(searches) else None


def _try_starts(searches: list[list[_Search]], stacked: Hardware, starts: Sequence[Sequence[Tiled]]) -> None:
    """The first of the starts that take least is what a search has found so far."""
    for number in range(max(map(len, starts))):
        begun = [(row, own[number]) for row, own in zip(searches, starts, strict=True) if number < len(own)]
        flat_searches = [search for row, _ in begun for search in row]
        tried = _concatenate([tiles for _, tiles in begun])
        machine_of = np.array([search.machine for search in flat_searches])
        able = flexible_dense.runs_all(select_machines(stacked, machine_of), tried.layers, tried.tiles) & (
            tried.form >= 0
        )
        rows = np.flatnonzero(able)
        if number:
            # One that takes longer by its bound than the one before is not worth a simulation.
            so_far = np.array([flat_searches[row].cycles for row in rows.tolist()], np.int64)
            some = tried.at(rows)
            least = least_cycles.tile_cycles(
                select_machines(stacked, machine_of[rows]), Layer(*some.layers.T), some.tiles
            )
            rows = rows[some.count * least < so_far]
        for row, taken in zip(rows.tolist(), _cycles(stacked, machine_of[rows], tried.at(rows)).tolist(), strict=True):
            flat_searches[row].take(tried, row, taken)


def _try_all(searches: list[_Search], tiles: Tiled, stacked: Hardware) -> None:
    """Simulate what searches have to try until none has anything left that may take less.

    Machines with the most write ports come first, because a tile takes no fewer cycles with fewer of them: lines of the
    bus are then joined, so results come no sooner to the buffer, which takes half of all that came, and blocks that
    wait for them begin no sooner. Only partial sums that go through memory could make room for each other.
    """
    layer, tile = Layer(*tiles.layers.T), Tile(*tiles.tiles.T)
    holds = ~np.asarray(tile.folds_through_memory(stacked, layer), dtype=bool)
    reads, writes = np.asarray(stacked.read_ports), np.asarray(stacked.write_ports)
    known = {ports: np.zeros(len(holds), np.int64) for ports in set(reads.tolist())}
    by_ports: dict[int, list[_Search]] = {}
    for search in searches:
        by_ports.setdefault(int(writes[search.machine]), []).append(search)
    for ports in sorted(by_ports, reverse=True):
        for search in by_ports[ports]:
            search.least = np.maximum(search.least, known[int(reads[search.machine])][search.rows])
            search.keep(np.argsort(search.least, kind="stable"))
            search.take_tried(tiles, [])
        _run_rounds(by_ports[ports], tiles, stacked, known, holds)


def _run_rounds(
    searches: list[_Search], tiles: Tiled, stacked: Hardware, known: dict[int, Whole], holds: NDArray[np.bool_]
) -> None:
    """Round by round, with more and more trials of each."""
    trials = FIRST
    while under_way := [search for search in searches if len(search.least)]:
        trial_counts = [min(trials, len(search.least)) for search in under_way]
        rows = np.concatenate([search.rows[:many] for search, many in zip(under_way, trial_counts, strict=True)])
        machine_of = np.repeat([search.machine for search in under_way], trial_counts)
        cycles = _cycles(stacked, machine_of, tiles.at(rows))
        for ports, taken in known.items():
            matching = holds[rows] & (np.asarray(stacked.read_ports)[machine_of] == ports)
            taken[rows[matching]] = (tiles.count[rows] * cycles)[matching]
        first = 0
        for search, many in zip(under_way, trial_counts, strict=True):
            search.take_tried(tiles, cycles[first : first + many].tolist())
            first += many
        trials *= 2


def _list_tiles(forms: tuple[Form, ...], machine: Hardware, most: int) -> tuple[Tiled, Whole]:
    """All tiles of an operation that may take fewer cycles than these, whatever the ports, and that can be simulated;
    those of its forms one after the other. With them the cycles that they take at least, whatever the ports."""
    parts, bounds = [], []
    for number, form in enumerate(forms):
        layer = form.layer.check()
        tiles = candidates(machine, layer)
        parted = -(-extents(layer) // tiles)
        # Every step sends an element, and so does every fold before them.
        fewest = form.count * row_products(parted[:, : N + 1]) * (1 + parted[:, X] * parted[:, Y])
        tiles, fewest = tiles[fewest < most], fewest[fewest < most]
        layers = np.tile(np.array(layer.sizes, np.int64), (len(tiles), 1))
        able = flexible_dense.runs_all(machine, layers, tiles)
        many = int(able.sum())
        parts.append(Tiled(np.full(many, number), layers[able], np.full(many, form.count), tiles[able]))
        bounds.append(fewest[able])
    return _concatenate(parts), np.concatenate(bounds)


def _assign_trials(
    searches: list[_Search], listed: Tiled, fewest: Whole, forms: tuple[Form, ...], machines: Sequence[Hardware]
) -> Tiled:
    """Gives every search what it has to try, in order: the tiles that take less than its start by their lower bounds.
    Returns those that any of them has."""
    alike: dict[int, list[_Search]] = {}
    for search in searches:
        alike.setdefault(machines[search.machine].read_ports, []).append(search)
    for read_ports, some in alike.items():
        # All that the write ports change is how fast results go; with the most of them that never counts.
        machine = replace(machines[0], read_ports=read_ports, write_ports=machines[0].multipliers)
        longest = max(search.cycles for search in some)
        worthy = np.flatnonzero(fewest < longest)
        bounds, results = _bounds(machine, forms, listed.form[worthy], listed.tiles[worthy])
        kept = bounds < longest
        worthy, bounds, results = worthy[kept], bounds[kept], results[kept]
        count = listed.count[worthy]
        for search in some:
            least = np.maximum(bounds, count * least_cycles.write_cycles(machines[search.machine], results))
            chosen = np.flatnonzero(least < search.cycles)
            if len(chosen) > MOST_TRIED:
                chosen = chosen[least[chosen] <= np.partition(least[chosen], MOST_TRIED)[MOST_TRIED]]
            # Of those that take as long at least, the first that is listed.
            chosen = chosen[np.argsort(least[chosen], kind="stable")][:MOST_TRIED]
            search.least, search.rows, search.places = least[chosen], worthy[chosen], np.arange(len(chosen))
    which, places = np.unique(np.concatenate([search.rows for search in searches]), return_inverse=True)
    first = 0
    for search in searches:
        search.rows = places[first : first + len(search.rows)]
        first += len(search.rows)
    return listed.at(which)


def _bounds(machine: Hardware, forms: tuple[Form, ...], form_numbers: Whole, tiles: Whole) -> tuple[Whole, Whole]:
    """Cycles that tiles of these forms, which ascend, take at least; and the results of one layer."""
    ends = np.searchsorted(form_numbers, np.arange(len(forms) + 1))
    parts = [(form, tiles[begin:end]) for form, begin, end in zip(forms, ends, ends[1:], strict=False)]
    bounds = [form.count * least_cycles.tile_cycles(machine, form.layer, its) for form, its in parts]
    return np.concatenate(bounds), np.concatenate(
        [least_cycles.sent_results(machine, form.layer, its) for form, its in parts]
    )


def _cycles(stacked: Hardware, machine_of: Whole, tiles: Tiled) -> Whole:
    """Of layers under tiles, each on the machine of this number."""
    cycles = np.empty(len(machine_of), np.int64)
    portion = max(1, AT_ONCE // largest(stacked.multipliers))
    for begin in range(0, len(machine_of), portion):
        some = slice(begin, begin + portion)
        cycles[some] = flexible_dense.cycles_all(
            select_machines(stacked, machine_of[some]), tiles.layers[some], tiles.tiles[some]
        )
    return cycles
