"""The tiles that STONNE's own mapper chooses, for comparison with others.

Matrix products: every tile of powers of two that fits gets a score; the best is kept. "Better" counts scores within
0.025 as equal and then looks at T_N, T_K, T_M. That relation is not transitive, so the choice depends on the order in
which the tiles are looked at: that of a balanced tree, itself built with such a relation. Both are repeated here.
Compressed rows times dense: a curve over the sparsity. Bandwidths are not considered by either.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines.compressed_row import RowTile
from sonda.accelerators.operations.layer import Tile
from sonda.record.errors import SondaError

NEAR = np.float32(0.025)
"""Scores closer than this are equal."""
MOST_FOR_COLUMNS = np.float32(0.1)
MOST_FOR_SUM = np.float32(0.05)
"""What a tile gains by spanning all columns (T_N), and all of the sum (T_K)."""
LINEAR_FROM = 0.51327166727
"""Sparsity from which the fitted curve for T_K is a straight line."""


@dataclass(frozen=True)
class _Option:
    """A tile of a matrix product and its score, in single precision as in the reference."""

    m: int
    n: int
    k: int
    score: np.float32

    def comes_before(self, other: _Option) -> bool:
        """Order in the tree. Among near scores a larger n does not decide: k and m are compared all the same."""
        if abs(self.score - other.score) < NEAR:
            return self.n < other.n or (self.k, self.m) < (other.k, other.m)
        return bool(self.score < other.score)

    def beats(self, other: _Option) -> bool:
        if abs(self.score - other.score) < NEAR:
            return (self.n, self.k, self.m) > (other.n, other.k, other.m)
        return bool(self.score > other.score)


def product_tile(hardware: Hardware, m: int, n: int, k: int) -> Tile:
    """The tile for the product of an m x k by a k x n matrix. Meant for machines with accumulators."""
    _check_sizes(m=m, n=n, k=k)
    tree = _Tree()
    for tile_m in _powers(1, m):
        for tile_n in _powers(1, n):
            for tile_k in _powers(1 if k == 1 else 2, k):
                if tile_m * tile_n * tile_k <= hardware.multipliers:
                    tree.insert(_option(hardware.multipliers, (m, n, k), (tile_m, tile_n, tile_k)))
    options = list(tree.in_order(tree.root))
    if not options:
        raise SondaError(f"multipliers = {hardware.multipliers} hold no sum of two products", "give at least 2")
    best = options[0]
    for option in options:
        if option.beats(best):
            best = option
    return Tile.product(best.m, best.n, best.k)


def rows_tile(hardware: Hardware, n: int, k: int, sparsity: float) -> RowTile:
    """The tile for compressed rows of k columns, of which the fraction `sparsity` is zero, times a k x n matrix."""
    _check_sizes(n=n, k=k)
    if not 0 <= sparsity <= 1:
        raise SondaError(f"sparsity = {sparsity} is not a fraction from 0 to 1", "give the part that is zero")
    if 2 * n <= k:
        sparsity = float(np.float32(max(0.0, sparsity - (math.log2(k) - math.log2(n)) / 10)))
    if sparsity < LINEAR_FROM:
        factor = 0.4855423 + 0.5192579 * math.exp(-11.84906 * sparsity)
    else:
        factor = 1 - sparsity
    largest = hardware.multipliers.bit_length() - 2
    # Halves are rounded up, as the C library does, not to even.
    power = 0 if k == 1 else math.floor(float(np.float32(largest) * np.float32(factor)) + 0.5) + 1
    entries = min(k, 1 << power)
    columns = min(n, hardware.multipliers // entries)
    if not columns:
        raise SondaError(f"multipliers = {hardware.multipliers} hold no sum of {entries} products", "give more")
    return RowTile(columns=columns, entries=min(k, entries * (hardware.multipliers // (entries * columns))))


def _powers(first: int, last: int) -> Iterator[int]:
    value = first
    while value <= last:
        yield value
        value *= 2


def _option(multipliers: int, sizes: tuple[int, int, int], tile: tuple[int, int, int]) -> _Option:
    single = np.float32
    used = single(tile[0] * tile[1] * tile[2] / multipliers)
    edges = [single(size / (-(-size // part) * part)) for size, part in zip(sizes, tile, strict=True)]
    columns = min(MOST_FOR_COLUMNS, single(tile[1]) / single(min(sizes[1], multipliers)) * MOST_FOR_COLUMNS)
    whole = min(MOST_FOR_SUM, single(tile[2]) / single(min(sizes[2], multipliers)) * MOST_FOR_SUM)
    score = used + (edges[0] + edges[1] + edges[2]) / single(3) + columns + whole
    return _Option(*tile, score)


@dataclass(eq=False)
class _Node:
    option: _Option
    parent: _Node | None
    red: bool = True
    child: list[_Node | None] = field(default_factory=lambda: [None, None])
    """Left, right."""

    @property
    def side(self) -> int:
        assert self.parent is not None
        return int(self.parent.child[1] is self)


class _Tree:
    """A red-black tree without duplicates, balanced as C++'s std::set is; its order need not be consistent."""

    def __init__(self) -> None:
        self.root: _Node | None = None

    def in_order(self, node: _Node | None) -> Iterator[_Option]:
        if node is not None:
            yield from self.in_order(node.child[0])
            yield node.option
            yield from self.in_order(node.child[1])

    def insert(self, option: _Option) -> None:
        """Adds the option unless the one just before its place is not before it."""
        above, here, side = None, self.root, 0
        previous: _Node | None = None
        while here is not None:
            above = here
            side = 0 if option.comes_before(here.option) else 1
            if side:
                previous = here
            here = here.child[side]
        if previous is not None and not previous.option.comes_before(option):
            return
        node = _Node(option, above)
        if above is None:
            self.root = node
        else:
            above.child[side] = node
        self._balance(node)

    def _balance(self, node: _Node) -> None:
        while node.parent is not None and node.parent.red:
            parent = node.parent
            above = parent.parent
            assert above is not None
            side = parent.side
            uncle = above.child[1 - side]
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                above.red = True
                node = above
                continue
            if node.side != side:
                self._rotate(parent, side)
                node, parent = parent, node
            parent.red, above.red = False, True
            self._rotate(above, 1 - side)
        assert self.root is not None
        self.root.red = False

    def _rotate(self, node: _Node, side: int) -> None:
        """Moves `node` down to this side; its child of the other side takes its place."""
        up = node.child[1 - side]
        assert up is not None
        node.child[1 - side] = up.child[side]
        inner = up.child[side]
        if inner is not None:
            inner.parent = node
        up.parent = node.parent
        if node.parent is None:
            self.root = up
        else:
            node.parent.child[node.side] = up
        up.child[side] = node
        node.parent = up


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise SondaError(f"{name} = {size} is less than 1", f"change {name}")
