"""Gustavson: row by row of the first matrix, the rows of the second that it names are scaled and merged at once.

A row of A goes through the multipliers in chunks of as many entries as there are multipliers. Each chunk is configured
(1 cycle), its entries are distributed (1), then the named rows of B are fetched, an element of each per cycle, buffered
until all are there, and streamed in step through the merging tree to the bus. A row of more than one chunk is merged
again, chunk results as fibers, until one block is left. Memory is ideal: requests of a cycle are answered before the
next.
"""

from __future__ import annotations

from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines.merge_tree import SparseProduct, check_product, merge, merger_counters
from sonda.accelerators.engines.result import Result


def simulate(hardware: Hardware, product: SparseProduct) -> Result:
    """Cycles, accesses and counters of a sparse product; there is nothing to map. Raises SondaError where it cannot be.

    Costs in cycles: a chunk longest + L + E + 7, a block of a later merging pass L + E + 4, where `longest` is the
    longest row of B it streams, L the depth of the tree and E the elements it leaves. The rows of A without entries
    cost nothing; a chunk that names only empty rows of B costs its 3 cycles of configuration, distribution and
    looking for elements.

    The stack: `configuration`, 1 cycle a chunk or block; `distribution`, the entries of A, the fetching of the rows
    of B and the way to the tree; `compute`, a cycle for every element that leaves the tree; `reduction`, the depth of
    the tree; `writeback`, from the root to the memory and the empty cycle by which the memory knows that all is
    there.
    """
    check_product(hardware, product)
    a, b = product.a, product.b
    nm = hardware.multipliers
    levels = nm.bit_length() - 1
    begin, end = b.pointer[a.indices], b.pointer[a.indices + 1]
    merged = merge(b.indices, begin, end, a.pointer, nm)
    products = int((end - begin).sum())
    # Weights leave their multipliers when these are configured anew: those of a last row of one chunk stay.
    sizes = a.row_sizes()
    last = int(sizes[sizes > 0][-1]) if a.nonzeros else 0
    # Finished rows go to DRAM, past the global buffer: only what is merged again is written to it and read back.
    chunks, blocks, empty = merged.blocks, merged.later_blocks, merged.empty
    return Result(
        cycles=merged.longest
        + merged.left
        + chunks * (levels + 7)
        + merged.later_left
        + blocks * (levels + 4)
        + 3 * empty,
        weight_reads=a.nonzeros,
        input_reads=products,
        psum_reads=merged.sent_down,
        writes=merged.sent_down,
        multiplications=products,
        counters=merger_counters(
            hardware,
            merged,
            weights=a.nonzeros,
            products=products,
            forwarded=merged.sent_down,
            writes=merged.sent_down,
            configurations=chunks + empty + blocks,
            weights_kept=last if last <= nm else 0,
        ),
        stack={
            "distribution": merged.longest + 3 * chunks + blocks + 2 * empty,
            "compute": merged.left + merged.later_left,
            "reduction": levels * (chunks + blocks),
            "writeback": 3 * chunks + 2 * blocks,
            "configuration": chunks + blocks + empty,
        },
    )
