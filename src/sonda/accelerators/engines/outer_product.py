"""Outer product: every entry of A meets the row of B of its column; the products wait in memory and are merged after.

Multiplying: the entries of A, column by column, in chunks of as many as there are multipliers. A chunk is configured
(1 cycle), distributed (1), then the rows of B are streamed, an element of each per cycle; every product goes over the
bus to the memory, where each entry's products are a fiber of its row of the result. The next chunk starts when all
have come. Merging: row by row of the result, its fibers through the merging tree, as many at a time as there are
multipliers, again and again until one block is left. Memory is ideal: requests of a cycle are answered before the
next.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines.merge_tree import SparseProduct, check_product, merge, merger_counters
from sonda.accelerators.engines.result import Result
from sonda.record.jit import compiled

Whole = NDArray[np.int64]


def simulate(hardware: Hardware, product: SparseProduct) -> Result:
    """Cycles, accesses and counters of a sparse product; there is nothing to map. Raises SondaError where it cannot be.

    A block of the merging costs L + E + 4 cycles, L the depth of the tree, E the elements that it leaves. Rows of the
    result without elements cost nothing; a chunk without any product costs its 3 cycles of configuration,
    distribution and looking.

    The stack: `configuration`, 1 cycle a chunk or block; `distribution`, a cycle for a chunk's entries of A, one in
    which no element of B is left, and the way to the multipliers or the tree; `compute`, a cycle for each element of
    a chunk's longest row of B and for each element that leaves the tree; `reduction`, the depth of the tree;
    `writeback`, the rest: from the last product to its being stored, and from the root to the memory knowing that all
    is there.
    """
    check_product(hardware, product)
    a, b = product.a.transposed(), product.b
    nm = hardware.multipliers
    levels = nm.bit_length() - 1
    column = np.repeat(np.arange(a.rows), a.row_sizes())
    begin, end = b.pointer[column], b.pointer[column + 1]
    heard = np.zeros(a.nonzeros, np.int64)
    totals = compiled(_multiply)(end - begin, nm, hardware.write_ports, heard)
    multiplying, chunks, without, longest = totals.tolist()
    # Fibers by row of the result, a row's in the order in which the memory first hears of them: chunk, cycle, line.
    entry = np.flatnonzero(end > begin)
    row = a.indices[entry]
    order = entry[np.lexsort((entry, heard[entry], entry // nm, row))]
    groups = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=a.columns))))
    merged = merge(b.indices, begin[order], end[order], groups, nm)
    blocks, elements = merged.blocks + merged.later_blocks, merged.left + merged.later_left
    products = int((end - begin).sum())
    stored = products + merged.sent_down
    return Result(
        cycles=multiplying + blocks * (levels + 4) + elements,
        weight_reads=a.nonzeros,
        input_reads=products,
        psum_reads=stored,
        writes=stored,
        multiplications=products,
        counters=merger_counters(
            hardware,
            merged,
            weights=a.nonzeros,
            products=products,
            forwarded=stored,
            writes=stored,
            configurations=blocks,
            weights_kept=0,
        ),
        stack={
            "distribution": 2 * chunks + 2 * without + blocks,
            "compute": longest + elements,
            "reduction": levels * blocks,
            "writeback": multiplying - longest - 3 * chunks - 3 * without + 2 * blocks,
            "configuration": chunks + without + blocks,
        },
    )


def _multiply(lengths: Whole, multipliers: int, lines: int, heard: Whole) -> Whole:
    """Stream chunks of `multipliers` entries of A, each with the length of the row of B that it meets.

    Writes to `heard` the cycle in which an entry's first product leaves the bus, 0 the first possible of its chunk.
    Returns totals: cycles, chunks with products, chunks without, sum of the longest rows.
    A chunk's cycle 1 configures, cycle 2 distributes; element e is asked for in cycle 3 + e, its product is at the
    bus in cycle 5 + e and at the memory, where no other waits for the line, in cycle 6 + e. A line serves its
    multipliers in turn, which goes on from chunk to chunk and passes over an input after the last multiplier's, which
    exists unused. The memory takes half of what waits, rounded up.
    """
    totals = np.zeros(4, np.int64)
    per_line = multipliers // lines
    turn = np.zeros(lines, np.int64)
    gone = np.zeros(multipliers, np.int64)
    for first in range(0, lengths.size, multipliers):
        count = min(multipliers, lengths.size - first)
        longest = products = 0
        for entry in range(first, first + count):
            longest = max(longest, lengths[entry])
            products += lengths[entry]
        if products == 0:
            totals[0] += 3
            totals[2] += 1
            continue
        arriving = np.zeros(longest * per_line + 1, np.int64)
        if per_line == 1:
            for entry in range(first, first + count):
                if lengths[entry] > 0:
                    arriving[0] += 1
                    arriving[lengths[entry]] -= 1
            for cycle in range(1, longest + 1):
                arriving[cycle] += arriving[cycle - 1]
        else:
            for line in range((count + per_line - 1) // per_line):
                begin = line * per_line
                left = 0
                for entry in range(begin, min(begin + per_line, count)):
                    left += lengths[first + entry]
                    gone[entry] = 0
                cycle = 0
                while left > 0:
                    for _ in range(per_line + 1):
                        entry = begin + turn[line]
                        ready = turn[line] < per_line and entry < count
                        ready = ready and gone[entry] <= min(cycle, lengths[first + entry] - 1)
                        turn[line] = (turn[line] + 1) % (per_line + 1)
                        if ready:
                            if gone[entry] == 0:
                                heard[first + entry] = cycle
                            gone[entry] += 1
                            arriving[cycle] += 1
                            left -= 1
                            break
                    cycle += 1
        cycle = waiting = written = 0
        while written < products:
            if cycle < arriving.size:
                waiting += arriving[cycle]
            written += waiting - waiting // 2
            waiting //= 2
            cycle += 1
        totals[0] += 5 + cycle
        totals[1] += 1
        totals[3] += longest
    return totals
