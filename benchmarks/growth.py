"""How cycles and the time of simulating grow: with the size of a product, multipliers, sparsity, rows of a table.

Time must not grow with the rows of a table, nor with multipliers x cycles. Each table multiplies one thing by a power
of two; beside cycles stand CPU microseconds of a call, and both as multiples of the first line.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.bar import Bar, at_most, ratio_interval
from benchmarks.process import cpu_times
from sonda.accelerators.description.hardware import DATAFLOWS, Hardware
from sonda.accelerators.engines import bitmap_sparse, compressed_row, flexible_dense, mesh
from sonda.accelerators.engines.result import Result
from sonda.accelerators.operations.layer import StonneLayer, Tile
from sonda.accelerators.operations.patterns import CompressedRows, compressed_rows

ROUNDS = 30
LIMIT_ROWS = 1.5
"""Time at ten million rows over that at a thousand: nothing that grows, and room for a busy machine."""
LIMIT_WORK = 0.01
"""Growth of time over growth of multipliers x cycles: far from proportional."""
Case = tuple[str, Callable[[], Result]]


def run() -> list[Bar]:
    """Print the tables; hold growth with rows of a table, and with multipliers x cycles, against bars."""
    for title, cases in (
        ("size, flexible dense with accumulators on 256", _sizes()),
        ("size, folding through memory on 256", _folded()),
        ("size, mesh of 16x16", _meshes()),
        ("sparsity, bitmaps 256x256x256 on 128", _sparsities("bitmap")),
        ("sparsity, compressed rows 256x256x256 on 128", _sparsities("rows")),
    ):
        _table(title, cases)
    bars = []
    for name, build in (("bitmaps", _lookups), ("compressed rows", _row_lookups)):
        times = _table(f"rows of a table, {name}, 20 bags of 50 on 128", build())
        ratio = ratio_interval(times[-1], times[0])
        bars.append(at_most(f"time at 10 million rows / at a thousand, {name}", ratio, LIMIT_ROWS, "x"))
    cases = _multipliers()
    times = _table("multipliers m, product 2m x m by m x 2m, one sum at a time, a port for two", cases)
    results = [call() for _, call in cases]
    sizes = [int(name) for name, _ in cases]
    work = (sizes[-1] * results[-1].cycles) / (sizes[0] * results[0].cycles)
    ratio = ratio_interval(times[-1] / work, times[0])
    bars.append(at_most(f"growth of time / growth of multipliers x cycles ({work:,.0f}x)", ratio, LIMIT_WORK, "x", 5))
    return bars


def _table(title: str, cases: list[Case]) -> list[np.ndarray]:
    print(f"\n{title}\n{'':14}{'cycles':>16}{'':>10}{'µs':>10}")
    found = [call().cycles for _, call in cases]  # the first call compiles
    times = [cpu_times(call, ROUNDS) for _, call in cases]
    first = float(np.median(times[0]))
    for (name, _), cycles, spent in zip(cases, found, times, strict=True):
        median = float(np.median(spent))
        print(f"{name:14}{cycles:>16,}{cycles / found[0]:>9.1f}x{median / 1e3:>10.1f}{median / first:>9.1f}x")
    return times


def _dense(hardware: Hardware, size: tuple[int, int, int], tile: tuple[int, int, int]) -> Callable[[], Result]:
    return lambda: flexible_dense.simulate(hardware, StonneLayer.product(*size), Tile.product(*tile))


def _sizes() -> list[Case]:
    hardware = Hardware(256, 0, 0, 128, 128, accumulators=True)
    return [(f"{side}^3", _dense(hardware, (side,) * 3, (1, 4, 64))) for side in (64, 256, 1024, 4096)]


def _folded() -> list[Case]:
    hardware = Hardware(256, 0, 0, 128, 128)
    return [(f"{side}^3", _dense(hardware, (side,) * 3, (1, 4, 32))) for side in (64, 128, 256)]


def _meshes() -> list[Case]:
    hardware = Hardware(256, 16, 16, 32, 256, "TEMPORALRN", True, "TPU_OS_DENSE")
    tile = mesh.MeshTile(16, 16)
    return [(f"{side}^3", lambda side=side: mesh.simulate(hardware, mesh.Product(side, side, side), tile))
            for side in (64, 256, 1024, 4096)]  # fmt: skip


def _multipliers() -> list[Case]:
    cases = []
    for count in (16, 64, 256, 1024):
        hardware = Hardware(count, 0, 0, count // 2, count // 2, accumulators=True)
        cases.append((str(count), _dense(hardware, (2 * count, 2 * count, count), (1, 1, count))))
    return cases


def _sparsities(which: str) -> list[Case]:
    chance = np.random.default_rng(0)
    cases: list[Case] = []
    for percent in (0, 50, 80, 95, 99):
        pattern = chance.random((256, 256)) >= percent / 100
        hardware = Hardware(128, 0, 0, 128, 128, accumulators=which == "rows")
        if which == "rows":
            by_dense = compressed_row.rows_by_dense(compressed_rows(pattern), 256)
            tile = compressed_row.RowTile(16, 8)
            call = lambda h=hardware, p=by_dense, t=tile: compressed_row.simulate(h, p, t)  # noqa: E731
        else:
            product = bitmap_sparse.bitmap_product(pattern, np.ones((256, 256), bool), DATAFLOWS[0])
            call = lambda h=hardware, p=product: bitmap_sparse.simulate(h, p)  # noqa: E731
        cases.append((f"{percent} % zero", call))
    return cases


def _bags(rows: int) -> CompressedRows:
    """20 bags of 50 distinct rows of a table of so many."""
    chance = np.random.default_rng(0)
    indices = np.concatenate([np.sort(chance.choice(rows, 50, replace=False)) for _ in range(20)])
    return CompressedRows(rows, np.arange(0, 1001, 50), indices.astype(np.int64))


def _lookups() -> list[Case]:
    hardware = Hardware(128, 0, 0, 128, 128)
    products = {rows: bitmap_sparse.BitmapProduct(_bags(rows), 32) for rows in (10**3, 10**5, 10**7)}
    return [(f"{rows:,}", lambda p=product: bitmap_sparse.simulate(hardware, p)) for rows, product in products.items()]


def _row_lookups() -> list[Case]:
    hardware = Hardware(128, 0, 0, 128, 128, accumulators=True)
    tile = compressed_row.RowTile(32, 4)
    products = {rows: compressed_row.rows_by_dense(_bags(rows), 32) for rows in (10**3, 10**5, 10**7)}
    return [(f"{rows:,}", lambda p=product: compressed_row.simulate(hardware, p, tile))
            for rows, product in products.items()]  # fmt: skip
