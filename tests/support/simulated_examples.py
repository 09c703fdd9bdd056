"""A small program on simulated accelerators, as runs that need no store and no framework."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from plain_runs import run_info
from sonda.accelerators.description.accelerator import Accelerator, load_accelerator
from sonda.accelerators.mapping.placement import OnHost, Placed, Placement
from sonda.accelerators.memory.hierarchy import Memory, MemoryTraffic
from sonda.accelerators.operations.program import Call, MatrixProduct, ModelProgram, Operation
from sonda.record.run import Run
from sonda.targets.simulated.launcher import Simulation, simulate

CLOCKED = replace(load_accelerator("maeri-256"), clock_hz=1e9)
# Cycles of these layers at 256 multipliers, 128/128, by the reference: 128 -> 64 takes 1356, 64 -> 32 takes 348.
LAYER, SMALL_LAYER = 1356, 348
MEMORY = Memory(buffer_bytes=65536, bytes_per_cycle=16, latency_cycles=40, row_bytes=2048, row_miss_cycles=28,
                dram="hbm2")  # fmt: skip
FINITE = replace(CLOCKED, memory=MEMORY)
TRAFFIC = MemoryTraffic(read_bytes=43_008, write_bytes=5_120, row_hits=730, row_misses=22, stall_cycles=2_000,
                  moved_read_bytes=43_008, moved_write_bytes=5_120)  # fmt: skip
"""Of every operation, where the traffic is given by hand."""


def nested() -> ModelProgram:
    """A model that calls one layer twice and multiplies once itself; then something that no engine takes."""
    calls = (
        Call("", "Model", 0, -1, 0),
        Call("block", "Block", 0, 0, 0),
        Call("block.layer", "Linear", 0, 1, 0),
        Call("block.layer", "Linear", 1, 1, 1),
        Call("act", "ReLU", 0, 0, 3),
    )
    layer = MatrixProduct(20, 64, 128)
    operations = (
        Operation("linear", "addmm", 2, layer),
        Operation("linear", "addmm", 3, layer),
        Operation("gemm", "mm", 0, MatrixProduct(20, 32, 64)),
    )
    return ModelProgram(calls, operations, ("forward",) * 3, {(4, "relu"): 1})


def given_traffic(placed: list[Placed | OnHost], accelerator: Accelerator) -> list[Placed | OnHost]:
    """In place of `with_memory`: the same traffic for every operation, given by hand."""
    if accelerator.memory is None:
        return placed
    return [replace(one, traffic=TRAFFIC) if isinstance(one, Placed) else one for one in placed]


def run_of(
    simulation: Simulation, accelerator: Accelerator, directory: Path, identity: str = "abcd1234abcd", **target: Any
) -> Run:
    """A run as `measure` keeps it; `target` replaces what it says of its target."""
    kept = {"spec": f"sim:{accelerator.name}", "device": "sim", "options": {"mapping": "", "set": ""},
            "description": asdict(accelerator), **simulation.target(), **target}  # fmt: skip
    info = run_info(id=identity, created="2026-11-15T00:00:00", status="complete", target=kept,
                   workload={"name": "own", "train": False, "samples": 20}, notes=simulation.notes)  # fmt: skip
    run = Run(directory, info)
    run.__dict__["spans"] = simulation.spans
    return run


def nested_run(accelerator: Accelerator, directory: Path, identity: str = "abcd1234abcd", **target: Any) -> Run:
    """The small program on this accelerator, without what-ifs."""
    return run_of(simulate(nested(), Placement(accelerator), curious=False), accelerator, directory, identity, **target)
