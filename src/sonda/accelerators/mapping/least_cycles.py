"""Cycles that a mapping takes at least, for many mappings at once: what must pass one port, one adder tree, the bus.

Each is a lower bound on what the engine returns, never an estimate: a search may leave out what cannot be better.
Formulas count the entries of the first port, which is always full, and the way of the last result.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines.fabric import distribution
from sonda.accelerators.engines.mesh import Product
from sonda.accelerators.mapping.candidate_tiles import C, G, K, N, R, S, X, Y, extents, row_products, tiles_hand_on
from sonda.accelerators.operations.layer import StonneLayer

Whole = NDArray[np.int64]


def tile_cycles(hardware: Hardware, layer: StonneLayer, tiles: Whole) -> Whole:
    """Least cycles for tiles (rows of an array, as `candidates` gives them) of a layer on the flexible dense engine.

    It is the larger of what `write_cycles` says and a bound that does not depend on the write ports.
    """
    span, later = distribution.span(hardware), distribution.arrival_delay(hardware)
    parts = -(-extents(layer) // tiles)
    folds, blocks = row_products(parts[:, : C + 1]), row_products(parts[:, K : N + 1])
    rows, columns = parts[:, X], parts[:, Y]
    windows = rows * columns
    neuron, neurons = row_products(tiles[:, : C + 1]), row_products(tiles[:, K:])
    through_memory = (folds > 1) & hardware.sums_through_memory
    size = neuron + through_memory

    weights, inputs, last_columns = _first_port(span, tiles, size, neuron, neurons, through_memory)
    handed = tiles_hand_on(layer, tiles)
    others = np.where(handed, last_columns, inputs)
    sums = np.where(through_memory, (folds - 1) * windows * np.minimum(-(-span // size), neurons), 0)
    sent = folds * (weights + rows * (inputs + (columns - 1) * others)) + sums
    # Some port brings the last column of a row of the filter, and with it an element for every window.
    sent = np.maximum(sent, folds * (1 + windows))

    # From the last entry to its result in the buffer: through as many adders as its sum is deep, to the bus, over it.
    way = np.full_like(neuron, later + 1 + _to_the_bus(hardware))
    if hardware.reduction != "TEMPORALRN":
        way += np.where(handed | through_memory, 1, np.maximum(1, _bits(neuron) - inputs))
    # The next block begins when this one is complete, unless padding or another sample counts as results.
    fed_back = np.where(through_memory, folds, 1)
    outputs = layer.rows * layer.columns * fed_back
    results = neurons * windows * fed_back
    filters, groups = parts[:, K], parts[:, G]
    apart = (parts[:, N] == 1) & ((filters == 1) | (tiles[:, K] * tiles[:, G] * outputs == results))
    apart &= (groups == 1) | (tiles[:, G] * (layer.K // layer.G) * outputs == results * filters)
    least = np.where(apart, blocks * (sent + way), blocks * sent + way)
    # A virtual neuron takes its folds in turn, each after the partial sum of the one before has come back.
    back = np.maximum(_bits(size) - 1, 1) + 2 + later
    returned = np.where(through_memory, blocks * windows * ((folds - 1) * back + 1), 0)
    bound: Whole = np.maximum(np.maximum(least, write_cycles(hardware, blocks * results)), returned)
    return bound


def sent_results(hardware: Hardware, layer: StonneLayer, tiles: Whole) -> Whole:
    """Results that tiles of a layer send to the buffer, padding and partial sums among them."""
    parts = -(-extents(layer) // tiles)
    folds = row_products(parts[:, : C + 1])
    fed_back = folds if hardware.sums_through_memory else 1
    results: Whole = row_products(parts[:, K:]) * row_products(tiles[:, K:]) * fed_back
    return results


def write_cycles(hardware: Hardware, results: Whole) -> Whole:
    """Least cycles to write so many results: a line of the bus takes one in a cycle."""
    cycles: Whole = -(-results // hardware.write_ports)
    return cycles


def mesh_tile_cycles(hardware: Hardware, product: Product, rows: Whole, columns: Whole) -> Whole:
    """Least cycles for tiles of `rows` x `columns` outputs of a product on the mesh."""
    m, n, k = product.m, product.n, product.k
    per_port = (hardware.rows + hardware.columns) // hardware.read_ports
    least = np.zeros_like(rows)
    for high, many in ((rows, m // rows), (m % rows, np.minimum(m % rows, 1))):
        for wide, across in ((columns, n // columns), (n % columns, np.minimum(n % columns, 1))):
            # A port that feeds both sides (there is only one) sends all; else the longer side decides.
            busiest = high + wide if hardware.read_ports == 1 else np.minimum(np.maximum(high, wide), per_port)
            sent = (k - 1) * busiest + high + wide + 3 + (per_port > 1)
            least += many * across * np.maximum(sent, -(-(high * wide) // hardware.write_ports))
    return least


def row_tile_cycles(hardware: Hardware, entries: Whole, dense: int, columns: Whole, summed: Whole) -> Whole:
    """Least cycles for tiles of `columns` x `summed` entries.

    Compressed rows have so many `entries` each; the other matrix has `dense` columns.
    """
    span, later = distribution.span(hardware), distribution.arrival_delay(hardware)
    sizes, often = np.unique(np.maximum(entries, 1), return_counts=True)
    widths, width_of = np.unique(summed, return_inverse=True)
    folds = np.array([often @ -(-sizes // width) for width in widths.tolist()], np.int64)[width_of]
    blocks = -(-dense // columns)
    weights, elements = np.minimum(span, summed), np.minimum(span, columns * summed)
    way = later + np.maximum(1, _bits(summed) - elements) + 2 + _to_the_bus(hardware)
    count = len(entries)
    sent = folds * (weights + blocks * elements) + count * way
    return np.maximum(sent, count * -(-(blocks * columns) // hardware.write_ports))


def bitmap_cycles(hardware: Hardware, ones: int, streams: int) -> int:
    """Least cycles for stationary vectors with `ones` ones in all, and `streams` vectors that stream past them."""
    return -(-ones // hardware.multipliers) * (streams + 5)


def _first_port(
    span: int, tiles: Whole, size: Whole, neuron: Whole, neurons: Whole, through_memory: NDArray[np.bool_]
) -> tuple[Whole, Whole, Whole]:
    """At least so many weights, inputs, and inputs of the filter's last column that the first port sends for a step."""
    # Virtual neurons that lie on it as a whole: first along a row of windows, then down the rows, then filters.
    full = np.minimum(span // size, neurons)
    inside = np.minimum(span, size) - through_memory
    area = tiles[:, Y] * tiles[:, X]
    wide = np.clip(full, 1, tiles[:, Y])
    high = np.clip(full // tiles[:, Y], 1, tiles[:, X])
    filters = np.clip(full // area, 1, tiles[:, K])
    groups = np.clip(full // (area * tiles[:, K]), 1, tiles[:, G])
    samples = np.clip(full // (area * tiles[:, K] * tiles[:, G]), 1, tiles[:, N])
    some = full > 0
    apart = tiles[:, C] * groups * samples
    weights = np.where(some, neuron * filters * groups, inside)
    inputs = np.where(some, apart * (tiles[:, R] + high - 1) * (tiles[:, S] + wide - 1), inside)
    last_columns = np.where(some, apart * (tiles[:, R] + high - 1), inside // tiles[:, S])
    return weights, inputs, last_columns


def _to_the_bus(hardware: Hardware) -> int:
    """Cycles from the last adder to the bus at least; one less into a fold node at the root."""
    if hardware.reduction == "ASNETWORK":
        return 1 + hardware.accumulators
    return 2 if hardware.reduction == "TEMPORALRN" else 1


def _bits(values: Whole) -> Whole:
    """Binary digits of numbers from 0 to 2^52."""
    return np.frexp(values.astype(np.float64))[1].astype(np.int64)
