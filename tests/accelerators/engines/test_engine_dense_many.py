"""Many operations on a dense engine at once are those one by one; so are the tiles that a rule chooses."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mapping_examples import layers, machines
from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines import flexible_dense, mesh
from sonda.accelerators.engines.machines import stack_machines
from sonda.accelerators.engines.result import Result
from sonda.accelerators.mapping import least_cycles
from sonda.accelerators.mapping.candidate_tiles import LETTERS, candidates, extents, fitting_tiles, runnable_tiles
from sonda.accelerators.mapping.fullest_tiles import FullestTiles, few_tiles, next_size
from sonda.accelerators.operations.layer import StonneLayer, Tile
from sonda.record.errors import SondaError
from sonda.record.jit import compiled


def check_alike(many: Result, place: int, alone: Result) -> None:
    """One of many results is that of its own simulation, in everything that both count."""
    for name in ("cycles", "weight_reads", "input_reads", "psum_reads", "writes", "multiplications"):
        assert np.array(getattr(many, name))[place] == getattr(alone, name), name
    for section, components in alone.counters.items():
        for component, counts in components.items():
            for name, count in counts.items():
                found = np.array(many.counters[section][component][name])
                assert (found[place] if found.ndim else found) == count, (section, component, name)


@settings(max_examples=100, deadline=None)
@given(machines(), st.lists(layers(), min_size=1, max_size=4), st.data())
def test_many_layers_at_once_are_those_one_by_one(
    hardware: Hardware, some: list[StonneLayer], data: st.DataObject
) -> None:
    chosen, tiles = [], []
    for layer in some:
        possible = candidates(hardware, layer)
        if len(possible):
            chosen.append(layer)
            tiles.append(possible[data.draw(st.integers(0, len(possible) - 1))])
    assume(chosen)
    found = flexible_dense.simulate_all(hardware, np.array([one.sizes for one in chosen]), np.array(tiles))
    for place, (layer, tile) in enumerate(zip(chosen, tiles, strict=True)):
        check_alike(found, place, flexible_dense.simulate(hardware, layer, Tile(*tile.tolist())))


@settings(max_examples=100, deadline=None)
@given(machines(), st.lists(st.tuples(layers(), *[st.integers(0, 6)] * 3), min_size=1, max_size=6), st.data())
def test_many_machines_at_once_are_those_one_by_one(
    base: Hardware, some: list[tuple[StonneLayer, int, int, int]], data: st.DataObject
) -> None:
    family, chosen, tiles = [], [], []
    for layer, *sizes in some:
        multipliers = 1 << max(1, sizes[0])
        ports = [min(multipliers, 1 << size) for size in sizes[1:]]
        hardware = replace(base, multipliers=multipliers, read_ports=ports[0], write_ports=ports[1])
        possible = candidates(hardware, layer)
        if len(possible):
            family.append(hardware)
            chosen.append(layer)
            tiles.append(possible[data.draw(st.integers(0, len(possible) - 1))])
    assume(chosen)
    many = stack_machines(family, 1)
    found = flexible_dense.simulate_all(many, np.array([one.sizes for one in chosen]), np.array(tiles))
    for place, (hardware, layer, tile) in enumerate(zip(family, chosen, tiles, strict=True)):
        check_alike(found, place, flexible_dense.simulate(hardware, layer, Tile(*tile.tolist())))


@settings(max_examples=200, deadline=None)
@given(machines(), layers(), st.tuples(*[st.integers(1, 4)] * 8))
def test_tiles_that_fit_are_those_that_the_tile_itself_allows(
    hardware: Hardware, layer: StonneLayer, sizes: tuple[int, ...]
) -> None:
    try:
        Tile(*sizes).check(hardware, layer)
    except SondaError:
        allowed = False
    else:
        allowed = True
    assert len(sizes) == len(LETTERS)
    assert fitting_tiles(hardware, layer, np.array([sizes]))[0] == allowed


def sizes_up_to(whole: int, room: int) -> list[int]:
    """Powers of two that fit, and the largest size that does."""
    most = min(whole, room)
    return sorted({1 << power for power in range(most.bit_length())} | ({most} if most else set()))


@settings(max_examples=100, deadline=None)
@given(layers(), st.integers(0, 7))
def test_the_few_tiles_of_a_rule_in_plain_loops(layer: StonneLayer, size: int) -> None:
    room = 1 << size
    most = extents(layer)
    r, s, c, k, g, _, x, _ = most.tolist()
    expected = []
    for rows, columns in dict.fromkeys([(r, s), (1, s), *((1, part) for part in sizes_up_to(s, room))]):
        for channels in sizes_up_to(c, room // (rows * columns)):
            for filters in sizes_up_to(k, room // (rows * columns * channels)):
                for groups in sizes_up_to(g, room // (rows * columns * channels * filters)):
                    for windows in sizes_up_to(x, room // (rows * columns * channels * filters * groups)):
                        expected.append([rows, columns, channels, filters, groups, 1, windows, 1])
    assert compiled(few_tiles, next_size)(room, most).tolist() == expected


def fullest(hardware: Hardware, layer: StonneLayer) -> list[int] | None:
    """The rule in words: of the few tiles that run, the one with the least bound, then by the other keys in turn."""
    layer = replace(layer, N=1)
    tiles = compiled(few_tiles, next_size)(hardware.multipliers, extents(layer))
    tiles = tiles[runnable_tiles(hardware, layer, tiles)]
    if not len(tiles):
        return None
    bounds = least_cycles.tile_cycles(hardware, layer, tiles).tolist()
    most = extents(layer).tolist()

    def key(place: int) -> tuple[int, ...]:
        r, s, c, k, _, _, x, _ = sizes = tiles[place].tolist()
        computed = math.prod(-(-whole // part) * part for whole, part in zip(most, sizes, strict=True))
        return bounds[place], computed, -k, -r * s * c, x, place

    best: list[int] = tiles[min(range(len(tiles)), key=key)].tolist()
    return best


@settings(max_examples=60, deadline=None)
@given(st.lists(machines(), min_size=1, max_size=4), st.lists(layers(), min_size=1, max_size=4))
def test_the_fullest_tiles_of_many_layers_on_many_machines(family: list[Hardware], some: list[StonneLayer]) -> None:
    for hardware, tiles in zip(family, FullestTiles(some).choose_on(family), strict=True):
        expected = [fullest(hardware, layer) for layer in some]
        assert (None if tiles is None else tiles.tolist()) == (None if None in expected else expected)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 4), st.integers(0, 5), st.integers(0, 8),
    st.lists(st.tuples(*[st.integers(1, 60)] * 3, *[st.integers(1, 16)] * 2), min_size=1, max_size=5),
)  # fmt: skip
def test_many_products_on_the_mesh_are_those_one_by_one(
    side: int, shared: int, lines: int, given_products: list[tuple[int, ...]]
) -> None:
    side = 1 << side
    ports, writes = max(1, 2 * side >> shared), min(side * side, 1 << lines)
    hardware = Hardware(side * side, side, side, ports, writes, "TEMPORALRN", True, "TPU_OS_DENSE")
    products = np.array([one[:3] for one in given_products])
    tiles = np.minimum([one[3:] for one in given_products], side)
    found = mesh.simulate_all(hardware, products, tiles)
    for place, (product, tile) in enumerate(zip(products.tolist(), tiles.tolist(), strict=True)):
        alone = mesh.simulate(hardware, mesh.Product(*product), mesh.MeshTile(*tile))
        check_alike(found, place, alone)
