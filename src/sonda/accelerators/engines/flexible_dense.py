"""The flexible dense engine (MAERI): virtual neurons of any size on a line of multipliers under a reduction tree.

Blocks of filters follow each other. Of each block first the weights of all folds are sent, one tile per fold, then for
every window of the output the inputs of all folds. Timing depends on shapes only, never on data.
"""

from __future__ import annotations

from operator import mul
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines.fabric import collection, distribution, multiplication, reduction
from sonda.accelerators.engines.fabric.distribution import Routing
from sonda.accelerators.engines.fabric.reduction import Reduction
from sonda.accelerators.engines.flexible_folding import fold
from sonda.accelerators.engines.flexible_packages import packages
from sonda.accelerators.engines.flexible_streaming import stream
from sonda.accelerators.engines.result import Count, Counters, Result, largest
from sonda.accelerators.mapping import candidate_tiles
from sonda.accelerators.operations.layer import StonneLayer, Tile
from sonda.record.errors import SondaError
from sonda.record.jit import compiled

Whole = NDArray[np.int64]
MOST_BLOCKS = 1 << 22
"""Overlapping blocks are followed one by one."""
RECALL = 64
"""Blocks, and interruptions of a port, that folding through memory remembers."""


class _Packages(NamedTuple):
    """The packages of tiles of weights, of inputs, and of the inputs' last column: layer by layer, one row each."""

    entries: Whole
    """Per port; row 3 numbers the different loads of ports."""
    place: Whole
    """Per multiplier: the place of its package in the queue of its port; -1 where it gets none."""
    routing: Whole
    """Entries, wires, switches passed to one side, to both."""
    loads: int
    """Different loads that a layer has at most."""


def simulate(hardware: Hardware, layer: StonneLayer, tile: Tile) -> Result:
    """The layer on this machine under this tile; raises SondaError where the machine cannot run it.

    The stack: `compute` is one cycle per window and fold, what the multipliers need with all operands at hand;
    `distribution` what the busiest port needs beyond that to send weights and inputs; `writeback` the cycles at the end
    of a block in which results are only on their way to the buffer; `reduction` the rest: sums on their way through the
    adders, and partial sums through memory. `configuration` is 0: the machine is set up before the first cycle.
    """
    tiling, setup, dealt = _prepare(hardware, layer, tile)
    cycles, written, sending = _time(hardware, layer, tile, tiling, setup, dealt)
    stack = _stack(hardware, tiling, cycles, written, sending)
    alone = tile.neuron == 1 and hardware.reduction == "ASNETWORK"
    together = _offered_together(distribution.span(hardware), tile.neurons, dealt.place[0, 1]) if alone else 0
    return _result(hardware, layer, tile, tiling, setup, dealt.routing[0], cycles, stack, together)


def simulate_all(hardware: Hardware, layers: Whole, tiles: Whole) -> Result:
    """Many layers, each under a tile of its own, at once: rows of arrays, in the order of the fields of both.

    The machine is one for all layers, or one for each: then its sizes are arrays (see `machines`). Every count is an
    array with an element for each layer, as `simulate` gives it; there is no stack. Raises SondaError where the machine
    cannot run one of them; `runs_all` says which.
    """
    layer, tile, tiling, setup, dealt = _prepare_all(hardware, layers, tiles)
    cycles = _time_all(hardware, layer, tile, tiling, setup, dealt)
    pairs = np.zeros(len(tiles), np.int64)
    if hardware.reduction == "ASNETWORK":
        neurons = np.asarray(tile.neurons)
        spans = np.broadcast_to(distribution.span(hardware), len(tiles)).tolist()
        for number in np.flatnonzero(np.equal(tile.neuron, 1)).tolist():
            pairs[number] = _offered_together(spans[number], int(neurons[number]), dealt.place[number, 1])
    return _result(hardware, layer, tile, tiling, setup, dealt.routing, cycles, {}, pairs)


def cycles_all(hardware: Hardware, layers: Whole, tiles: Whole) -> Whole:
    """The cycles of `simulate_all` alone."""
    return _time_all(hardware, *_prepare_all(hardware, layers, tiles))


def runs_all(hardware: Hardware, layers: Whole, tiles: Whole) -> NDArray[np.bool_]:
    """Which of the layers `simulate_all` can run under their tiles; `simulate` says why not."""
    if isinstance(hardware.multipliers, int):
        hardware.check()
    layer = StonneLayer(*layers.T)
    tile = Tile(*tiles.T)
    tiling = tiling_of(hardware, layer, tile)
    _, apart = waits_of(layer, tile, tiling)
    runnable: NDArray[np.bool_] = candidate_tiles.fitting_tiles(hardware, layer, tiles) & (
        apart | (tiling.blocks <= MOST_BLOCKS)
    )
    return runnable


def cycles(hardware: Hardware, layer: StonneLayer, tile: Tile) -> int:
    """The cycles of `simulate` alone."""
    return _time(hardware, layer, tile, *_prepare(hardware, layer, tile))[0]


def _prepare(hardware: Hardware, layer: StonneLayer, tile: Tile) -> tuple[Tiling, Reduction, _Packages]:
    hardware.check()
    layer.check()
    tile.check(hardware, layer)
    tiling = tiling_of(hardware, layer, tile)
    size = tile.neuron + tiling.through_memory
    first = np.arange(0, tile.neurons * size, size)
    setup = reduction.reduce(hardware, first, first + (size - 1))
    return tiling, setup, _deal(hardware, layer, tile, tiling)


def _prepare_all(
    hardware: Hardware, layers: Whole, tiles: Whole
) -> tuple[StonneLayer, Tile, Tiling, Reduction, _Packages]:
    if not runs_all(hardware, layers, tiles).all():
        raise SondaError("a tile does not fit the machine, or overlaps too often", "simulate layers one by one")
    layer, tile = StonneLayer(*layers.T), Tile(*tiles.T)
    tiling = tiling_of(hardware, layer, tile)
    setup = reduction.reduce_all(hardware, tile.neuron + tiling.through_memory, tile.neurons)
    return layer, tile, tiling, setup, _deal(hardware, layer, tile, tiling)


def _deal(hardware: Hardware, layer: StonneLayer, tile: Tile, tiling: Tiling) -> _Packages:
    """The packages of one layer, or of many layers whose sizes are arrays."""
    reach, ports, multipliers = distribution.span(hardware), hardware.read_ports, hardware.multipliers
    widest = largest(multipliers)
    case = (2 + tiling.handed, reach, tiling.through_memory, layer.stride, ports, multipliers, *tile.sizes)
    if isinstance(tiling.handed, int):
        return _deal_cases(np.array((case,), np.int64), largest(ports), widest, largest(reach))
    # Write ports do not matter here, so machines that differ in nothing else share their packages.
    cases, case_of = np.unique(_stack_rows(case), axis=0, return_inverse=True)
    entries, place, routing, loads = _deal_cases(cases, largest(ports), widest, largest(reach))
    case_of = case_of.ravel()
    return _Packages(entries[case_of], place[case_of], routing[case_of], loads)


def _deal_cases(cases: Whole, ports: int, widest: int, reach: int) -> _Packages:
    """The packages of these cases; `reach` is the most multipliers that share a port."""
    entries = np.zeros((len(cases), 4, ports), np.int64)
    place = np.empty((len(cases), 3, widest), np.int64)
    routing = np.zeros((len(cases), 3, 4), np.int64)
    room = np.zeros((reach.bit_length() + 1, widest), np.int64)
    return _Packages(entries, place, routing, compiled(packages)(cases, room, entries, place, routing))


def _stack_rows(columns: tuple[Count, ...]) -> Whole:
    """Columns as a table with a row for each layer. The last column is an array; others may be one number."""
    table = np.empty((len(columns[-1]), len(columns)), np.int64)
    for place, column in enumerate(columns):
        table[:, place] = column
    return table


def _time(
    hardware: Hardware, layer: StonneLayer, tile: Tile, tiling: Tiling, setup: Reduction, dealt: _Packages
) -> tuple[int, int, int]:
    """Cycles, those of them that blocks spend only writing back, and those that the busiest port sends for a block."""
    waits, apart = waits_of(layer, tile, tiling)
    if not apart and tiling.blocks > MOST_BLOCKS:
        raise SondaError(
            f"{tiling.blocks} blocks of filters overlap, because the tile does not divide the layer",
            "choose T_X_, T_Y_ and T_K that divide X', Y' and K, and one sample",
        )
    out = np.zeros((1, 3), np.int64)
    times = 1
    if tiling.through_memory:
        cases = np.array((_folding_case(hardware, tile, tiling, waits, apart),), np.int64)
        _fold(hardware, np.zeros(1, np.int64), cases, setup, dealt, out, 1 if apart else tiling.blocks)
    else:
        # Blocks that wait for everything before them are all alike.
        times, blocks = (tiling.blocks, 1) if apart else (1, tiling.blocks)
        cases = np.array((_streaming_case(hardware, tile, tiling, waits, blocks),), np.int64)
        _stream(hardware, np.zeros(1, np.int64), cases, setup, dealt, out, tile.S, blocks)
    ((cycles, written, sending),) = out.tolist()
    return times * cycles, times * written, sending


def _time_all(
    hardware: Hardware, layer: StonneLayer, tile: Tile, tiling: Tiling, setup: Reduction, dealt: _Packages
) -> Whole:
    """Cycles of many layers."""
    waits, apart = waits_of(layer, tile, tiling)
    out = np.zeros((len(apart), 3), np.int64)
    folded, streamed = np.flatnonzero(tiling.through_memory), np.flatnonzero(tiling.through_memory == 0)
    blocks = np.where(apart, 1, tiling.blocks)
    if len(folded):
        # Of blocks that wait for everything before them one is under way at a time.
        case = _folding_case(hardware, tile, tiling, waits, apart)
        _fold(hardware, folded, _stack_rows(case), setup, dealt, out, largest(blocks))
    if len(streamed):
        case = _streaming_case(hardware, tile, tiling, waits, blocks)
        _stream(hardware, streamed, _stack_rows(case), setup, dealt, out, largest(tile.S), largest(blocks))
    cycles: Whole = out[:, 0] * np.where(apart & (tiling.through_memory == 0), tiling.blocks, 1)
    return cycles


def _streaming_case(hardware: Hardware, tile: Tile, tiling: Tiling, waits: tuple[Count, ...], blocks: Count) -> Any:
    return (
        distribution.span(hardware), distribution.arrival_delay(hardware), hardware.write_ports, tiling.folds,
        tiling.rows, tiling.columns, tiling.handed, tile.S, blocks, tiling.groups, *waits, tile.neuron,
        hardware.read_ports, tile.neurons,
    )  # fmt: skip


def _folding_case(hardware: Hardware, tile: Tile, tiling: Tiling, waits: tuple[Count, ...], apart: Any) -> Any:
    return (
        distribution.span(hardware), distribution.arrival_delay(hardware), hardware.write_ports, tiling.folds,
        tiling.rows, tiling.columns, _bus_inputs(hardware), apart, tiling.blocks, tiling.groups, *waits,
        tile.neuron + 1, hardware.read_ports, tile.neurons,
    )  # fmt: skip


def _stream(
    hardware: Hardware, which: Whole, cases: Whole, setup: Reduction, dealt: _Packages, out: Whole, early: int,
    blocks: int,
) -> None:  # fmt: skip
    """Run the streaming kernel, with room for so many windows that begin a row, and so many blocks."""
    neurons = setup.line.shape[-1]
    compiled(stream)(
        which,
        cases,
        dealt.entries,
        dealt.place,
        setup.hops.reshape(len(cases), -1),
        setup.line.reshape(len(cases), -1),
        setup.delay.reshape(len(cases), -1),
        np.empty((6, dealt.loads + 1), np.int64),
        np.empty((12, neurons), np.int64),
        np.empty((5, largest(hardware.write_ports)), np.int64),
        np.empty((2, largest(hardware.multipliers) + 1), np.int64),
        np.empty((neurons, dealt.loads + 1), np.int64),
        np.empty((neurons, early), np.int64),
        np.empty((dealt.loads + 1, blocks), np.int64),
        out,
    )


def _fold(
    hardware: Hardware, which: Whole, cases: Whole, setup: Reduction, dealt: _Packages, out: Whole, blocks: int
) -> None:
    """Run the folding kernel, with room for so many blocks."""
    neurons, ports = setup.line.shape[-1], largest(hardware.read_ports)
    compiled(fold)(
        which,
        cases,
        dealt.entries,
        dealt.place,
        setup.hops.reshape(len(cases), -1),
        setup.line.reshape(len(cases), -1),
        setup.slot.reshape(len(cases), -1),
        np.empty((9, ports), np.int64),
        np.empty((9, neurons), np.int64),
        np.empty((5 + RECALL, largest(hardware.write_ports)), np.int64),
        np.empty((4, 2 * largest(hardware.multipliers)), np.int64),
        np.empty((2, neurons, dealt.loads), np.int64),
        np.empty((2, ports, RECALL), np.int64),
        np.empty((3, 2 * RECALL), np.int64),
        np.empty((dealt.loads + 1, blocks), np.int64),
        out,
    )


def _bus_inputs(hardware: Hardware) -> Count:
    """Inputs of every line of the collection bus."""
    return hardware.multipliers // hardware.write_ports + 1


def _stack(hardware: Hardware, tiling: Tiling, cycles: int, written: int, sending: int) -> dict[str, int]:
    computed = min(tiling.blocks * tiling.windows * tiling.folds, cycles - written)
    fed = tiling.blocks * (sending + distribution.arrival_delay(hardware)) - computed
    fed = min(fed, cycles - written - computed)
    summed = cycles - written - computed - fed
    return {"distribution": fed, "compute": computed, "reduction": summed, "writeback": written, "configuration": 0}


def _result(
    hardware: Hardware,
    layer: StonneLayer,
    tile: Tile,
    tiling: Tiling,
    setup: Reduction,
    routing: Whole,
    cycles: Count,
    stack: dict[str, int],
    pairs: Count,
) -> Result:
    """The result of one layer; or of many, whose sizes and counts are arrays."""
    blocks, neuron, neurons, through_memory = tiling.blocks, tile.neuron, tile.neurons, tiling.through_memory
    windows = blocks * tiling.windows
    steps = windows * tiling.folds
    outputs = windows * neurons
    products = steps * neuron * neurons
    psums = outputs * (tiling.folds - 1) * through_memory
    work = _work(tile, tiling, setup, products, psums)
    # Of a row of windows only the first gets all inputs where they are handed on.
    whole = steps - tiling.handed * (steps - blocks * tiling.rows * tiling.folds)
    often = (blocks * tiling.folds, whole, steps - whole)
    if isinstance(steps, int):
        # A matrix so small is multiplied sooner by hand.
        sent = Routing(*(sum(map(mul, often, costs)) for costs in zip(*routing.tolist(), strict=True)))
    else:
        sent = Routing(*np.einsum("kn,nki->in", np.array(often), routing))
    if largest(psums):
        sent = distribution.unicast(hardware, psums).plus(sent)
    loaded = tiling.folds * neuron * neurons
    channels, filters = layer.C // layer.G, layer.K // layer.G
    weight_reads = tiling.batches * tiling.groups * tile.G * filters * channels * layer.R * layer.S
    input_reads = _input_reads(layer, tile, tiling)
    writes = layer.N * layer.K * layer.rows * layer.columns * (1 + through_memory * (tiling.folds - 1))
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
            weights=blocks * loaded,
            weights_left=loaded,
            products=products,
            configured=(neuron + through_memory) * neurons,
            forwarded=(steps - whole) * neurons * tile.R * tile.C * (tile.S - 1),
            psums=psums,
            zeros=(outputs + neurons) * through_memory,
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


def _work(tile: Tile, tiling: Tiling, setup: Reduction, products: Count, psums: Count) -> reduction.ReductionWork:
    neurons, through_memory = tile.neurons, tiling.through_memory
    windows = tiling.blocks * tiling.windows
    results, outputs = windows * tiling.folds, windows * neurons
    nodes, two, three = setup.totals
    # A zero opens every window; one more follows the last, in vain. Where the neuron begins on an odd multiplier, an
    # adder without another operand passes it on, and there it stays.
    return reduction.ReductionWork(
        sends=products + through_memory * (psums + outputs + neurons),
        nodes=nodes * results + through_memory * (tile.neuron % 2 == 0) * (neurons // 2),
        two=two * results,
        three=three * results,
        results=results * neurons,
        outputs=outputs * (1 + through_memory * (tiling.folds - 1)),
        configured=setup.configured,
        waiting=through_memory * neurons,
    )


def _offered_together(span: int, neurons: int, place: Whole) -> int:
    """Pairs of one-multiplier neurons on one adder whose products always come in the same cycle."""
    pairs = neurons // 2
    if span == 1:
        return pairs
    return int(np.count_nonzero(place[0 : 2 * pairs : 2] == place[1 : 2 * pairs : 2]))


def _input_reads(layer: StonneLayer, tile: Tile, tiling: Tiling) -> Count:
    """Inputs read: those of a tile's windows that lie inside the filter; padded windows are read as well."""

    def covered(windows: Count, part: Count, whole: Count, skipped: Count = 0) -> Count:
        """Rows or columns of inputs, summed over the folds: (windows - 1) * stride more than those of the filter."""
        more = (windows - 1) * layer.stride - skipped
        rest = whole % part
        return whole // part * (part + more) + (rest > 0) * (rest + more)

    others = (tiling.columns - 1) * covered(tile.Y, tile.S, layer.S, tiling.handed * (tile.S - 1))
    across = covered(tile.Y, tile.S, layer.S) + others
    times = tiling.blocks * tiling.rows
    return times * tile.N * tile.G * covered(tile.X, tile.R, layer.R) * across * (layer.C // layer.G)


# ---- How often a tile is repeated over a layer on the flexible dense engine, and what its blocks wait for -----------


class Tiling(NamedTuple):
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


def tiling_of(hardware: Hardware, layer: StonneLayer, tile: Tile) -> Tiling:
    """The tiling of one layer, or of many layers whose sizes are arrays."""
    columns = -(-layer.columns // tile.Y)
    return Tiling(
        folds=tile.folds(layer),
        rows=-(-layer.rows // tile.X),
        columns=columns,
        groups=-(-layer.G // tile.G),
        filters=-(-(layer.K // layer.G) // tile.K),
        batches=-(-layer.N // tile.N),
        through_memory=1 * tile.folds_through_memory(hardware, layer),
        handed=1 * (columns > 1) * tile.hands_on(layer),
    )


def waits_of(layer: StonneLayer, tile: Tile, tiling: Tiling) -> tuple[tuple[Count, Count, Count], Any]:
    """Blocks of filters, and how many more results each block and each group waits for.

    Also whether these are all the results that come before.
    """
    fed_back = 1 + tiling.through_memory * (tiling.folds - 1)
    # A block of filters waits for as many results as the filters before it have outputs; padding counts as results.
    outputs = layer.rows * layer.columns * fed_back
    per_filter, per_group = tile.K * tile.G * outputs, tile.G * (layer.K // layer.G) * outputs
    per_block = tile.neurons * tiling.windows * fed_back
    apart = (
        (tiling.batches == 1)
        & ((tiling.filters == 1) | (per_filter == per_block))
        & ((tiling.groups == 1) | (per_group == per_block * tiling.filters))
    )
    return (tiling.filters, per_filter, per_group), apart
