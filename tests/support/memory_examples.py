"""Engines, and what lies behind them, with numbers small enough to count by hand."""

from __future__ import annotations

from dataclasses import replace

from sonda.accelerators.description.engine import EngineDescription
from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines import flexible_dense, mesh
from sonda.accelerators.engines.result import Result
from sonda.accelerators.memory.hierarchy import Memory
from sonda.accelerators.operations.layer import StonneLayer, Tile
from sonda.accelerators.operations.program import MatrixProduct

MESH = EngineDescription(
    "mesh", "mesh", Hardware(16, 4, 4, read_ports=8, write_ports=4, reduction="TEMPORALRN", accumulators=True)
)
DENSE = EngineDescription("dense", "flexible_dense", Hardware(16, read_ports=16, write_ports=16, accumulators=True))


def memory(buffer_bytes: int, **changes: object) -> Memory:
    """4 bytes per cycle in bursts of 4, rows of 64 bytes, 5 cycles of latency, 10 for a row miss."""
    plain = Memory(buffer_bytes, 4.0, latency_cycles=5, row_bytes=64, row_miss_cycles=10, burst_bytes=4)
    return replace(plain, **changes)  # type: ignore[arg-type]


def on_mesh(m: int, n: int, k: int, tile: tuple[int, int] = (4, 4)) -> tuple[MatrixProduct, dict[str, int], Result]:
    result = mesh.simulate(MESH.hardware, mesh.Product(m, n, k), mesh.MeshTile(*tile))
    return MatrixProduct(m, n, k), {"T_M": tile[0], "T_N": tile[1]}, result


def on_dense(m: int, n: int, k: int, tile: tuple[int, int, int]) -> tuple[MatrixProduct, dict[str, int], Result]:
    result = flexible_dense.simulate(DENSE.hardware, StonneLayer.product(m, n, k), Tile.product(*tile))
    return MatrixProduct(m, n, k), dict(zip(("T_M", "T_N", "T_K"), tile, strict=True)), result
