"""The fast engines against the plain model that steps every block in every cycle, on random small cases.

Both are written apart: the engines from closed forms and events, the model from the behaviour of the blocks. They must
agree in cycles, accesses and every counter; where the model says that a mapping cannot be, the engine must refuse it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle import dense, mesh, sparse, spgemm
from oracle.golden import differences, summary
from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines import (
    bitmap_sparse,
    compressed_row,
    flexible_dense,
    gustavson,
    outer_product,
)
from sonda.accelerators.engines import mesh as mesh_engine
from sonda.accelerators.engines.merge_tree import SparseProduct
from sonda.accelerators.operations.layer import StonneLayer, Tile
from sonda.accelerators.operations.patterns import compressed_rows
from sonda.record.errors import SondaError

Draw = Callable[[st.SearchStrategy[Any]], Any]
random_cases = settings(max_examples=120, deadline=None, derandomize=True, database=None)


def agree(model: Callable[[], tuple[Any, np.ndarray]], engine: Callable[[], Any], may_break: bool = False) -> None:
    """Both give the same numbers, or both refuse.

    `may_break`: the machine can spoil its own sums under this mapping. Where it does, a reference run would count as
    wrong and its time means nothing; the accesses must still agree.
    """
    try:
        outcome, expected = model()
    except ValueError:
        with pytest.raises(SondaError):
            engine()
        return
    result = engine()
    mine, theirs = summary(outcome), summary(result)
    if may_break and not np.array_equal(outcome.values, expected):
        for part in (mine, theirs):
            del part["cycles"], part["counters"]
    else:
        np.testing.assert_array_equal(outcome.values, expected)
    assert not differences(mine, theirs), "(model, engine)"
    assert sum(result.stack.values()) == result.cycles
    assert result.multiplications == outcome.counters["MSNetwork"]["MULTIPLIER"]["MULTIPLICATION"]


def power(draw: Draw, low: int, high: int) -> int:
    return 1 << draw(st.integers(low, high))


def ports(draw: Draw, smallest: int = 1, largest: int = 5) -> dict[str, Any]:
    """Multipliers and ports: powers of two."""
    levels = draw(st.integers(smallest, largest))
    return {
        "multipliers": 1 << levels,
        "read_ports": power(draw, 0, levels),
        "write_ports": power(draw, 0, levels),
    }


def networks(draw: Draw) -> dict[str, Any]:
    reduction, accumulators = draw(
        st.sampled_from([("ASNETWORK", True), ("ASNETWORK", False), ("FENETWORK", False), ("TEMPORALRN", True)])
    )
    return {"reduction": reduction, "accumulators": accumulators}


def sizes(draw: Draw, dims: dict[str, int], room: int) -> dict[str, int]:
    """A tile that the multipliers have room for, no larger than the layer."""
    tile = {}
    for name, size in dims.items():
        tile[name] = draw(st.integers(1, max(1, min(size, room))))
        room //= tile[name]
    return tile


@st.composite
def products(draw: Draw) -> tuple[dict[str, Any], tuple[int, int, int], tuple[int, int, int]]:
    machine = ports(draw) | networks(draw)
    m, n, k = (draw(st.integers(1, size)) for size in (7, 7, 14))
    order = draw(st.permutations(["m", "n", "k"]))
    tile = sizes(draw, {name: {"m": m, "n": n, "k": k}[name] for name in order}, machine["multipliers"])
    if machine["reduction"] == "TEMPORALRN":
        tile["k"] = 1
    return machine, (m, n, k), (tile["m"], tile["n"], tile["k"])


@random_cases
@given(products())
def test_dense_products(case: tuple[dict[str, Any], tuple[int, int, int], tuple[int, int, int]]) -> None:
    machine, (m, n, k), (tm, tn, tk) = case
    agree(
        lambda: dense.run(M=m, N=n, K=k, T_M=tm, T_N=tn, T_K=tk, **machine),
        lambda: flexible_dense.simulate(Hardware(**machine), StonneLayer.product(m, n, k), Tile.product(tm, tn, tk)),
    )


@st.composite
def memory_folds(draw: Draw) -> tuple[dict[str, Any], tuple[int, int, int], tuple[int, int, int]]:
    """Products whose partial sums travel through the memory, which has no closed form."""
    machine: dict[str, Any] = ports(draw, smallest=2) | {"reduction": "ASNETWORK", "accumulators": False}
    depth = draw(st.integers(1, machine["multipliers"] - 1))
    neurons = draw(st.integers(1, machine["multipliers"] // (depth + 1)))
    tm = draw(st.integers(1, neurons))
    tn = neurons // tm
    k = depth * draw(st.integers(2, 4)) - draw(st.integers(0, depth - 1))
    return machine, (draw(st.integers(tm, tm + 5)), draw(st.integers(tn, tn + 5)), k), (tm, tn, depth)


@random_cases
@given(memory_folds())
def test_dense_products_folded_through_memory(case: tuple[dict[str, Any], Any, Any]) -> None:
    machine, (m, n, k), (tm, tn, tk) = case
    agree(
        lambda: dense.run(M=m, N=n, K=k, T_M=tm, T_N=tn, T_K=tk, **machine),
        lambda: flexible_dense.simulate(Hardware(**machine), StonneLayer.product(m, n, k), Tile.product(tm, tn, tk)),
    )


@st.composite
def convolutions(draw: Draw) -> tuple[dict[str, Any], dict[str, int], dict[str, int]]:
    machine = ports(draw) | networks(draw)
    layer = {name: draw(st.integers(1, largest)) for name, largest in zip("RSCKGN", (3, 3, 3, 3, 2, 2), strict=True)}
    layer["stride"] = draw(st.integers(1, 2))
    layer["X"] = layer["R"] + draw(st.integers(0, 4))
    layer["Y"] = layer["S"] + draw(st.integers(0, 4))
    shape = dense.Layer(**layer)
    dims = {name: layer[name] for name in "RSCKGN"} | {"X": shape.rows, "Y": shape.columns}
    tile = sizes(draw, {name: dims[name] for name in draw(st.permutations(list(dims)))}, machine["multipliers"])
    if machine["reduction"] == "TEMPORALRN":
        tile |= {"R": 1, "S": 1, "C": 1}
    if tile["G"] > 1:
        # With groups and samples in one tile the reference sends inputs to the wrong multipliers.
        tile["N"] = 1
    return machine, layer, tile


@settings(parent=random_cases, max_examples=250)
@given(convolutions())
def test_convolutions(case: tuple[dict[str, Any], dict[str, int], dict[str, int]]) -> None:
    machine, layer, tile = case
    totals = layer | {"C": layer["C"] * layer["G"], "K": layer["K"] * layer["G"]}
    agree(
        lambda: dense.run_layer(dense.Layer(**layer), dense.Tile(**tile), **machine),
        lambda: flexible_dense.simulate(Hardware(**machine), StonneLayer(**totals), Tile(**tile)),
        may_break=dense.weights_overtake(dense.Layer(**layer), dense.Tile(**tile)),
    )


@st.composite
def mesh_products(draw: Draw) -> tuple[dict[str, Any], tuple[int, int, int], tuple[int, int]]:
    side = power(draw, 0, 3)
    machine: dict[str, Any] = {
        "rows": side,
        "columns": side,
        "read_ports": power(draw, 0, (2 * side).bit_length() - 1),
        "write_ports": power(draw, 0, (side * side).bit_length() - 1),
        "multipliers": side * side,
    }
    tile = draw(st.integers(1, side)), draw(st.integers(1, side))
    return machine, (draw(st.integers(1, 12)), draw(st.integers(1, 12)), draw(st.integers(1, 12))), tile


@random_cases
@given(mesh_products())
def test_mesh(case: tuple[dict[str, Any], tuple[int, int, int], tuple[int, int]]) -> None:
    machine, (m, n, k), (tm, tn) = case
    hardware = Hardware(**machine, reduction="TEMPORALRN", accumulators=True, controller="TPU_OS_DENSE")
    agree(
        lambda: mesh.run(**machine, M=m, N=n, K=k, T_M=tm, T_N=tn),
        lambda: mesh_engine.simulate(hardware, mesh_engine.Product(m, n, k), mesh_engine.MeshTile(tm, tn)),
    )


def pattern(draw: Draw, rows: int, columns: int, fewest_in_row: int, fewest_in_column: int) -> np.ndarray:
    """Random zeros, with so many ones at least in every row and every column."""
    density = draw(st.sampled_from([0.1, 0.3, 0.6, 1.0]))
    random = np.random.default_rng(draw(st.integers(0, 10_000)))
    ones = (random.random((rows, columns)) < density).astype(np.uint8)
    for view, fewest in ((ones, fewest_in_row), (ones.T, fewest_in_column)):
        for vector in view:
            short = fewest - int(vector.sum())
            if short > 0:
                vector[random.choice(np.flatnonzero(vector == 0), short, replace=False)] = 1
    return ones


@st.composite
def bitmaps(draw: Draw) -> tuple[dict[str, Any], np.ndarray, np.ndarray, str]:
    machine = ports(draw, smallest=2)
    m, n, k = draw(st.integers(1, 8)), draw(st.integers(1, 6)), draw(st.integers(3, 24))
    return (
        machine,
        pattern(draw, m, k, 3, 0),
        pattern(draw, k, n, 0, 3),
        draw(st.sampled_from(["MK_STA_KN_STR", "MK_STR_KN_STA"])),
    )


@settings(parent=random_cases, max_examples=250)
@given(bitmaps())
def test_bitmap_sparse(case: tuple[dict[str, Any], np.ndarray, np.ndarray, str]) -> None:
    machine, mk, kn, dataflow = case
    hardware = Hardware(**machine, controller="SIGMA_SPARSE_GEMM")
    agree(
        lambda: sparse.run_bitmap(mk, kn, dataflow=dataflow, **machine),
        lambda: bitmap_sparse.simulate(hardware, bitmap_sparse.bitmap_product(mk, kn, dataflow)),
    )


@st.composite
def row_products(draw: Draw) -> tuple[dict[str, Any], np.ndarray, int, tuple[int, int]]:
    machine = ports(draw)
    rows = pattern(draw, draw(st.integers(1, 6)), draw(st.integers(1, 20)), 0, 0)
    depth = draw(st.integers(1, machine["multipliers"]))
    return machine, rows, draw(st.integers(1, 9)), (draw(st.integers(1, machine["multipliers"] // depth)), depth)


@random_cases
@given(row_products())
def test_compressed_rows(case: tuple[dict[str, Any], np.ndarray, int, tuple[int, int]]) -> None:
    machine, mk, n, (tn, tk) = case
    hardware = Hardware(**machine, accumulators=True, controller="MAGMA_SPARSE_DENSE")
    agree(
        lambda: sparse.run_rows(mk, n, T_N=tn, T_K=tk, **machine),
        lambda: compressed_row.simulate(
            hardware,
            compressed_row.rows_by_dense(compressed_rows(mk), n),
            compressed_row.RowTile(columns=tn, entries=tk),
        ),
    )


@st.composite
def sparse_products(draw: Draw) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    multipliers = power(draw, 2, 5)
    machine: dict[str, Any] = {
        "multipliers": multipliers,
        "read_ports": multipliers,
        "write_ports": power(draw, 0, multipliers.bit_length() - 1),
    }
    m, n, k = draw(st.integers(1, 6)), draw(st.integers(1, 10)), draw(st.integers(1, 24))
    return machine, pattern(draw, m, k, 1, 1), pattern(draw, k, n, 1, 0)


@random_cases
@given(sparse_products())
def test_outer_product(case: tuple[dict[str, Any], np.ndarray, np.ndarray]) -> None:
    machine, a, b = case
    product = SparseProduct(compressed_rows(a), compressed_rows(b))
    agree(lambda: spgemm.run_outer(a, b, **machine), lambda: outer_product.simulate(Hardware(**machine), product))


@random_cases
@given(sparse_products())
def test_gustavson(case: tuple[dict[str, Any], np.ndarray, np.ndarray]) -> None:
    machine, a, b = case
    product = SparseProduct(compressed_rows(a), compressed_rows(b))
    agree(lambda: spgemm.run_gustavson(a, b, **machine), lambda: gustavson.simulate(Hardware(**machine), product))
