"""The reduction network: the tree of adders that sums the products of every virtual neuron.

A virtual neuron (VN) is a set of consecutive multipliers whose products are summed. The adders form a binary tree,
level 0 the root, level log2(multipliers)-1 the leaves; neighbours that do not share a parent, (odd, odd+1), are joined
by a sideways link. A VN is gathered level by level until one adder holds it; that adder is its root.
A sum moves one adder per cycle, so the result of a VN leaves its root max(t_m + hops[m]) after products leave at t_m.

Networks: ASNETWORK sends the root's result to the collection bus, or with accumulators to that adder's accumulator.
FENETWORK sends it to a fold node above the root, which sums the folds. TEMPORALRN has no adders: VNs are single
multipliers, each with its accumulator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.description.hardware import REDUCTIONS, Hardware
from sonda.accelerators.engines.fabric import instances
from sonda.accelerators.engines.result import Count, largest
from sonda.record.jit import compiled

Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Reduction:
    """How the reduction network is set up for a list of VNs."""

    hops: Whole
    """Per multiplier of the machine: adders that its product passes; 0 where unused."""
    level: Whole
    index: Whole
    """Per VN: the root adder (level 0 is the root of the tree); for TEMPORALRN the accumulator, level 0."""
    nodes: Whole
    """Per VN: adders that take part in one result, those that only pass a value on included."""
    two: Whole
    three: Whole
    """Per VN and result: additions of two and of three operands."""
    line: Whole
    slot: Whole
    """Per VN: the line of the collection bus that takes its results, and which input of that line."""
    delay: Whole
    """Per VN: cycles from leaving the root adder to being offered to the bus (one item per line and cycle goes on)."""
    configured: Count
    """Adders that are set up: those of the VNs and all above their roots; 0 for networks that do not count it."""
    totals: tuple[Count, Count, Count]
    """Sums over all VNs of `nodes`, `two` and `three`."""


class ReductionWork(NamedTuple):
    """What the reduction network has done; sums over VNs and over the ways it was set up."""

    sends: Count
    """Values that multipliers sent into it."""
    nodes: Count
    two: Count
    three: Count
    """Sums over all results of the VN's `nodes`, `two` and `three`."""
    results: Count
    """Sums that left a root adder."""
    outputs: Count
    """Sums that were offered to the bus; fewer than `results` where folds are summed on the way."""
    configured: Count
    waiting: Count = 0
    """Values that were still in the queues of adders at the end."""
    shared: Count = 0
    """Results that left their root adder together with another one, over one wire."""


def reduce(hardware: Hardware, first: Whole, last: Whole) -> Reduction:
    """The paths of VNs on the multipliers first[v] ... last[v], which ascend and do not overlap."""
    network = REDUCTIONS.index(hardware.reduction)
    sizes = np.array(((len(first), hardware.multipliers, hardware.write_ports),))
    hops, vector, totals = _gather_cases(hardware, sizes, first[None], last[None], hardware.multipliers)
    return _setup(hops[0], vector[:, 0], totals[0].tolist(), network)


def reduce_all(hardware: Hardware, sizes: Count, counts: Count) -> Reduction:
    """Many setups, each of so many VNs of a size, side by side; every array has one more index, the first."""
    network = REDUCTIONS.index(hardware.reduction)
    cases = np.empty((len(sizes), 3), np.int64)
    cases[:, 0], cases[:, 1], cases[:, 2] = counts, hardware.multipliers, hardware.write_ports
    first = np.arange(int(counts.max())) * sizes[:, None]
    widest = largest(hardware.multipliers)
    hops, vector, totals = _gather_cases(hardware, cases, first, first + (sizes[:, None] - 1), widest)
    return _setup(hops, vector, list(totals.T), network)


def _gather_cases(
    hardware: Hardware, cases: Whole, first: Whole, last: Whole, widest: int
) -> tuple[Whole, Whole, Whole]:
    """`hops`, `vector` and `totals` of `_gather`, which is called with arrays of one kind: it is compiled once.

    The machine with the most multipliers has `widest`.
    """
    hops = np.zeros((len(cases), widest), np.int64)
    vector = np.zeros((8, *first.shape), np.int64)
    totals = np.zeros((len(cases), 4), np.int64)
    network, accumulators = REDUCTIONS.index(hardware.reduction), int(hardware.accumulators)
    latest = np.empty(hops.shape[1].bit_length(), np.int64)
    compiled(_gather)(network, accumulators, cases, first, last, latest, hops, vector, totals)
    return hops, vector, totals


def _setup(hops: Whole, vector: Whole, totals: list[Count], network: int) -> Reduction:
    level, index, nodes, two, three, line, slot, delay = vector
    return Reduction(
        hops=hops,
        level=level,
        index=index,
        nodes=nodes,
        two=two,
        three=three,
        line=line,
        slot=slot,
        delay=delay,
        configured=0 * totals[3] if network else totals[3],
        totals=(totals[0], totals[1], totals[2]),
    )


def activity(hardware: Hardware, work: ReductionWork) -> dict[str, dict[str, int]]:
    """The counters of the section ReduceNetwork."""
    folded = work.results - work.outputs
    adders = {"ADD_2_1": work.two, "ADD_3_1": work.three, "CONFIGURATION": work.configured}
    accumulators = {"READ": folded, "WRITE": work.results, "ADD": folded}
    wires = work.sends + work.nodes - work.results
    pushes = wires + work.nodes
    operations: dict[str, dict[str, int]]
    if hardware.reduction == "TEMPORALRN":
        wires, pushes = work.sends, work.sends + work.outputs
        operations = {"RN_WIRE": {}, "ACCUMULATOR": accumulators, "FIFO": {}}
    elif hardware.reduction == "FENETWORK":
        wires, pushes = wires + work.results, pushes + work.outputs
        adders["ADD_2_1"] = adders["ADD_2_1"] + folded
        operations = {"RN_WIRE": {}, "ADDER": adders, "FIFO": {}}
    elif hardware.accumulators:
        wires, pushes = wires + work.results - work.shared, pushes + work.results + work.outputs
        operations = {"RN_WIRE": {}, "ADDER": adders, "FIFO": {}, "ACCUMULATOR": accumulators}
    else:
        operations = {"RN_WIRE": {}, "ADDER": adders, "FIFO": {}}
    operations["RN_WIRE"] = {"WRITE": wires, "READ": 0}
    operations["FIFO"] = {"PUSH": pushes, "POP": pushes - work.waiting, "FRONT": 0}
    entries = instances.reduction(hardware)
    return {name: {"entries": entries[name], **counts} for name, counts in operations.items()}


def _gather(
    network: int,
    accumulators: int,
    cases: Whole,
    first: Whole,
    last: Whole,
    latest: Whole,
    hops: Whole,
    vector: Whole,
    totals: Whole,
) -> None:
    """Fills for every case `hops`, the rows of `vector` in the order of Reduction's fields, and the sums over VNs, all
    given as 0. A row of `cases` holds the numbers of VNs, multipliers and lines. `latest` is for own use.

    Counters begin as np.int64, because a plain 0 costs the compiler a round of typing for each loop around it.
    """
    for case in range(len(cases)):
        counts = cases[case, 0]
        multipliers = cases[case, 1]
        lines = cases[case, 2]
        passed = hops[case]
        its = vector[:, case]
        levels = np.int64(0)
        while (1 << levels) < multipliers:
            levels += 1
        if network == 2:
            for v in range(counts):
                its[1, v] = first[case, v]
                its[5, v] = first[case, v] % lines
                its[6, v] = first[case, v] // lines
                its[7, v] = 2
            continue
        pairs = np.int64(0)
        for other in range(2, levels):
            pairs += (1 << (other - 1)) - 1
        # The last adder set up so far on every level: VNs ascend, so a shared adder is always the latest one.
        for other in range(levels):
            latest[other] = -1
        configured = np.int64(0)
        for v in range(counts):
            begin, end = first[case, v], last[case, v]
            low, high = begin, end
            level = levels - 1
            nodes = two = three = np.int64(0)
            while True:
                left, right = low >> 1, high >> 1
                width = right - left + 1
                nodes += width
                configured += right - max(left, latest[level] + 1) + 1
                latest[level] = max(latest[level], right)
                # Every adder has both children except those that the ends of the VN leave with one.
                single = (low & 1) + (1 - (high & 1))
                two += max(0, width - single)
                reach = levels - level
                if left & 1 and right == left + 1:
                    if 2 * left + 2 - low >= high - 2 * right + 1:
                        for m in range(max(begin, right << reach), end + 1):
                            passed[m] += 1
                        if low & 1:
                            two += 1
                        else:
                            two -= 1
                            three += 1
                        right = left
                    else:
                        for m in range(begin, min(end, (right << reach) - 1) + 1):
                            passed[m] += 1
                        two -= 1
                        three += 1
                        left = right
                else:
                    if left & 1 and left < right:
                        for m in range(begin, min(end, ((left + 1) << reach) - 1) + 1):
                            passed[m] += 1
                        left += 1
                        two -= 1
                        three += 1
                    if not right & 1 and right > left:
                        for m in range(max(begin, right << reach), end + 1):
                            passed[m] += 1
                        right -= 1
                        two -= 1
                        three += 1
                if left == right:
                    break
                low, high = left, right
                level -= 1
            for m in range(begin, end + 1):
                passed[m] += levels - level
            its[0, v] = level
            its[1, v] = left
            its[2, v] = nodes
            its[3, v] = two
            its[4, v] = three
            totals[case, 0] += nodes
            totals[case, 1] += two
            totals[case, 2] += three
            above_level, above = level - 1, left >> 1
            while above_level >= 0:
                if above > latest[above_level]:
                    configured += 1
                    latest[above_level] = above
                above_level -= 1
                above >>= 1
            # The adder whose result goes to the bus: the root, or the fold node above it.
            out_level, out = level, left
            extra: Any = False
            its[7, v] = 1 + accumulators
            if network == 1:
                its[7, v] = 2
                if level == 0:
                    extra = True
                    its[7, v] = 1
                elif left & 1:
                    climbed = np.int64(0)
                    while out & 1:
                        climbed += 1
                        out >>= 1
                    out_level = level - climbed - 1
                    out >>= 1
                    extra = out_level < 0
                else:
                    out_level = level - 1
                    out >>= 1
            roots = 1 + network
            if extra or out_level == 0 or out == 0 or out == (1 << out_level) - 1:
                place: Any = 0
                if extra:
                    place = 1
                elif out_level > 0:
                    place = roots + 2 * (out_level - 1) + (0 if out == 0 else 1)
                its[5, v] = (2 * pairs + place) % lines
                its[6, v] = 2 * pairs // lines + 1 + place // lines
            else:
                before = np.int64(0)
                for other in range(2, out_level):
                    before += (1 << (other - 1)) - 1
                pair = before + ((out + 1) >> 1) - 1
                its[5, v] = pair % lines
                its[6, v] = 2 * (pair // lines) + (1 - (out & 1))
        totals[case, 3] = configured
