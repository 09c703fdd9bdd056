"""The plain model against recorded reference runs: it must be right before the engines are measured by it."""

from __future__ import annotations

import numpy as np
import pytest

from oracle import dense, golden, mesh, sparse, spgemm
from oracle.reduction import plan_tree

QUICK, SLOW = 20_000, 60_000
"""Multipliers times cycles of the runs repeated here: about half a second each at most, and about two."""


def work(run: golden.Run) -> int:
    config = run["config"]
    return run["cycles"] * (config.get("num_ms") or config["ms_rows"] * config["ms_cols"])


def chosen() -> list[object]:
    small = [run for run in golden.runs() if run["status"] == "ok" and work(run) <= SLOW and run["dims"]["K"] <= 2000]
    return [
        pytest.param(
            run,
            id=f"{run['id']}-{run['mode']}-{run['group']}",
            marks=[pytest.mark.slow] if work(run) > QUICK else [],
        )
        for run in small
    ]


@pytest.mark.parametrize("run", chosen())
def test_repeats_the_reference(run: golden.Run) -> None:
    """Cycles, accesses, every counter, and the sums themselves."""
    outcome, expected = golden.repeat(run)
    assert not golden.differences(golden.summary(outcome), golden.record(run)), "(model, reference)"
    np.testing.assert_array_equal(outcome.values, expected)
    assert outcome.dram_writes == run["sdmemory"].get("N_DRAM_psum_writes", 0)


def test_every_mode_is_repeated() -> None:
    modes = {run["mode"] for run in golden.runs()}
    assert {param.values[0]["mode"] for param in chosen() if not param.marks} == modes  # type: ignore[attr-defined]


def test_strided_tiles_of_several_windows_are_wrong_as_the_reference_is() -> None:
    """The reference takes zeros for inputs beyond a bound that lacks the stride: right time, wrong sums."""
    runs = [run for run in golden.runs() if run["group"] == "strided_multiwindow_wrong"]
    assert runs
    for run in runs:
        outcome, expected = golden.repeat(run)
        assert not golden.differences(golden.summary(outcome), golden.record(run))
        assert not np.array_equal(outcome.values, expected)


@pytest.mark.parametrize(
    "group",
    ["fail_dn_gt_ms", "fail_rn_gt_ms", "fail_fen_vn1", "fail_nofit_fold", "fail_vn1_fold", "fail_tile_gt", "tk1"],
)
def test_refuses_what_the_reference_cannot_run(group: str) -> None:
    (run,) = (run for run in golden.runs() if run["group"] == group)
    with pytest.raises(ValueError, match=r"\w"):
        golden.repeat(run)


def test_weights_overtake_handed_activations() -> None:
    """Two samples with forwarding links: the gate forgets the sample, so filters change under the last windows."""
    layer = dense.Layer(R=1, S=3, C=1, K=1, G=2, N=2, X=1, Y=4)
    tile = dense.Tile(R=1, S=3, C=1, K=1)
    machine = {"multipliers": 4, "read_ports": 2, "write_ports": 1, "reduction": "ASNETWORK", "accumulators": True}
    assert dense.weights_overtake(layer, tile)
    outcome, expected = dense.run_layer(layer, tile, **machine)  # type: ignore[arg-type]
    assert not np.array_equal(outcome.values, expected)


def test_tree_serves_three_neurons_of_five() -> None:
    """By hand, 16 multipliers: neurons on 0-4, 5-9, 10-14.

    Leaf 2 belongs to two neurons: its left product goes sideways to leaf 1 of the first, its right one up for the
    second. Leaf 4 is even and the last of the second neuron: left to leaf 3. Leaf 5 is odd and the first of the third:
    right to 6.
    """
    plan = plan_tree([(0, 4), (5, 9), (10, 14)], levels=4)
    assert plan.roots == [(2, 0), (2, 1), (2, 3)]
    assert plan.work[3, 2] == [(("left",), "across"), (("right",), "up")]
    assert plan.work[3, 1] == [(("left", "right", "side"), "up")]
    assert plan.work[3, 4] == [(("left", "right"), "across")]
    assert plan.work[3, 5] == [(("left", "right"), "across")]
    assert plan.work[3, 6] == [(("left", "right", "side"), "up")]
    assert plan.work[3, 7] == [(("left",), "up")]
    # 8 leaves, three roots, and the nodes above them up to the root of the tree.
    assert plan.configured == {(3, i) for i in range(8)} | {(2, 0), (2, 1), (2, 3), (1, 0), (1, 1), (0, 0)}


def test_smallest_product_by_hand() -> None:
    """One weight, one input, four multipliers, a port each.

    The weight leaves in cycle 1, the input in 2 and is multiplied there; leaf adder 3, bus 4, memory 5.
    """
    outcome, expected = dense.run(
        M=1, N=1, K=1, T_M=1, T_N=1, T_K=1, multipliers=4, read_ports=4, write_ports=4, reduction="ASNETWORK"
    )
    assert outcome.cycles == 5
    assert (outcome.weight_reads, outcome.input_reads, outcome.psum_reads, outcome.writes) == (1, 1, 0, 1)
    np.testing.assert_array_equal(outcome.values, expected)


def test_smallest_mesh_by_hand() -> None:
    """Configured in cycle 1, operands sent and multiplied in 2, accumulator 3, bus 4, memory 5."""
    outcome, _ = mesh.run(rows=2, columns=2, read_ports=4, write_ports=4, M=1, N=1, K=1, T_M=1, T_N=1)
    assert outcome.cycles == 5


def test_a_burst_of_results_is_written_by_halves() -> None:
    """Four cells of a 2 x 2 mesh finish in 5, 6, 6, 7 with one line each; a single line delivers them in 5, 6, 7, 8."""
    common = {"rows": 2, "columns": 2, "read_ports": 4, "M": 2, "N": 2, "K": 1, "T_M": 2, "T_N": 2}
    wide, _ = mesh.run(write_ports=4, **common)
    narrow, _ = mesh.run(write_ports=1, **common)
    # Two arrive together in 6 and one of them stays, so in 7 there are two again and one is left for 8.
    assert (wide.cycles, narrow.cycles) == (8, 8)


def test_one_row_of_three_ones_by_hand() -> None:
    """Stationary row of three ones on four multipliers, one streaming vector, a port each.

    Configured 1, weights 2, inputs sent and multiplied 3, leaf adders 4, root 5, bus 6, memory 7.
    """
    row, column = np.ones((1, 3), np.uint8), np.ones((3, 1), np.uint8)
    outcome, expected = sparse.run_bitmap(
        row, column, dataflow="MK_STA_KN_STR", multipliers=4, read_ports=4, write_ports=4
    )
    assert outcome.cycles == 7
    np.testing.assert_array_equal(outcome.values, expected)


def test_empty_rows_are_not_served_by_the_mergers() -> None:
    a, b = np.array([[1, 1], [0, 0]], np.uint8), np.ones((2, 2), np.uint8)
    for run in (spgemm.run_outer, spgemm.run_gustavson):
        with pytest.raises(ValueError, match="empty"):
            run(a, b, multipliers=4, read_ports=4, write_ports=4)
