"""How often a tile is repeated over a layer on the flexible dense engine, and what its blocks wait for."""

from __future__ import annotations

from typing import Any, NamedTuple

from sonda.accelerators.hardware import Hardware
from sonda.accelerators.layer import Layer, Tile
from sonda.accelerators.result import Count


class Plan(NamedTuple):
    """How often the tile is repeated over the layer."""

    folds: int
    rows: int
    columns: int
    groups: int
    filters: int
    batches: int
    through_memory: int
    """1 where partial sums go through the global buffer, else 0."""
    handed: int
    """1 where neighbours hand activations on, else 0."""

    @property
    def blocks(self) -> int:
        return self.batches * self.groups * self.filters

    @property
    def windows(self) -> int:
        return self.rows * self.columns


def plan_of(hardware: Hardware, layer: Layer, tile: Tile) -> Plan:
    """Of one layer, or of many, whose sizes are arrays."""
    columns = -(-layer.columns // tile.Y)
    return Plan(
        folds=tile.folds(layer),
        rows=-(-layer.rows // tile.X),
        columns=columns,
        groups=-(-layer.G // tile.G),
        filters=-(-(layer.K // layer.G) // tile.K),
        batches=-(-layer.N // tile.N),
        through_memory=1 * tile.folds_through_memory(hardware, layer),
        handed=1 * (columns > 1) * tile.hands_on(layer),
    )


def waits_of(layer: Layer, tile: Tile, plan: Plan) -> tuple[tuple[Count, Count, Count], Any]:
    """Filters, for how many results more a block of them and a group wait; and whether that is all there are."""
    fed_back = 1 + plan.through_memory * (plan.folds - 1)
    # A block of filters waits for as many results as the filters before it have outputs; padding counts as results.
    outputs = layer.rows * layer.columns * fed_back
    per_filter, per_group = tile.K * tile.G * outputs, tile.G * (layer.K // layer.G) * outputs
    per_block = tile.neurons * plan.windows * fed_back
    apart = (
        (plan.batches == 1)
        & ((plan.filters == 1) | (per_filter == per_block))
        & ((plan.groups == 1) | (per_group == per_block * plan.filters))
    )
    return (plan.filters, per_filter, per_group), apart
