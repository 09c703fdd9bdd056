"""The sparse engines: against counts by hand, the cycle-by-cycle oracle and the reference's runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle import golden
from oracle import sparse as oracle
from oracle import spgemm as merging_oracle
from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines import bitmap_sparse, compressed_row, gustavson, outer_product
from sonda.accelerators.engines.bitmap_sparse import (
    BitmapProduct,
    DenseRows,
    bitmap_product,
    fill_short_vectors,
    packed_order,
)
from sonda.accelerators.engines.compressed_row import RowsByDense, RowTile, rows_by_dense
from sonda.accelerators.engines.merge_tree import SparseProduct
from sonda.accelerators.engines.result import Result
from sonda.accelerators.formats.stonne.reference import reference_run
from sonda.accelerators.operations.patterns import compressed_rows, rows_from_lists
from sonda.record.errors import SondaError

MODES = ("SparseGEMM", "SparseDense", "OuterProduct_SST", "Gustavson_SST")
PORTS = st.tuples(st.sampled_from([4, 8, 16, 32]), st.integers(0, 5), st.integers(0, 5))
SEEDS = st.tuples(st.integers(0, 2**32 - 1), st.floats(0, 1))


def machine(ports: tuple[int, int, int], accumulators: bool = False) -> tuple[Hardware, dict[str, int]]:
    multipliers = ports[0]
    given = {
        "multipliers": multipliers,
        "read_ports": min(1 << ports[1], multipliers),
        "write_ports": min(1 << ports[2], multipliers),
    }
    return Hardware(**given, accumulators=accumulators), given


def pattern(shape: tuple[int, int], seed: tuple[int, float]) -> np.ndarray:
    return np.random.default_rng(seed[0]).random(shape) < seed[1] ** 2


def without_empty(bits: np.ndarray) -> np.ndarray:
    """The reference hangs on rows and columns without entries."""
    rows, columns = bits.shape
    bits[np.arange(rows), np.arange(rows) % columns] |= ~bits.any(axis=1)
    bits[np.arange(columns) % rows, np.arange(columns)] |= ~bits.any(axis=0)
    return bits


def assert_same(result: Result, outcome: Any) -> None:
    assert golden.differences(golden.summary(result), golden.summary(outcome)) == {}
    assert sum(result.stack.values()) == result.cycles
    assert min(result.stack.values()) >= 0


@pytest.mark.parametrize("mode", MODES)
def test_every_number_of_the_references_runs_is_the_same(mode: str) -> None:
    runs = [run for run in golden.runs() if run["mode"] == mode and run["status"] == "ok"]
    assert runs
    for run in runs:
        result = reference_run(run, 0).simulate()
        assert golden.differences(golden.summary(result), golden.record(run)) == {}, run["id"]


@settings(max_examples=60, deadline=None)
@given(
    ports=PORTS,
    sizes=st.tuples(st.integers(1, 8), st.integers(1, 8), st.integers(3, 40)),
    seeds=st.tuples(SEEDS, SEEDS),
    dataflow=st.sampled_from(bitmap_sparse.DATAFLOWS),
)
def test_bitmap_is_the_oracles(ports: Any, sizes: tuple[int, int, int], seeds: Any, dataflow: str) -> None:
    m, n, k = sizes
    hardware, given_ports = machine(ports)
    mk, kn = fill_short_vectors(pattern((m, k), seeds[0])), fill_short_vectors(pattern((n, k), seeds[1])).T
    outcome, _ = oracle.run_bitmap(mk.astype(np.uint8), kn.astype(np.uint8), dataflow=dataflow, **given_ports)
    assert_same(bitmap_sparse.simulate(hardware, bitmap_product(mk, kn, dataflow)), outcome)


@settings(max_examples=10, deadline=None)
@given(ports=PORTS, streams=st.integers(70, 110), seed=SEEDS)
def test_long_streams_of_which_only_the_end_is_stepped_are_the_oracles(ports: Any, streams: int, seed: Any) -> None:
    hardware, given_ports = machine(ports)
    mk, kn = fill_short_vectors(pattern((6, 12), seed)), np.ones((12, streams), np.uint8)
    outcome, _ = oracle.run_bitmap(mk.astype(np.uint8), kn, dataflow="MK_STA_KN_STR", **given_ports)
    assert_same(bitmap_sparse.simulate(hardware, bitmap_product(mk, kn)), outcome)


@settings(max_examples=60, deadline=None)
@given(
    ports=PORTS,
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 12), st.integers(1, 40)),
    seed=SEEDS,
    tile=st.tuples(st.integers(1, 32), st.integers(2, 32)),
)
def test_compressed_rows_are_the_oracles(ports: Any, sizes: tuple[int, int, int], seed: Any, tile: Any) -> None:
    m, n, k = sizes
    hardware, given_ports = machine(ports, accumulators=True)
    entries = min(tile[1], hardware.multipliers)
    columns = min(tile[0], hardware.multipliers // entries)
    bits = pattern((m, k), seed)
    outcome, _ = oracle.run_rows(bits.astype(np.uint8), n, T_N=columns, T_K=entries, **given_ports)
    result = compressed_row.simulate(hardware, rows_by_dense(compressed_rows(bits), n), RowTile(columns, entries))
    assert_same(result, outcome)


@pytest.mark.parametrize(
    ("engine", "run"),
    [(outer_product, merging_oracle.run_outer), (gustavson, merging_oracle.run_gustavson)],
    ids=["outer product", "gustavson"],
)
@settings(max_examples=40, deadline=None)
@given(
    ports=PORTS,
    sizes=st.tuples(st.integers(1, 6), st.integers(1, 10), st.integers(1, 30)),
    seeds=st.tuples(SEEDS, SEEDS),
)
def test_merging_is_the_oracles(engine: Any, run: Any, ports: Any, sizes: tuple[int, int, int], seeds: Any) -> None:
    m, n, k = sizes
    hardware, given_ports = machine((ports[0], 10, ports[2]))
    a, b = without_empty(pattern((m, k), seeds[0])), without_empty(pattern((k, n), seeds[1]))
    outcome, _ = run(a.astype(np.uint8), b.astype(np.uint8), **given_ports)
    assert_same(engine.simulate(hardware, SparseProduct(compressed_rows(a), compressed_rows(b))), outcome)


def test_one_vector_on_its_own_ports_streams_a_cycle_per_element() -> None:
    # 8 ones on 8 multipliers: 3 adders deep. Configured 1, weights 2, products 3 to 3 + D - 1, root 3 later, bus 1,
    # buffer 1.
    streams = 20
    result = bitmap_sparse.simulate(Hardware(8, read_ports=8, write_ports=8), BitmapProduct(DenseRows(1, 8), streams))
    assert result.cycles == 1 + 1 + streams + 3 + 1 + 1
    assert (result.weight_reads, result.input_reads, result.psum_reads, result.writes) == (8, 8 * 20, 0, 20)


def test_a_vector_too_long_is_folded_with_one_multiplier_for_the_sums() -> None:
    # 20 ones on 8 multipliers: 8, then 7, then 5; the second and third iterations read the sums so far.
    result = bitmap_sparse.simulate(Hardware(8, read_ports=8, write_ports=8), BitmapProduct(DenseRows(1, 20), 3))
    assert (result.psum_reads, result.writes, result.weight_reads) == (2 * 3, 3 * 3, 20)


def test_vectors_without_zeros_need_no_memory_and_are_timed_as_if_listed() -> None:
    for rows, columns in ((3, 5), (5, 40), (4, 16)):
        listed = BitmapProduct(compressed_rows(np.ones((rows, columns))), 6)
        implied = BitmapProduct(DenseRows(rows, columns), 6)
        hardware = Hardware(16, read_ports=4, write_ports=4)
        assert bitmap_sparse.simulate(hardware, listed) == bitmap_sparse.simulate(hardware, implied)


def test_a_lookup_costs_the_same_cycles_in_a_table_of_any_size() -> None:
    lookups = [[3, 17, 400, 999], [5, 6, 7], [0, 998, 999]]
    hardware = Hardware(128, read_ports=128, write_ports=128, accumulators=True)
    for rows in (1_000, 10**12):
        table = rows_from_lists(lookups, rows)
        stationary = bitmap_sparse.simulate(hardware, BitmapProduct(table, 32))
        by_rows = compressed_row.simulate(hardware, rows_by_dense(table, 32), RowTile(32, 4))
        assert stationary.input_reads == 32 * rows
        assert by_rows.input_reads == 10 * 32
        # 32 streams, 10 ones of three vectors: deepest path 3 adders, drained within 2 cycles.
        assert stationary.cycles == 32 + 3 + 4 + 1
        # A row: configured in 1, weights in 2, elements in 3, two adders, the accumulator, the bus in 7. 30 of the 32
        # neurons share a line with another: 17 results arrive in 8, 15 in 9; 8, 11, 5, 2, 1, 0 of them are left after
        # each cycle.
        assert by_rows.cycles == 3 * 13


def test_vectors_are_packed_by_exchange_then_greedily() -> None:
    # Too long for 10: the fourth (12) changes place with the first. Then 7, 3 fill one iteration, 6 and 4 the next, 5
    # is left.
    assert packed_order(np.array([5, 7, 1, 12, 6, 4]), 10).tolist() == [3, 1, 2, 4, 5, 0]


def test_short_vectors_are_filled_from_their_beginning() -> None:
    bits = np.array([[0, 0, 0, 0, 1], [1, 0, 0, 1, 0], [0, 1, 1, 1, 1], [0, 0, 0, 0, 0]])
    assert fill_short_vectors(bits).astype(int).tolist() == [
        [1, 1, 0, 0, 1],
        [1, 1, 0, 1, 0],
        [0, 1, 1, 1, 1],
        [1, 1, 1, 0, 0],
    ]


def test_gustavson_counts_by_hand() -> None:
    # Row 0 of A names rows 0 and 2 of B: {0, 1} and {1, 2, 3}, merged {0, 1, 2, 3}; row 1 names row 1: {2}. Depth 2.
    a = rows_from_lists([[0, 2], [1]], 3)
    b = rows_from_lists([[0, 1], [2], [1, 2, 3]], 4)
    result = gustavson.simulate(Hardware(4, read_ports=4, write_ports=4), SparseProduct(a, b))
    assert result.cycles == (3 + 2 + 4 + 7) + (1 + 2 + 1 + 7)
    assert (result.weight_reads, result.input_reads, result.psum_reads, result.writes) == (3, 6, 0, 0)
    assert result.counters["ReduceNetwork"]["ADDER"]["ADD_2_1"] == 1


def test_outer_product_counts_by_hand() -> None:
    a = rows_from_lists([[0, 2], [1]], 3)
    b = rows_from_lists([[0, 1], [2], [1, 2, 3]], 4)
    result = outer_product.simulate(Hardware(4, read_ports=4, write_ports=4), SparseProduct(a, b))
    # Products reach the buffer in cycle 6 (3 of them), 7 (2), 8 (1); it takes 2, 2, 1 of those waiting, and 1 in
    # cycle 9. Then row 0 leaves 4 elements, row 1 one: depth 2 and 4 around each.
    assert result.cycles == 9 + (2 + 4 + 4) + (2 + 4 + 1)
    assert (result.psum_reads, result.writes) == (6, 6)


@pytest.mark.parametrize("engine", [outer_product, gustavson])
def test_rows_without_entries_cost_nothing(engine: Any) -> None:
    hardware = Hardware(4, read_ports=4, write_ports=4)
    b = rows_from_lists([[0, 1], [2], [1, 2, 3]], 4)
    dense = engine.simulate(hardware, SparseProduct(rows_from_lists([[0, 2], [1]], 3), b))
    gaps = engine.simulate(hardware, SparseProduct(rows_from_lists([[], [0, 2], [], [1], []], 3), b))
    assert gaps == dense


@pytest.mark.parametrize("engine", [outer_product, gustavson])
def test_nothing_times_anything_is_nothing(engine: Any) -> None:
    result = engine.simulate(
        Hardware(4, read_ports=4, write_ports=4),
        SparseProduct(rows_from_lists([[], []], 3), rows_from_lists([[], [], []], 4)),
    )
    assert (result.cycles, result.reads, result.writes) == (0, 0, 0)


LINE = Hardware(16, read_ports=8, write_ports=8, accumulators=True)
PAIR = SparseProduct(rows_from_lists([[0]], 2), rows_from_lists([[0], [1]], 2))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: compressed_row.simulate(LINE, RowsByDense(np.array([3]), 4), RowTile(4, 1)), "T_K = 1"),
        (lambda: compressed_row.simulate(LINE, RowsByDense(np.array([3]), 4), RowTile(8, 4)), "T_N x T_K = 8 x 4"),
        (lambda: compressed_row.simulate(LINE, RowsByDense(np.array([3]), 0), RowTile(1, 4)), "N = 0"),
        (
            lambda: compressed_row.simulate(
                Hardware(16, reduction="FENETWORK"), RowsByDense(np.array([3]), 4), RowTile(1, 4)
            ),
            "'FENETWORK'",
        ),
        (lambda: bitmap_sparse.simulate(LINE, BitmapProduct(rows_from_lists([[1, 2]], 9), 4)), "2 ones, fewer than 3"),
        (lambda: bitmap_sparse.simulate(LINE, BitmapProduct(DenseRows(4, 4), 0)), "0 streaming vectors"),
        (lambda: bitmap_product(np.ones((2, 2)), np.ones((2, 2))), "K = 2 is less than the 3"),
        (lambda: bitmap_product(np.ones((3, 3)), np.ones((4, 3))), "3 columns, the second 4 rows"),
        (lambda: bitmap_product(np.ones((3, 3)), np.ones((3, 3)), "MK_STA"), "dataflow = 'MK_STA' is unknown"),
        (lambda: gustavson.simulate(LINE, PAIR), "read_ports = 8"),
        (lambda: outer_product.simulate(Hardware(2, read_ports=2, write_ports=2), PAIR), "multipliers = 2"),
        (
            lambda: gustavson.simulate(
                Hardware(4, read_ports=4), SparseProduct(rows_from_lists([[0]], 5), rows_from_lists([[0]], 1))
            ),
            "5 columns, the second 1 rows",
        ),
    ],
)
def test_what_cannot_be_is_said_in_one_line(call: Any, said: str) -> None:
    with pytest.raises(SondaError) as caught:
        call()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
