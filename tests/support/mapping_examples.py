"""Machines and layers to draw, small enough to try every tile of theirs."""

from __future__ import annotations

from hypothesis import strategies as st

from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines import flexible_dense
from sonda.accelerators.engines.result import Result
from sonda.accelerators.operations.layer import StonneLayer, Tile
from sonda.record.errors import SondaError


@st.composite
def machines(draw: st.DrawFn, largest: int = 6) -> Hardware:
    size = draw(st.integers(2, largest))
    reduction = draw(st.sampled_from(("ASNETWORK", "ASNETWORK", "FENETWORK", "TEMPORALRN")))
    ports = [1 << draw(st.integers(0, size)) for _ in range(2)]
    return Hardware(1 << size, 0, 0, *ports, reduction, reduction == "TEMPORALRN" or draw(st.booleans()))


@st.composite
def layers(draw: st.DrawFn, longest: int = 24) -> StonneLayer:
    if draw(st.booleans()):
        return StonneLayer.product(*(draw(st.integers(1, longest)) for _ in range(3)))
    r, s, groups = (draw(st.integers(1, 3)) for _ in range(3))
    channels, filters = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    x, y = r + draw(st.integers(0, 5)), s + draw(st.integers(0, 5))
    stride = draw(st.sampled_from((1, 1, 2)))
    return StonneLayer(r, s, groups * channels, groups * filters, groups, draw(st.integers(1, 2)), x, y, stride)


def simulated(hardware: Hardware, layer: StonneLayer, tile: Tile) -> Result | None:
    """What the engine gives; None where it cannot run the tile."""
    try:
        return flexible_dense.simulate(hardware, layer, tile)
    except SondaError:
        return None
