"""Tiles that a search lists: bounds that hold, counts that are the engine's, sums that are right."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mapping_examples import layers, machines, simulated
from oracle import dense as oracle
from sonda.accelerators.description.accelerator import load_accelerator
from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines import bitmap_sparse, compressed_row, flexible_dense, mesh
from sonda.accelerators.mapping import buffer_reads, least_cycles
from sonda.accelerators.mapping.candidate_tiles import candidates, combinations, runnable_tiles, tile_sums_rightly
from sonda.accelerators.operations.layer import StonneLayer, Tile


def some_tiles(data: st.DataObject, tiles: np.ndarray, most: int = 6) -> list[int]:
    return data.draw(st.lists(st.integers(0, len(tiles) - 1), min_size=1, max_size=most, unique=True))


def tile_at(tiles: np.ndarray, number: int) -> Tile:
    return Tile(*tiles[number].tolist())


# ---- bounds and counts --------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(machines(), layers(), st.data())
def test_no_tile_takes_less_than_its_bound(hardware: Hardware, layer: StonneLayer, data: st.DataObject) -> None:
    tiles = candidates(hardware, layer)
    assume(len(tiles))
    least = least_cycles.tile_cycles(hardware, layer, tiles)
    for number in some_tiles(data, tiles):
        assert least[number] <= flexible_dense.simulate(hardware, layer, tile_at(tiles, number)).cycles


def test_the_bound_is_near_where_ports_never_rest() -> None:
    """20 x 128 by 128 x 64 at 256 multipliers, 128/128: 32 folds of 2 weights, 20 x 32 steps of 2 inputs, a port each.

    Then a cycle to the multiplier, an adder, an accumulator, the bus, the buffer: 1344 + 5. The engine takes 1356: two
    adders on the way of the last product, not one, and six cycles until 64 results are written.
    """
    hardware = load_accelerator("maeri-256").engines["maeri"].hardware
    layer, tile = StonneLayer.product(20, 64, 128), np.array([[1, 4, 1, 64, 1, 1, 1, 1]])
    assert least_cycles.tile_cycles(hardware, layer, tile).tolist() == [2 * (32 + 20 * 32) + 5]


@settings(max_examples=80, deadline=None)
@given(machines(), layers(), st.data())
def test_reads_are_those_that_the_engine_counts(hardware: Hardware, layer: StonneLayer, data: st.DataObject) -> None:
    tiles = candidates(hardware, layer)
    assume(len(tiles))
    accesses = buffer_reads.tile_accesses(hardware, layer, tiles)
    for number in some_tiles(data, tiles):
        result = flexible_dense.simulate(hardware, layer, tile_at(tiles, number))
        expected = (result.weight_reads, result.input_reads, result.psum_reads, result.writes)
        assert tuple(int(one[number]) for one in accesses) == expected
        assert flexible_dense.cycles(hardware, layer, tile_at(tiles, number)) == result.cycles


@settings(max_examples=200, deadline=None)
@given(
    side=st.integers(1, 4),
    shared=st.integers(0, 5),
    lines=st.integers(0, 8),
    sizes=st.tuples(*[st.integers(1, 40)] * 3),
    data=st.data(),
)
def test_bounds_and_reads_of_the_mesh(
    side: int, shared: int, lines: int, sizes: tuple[int, int, int], data: st.DataObject
) -> None:
    side = 1 << side
    ports, writes = max(1, 2 * side >> shared), min(side * side, 1 << lines)
    hardware = Hardware(side * side, side, side, ports, writes, "TEMPORALRN", True, "TPU_OS_DENSE")
    product = mesh.Product(*sizes)
    rows, columns = (np.array([data.draw(st.integers(1, side))]) for _ in range(2))
    result = mesh.simulate(hardware, product, mesh.MeshTile(int(rows[0]), int(columns[0])))
    assert least_cycles.mesh_tile_cycles(hardware, product, rows, columns)[0] <= result.cycles
    accesses = buffer_reads.mesh_tile_accesses(product, rows, columns)
    expected = (result.weight_reads, result.input_reads, result.psum_reads, result.writes)
    assert tuple(int(one[0]) for one in accesses) == expected


@settings(max_examples=200, deadline=None)
@given(
    ports=st.tuples(*[st.integers(0, 5)] * 2),
    entries=st.lists(st.integers(0, 60), min_size=1, max_size=8),
    dense=st.integers(1, 40),
    data=st.data(),
)
def test_bounds_of_compressed_rows(ports: tuple[int, int], entries: list[int], dense: int, data: st.DataObject) -> None:
    hardware = Hardware(32, 0, 0, 1 << ports[0], 1 << ports[1], "ASNETWORK", True)
    columns = data.draw(st.integers(1, 16))
    summed = data.draw(st.integers(2, 32 // columns))
    rows = compressed_row.RowsByDense(np.array(entries, np.int64), dense)
    result = compressed_row.simulate(hardware, rows, compressed_row.RowTile(columns, summed))
    least = least_cycles.row_tile_cycles(hardware, rows.entries, dense, np.array([columns]), np.array([summed]))
    assert least[0] <= result.cycles


@settings(max_examples=100, deadline=None)
@given(
    ports=st.tuples(*[st.integers(0, 4)] * 2), sizes=st.tuples(*[st.integers(3, 40)] * 3), part=st.floats(0, 1),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_bounds_of_bitmaps(ports: tuple[int, int], sizes: tuple[int, int, int], part: float, seed: int) -> None:
    hardware = Hardware(16, 0, 0, 1 << ports[0], 1 << ports[1])
    m, n, k = sizes
    chance = np.random.RandomState(seed)
    first, second = chance.random_sample((m, k)) < part, chance.random_sample((k, n)) < part
    cycles = bitmap_sparse.simulate(hardware, bitmap_sparse.bitmap_product(first, second)).cycles
    assert least_cycles.bitmap_cycles(hardware, int(first.sum()), n) <= cycles


# ---- which tiles --------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(machines(largest=3), layers(longest=6))
def test_listed_are_all_tiles_that_the_machine_can_run_rightly(hardware: Hardware, layer: StonneLayer) -> None:
    largest = (layer.R, layer.S, layer.C // layer.G, layer.K // layer.G, layer.G, layer.N, layer.rows, layer.columns)
    sizes = [range(1, min(size, hardware.multipliers) + 1) for size in largest]
    every = [
        sides for sides in itertools.product(*sizes)
        if np.prod(sides) <= hardware.multipliers and simulated(hardware, layer, Tile(*sides)) is not None
        and tile_sums_rightly(layer, Tile(*sides))
    ]  # fmt: skip
    assert sorted(map(tuple, candidates(hardware, layer).tolist())) == sorted(every)


@settings(max_examples=50, deadline=None)
@given(machines(largest=4), layers(longest=8), st.data())
def test_the_machine_sums_rightly_under_listed_tiles(
    hardware: Hardware, layer: StonneLayer, data: st.DataObject
) -> None:
    tiles = candidates(hardware, layer)
    assume(len(tiles))
    for number in some_tiles(data, tiles, most=2):
        outcome, expected = stepped(hardware, layer, tile_at(tiles, number))
        assert np.array_equal(outcome, expected)


def test_what_is_kept_out_sums_wrongly() -> None:
    """Two samples with activations handed on: the second's weights overtake the first's activations."""
    hardware = Hardware(16, 0, 0, 8, 1, "ASNETWORK", True)
    layer, tile = StonneLayer(1, 3, 3, 1, 1, 2, 2, 7), Tile(1, 3, 1, 1, 1, 1, 1, 1)
    outcome, expected = stepped(hardware, layer, tile)
    assert not np.array_equal(outcome, expected)
    assert not tile_sums_rightly(layer, tile)
    assert tile_sums_rightly(replace(layer, N=1), tile)
    assert np.array_equal(*stepped(hardware, replace(layer, N=1), tile))
    strided, windows = StonneLayer(3, 3, 1, 1, 1, 1, 9, 9, 2), Tile(3, 3, 1, 1, 1, 1, 1, 1)
    assert tile_sums_rightly(strided, windows)
    assert not tile_sums_rightly(strided, replace(windows, Y=2))
    grouped = StonneLayer(1, 1, 4, 4, 2, 2, 5, 5)
    assert not tile_sums_rightly(grouped, Tile(1, 1, 2, 1, 2, 2, 1, 1))


def stepped(hardware: Hardware, layer: StonneLayer, tile: Tile) -> tuple[np.ndarray, np.ndarray]:
    """What a machine stepped cycle by cycle computes, and what it should."""
    outcome, expected = oracle.run_layer(
        oracle.Layer(*replace(layer, C=layer.C // layer.G, K=layer.K // layer.G).__dict__.values()),
        oracle.Tile(*tile.__dict__.values()),
        multipliers=hardware.multipliers, read_ports=hardware.read_ports, write_ports=hardware.write_ports,
        reduction=hardware.reduction, accumulators=hardware.accumulators,
    )  # fmt: skip
    return outcome.values, expected


def test_fewer_sizes_where_all_would_be_too_many() -> None:
    every = combinations(100, (100, 100), (100, 100), 1000)
    assert len(every) == sum(100 // size for size in range(1, 101))  # 482: pairs with a product up to 100
    even = combinations(100, (100, 100), (100, 100), 400)
    # 100 in 1, 2, 3 ... parts, and powers of two.
    assert np.unique(even).tolist() == [
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 17, 20, 25, 32, 34, 50, 64, 100,
    ]  # fmt: skip
    powers = combinations(100, (100, 100), (100, 100), 60)
    assert np.unique(powers).tolist() == [1, 2, 4, 8, 16, 32, 64, 100]
    assert np.unique(combinations(100, (100, 100), (100, 100), 20)).tolist() == [1, 4, 16, 64, 100]
    for tiles in (even, powers):
        assert tiles.prod(axis=1).max() <= 100


def test_a_huge_machine_still_gets_a_list() -> None:
    hardware = Hardware(1 << 18, 0, 0, 1 << 18, 1 << 18, "ASNETWORK", True)
    tiles = candidates(hardware, StonneLayer(3, 3, 512, 512, 1, 8, 58, 58), most=20_000)
    assert 0 < len(tiles) <= 20_000
    assert runnable_tiles(hardware, StonneLayer(3, 3, 512, 512, 1, 8, 58, 58), tiles).all()
