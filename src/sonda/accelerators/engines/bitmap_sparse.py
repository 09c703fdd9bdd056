"""Bitmap sparse product (SIGMA): vectors of one matrix stay in the multipliers, those of the other stream past.

An iteration takes as many whole stationary vectors as fit, each on consecutive multipliers, one for each of its ones.
A vector that is too long for the machine alone is folded: a first piece fills all multipliers, later ones leave the
first of them to the sums so far, which come from the global buffer. An iteration is configured (1 cycle), its weights
are distributed (1), the streaming vectors are sent (one a cycle, each position once, to all multipliers that hold it,
whatever its own bit is); the next starts when all results are written. Time depends on the stationary pattern only;
the streaming one is only read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.description.hardware import DATAFLOWS, Hardware
from sonda.accelerators.engines import bitmap_iterations
from sonda.accelerators.engines.fabric import collection, distribution, multiplication, reduction
from sonda.accelerators.engines.result import Result
from sonda.accelerators.operations.patterns import CompressedRows, compressed_rows
from sonda.record.errors import SondaError
from sonda.record.jit import compiled

Whole = NDArray[np.int64]
FEWEST = 3
"""Ones that a vector must have: the adder tree cannot keep smaller neighbours apart."""


@dataclass(frozen=True)
class DenseRows:
    """Rows without zeros; nothing is allocated for them."""

    rows: int
    columns: int


@dataclass(frozen=True)
class BitmapProduct:
    """Stationary vectors (rows of `stationary`) of length K, and how many vectors stream past them."""

    stationary: CompressedRows | DenseRows
    streams: int
    ones_before: Whole | None = None
    """K + 1: ones of all streaming vectors at positions before j; None where they have no zeros."""


def simulate(hardware: Hardware, product: BitmapProduct) -> Result:
    """Cycles, accesses and counters; the mapping follows from the bitmaps. Raises SondaError where it cannot be.

    Accumulators, where the hardware has any, are not used.
    The stack, summed over iterations: `configuration`, 1 cycle; `compute`, a cycle for every streaming vector;
    `distribution`, what the last product comes later than that (weights, shared ports); `reduction`, from the last
    product until the last sum is offered to the collection bus; `writeback`, the rest.
    """
    _check(hardware, product)
    hardware = replace(hardware, accumulators=False)
    total = _iterations(hardware, product)
    streams = product.streams
    psums = total.folded * streams
    products = total.weights * streams
    results = total.neurons * streams
    sent = distribution.Routing(
        0, total.wires * streams, total.unicast_switches * streams, total.broadcast_switches * streams
    )
    single = distribution.unicast(hardware, total.weights + psums)
    return Result(
        cycles=total.cycles,
        weight_reads=total.weights,
        input_reads=total.inputs,
        psum_reads=psums,
        writes=results,
        multiplications=products,
        counters={
            "DSNetwork": distribution.activity(hardware, sent.plus(single)),
            "MSNetwork": multiplication.activity(
                hardware,
                weights=total.weights,
                weights_left=total.last_weights,
                products=products,
                configured=total.weights + total.folded,
                psums=psums,
            ),
            "ReduceNetwork": reduction.activity(
                hardware,
                reduction.ReductionWork(
                    sends=products + psums,
                    nodes=total.nodes * streams,
                    two=total.two * streams,
                    three=total.three * streams,
                    results=results,
                    outputs=results,
                    configured=total.configured,
                ),
            ),
            "GlobalBuffer": {
                "GLOBALBUFFER": {"entries": 1, "READ": total.weights + total.inputs + psums, "WRITE": results}
            },
            "CollectionBus": collection.activity(hardware, results),
        },
        stack={
            "distribution": total.product_at - total.iterations * (1 + streams),
            "compute": total.iterations * streams,
            "reduction": total.offered_at - total.product_at,
            "writeback": total.cycles - total.offered_at,
            "configuration": total.iterations,
        },
    )


def _iterations(hardware: Hardware, product: BitmapProduct) -> bitmap_iterations.Totals:
    stationary = product.stationary
    pointer = indices = np.zeros(0, np.int64)
    alike = 1
    if isinstance(stationary, CompressedRows):
        pointer, indices = stationary.pointer, stationary.indices
    elif stationary.columns > hardware.multipliers:
        # Folded vectors share no iteration, and these are all alike.
        alike = stationary.rows
    totals = compiled(bitmap_iterations.run)(
        pointer,
        indices,
        stationary.rows // alike,
        stationary.columns,
        product.streams,
        np.zeros(0, np.int64) if product.ones_before is None else product.ones_before,
        hardware.multipliers,
        distribution.span(hardware),
        distribution.arrival_delay(hardware),
        hardware.write_ports,
    )
    total = bitmap_iterations.Totals(*totals.tolist())
    return bitmap_iterations.Totals(*(alike * count for count in total))._replace(last_weights=total.last_weights)


def bitmap_product(mk: np.ndarray, kn: np.ndarray, dataflow: str = DATAFLOWS[0]) -> BitmapProduct:
    """The operation for two patterns (M x K and K x N), vectors in the order given.

    A vector with fewer than three ones gets explicit zeros at the first of its positions 0 to 2 that are free.
    """
    if dataflow not in DATAFLOWS:
        raise SondaError(f"dataflow = {dataflow!r} is unknown", f"use one of {', '.join(DATAFLOWS)}")
    if mk.shape[1] != kn.shape[0]:
        raise SondaError(f"the first matrix has {mk.shape[1]} columns, the second {kn.shape[0]} rows", "give what fits")
    rows, columns = fill_short_vectors(mk), fill_short_vectors(kn.T)
    stationary, streaming = (rows, columns) if dataflow == DATAFLOWS[0] else (columns, rows)
    ones = np.concatenate(([0], np.cumsum(streaming.sum(axis=0, dtype=np.int64))))
    return BitmapProduct(compressed_rows(stationary), streaming.shape[0], ones)


def fill_short_vectors(pattern: np.ndarray) -> np.ndarray:
    """The rows as booleans, those with fewer than three ones filled up to three from their beginning."""
    bits = pattern != 0
    if bits.shape[1] < FEWEST:
        raise SondaError(
            f"K = {bits.shape[1]} is less than the {FEWEST} ones that a vector must have", "give a larger K"
        )
    for row in np.flatnonzero(bits.sum(axis=1) < FEWEST):
        free = np.flatnonzero(~bits[row, :FEWEST])
        bits[row, free[: FEWEST - int(bits[row].sum())]] = True
    return bits


def packed_order(sizes: Whole, multipliers: int) -> Whole:
    """The order of stationary vectors that fills the multipliers better, by their numbers of ones.

    Vectors too long for the machine come first, each exchanged with the one in its place; then, greedily, the longest
    that still fits beside those before it (the first of equals, exchanged likewise), a new iteration begun where none
    fits.
    """
    size = np.maximum(sizes, FEWEST)
    return compiled(bitmap_iterations.pack)(size.astype(np.int64), multipliers)


def _check(hardware: Hardware, product: BitmapProduct) -> None:
    hardware.check()
    if hardware.reduction != "ASNETWORK":
        raise SondaError(
            f"reduction = {hardware.reduction!r} cannot sum vectors of different lengths", "set reduction = 'ASNETWORK'"
        )
    if hardware.multipliers < 4:
        raise SondaError(f"multipliers = {hardware.multipliers} hold no vector of {FEWEST} ones", "give at least 4")
    stationary = product.stationary
    shortest = stationary.columns
    if isinstance(stationary, CompressedRows) and stationary.rows:
        shortest = int(stationary.row_sizes().min())
    if stationary.rows < 1 or shortest < FEWEST:
        raise SondaError(
            f"a stationary vector has {shortest} ones, fewer than {FEWEST}"
            if stationary.rows
            else "no stationary vector",
            "fill the vectors up with explicit zeros",
        )
    if not 1 <= product.streams <= 1 << 40:
        raise SondaError(f"{product.streams} streaming vectors are not 1 to 2^40", "change the size of the product")
    if product.ones_before is not None and product.ones_before.size != stationary.columns + 1:
        raise SondaError("the streaming pattern is not as long as the stationary vectors", "give matrices that fit")
