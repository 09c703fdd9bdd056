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
from sonda.accelerators.operations.layer import StonneLayer, Tile

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
        """The tiles of these rows."""
        return Tiled(self.form[rows], self.layers[rows], self.count[rows], self.tiles[rows])


@dataclass
class _Search:
    """One operation on one machine: the best tile so far, and what is left to try."""

    machine: int
    best: tuple[Tiled, int] | None = None
    """Tiles, and the row of the best."""
    cycles: int = NEVER
    place: int = -1
    """Place of the best tile in the order of trying; -1 for a start."""
    least: Whole = field(default_factory=lambda: NOTHING)
    """Lower bounds of what is left to try, which ascend."""
    rows: Whole = field(default_factory=lambda: NOTHING)
    """Which tiles they belong to."""
    places: Whole = field(default_factory=lambda: NOTHING)
    """Their places in the order of a search that makes one trial after the other."""

    def take(self, tiles: Tiled, row: int, cycles: int, place: int = -1) -> None:
        """Keep the tile of this row if it takes fewer cycles than the best; of equals the first in order."""
        cycles *= int(tiles.count[row])
        if (cycles, place) < (self.cycles, self.place) and cycles < NEVER:
            self.best, self.cycles, self.place = (tiles, row), cycles, place

    def take_tried(self, tiles: Tiled, cycles: list[int]) -> None:
        """Note the cycles of the first tiles that were left to try. Drop those that cannot be better any more."""
        for row, place, taken in zip(self.rows.tolist(), self.places.tolist(), cycles, strict=False):
            self.take(tiles, row, taken, place)
        self.keep(slice(len(cycles), None))
        self.keep((self.least < self.cycles) | ((self.least == self.cycles) & (self.places < self.place)))

    def keep(self, which: Any) -> None:
        """Keep only these of the tiles that are left to try."""
        self.least, self.rows, self.places = self.least[which], self.rows[which], self.places[which]


def search_all(
    operations: Sequence[tuple[Form, ...]], machines: Sequence[Hardware], starts: Sequence[Sequence[Tiled]]
) -> list[Tiled | None]:
    """The tiles of fewest cycles, for all operations on each machine.

    They are chosen from the machine's starts and from all tiles of all forms. A start has a row for each operation,
    with -1 for the form where it has no tile. Machines differ in their ports only. None for a machine where an
    operation has no tile.
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
    """Give every search the fastest of its starts, the first of equals."""
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
                select_machines(stacked, machine_of[rows]), StonneLayer(*some.layers.T), some.tiles
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
    layer, tile = StonneLayer(*tiles.layers.T), Tile(*tiles.tiles.T)
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
    """Simulate trials in rounds; every round has twice as many of each search."""
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
    """Tiles of an operation that may take fewer than `most` cycles, form after form, and their least cycles.

    Both hold whatever the ports are. Only tiles that can be simulated are listed.
    """
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
    """Give every search the tiles that it has to try, in the order of their lower bounds.

    These are the tiles whose bound is below the cycles of its start. Returns the tiles that any search has to try.
    """
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
    """Cycles that tiles take at least, and the results of one layer. The numbers of their forms ascend."""
    ends = np.searchsorted(form_numbers, np.arange(len(forms) + 1))
    parts = [(form, tiles[begin:end]) for form, begin, end in zip(forms, ends, ends[1:], strict=False)]
    bounds = [form.count * least_cycles.tile_cycles(machine, form.layer, its) for form, its in parts]
    return np.concatenate(bounds), np.concatenate(
        [least_cycles.sent_results(machine, form.layer, its) for form, its in parts]
    )


def _cycles(stacked: Hardware, machine_of: Whole, tiles: Tiled) -> Whole:
    """Cycles of layers under tiles; `machine_of` holds the number of the machine of each."""
    cycles = np.empty(len(machine_of), np.int64)
    portion = max(1, AT_ONCE // largest(stacked.multipliers))
    for begin in range(0, len(machine_of), portion):
        some = slice(begin, begin + portion)
        cycles[some] = flexible_dense.cycles_all(
            select_machines(stacked, machine_of[some]), tiles.layers[some], tiles.tiles[some]
        )
    return cycles
