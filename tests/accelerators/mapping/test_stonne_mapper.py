"""The mapper of the reference, repeated: the same tiles as it chose, and never one that does not fit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle.golden import runs
from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.mapping.stonne import product_tile, rows_tile
from sonda.accelerators.operations.layer import StonneLayer
from sonda.record.errors import SondaError

MAPPED = [
    run
    for run in runs()
    if "generated_tile" in run and run["mode"] != "CONV" and run["options"].get("generator") != "mRNA"
]


@pytest.mark.parametrize("run", MAPPED, ids=lambda run: f"{run['id']}-{run['mode']}")
def test_tile_that_the_reference_chose(run: dict[str, Any]) -> None:
    dims, hardware = run["dims"], Hardware(multipliers=run["config"]["num_ms"])
    if run["mode"] == "SparseDense":
        rows = rows_tile(hardware, dims["N"], dims["K"], run["sparsity"]["MK"] / 100)
        assert run["generated_tile"] == f"T_N={rows.columns}, T_K={rows.entries}"
    else:
        tile = product_tile(hardware, dims["M"], dims["N"], dims["K"])
        assert run["generated_tile"] == f"T_M={tile.X}, T_N={tile.K}, T_K={tile.S}"


SIZES = st.integers(1, 3000)
MACHINES = st.integers(1, 10).map(lambda size: Hardware(multipliers=1 << size, accumulators=True))


@given(MACHINES, SIZES, SIZES, SIZES)
def test_products_get_a_tile_that_fits(hardware: Hardware, m: int, n: int, k: int) -> None:
    tile = product_tile(hardware, m, n, k)
    assert tile.check(hardware, StonneLayer.product(m, n, k)) == tile
    assert m >= tile.X
    assert n >= tile.K
    assert min(k, 2) <= tile.S <= k


@given(MACHINES, SIZES, SIZES, st.floats(0, 1))
def test_rows_get_a_tile_that_fits(hardware: Hardware, n: int, k: int, sparsity: float) -> None:
    tile = rows_tile(hardware, n, k, sparsity)
    assert tile.columns * tile.entries <= hardware.multipliers
    assert 1 <= tile.columns <= n
    assert min(k, 2) <= tile.entries <= k


def test_scores_within_a_fortieth_are_equal() -> None:
    """16 x 16 x 16 on 16: all tiles of 16 multipliers score 2 plus at most 0.1 for T_N and 0.05 for T_K.

    T_N = 8, T_K = 2 scores 0.05 + 0.00625, T_N = 1, T_K = 16 scores 0.00625 + 0.05: equal, so the larger T_N wins.
    """
    tile = product_tile(Hardware(multipliers=16), 16, 16, 16)
    assert (tile.X, tile.K, tile.S) == (1, 8, 2)


def test_a_denser_matrix_gets_longer_sums() -> None:
    """Without zeros the curve is at 1, so T_K takes all 64 multipliers; with nothing but zeros at 0, so T_K is 2."""
    assert rows_tile(Hardware(multipliers=64), 64, 64, 0.0).entries == 64
    assert rows_tile(Hardware(multipliers=64), 64, 64, 1.0).entries == 2


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: product_tile(Hardware(multipliers=1), 4, 4, 4), "multipliers = 1"),
        (lambda: product_tile(Hardware(), 0, 4, 4), "m = 0"),
        (lambda: rows_tile(Hardware(), 4, -1, 0.5), "k = -1"),
        (lambda: rows_tile(Hardware(), 4, 4, 50), "sparsity = 50"),
    ],
)
def test_mistakes_are_named(call: Any, named: str) -> None:
    with pytest.raises(SondaError, match=named):
        call()
