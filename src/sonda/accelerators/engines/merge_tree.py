"""The merging tree of the outer-product and Gustavson engines, block by block, without stepping cycles.

Leaves stream sorted column numbers; every adder passes the smaller of the two it sees and adds where they are equal.
All leaves begin together and deliver one element a cycle, so an adder sees its children as two sorted lists without
gaps: what it passes on is the union of the columns below it, and it compares until one of its lists is exhausted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines.fabric import collection, instances
from sonda.accelerators.engines.result import Counters
from sonda.accelerators.operations.patterns import CompressedRows
from sonda.record.errors import SondaError
from sonda.record.jit import compiled

Whole = NDArray[np.int64]


class Merged(NamedTuple):
    """What merging all groups amounts to."""

    received: int
    """Elements that adders receive from multipliers and from adders below."""
    sent: int
    """Elements that adders send."""
    additions: int
    comparisons: int
    blocks: int
    """Blocks of first passes, which merge the fibers as given."""
    left: int
    """Elements that these leave."""
    longest: int
    """Sum over these of their longest fiber."""
    later_blocks: int
    later_left: int
    sent_down: int
    """Elements that earlier passes left and later ones merge again."""
    empty: int
    """Blocks of first passes in which no fiber has an element."""


def merge(columns: Whole, begin: Whole, end: Whole, groups: Whole, multipliers: int) -> Merged:
    """Merge each group of fibers into one, as many at a time as there are multipliers, in passes.

    Fiber f holds columns[begin[f]:end[f]], ascending; group g the fibers groups[g] to groups[g + 1] - 1. An empty fiber
    keeps its leaf in the first pass. Later passes merge what the blocks before left, until one block is enough.
    """
    return Merged(*compiled(_merge)(columns, begin, end, groups, multipliers).tolist())


def _merge(columns: Whole, begin: Whole, end: Whole, groups: Whole, multipliers: int) -> Whole:
    """The fields of Merged, in their order."""
    levels = 0
    while (1 << levels) < multipliers:
        levels += 1
    largest = 1
    for group in range(groups.size - 1):
        elements = 0
        for fiber in range(groups[group], groups[group + 1]):
            elements += end[fiber] - begin[fiber]
        largest = max(largest, elements)
    source, target = np.empty(largest, np.int64), np.empty(largest, np.int64)
    bounds = np.empty(multipliers + 2, np.int64)
    totals = np.zeros(11, np.int64)
    for group in range(groups.size - 1):
        given, given_begin, given_end = columns, begin, end
        first, fibers = groups[group], groups[group + 1] - groups[group]
        later = 0
        while fibers > 0:
            blocks = (fibers + multipliers - 1) // multipliers
            kept = np.empty(largest if blocks > 1 else 0, np.int64)
            kept_begin, kept_end = np.empty(blocks, np.int64), np.empty(blocks, np.int64)
            used = stored = 0
            for block in range(blocks):
                at = first + block * multipliers
                lists = min(multipliers, first + fibers - at)
                filled = longest = 0
                bounds[0] = 0
                for list_number in range(lists):
                    for position in range(given_begin[at + list_number], given_end[at + list_number]):
                        source[filled] = given[position]
                        filled += 1
                    bounds[list_number + 1] = filled
                    longest = max(longest, bounds[list_number + 1] - bounds[list_number])
                if filled == 0:
                    totals[10] += 1
                    continue
                totals[9] += later * filled
                for _ in range(levels):
                    totals[0] += filled
                    written = 0
                    for pair in range((lists + 1) // 2):
                        left, left_end = bounds[2 * pair], bounds[2 * pair + 1]
                        right = left_end
                        right_end = bounds[2 * pair + 2] if 2 * pair + 1 < lists else left_end
                        totals[2] += right_end - left
                        # Bounds of this level replace those of the one below only where they have been read.
                        bounds[pair] = written
                        while left < left_end and right < right_end:
                            totals[3] += 1
                            smaller, larger = source[left] <= source[right], source[left] >= source[right]
                            target[written] = source[left] if smaller else source[right]
                            left += smaller
                            right += larger
                            written += 1
                        while left < left_end:
                            target[written] = source[left]
                            left += 1
                            written += 1
                        while right < right_end:
                            target[written] = source[right]
                            right += 1
                            written += 1
                        totals[2] -= written - bounds[pair]
                        bounds[pair + 1] = written
                    lists = (lists + 1) // 2
                    filled = written
                    totals[1] += filled
                    source, target = target, source
                totals[4 + 3 * later] += 1
                totals[5 + 3 * later] += filled
                if later == 0:
                    totals[6] += longest
                if blocks > 1:
                    kept[used : used + filled] = source[:filled]
                    kept_begin[stored], kept_end[stored] = used, used + filled
                    used += filled
                    stored += 1
            given, given_begin, given_end, first, fibers = kept, kept_begin, kept_end, 0, stored
            later = 1
    return totals


# ---- A product of two sparse matrices, and the counters of the two engines that merge its partial results in --------


@dataclass(frozen=True)
class SparseProduct:
    """M x K by K x N, both by compressed rows; only the patterns count."""

    a: CompressedRows
    b: CompressedRows


def check_product(hardware: Hardware, product: SparseProduct) -> None:
    """Raises SondaError where the matrices do not fit each other or the hardware cannot merge."""
    hardware.check()
    if hardware.multipliers < 4:
        raise SondaError(f"multipliers = {hardware.multipliers} make no merging tree", "give at least 4")
    if hardware.read_ports != hardware.multipliers:
        raise SondaError(
            f"read_ports = {hardware.read_ports} with multipliers = {hardware.multipliers} brings elements to the "
            "merging tree out of step",
            f"set read_ports = {hardware.multipliers}",
        )
    if product.a.columns != product.b.rows:
        raise SondaError(
            f"the first matrix has {product.a.columns} columns, the second {product.b.rows} rows",
            "give matrices that fit",
        )


def merger_counters(
    hardware: Hardware,
    merged: Merged,
    *,
    weights: int,
    products: int,
    forwarded: int,
    writes: int,
    configurations: int,
    weights_kept: int,
) -> Counters:
    """Activity of both merging engines: `forwarded` are partial results that multipliers only pass on to the tree,
    `configurations` settings of the tree, `weights_kept` those still in their queues at the end."""
    nm = hardware.multipliers
    multiplied = instances.multipliers(hardware)
    # Its tree is that of adders without accumulators.
    merging = instances.reduction(replace(hardware, reduction="ASNETWORK", accumulators=False))
    pushes = weights + 3 * products + 2 * forwarded
    packages = weights + products + forwarded
    passed = merged.received + merged.sent
    return {
        "DSNetwork": {"DN_WIRE": {"entries": nm, "WRITE": packages, "READ": 0}},
        "MSNetwork": {
            "MN_WIRE": {"entries": multiplied["MN_WIRE"], "WRITE": 0, "READ": 0},
            "MULTIPLIER": {
                "entries": multiplied["MULTIPLIER"],
                "MULTIPLICATION": products,
                "FORWARD_PSUM": forwarded,
                "CONFIGURATION": 0,
            },
            "FIFO": {"entries": multiplied["FIFO"], "PUSH": pushes, "POP": pushes - weights_kept, "FRONT": 0},
        },
        "ReduceNetwork": {
            "RN_WIRE": {"entries": merging["RN_WIRE"], "WRITE": merged.received, "READ": 0},
            "ADDER": {
                "entries": merging["ADDER"],
                "ADD_2_1": merged.additions,
                "ADD_3_1": 0,
                "CONFIGURATION": (nm - 1) * configurations,
            },
            "FIFO": {
                "entries": merging["FIFO"],
                "PUSH": passed,
                "POP": passed,
                "FRONT": 2 * merged.comparisons,
            },
        },
        "GlobalBuffer": {"GLOBALBUFFER": {"entries": 1, "READ": packages, "WRITE": writes}},
        "CollectionBus": collection.activity(hardware, merged.left + merged.later_left),
    }
