"""The tile that a rule chooses for a layer: of a few tiles the one that takes least by its lower bound.

Tried are whole rows of the filter, or whole filters, with powers of two (and all, and as many as fit) of channels,
filters, groups and rows of the output, one window of a row at a time and one sample, without those that could sum
wrongly. Among equals the one that computes least beside the outputs; then the one with the most filters, whose inputs
are read once for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines.machines import equalise_ports, select_machines, stack_machines
from sonda.accelerators.mapping import least_cycles
from sonda.accelerators.mapping.candidate_tiles import C, K, N, X, Y, extents, row_products, runnable_tiles
from sonda.accelerators.operations.layer import StonneLayer
from sonda.record.jit import compiled

Whole = NDArray[np.int64]
AT_ONCE = 1 << 20
"""Tiles of all machines that are looked at in one go."""


class _Tried(NamedTuple):
    """Tiles that are tried, layer by layer: what does not depend on the machine's ports."""

    which: Whole
    """The layer of each tile."""
    begins: Whole
    """For every layer the place of its first tile."""
    sizes: Whole
    """The layer's own."""
    tiles: Whole
    keys: tuple[Whole, ...]
    """They decide among tiles that take equally long: less is better, the first key before the others."""
    fewest: Whole
    """Cycles whatever the ports are: every step sends an element, and so does every fold before them."""
    lowest: Whole
    """For every layer its tile with the fewest of these cycles."""
    results: Whole
    """What goes over the bus."""


class FullestTiles:
    """Chooses the tiles of layers by rule. What does not depend on the ports is made once for all machines."""

    def __init__(self, layers: Sequence[StonneLayer]) -> None:
        self._sizes = np.array([layer.sizes for layer in layers], np.int64)
        self._sizes[:, N] = 1
        self._tried: dict[Hardware, _Tried | None] = {}

    def choose_on(self, machines: Sequence[Hardware]) -> list[Whole | None]:
        """The tiles of all layers on each machine, rows of an array; nothing where a layer has none."""
        chosen: list[Whole | None] = [None] * len(machines)
        alike: dict[Hardware, list[int]] = {}
        for place, machine in enumerate(machines):
            alike.setdefault(equalise_ports(machine), []).append(place)
        for common, places in alike.items():
            if common not in self._tried:
                self._tried[common] = self._try(common)
            tried = self._tried[common]
            if tried is not None:
                for some in _portions(places, len(tried.tiles)):
                    for place, tiles in zip(some, _best(tried, [machines[place] for place in some]), strict=True):
                        chosen[place] = tiles
        return chosen

    def _try(self, hardware: Hardware) -> _Tried | None:
        """Nothing where a layer has no tile."""
        listed = [
            compiled(few_tiles, next_size)(hardware.multipliers, most) for most in extents(StonneLayer(*self._sizes.T))
        ]
        which = np.repeat(np.arange(len(listed)), [len(tiles) for tiles in listed])
        tiles, sizes = np.concatenate(listed), self._sizes[which]
        kept = runnable_tiles(hardware, StonneLayer(*sizes.T), tiles)
        which, tiles, sizes = which[kept], tiles[kept], sizes[kept]
        begins = np.searchsorted(which, np.arange(len(listed)))
        if (np.diff(begins, append=len(which)) == 0).any():
            return None
        parts = -(-extents(StonneLayer(*sizes.T)) // tiles)
        keys = (row_products(parts * tiles), -tiles[:, K], -row_products(tiles[:, : C + 1]), tiles[:, X])
        fewest = row_products(parts[:, : N + 1]) * (1 + parts[:, X] * parts[:, Y])
        lowest = np.lexsort((fewest, which))[begins]
        results = least_cycles.sent_results(hardware, StonneLayer(*sizes.T), tiles)
        return _Tried(which, begins, sizes, tiles, keys, fewest, lowest, results)


def _best(tried: _Tried, machines: list[Hardware]) -> Whole:
    """Machines x layers x sizes of the best tiles."""
    bounds = _bounds(tried, machines)
    smallest = np.minimum.reduceat(bounds, tried.begins, axis=1)
    machine, tile = np.nonzero(bounds == smallest[:, tried.which])
    pair = machine * len(tried.begins) + tried.which[tile]
    for key in tried.keys:
        begins = np.searchsorted(pair, np.arange(smallest.size))
        kept = key[tile] == np.minimum.reduceat(key[tile], begins)[pair]
        pair, tile = pair[kept], tile[kept]
    best: Whole = tried.tiles[tile[np.searchsorted(pair, np.arange(smallest.size))]]
    return best.reshape(*smallest.shape, -1)


def _bounds(tried: _Tried, machines: list[Hardware]) -> Whole:
    """Machines x tiles: the least cycles, or more than another tile of the layer takes."""
    reads = {read: number for number, read in enumerate(dict.fromkeys(machine.read_ports for machine in machines))}
    read_of = np.array([reads[machine.read_ports] for machine in machines])
    # All that the write ports change is how fast results go; with the most of them that never counts.
    distinct = [replace(machines[0], read_ports=read, write_ports=machines[0].multipliers) for read in reads]
    writing = least_cycles.write_cycles(stack_machines(machines, 1), tried.results[:, None]).T
    read, layer = np.divmod(np.arange(len(reads) * len(tried.begins)), len(tried.begins))
    reached = _least(tried, distinct, read, tried.lowest[layer]).reshape(len(reads), -1)
    within = np.zeros_like(reached)
    np.maximum.at(within, read_of, np.maximum(reached[read_of], writing[:, tried.lowest]))
    # What takes more than another one whatever the ports are need not be looked at.
    bounds = np.full((len(reads), len(tried.tiles)), np.iinfo(np.int64).max)
    looked = tried.fewest <= within[:, tried.which]
    bounds[looked] = _least(tried, distinct, *np.nonzero(looked))
    return np.maximum(bounds[read_of], writing)


def _least(tried: _Tried, machines: list[Hardware], machine: Whole, tile: Whole) -> Whole:
    """Lower bounds on the cycles of these tiles on these machines, pair by pair."""
    return least_cycles.tile_cycles(
        select_machines(stack_machines(machines, 1), machine), StonneLayer(*tried.sizes[tile].T), tried.tiles[tile]
    )


def _portions(places: list[int], tiles: int) -> Iterator[list[int]]:
    size = max(1, AT_ONCE // tiles)
    for begin in range(0, len(places), size):
        yield places[begin : begin + size]


# ---- The few tiles of a layer among which a rule chooses ------------------------------------------------------------


def few_tiles(room: int, most: Whole) -> Whole:
    """Tiles on so many multipliers, rows in the order of Tile's fields; `most` holds the layer's sizes in that order.

    Whole filters, whole rows of one, and parts of a row, with every size that `next_size` gives of channels, filters,
    groups and rows of the output, as far as they fit; one sample and one window of a row at a time.
    """
    tiles = np.empty((64, 8), np.int64)
    count = 0
    part = 0
    # First whole filters, then whole rows, then parts of a row; none twice.
    kind = 0
    while kind < 3:
        height, width = most[0], most[1]
        if kind == 0:
            kind = 1
        elif kind == 1:
            kind = 2
            if height == 1:
                continue
            height = 1
        else:
            part = next_size(part, min(most[1], room))
            if part == 0:
                break
            if part == most[1]:
                continue
            height, width = 1, part
        area = height * width
        channels = 0
        while True:
            channels = next_size(channels, min(most[2], room // area))
            if channels == 0:
                break
            size = area * channels
            filters = 0
            while True:
                filters = next_size(filters, min(most[3], room // size))
                if filters == 0:
                    break
                groups = 0
                while True:
                    groups = next_size(groups, min(most[4], room // (size * filters)))
                    if groups == 0:
                        break
                    rows = 0
                    while True:
                        rows = next_size(rows, min(most[6], room // (size * filters * groups)))
                        if rows == 0:
                            break
                        if count == len(tiles):
                            tiles = np.concatenate((tiles, tiles))
                        tile = tiles[count]
                        tile[0], tile[1], tile[2], tile[3] = height, width, channels, filters
                        tile[4], tile[5], tile[6], tile[7] = groups, 1, rows, 1
                        count += 1
    return tiles[:count].copy()


def next_size(size: int, most: int) -> int:
    """The next power of two after this one as far as it fits, then the most, then 0."""
    if size == most:
        return 0
    return min(max(1, 2 * size), most)
