"""Searches of many operations on many machines at once end where searches one by one end."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mapping_examples import layers, machines
from sonda.accelerators.description.accelerator import single_engine_accelerator
from sonda.accelerators.description.engine import EngineDescription
from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.designs import tile_search as searched_tiles
from sonda.accelerators.designs.dense import FlexibleBatch
from sonda.accelerators.engines import flexible_dense
from sonda.accelerators.engines.result import repeat_result
from sonda.accelerators.mapping import candidate_tiles
from sonda.accelerators.mapping import search as one_by_one
from sonda.accelerators.mapping.placement import Placed, Placement
from sonda.accelerators.operations.layer import StonneLayer, Tile
from sonda.accelerators.operations.program import ConvolutionShape, MatrixProduct, Operation

Shape = MatrixProduct | ConvolutionShape
sides = st.integers(1, 24)
products = st.builds(MatrixProduct, sides, sides, sides, st.integers(1, 3))


@st.composite
def convolutions(draw: st.DrawFn) -> ConvolutionShape:
    groups, channels, filters = (draw(st.integers(1, 3)) for _ in range(3))
    batch, image, stride = draw(st.integers(1, 2)), draw(st.integers(3, 7)), draw(st.integers(1, 2))
    side = draw(st.integers(1, 3))
    return ConvolutionShape(
        side, side, channels * groups, filters * groups, groups, batch, image, image, (stride, stride)
    )


@st.composite
def ports_of(draw: st.DrawFn) -> list[Hardware]:
    """A machine with several pairs of ports."""
    machine = draw(machines(largest=5))
    sizes = st.integers(0, machine.multipliers.bit_length() - 1).map(lambda power: 1 << power)
    return [replace(machine, read_ports=draw(sizes), write_ports=draw(sizes)) for _ in range(draw(st.integers(1, 4)))]


def plain(engine: EngineDescription, shape: Shape) -> Placed:
    accelerator = replace(single_engine_accelerator("one", engine.kind, engine.hardware), engines={engine.name: engine})
    accelerator = replace(accelerator, route=dict.fromkeys(accelerator.route, engine.name))
    kind = "linear" if isinstance(shape, MatrixProduct) else "convolution"
    found = Placement(accelerator, "best").place_operation(Operation(kind, kind, -1, shape))
    assert isinstance(found, Placed)
    return found


def compare(engines: list[EngineDescription], shapes: list[Shape]) -> int:
    """How many engines were searched at once; each has the mappings, cycles and counts of a search of its own."""
    seen = 0
    for numbers, (taken,) in FlexibleBatch(shapes).best_on(engines):
        for place, count in enumerate(taken.count.tolist()):
            number, shape = numbers[place // len(shapes)], shapes[place % len(shapes)]
            expected = plain(engines[number], shape)
            assert taken.mapping(place) == expected.mapping, (engines[number], shape)
            assert count * int(taken.result.cycles[place]) == expected.result.cycles
            assert count * int(np.broadcast_to(taken.result.input_reads, len(taken.count))[place]) == (
                expected.result.input_reads
            )
        seen += len(numbers)
    return seen


@settings(max_examples=30, deadline=None)
@given(ports_of(), st.lists(st.one_of(products, convolutions()), min_size=1, max_size=3))
def test_searches_at_once_are_those_one_by_one(family: list[Hardware], shapes: list[Shape]) -> None:
    engines = [EngineDescription("one", "flexible_dense", machine) for machine in family]
    assert compare(engines, shapes) == len(engines)


@settings(max_examples=10, deadline=None)
@given(ports_of(), products)
def test_a_limit_of_trials_ends_both_alike(family: list[Hardware], shape: MatrixProduct) -> None:
    engines = [EngineDescription("one", "flexible_dense", machine) for machine in family]
    with (
        patch.object(searched_tiles, "MOST_TRIED", 3),
        patch.object(one_by_one.search, "__defaults__", (3,)),
        patch.object(searched_tiles, "AT_ONCE", 64),
    ):
        assert compare(engines, [shape]) == len(engines)


@settings(max_examples=150, deadline=None)
@given(machines(largest=6), layers(), st.data())
def test_fewer_write_ports_never_take_fewer_cycles_but_through_memory(
    machine: Hardware, layer: StonneLayer, data: st.DataObject
) -> None:
    tiles = candidate_tiles.candidates(machine, layer)
    tile = Tile(*tiles[data.draw(st.integers(0, len(tiles) - 1))].tolist())
    if tile.folds_through_memory(machine, layer):
        return
    powers = range(machine.multipliers.bit_length())
    cycles = [flexible_dense.cycles(replace(machine, write_ports=1 << power), layer, tile) for power in powers]
    assert cycles == sorted(cycles, reverse=True)


def test_a_described_tile_is_kept_where_none_is_faster() -> None:
    # Under T_M = 1, T_N = 1, T_K = 8 every multiplier works in every step, as in other tiles of 8 products.
    engine = EngineDescription(
        "one", "flexible_dense", Hardware(8, 0, 0, 8, 8, accumulators=True), tile={"T_M": 1, "T_N": 1, "T_K": 8}
    )
    assert compare([engine], [MatrixProduct(8, 8, 8)]) == 1


def test_an_engine_without_a_tile_by_rule_is_left_to_a_search_of_its_own() -> None:
    # One multiplier has no adder.
    machine = Hardware(1, 0, 0, 1, 1)
    assert compare([EngineDescription("one", "flexible_dense", machine)], [MatrixProduct(2, 2, 2)]) == 0


def test_products_that_follow_each_other_are_counted() -> None:
    engine = EngineDescription("one", "flexible_dense", Hardware(16, 0, 0, 4, 4, accumulators=True))
    ((_, (taken,)),) = FlexibleBatch([MatrixProduct(4, 4, 4, 5)]).best_on([engine])
    alone = plain(engine, MatrixProduct(4, 4, 4))
    assert int(taken.result.cycles[0]) * int(taken.count[0]) == repeat_result(alone.result, 5).cycles
