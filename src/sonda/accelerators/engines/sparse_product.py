"""A product of two sparse matrices, and the counters of the two engines that merge its partial results in a tree."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sonda.accelerators import collection, instances
from sonda.accelerators.engines.merge_tree import Merged
from sonda.accelerators.hardware import Hardware
from sonda.accelerators.operands import CompressedRows
from sonda.accelerators.result import Counters
from sonda.record.errors import SondaError


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
