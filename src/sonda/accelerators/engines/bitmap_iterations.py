"""The iterations of the bitmap-sparse engine: which vectors they take, how long each is, what it moves.

An iteration with a single virtual neuron, as every piece of a folded vector has, depends only on its size: all its
positions are different, so every port sends one package for each of its multipliers. Such iterations are computed
once per size.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]


class Totals(NamedTuple):
    """Sums over all iterations."""

    cycles: int
    product_at: int
    """Cycles from an iteration's first to its last product."""
    offered_at: int
    """Cycles from an iteration's first to the last result's being offered to the bus."""
    iterations: int
    folded: int
    """Iterations that take up sums so far."""
    neurons: int
    weights: int
    last_weights: int
    """Of the last iteration."""
    inputs: int
    """Ones of streaming vectors that are read."""
    wires: int
    unicast_switches: int
    broadcast_switches: int
    """Of the distribution network, for one streaming vector per iteration."""
    nodes: int
    two: int
    three: int
    """Of the reduction network, for one streaming vector per iteration."""
    configured: int


def run(
    pointer: Whole,
    indices: Whole,
    vectors: int,
    width: int,
    streams: int,
    ones_before: Whole,
    multipliers: int,
    span: int,
    delta: int,
    lines: int,
) -> Whole:
    """The fields of Totals in their order. An empty `pointer` means vectors without zeros, an empty `ones_before`
    streams without zeros."""
    totals = np.zeros(16, np.int64)
    levels = 0
    while (1 << levels) < multipliers:
        levels += 1
    span_levels = 0
    while (1 << span_levels) < span:
        span_levels += 1
    pairs = 0
    for level in range(2, levels):
        pairs += (1 << (level - 1)) - 1
    position = np.zeros(multipliers, np.int64)
    hops = np.zeros(multipliers, np.int64)
    rank = np.zeros(multipliers, np.int64)
    keys = np.zeros(span, np.int64)
    spare = np.zeros(span, np.int64)
    sent = np.zeros(multipliers >> span_levels, np.int64)
    held = np.zeros(multipliers >> span_levels, np.int64)
    begin = np.zeros(multipliers + 1, np.int64)
    line = np.zeros(multipliers, np.int64)
    piece_begin = np.zeros(multipliers + 1, np.int64)
    slopes = np.zeros(multipliers, np.int64)
    bases = np.zeros(multipliers, np.int64)
    on_line = np.zeros(lines, np.int64)
    latest = np.zeros(levels + 1, np.int64)
    # Per size and whether sums so far are taken up: cycles, product_at, offered_at, wires, unicast, broadcast, nodes,
    # two, three, configured of an iteration with one neuron.
    known = np.zeros((multipliers + 1, 2, 10), np.int64)
    iteration = np.zeros(10, np.int64)

    vector = taken = from_position = 0
    while vector < vectors:
        totals[3] += 1
        # Which vectors, on which multipliers.
        folding = 1 if taken > 0 else 0
        used = folding
        neurons = 0
        begin[0] = 0
        size = width if pointer.size == 0 else pointer[vector + 1] - pointer[vector]
        at = 0 if pointer.size == 0 else pointer[vector]
        to_position = width
        if taken > 0 or size > multipliers:
            count = min(multipliers - folding, size - taken)
            last = taken + count - 1
            neurons = 1
            begin[1] = used + count
            if known[used + count, folding, 0] == 0:
                for i in range(count):
                    position[used + i] = taken + i if pointer.size == 0 else indices[at + taken + i]
            used += count
            taken += count
            if taken < size:
                to_position = 1 + (last if pointer.size == 0 else indices[at + last])
            else:
                vector += 1
                taken = 0
        else:
            while vector < vectors:
                size = width if pointer.size == 0 else pointer[vector + 1] - pointer[vector]
                if used + size > multipliers:
                    break
                at = 0 if pointer.size == 0 else pointer[vector]
                for i in range(size):
                    position[used + i] = i if pointer.size == 0 else indices[at + i]
                used += size
                neurons += 1
                begin[neurons] = used
                vector += 1
        weights = used - folding
        totals[4] += folding
        totals[5] += neurons
        totals[6] += weights
        totals[7] = weights
        if ones_before.size == 0:
            totals[8] += streams * (to_position - from_position)
        else:
            totals[8] += ones_before[to_position] - ones_before[from_position]
        from_position = to_position if taken > 0 else 0
        if neurons == 1 and known[used, folding, 0] > 0:
            for i in range(10):
                totals[i if i < 3 else i + 6] += known[used, folding, i]
            continue
        for i in range(10):
            iteration[i] = 0

        # The distribution: packages of each port for a streaming vector, and their way through its tree.
        ports = (used + span - 1) >> span_levels
        if span == 1:
            for m in range(used):
                held[m], sent[m], rank[m] = 1, 1, 0
            iteration[3] = weights
            ports = 0
        for port in range(ports):
            first = max(port * span, folding)
            last = min((port + 1) * span, used)
            held[port] = max(0, last - first)
            count = held[port]
            for i in range(count):
                keys[i] = (position[first + i] << levels) + first + i
            # By position: merge sort, for positions ascend only within a neuron.
            run_size = count if neurons == 1 else 1
            while run_size < count:
                for run_begin in range(0, count, 2 * run_size):
                    i, j = run_begin, run_begin + run_size
                    run_end = min(j + run_size, count)
                    for k in range(run_begin, run_end):
                        if i < run_begin + run_size and (j >= run_end or keys[i] < keys[j]):
                            spare[k] = keys[i]
                            i += 1
                        else:
                            spare[k] = keys[j]
                            j += 1
                keys, spare = spare, keys
                run_size *= 2
            packages = 0
            before = -1
            for i in range(count):
                m = keys[i] & (multipliers - 1)
                here = keys[i] >> levels
                if here != before:
                    packages += 1
                    before = here
                rank[m] = packages - 1
            sent[port] = packages
            # Nodes that packages use, level by level from the multipliers up.
            below = count
            iteration[3] += count
            for up in range(1, span_levels + 1):
                nodes = 0
                previous = -1
                for i in range(count):
                    node = keys[i] >> up
                    if node != previous:
                        nodes += 1
                        previous = node
                iteration[3] += nodes
                iteration[5] += below - nodes
                iteration[4] += 2 * nodes - below
                below = nodes

        # The reduction: the path of every neuron, level by level from the leaves (see the reduction network).
        for i in range(levels):
            latest[i] = -1
        for i in range(used):
            hops[i] = 0
        for i in range(lines):
            on_line[i] = 0
        for v in range(neurons):
            low, high = begin[v], begin[v + 1] - 1
            level = levels - 1
            while True:
                left, right = low >> 1, high >> 1
                iteration[6] += right - left + 1
                iteration[9] += right - max(left, latest[level] + 1) + 1
                latest[level] = max(latest[level], right)
                iteration[7] += max(0, right - left + 1 - (low & 1) - (1 - (high & 1)))
                reach = levels - level
                drop_left, drop_right = 0, 0
                if left & 1 and right == left + 1:
                    if 2 * left + 2 - low >= high - 2 * right + 1:
                        drop_right = 1
                    else:
                        drop_left = 1
                else:
                    if left & 1 and left < right:
                        drop_left = 1
                    if not right & 1 and right > left:
                        drop_right = 1
                if drop_left:
                    for m in range(begin[v], (left + 1) << reach):
                        hops[m] += 1
                if drop_right:
                    for m in range(right << reach, begin[v + 1]):
                        hops[m] += 1
                # The receiver of a sideways link adds three operands, or two where only one of its children is used.
                if drop_right and left & 1 and right == left + 1 and low & 1:
                    iteration[7] += 1
                else:
                    iteration[7] -= drop_left + drop_right
                    iteration[8] += drop_left + drop_right
                left += drop_left
                right -= drop_right
                if left == right:
                    break
                low, high = left, right
                level -= 1
            for m in range(begin[v], begin[v + 1]):
                hops[m] += levels - level
            above = left >> 1
            for other in range(level - 1, -1, -1):
                if above > latest[other]:
                    iteration[9] += 1
                    latest[other] = above
                above >>= 1
            if level == 0:
                place = 2 * pairs
            elif left == 0 or left == (1 << level) - 1:
                place = 2 * pairs + 2 * level - (1 if left == 0 else 0)
            else:
                place = ((left + 1) >> 1) - 1
                for other in range(2, level):
                    place += (1 << (other - 1)) - 1
            line[v] = place & (lines - 1)
            on_line[line[v]] += 1

        # Time: a neuron's sum i leaves at the largest of base + i * slope over its ports; ports of equal slope are
        # one piece.
        pieces = 0
        for v in range(neurons):
            piece_begin[v] = pieces
            for m in range(begin[v], begin[v + 1]):
                port = m >> span_levels
                if folding and m == 0:
                    slope, first_at = 1, 3 + delta
                else:
                    slope, first_at = sent[port], 2 + delta + held[port] + rank[m]
                    first_at += streams if folding and port == 0 else 0
                at = first_at + (streams - 1) * slope
                iteration[1] = max(iteration[1], at)
                iteration[2] = max(iteration[2], at + hops[m] + 1)
                piece = piece_begin[v]
                while piece < pieces and slopes[piece] != slope:
                    piece += 1
                if piece == pieces:
                    slopes[piece], bases[piece] = slope, 0
                    pieces += 1
                bases[piece] = max(bases[piece], first_at + hops[m] + 1)
        piece_begin[neurons] = pieces
        if neurons == 1:
            iteration[0] = iteration[2] + 1
            for i in range(10):
                known[used, folding, i] = iteration[i]
                totals[i if i < 3 else i + 6] += iteration[i]
            continue

        # The bus and the buffer. Where no line is shared, only the last cycles count: the buffer's queue, halved
        # every cycle, lies between those that begin empty and at its bound; where both end in the same cycle, so does
        # it.
        most = 1
        for i in range(lines):
            most = max(most, on_line[i])
        window = iteration[2] if most > 1 else min(iteration[2], 16)
        while True:
            start = iteration[2] - window
            arriving = np.zeros(window + 2 + (most - 1) * streams, np.int64)
            # Lines with several neurons queue; their first neuron stands for them.
            for v in range(neurons):
                alone = on_line[line[v]] == 1
                if on_line[line[v]] < 1:
                    continue
                waiting_here = arriving if alone else np.zeros(window + 1, np.int64)
                for w in range(v, neurons):
                    if line[w] != line[v]:
                        continue
                    for i in range(streams - 1, -1, -1):
                        offered = 0
                        for piece in range(piece_begin[w], piece_begin[w + 1]):
                            offered = max(offered, bases[piece] + i * slopes[piece])
                        if offered <= start and start > 0:
                            break
                        waiting_here[offered - start] += 1
                    if alone:
                        break
                if not alone:
                    on_line[line[v]] = -on_line[line[v]]
                    waiting = 0
                    for cycle in range(window + 1):
                        waiting += waiting_here[cycle]
                        if waiting > 0:
                            arriving[cycle] += 1
                            waiting -= 1
                    for i in range(waiting):
                        arriving[window + 1 + i] += 1
            fewest, largest = 0, (neurons if start > 0 else 0)
            ended_few = ended_many = 0
            for cycle in range(arriving.size):
                fewest = (fewest + arriving[cycle]) >> 1
                largest = (largest + arriving[cycle]) >> 1
                if arriving[cycle] > 0:
                    ended_few = ended_many = cycle
                if fewest > 0:
                    ended_few = cycle + 1
                if largest > 0:
                    ended_many = cycle + 1
            while fewest > 0:
                fewest >>= 1
                ended_few += 1 if fewest > 0 else 0
            while largest > 0:
                largest >>= 1
                ended_many += 1 if largest > 0 else 0
            if ended_few == ended_many:
                iteration[0] = start + ended_few + 1
                break
            window = min(iteration[2], 4 * window)
        for i in range(10):
            totals[i if i < 3 else i + 6] += iteration[i]
    return totals


def pack(size: Whole, multipliers: int) -> Whole:
    """See `packed_order`; `size` is reordered too."""
    order = np.arange(size.size)
    placed = 0
    for i in range(size.size):
        if size[i] > multipliers:
            size[i], size[placed] = size[placed], size[i]
            order[i], order[placed] = order[placed], order[i]
            placed += 1
    used = 0
    while placed < size.size:
        best = -1
        for i in range(placed, size.size):
            if used + size[i] <= multipliers and (best < 0 or size[i] > size[best]):
                best = i
        if best < 0:
            used = 0
            continue
        used += size[best]
        size[best], size[placed] = size[placed], size[best]
        order[best], order[placed] = order[placed], order[best]
        placed += 1
    return order
