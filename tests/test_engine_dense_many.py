"""Many layers on the flexible dense engine at once are those one by one; so are the tiles that a rule chooses."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mapping_examples import layers, machines
from sonda.accelerators.candidate_tiles import LETTERS, candidates, fits
from sonda.accelerators.engines import flexible_dense
from sonda.accelerators.hardware import Hardware
from sonda.accelerators.layer import Layer, Tile
from sonda.record.errors import SondaError


@settings(max_examples=100, deadline=None)
@given(machines(), st.lists(layers(), min_size=1, max_size=4), st.data())
def test_many_layers_at_once_are_those_one_by_one(hardware: Hardware, some: list[Layer], data: st.DataObject) -> None:
    chosen, tiles = [], []
    for layer in some:
        possible = candidates(hardware, layer)
        if len(possible):
            chosen.append(layer)
            tiles.append(possible[data.draw(st.integers(0, len(possible) - 1))])
    assume(chosen)
    found = flexible_dense.simulate_all(hardware, np.array([one.sizes for one in chosen]), np.array(tiles))
    for place, (layer, tile) in enumerate(zip(chosen, tiles, strict=True)):
        alone = flexible_dense.simulate(hardware, layer, Tile(*tile.tolist()))
        for name in ("cycles", "weight_reads", "input_reads", "psum_reads", "writes", "multiplications"):
            assert getattr(found, name)[place] == getattr(alone, name), name
        for section, components in alone.counters.items():
            for component, counts in components.items():
                for name, count in counts.items():
                    many = np.broadcast_to(found.counters[section][component][name], len(chosen))
                    assert many[place] == count, (section, component, name)


@settings(max_examples=200, deadline=None)
@given(machines(), layers(), st.tuples(*[st.integers(1, 4)] * 8))
def test_tiles_that_fit_are_those_that_the_tile_itself_allows(
    hardware: Hardware, layer: Layer, sizes: tuple[int, ...]
) -> None:
    try:
        Tile(*sizes).check(hardware, layer)
    except SondaError:
        allowed = False
    else:
        allowed = True
    assert len(sizes) == len(LETTERS)
    assert fits(hardware, layer, np.array([sizes]))[0] == allowed
