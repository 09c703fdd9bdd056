"""SCALE-Sim's closed formulas for dense systolic arrays: a second opinion on the mesh.

They are those of SCALE-Sim 3.0.0 with unlimited bandwidth (its CALC mode), quirks included: cycles lack the last one,
and an output-stationary array writes rows + columns elements too many in every fold. They take no time to distribute
or to write back, which Sonda's mesh does, so both agree on the shape and not on the number.
"""

from __future__ import annotations

from dataclasses import dataclass

from sonda.record.errors import SondaError
from sonda.record.nearest import nearest

DATAFLOWS = {"os": "output stationary", "ws": "weight stationary", "is": "input stationary"}
LARGEST = 1 << 40


@dataclass(frozen=True)
class ScaleSim:
    """What SCALE-Sim prints for one layer."""

    cycles: int
    input_reads: int
    """From on-chip memory, in elements; so the other two."""
    filter_reads: int
    output_writes: int
    mapping_efficiency: float
    """Share of the array that has something to do, over folds."""
    utilisation: float
    """Products over what the array could do in these cycles."""


def scale_sim(dataflow: str, rows: int, columns: int, m: int, n: int, k: int) -> ScaleSim:
    """An m x k by k x n product on an array of rows x columns.

    A convolution is the product with m output positions, n filters and k = filter height x width x channels.
    """
    if dataflow not in DATAFLOWS:
        raise SondaError(f"dataflow {dataflow!r} is unknown", nearest(dataflow, DATAFLOWS))
    for name, size in (("rows", rows), ("columns", columns), ("M", m), ("N", n), ("K", k)):
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= LARGEST:
            raise SondaError(f"{name} = {size!r} is not a whole number from 1 to 2^40", f"change {name}")
    # What is unrolled over rows and over columns of the array, and what streams through it.
    down, across, streamed = {"os": (m, n, k), "ws": (k, n, m), "is": (k, m, n)}[dataflow]
    down_folds, across_folds = -(-down // rows), -(-across // columns)
    folds = down_folds * across_folds
    filling = rows + columns - 2 if dataflow == "os" else 2 * rows + columns - 2
    cycles = folds * (streamed + filling) - 1
    reads = {
        "os": (m * k * across_folds, k * n * down_folds, m * n + (rows + columns) * folds),
        "ws": (m * k * across_folds, k * n, m * n * down_folds),
        "is": (m * k, k * n * across_folds, m * n * down_folds),
    }[dataflow]
    return ScaleSim(
        cycles,
        *reads,
        mapping_efficiency=down * across / (folds * rows * columns),
        # One element and one product take 1 + 1 + 1 - 2 - 1 = 0 cycles: the missing last one.
        utilisation=m * n * k / (rows * columns * max(cycles, 1)),
    )
