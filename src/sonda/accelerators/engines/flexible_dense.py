"""The flexible dense engine (MAERI): virtual neurons of any size on a line of multipliers under a reduction tree.

Blocks of filters follow each other. Of each block first the weights of all folds are sent, one tile per fold, then for
every window of the output the inputs of all folds. Timing depends on shapes only, never on data.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators import candidate_tiles, collection, distribution, multiplication, reduction
from sonda.accelerators.compiled import compiled
from sonda.accelerators.distribution import Routing
from sonda.accelerators.engines.folding_kernel import fold, fold_all
from sonda.accelerators.engines.packages_kernel import packages, packages_all
from sonda.accelerators.engines.streaming_kernel import stream, stream_all
from sonda.accelerators.hardware import Hardware
from sonda.accelerators.layer import Layer, Tile
from sonda.accelerators.reduction import Reduction
from sonda.accelerators.result import Count, Counters, Result
from sonda.record.errors import SondaError

Whole = NDArray[np.int64]
MOST_BLOCKS = 1 << 22
"""Overlapping blocks are followed one by one."""


class _Plan(NamedTuple):
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


class _Packages(NamedTuple):
    """The packages of a tile of weights, of inputs, and of the inputs' last column, one row each."""

    entries: Whole
    """Per port."""
    place: Whole
    """Per multiplier: the place of its package in the queue of its port; -1 where it gets none."""
    routing: Whole
    """Entries, wires, switches passed to one side, to both."""


def simulate(hardware: Hardware, layer: Layer, tile: Tile) -> Result:
    """The layer on this machine under this tile; raises SondaError where the machine cannot run it.

    The stack: `compute` is one cycle per window and fold, what the multipliers need with all operands at hand;
    `distribution` what the busiest port needs beyond that to send weights and inputs; `writeback` the cycles at the end
    of a block in which results are only on their way to the buffer; `reduction` the rest: sums on their way through the
    adders, and partial sums through memory. `configuration` is 0: the machine is set up before the first cycle.
    """
    plan, setup, dealt = _prepare(hardware, layer, tile)
    cycles, written = _time(hardware, layer, tile, plan, setup, dealt)
    stack = _stack(hardware, plan, dealt, cycles, written)
    together = _offered_together(hardware, tile, dealt)
    return _result(hardware, layer, tile, plan, setup, dealt.routing, cycles, stack, together)


def simulate_all(hardware: Hardware, layers: Whole, tiles: Whole) -> Result:
    """Many layers, each under a tile of its own, at once: rows of arrays, in the order of the fields of both.

    Every count is an array with an element for each layer, as `simulate` gives it; there is no stack. Raises SondaError
    where the machine cannot run one of them; which, only one by one can say.
    """
    hardware.check()
    layer = Layer(*layers.T)
    tile = Tile(*tiles.T)
    if not candidate_tiles.fits(hardware, layer, tiles).all():
        raise SondaError("a tile does not fit the machine", "simulate layers one by one")
    plan = _plan(hardware, layer, tile)
    setup = reduction.reduce_all(hardware, tile.neuron + plan.through_memory, tile.neurons)
    count = len(tiles)
    dealt = _Packages(
        np.zeros((count, 3, hardware.read_ports), np.int64),
        np.empty((count, 3, hardware.multipliers), np.int64),
        np.zeros((count, 3, 4), np.int64),
    )
    compiled(packages_all, packages)(
        distribution.span(hardware), 2 + plan.handed, plan.through_memory, layer.stride, tiles, *dealt
    )
    cycles = _time_all(hardware, layer, tile, plan, setup, dealt)
    pairs = np.zeros(count, np.int64)
    for one in np.flatnonzero(np.equal(tile.neuron, 1)):
        alone = _Packages(*(part[one] for part in dealt))
        pairs[one] = _offered_together(hardware, Tile(*tiles[one].tolist()), alone)
    return _result(hardware, layer, tile, plan, setup, dealt.routing, cycles, {}, pairs)


def cycles(hardware: Hardware, layer: Layer, tile: Tile) -> int:
    """The cycles of `simulate` alone."""
    return _time(hardware, layer, tile, *_prepare(hardware, layer, tile))[0]


def _prepare(hardware: Hardware, layer: Layer, tile: Tile) -> tuple[_Plan, Reduction, _Packages]:
    hardware.check()
    layer.check()
    tile.check(hardware, layer)
    plan = _plan(hardware, layer, tile)
    size = tile.neuron + plan.through_memory
    first = np.arange(0, tile.neurons * size, size)
    setup = reduction.reduce(hardware, first, first + (size - 1))
    return plan, setup, _deal(hardware, layer, tile, plan)


def _plan(hardware: Hardware, layer: Layer, tile: Tile) -> _Plan:
    columns = -(-layer.columns // tile.Y)
    return _Plan(
        folds=tile.folds(layer),
        rows=-(-layer.rows // tile.X),
        columns=columns,
        groups=-(-layer.G // tile.G),
        filters=-(-(layer.K // layer.G) // tile.K),
        batches=-(-layer.N // tile.N),
        through_memory=1 * tile.folds_through_memory(hardware, layer),
        handed=1 * (columns > 1) * tile.hands_on(layer),
    )


def _deal(hardware: Hardware, layer: Layer, tile: Tile, plan: _Plan) -> _Packages:
    shape = np.array((tile.R, tile.S, tile.C, tile.K, tile.G, tile.N, tile.X, tile.Y), np.int64)
    dealt = _Packages(
        np.zeros((3, hardware.read_ports), np.int64),
        np.empty((3, hardware.multipliers), np.int64),
        np.zeros((3, 4), np.int64),
    )
    kinds = 3 if plan.handed else 2
    compiled(packages)(kinds, distribution.span(hardware), plan.through_memory, layer.stride, shape, *dealt)
    if not plan.handed:
        # All windows get what the first of a row gets.
        dealt.entries[2], dealt.place[2] = dealt.entries[1], dealt.place[1]
    return dealt


def _time(
    hardware: Hardware, layer: Layer, tile: Tile, plan: _Plan, setup: Reduction, dealt: _Packages
) -> tuple[int, int]:
    """Cycles, and those of them that blocks spend only writing back."""
    waits, apart = _waits(layer, tile, plan)
    if not apart and plan.blocks > MOST_BLOCKS:
        raise SondaError(
            f"{plan.blocks} blocks of filters overlap, because the tile does not divide the layer",
            "choose T_X_, T_Y_ and T_K that divide X', Y' and K, and one sample",
        )
    ways = (distribution.span(hardware), distribution.arrival_delay(hardware), hardware.write_ports)
    shape = (plan.folds, plan.rows, plan.columns)
    out = np.zeros(2, np.int64)
    if plan.through_memory:
        last = (tile.neuron + 1, tile.neurons, dealt.entries, dealt.place, setup.hops, setup.line, setup.slot, out)
        compiled(fold)(*ways, _bus_inputs(hardware), *shape, plan.blocks, plan.groups, int(apart), *waits, *last)
    else:
        last = (tile.neuron, tile.neurons, dealt.entries, dealt.place, setup.hops, setup.line, setup.delay, out)
        # Blocks that wait for everything before them are all alike.
        blocks = 1 if apart else plan.blocks
        compiled(stream)(*ways, *shape, plan.handed, tile.S, blocks, plan.groups, *waits, *last)
        if apart:
            out *= plan.blocks
    cycles, written = out.tolist()
    return cycles, written


def _time_all(hardware: Hardware, layer: Layer, tile: Tile, plan: _Plan, setup: Reduction, dealt: _Packages) -> Whole:
    """Cycles of many layers."""
    waits, apart = _waits(layer, tile, plan)
    if (~apart & (plan.blocks > MOST_BLOCKS)).any():
        raise SondaError("blocks of filters overlap, because a tile does not divide a layer", "simulate one by one")
    ways = (distribution.span(hardware), distribution.arrival_delay(hardware), hardware.write_ports)
    last = (*waits, tile.neuron + plan.through_memory, tile.neurons)
    out = np.zeros((len(apart), 2), np.int64)
    folded, streamed = np.flatnonzero(plan.through_memory), np.flatnonzero(plan.through_memory == 0)
    if len(folded):
        cases = np.stack((plan.folds, plan.rows, plan.columns, plan.blocks, plan.groups, apart, *last), axis=1)
        compiled(fold_all, fold)(
            *ways, _bus_inputs(hardware), folded, cases, dealt.entries, dealt.place, setup.hops, setup.line, setup.slot,
            out,
        )  # fmt: skip
    if len(streamed):
        shape = (plan.folds, plan.rows, plan.columns, plan.handed, tile.S)
        cases = np.stack((*shape, np.where(apart, 1, plan.blocks), plan.groups, *last), axis=1)
        compiled(stream_all, stream)(
            *ways, streamed, cases, dealt.entries, dealt.place, setup.hops, setup.line, setup.delay, out
        )
    cycles: Whole = out[:, 0] * np.where(apart & (plan.through_memory == 0), plan.blocks, 1)
    return cycles


def _waits(layer: Layer, tile: Tile, plan: _Plan) -> tuple[tuple[Count, Count, Count], Any]:
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


def _bus_inputs(hardware: Hardware) -> int:
    """Of every line of the collection bus."""
    return hardware.multipliers // hardware.write_ports + 1


def _stack(hardware: Hardware, plan: _Plan, dealt: _Packages, cycles: int, written: int) -> dict[str, int]:
    computed = min(plan.blocks * plan.windows * plan.folds, cycles - written)
    times = np.array((plan.folds, plan.rows * plan.folds, plan.rows * (plan.columns - 1) * plan.folds))
    sending = int((times @ dealt.entries).max()) + distribution.arrival_delay(hardware)
    fed = min(plan.blocks * sending - computed, cycles - written - computed)
    summed = cycles - written - computed - fed
    return {"distribution": fed, "compute": computed, "reduction": summed, "writeback": written, "configuration": 0}


def _result(
    hardware: Hardware,
    layer: Layer,
    tile: Tile,
    plan: _Plan,
    setup: Reduction,
    routing: Whole,
    cycles: Count,
    stack: dict[str, int],
    pairs: Count,
) -> Result:
    """Of one layer; or of many, whose sizes and counts are arrays."""
    steps = plan.blocks * plan.windows * plan.folds
    windows = plan.blocks * plan.windows
    outputs = windows * tile.neurons
    products = steps * tile.neuron * tile.neurons
    through_memory = plan.through_memory
    psums = outputs * (plan.folds - 1) * through_memory
    work = _work(hardware, tile, plan, setup, products, psums)
    # Of a row of windows only the first gets all inputs where they are handed on.
    whole = steps - plan.handed * (steps - plan.blocks * plan.rows * plan.folds)
    times = np.array((plan.blocks * plan.folds, whole, steps - whole))
    if times.ndim == 1:
        sent = Routing(*(times @ routing).tolist())
    else:
        sent = Routing(*np.einsum("kn,nki->in", times, routing))
    sent = distribution.unicast(hardware, psums).plus(sent)
    loaded = plan.folds * tile.neuron * tile.neurons
    channels, filters = layer.C // layer.G, layer.K // layer.G
    weight_reads = plan.batches * plan.groups * tile.G * filters * channels * layer.R * layer.S
    input_reads = _input_reads(layer, tile, plan)
    writes = layer.N * layer.K * layer.rows * layer.columns * (1 + through_memory * (plan.folds - 1))
    bus = collection.activity(hardware, work.outputs)
    # Two sums that leave one adder in one cycle go over its wire together.
    together = (1 - through_memory) * pairs * windows
    if not isinstance(together, int) or together:
        if hardware.accumulators:
            work = work._replace(shared=together)
        else:
            bus["CB_WIRE"]["WRITE"] = bus["CB_WIRE"]["WRITE"] - together
    counters: Counters = {
        "DSNetwork": distribution.activity(hardware, sent),
        "MSNetwork": multiplication.activity(
            hardware,
            weights=plan.blocks * loaded,
            weights_left=loaded,
            products=products,
            configured=(tile.neuron + through_memory) * tile.neurons,
            forwarded=(steps - whole) * tile.neurons * tile.R * tile.C * (tile.S - 1),
            psums=psums,
            zeros=(outputs + tile.neurons) * through_memory,
        ),
        "ReduceNetwork": reduction.activity(hardware, work),
        "GlobalBuffer": {"GLOBALBUFFER": {"entries": 1, "READ": weight_reads + input_reads + psums, "WRITE": writes}},
        "CollectionBus": bus,
    }
    return Result(
        cycles=cycles,
        weight_reads=weight_reads,
        input_reads=input_reads,
        psum_reads=psums,
        writes=writes,
        multiplications=products,
        counters=counters,
        stack=stack,
    )


def _work(
    hardware: Hardware, tile: Tile, plan: _Plan, setup: Reduction, products: Count, psums: Count
) -> reduction.Work:
    results = plan.blocks * plan.windows * plan.folds
    outputs = plan.blocks * plan.windows * tile.neurons
    nodes, two, three = setup.totals
    through_memory = plan.through_memory
    # A zero opens every window; one more follows the last, in vain. Where the neuron begins on an odd multiplier, an
    # adder without another operand passes it on, and there it stays.
    return reduction.Work(
        sends=products + through_memory * (psums + outputs + tile.neurons),
        nodes=nodes * results + through_memory * (tile.neuron % 2 == 0) * (tile.neurons // 2),
        two=two * results,
        three=three * results,
        results=results * tile.neurons,
        outputs=outputs * (1 + through_memory * (plan.folds - 1)),
        configured=setup.configured,
        waiting=through_memory * tile.neurons,
    )


def _offered_together(hardware: Hardware, tile: Tile, dealt: _Packages) -> int:
    """Pairs of one-multiplier neurons on one adder whose products always come in the same cycle."""
    if tile.neuron > 1 or tile.neurons == 1 or hardware.reduction != "ASNETWORK":
        return 0
    pairs = tile.neurons // 2
    if distribution.span(hardware) == 1:
        return pairs
    place = dealt.place[1]
    return int(np.count_nonzero(place[0 : 2 * pairs : 2] == place[1 : 2 * pairs : 2]))


def _input_reads(layer: Layer, tile: Tile, plan: _Plan) -> Count:
    """Inputs read: those of a tile's windows that lie inside the filter; padded windows are read as well."""

    def covered(windows: Count, part: Count, whole: Count, skipped: Count = 0) -> Count:
        """Rows or columns of inputs, summed over the folds: (windows - 1) * stride more than those of the filter."""
        more = (windows - 1) * layer.stride - skipped
        rest = whole % part
        return whole // part * (part + more) + (rest > 0) * (rest + more)

    others = (plan.columns - 1) * covered(tile.Y, tile.S, layer.S, plan.handed * (tile.S - 1))
    across = covered(tile.Y, tile.S, layer.S) + others
    times = plan.blocks * plan.rows
    return times * tile.N * tile.G * covered(tile.X, tile.R, layer.R) * across * (layer.C // layer.G)
