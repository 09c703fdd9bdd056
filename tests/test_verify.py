"""Verifying against reference runs, the operands they are made of, and the random numbers these are drawn from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sonda.accelerators.engines.bitmap_sparse import filled, packed_order
from sonda.accelerators.library_random import LibraryRandom
from sonda.accelerators.operands import compressed_rows, read_pattern, rows_from_lists
from sonda.accelerators.verify import verify_stonne
from sonda.record.errors import SondaError

DATA = Path(__file__).parent / "data" / "stonne"


@pytest.fixture(scope="module")
def runs() -> list[dict[str, Any]]:
    return json.loads((DATA / "golden.json").read_bytes())


def written(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path


def test_all_reference_runs_are_exact() -> None:
    report = verify_stonne(DATA / "golden.json")
    assert report.differences == []
    assert (report.total, report.exact, report.exit_status) == (278, 278, 0)
    totals = {mode: one.total for mode, one in report.modes.items()}
    assert totals == {
        "CONV": 34,
        "DenseGEMM": 85,
        "FC": 32,
        "SparseGEMM": 46,
        "SparseDense": 33,
        "TPU": 24,
        "OuterProduct_SST": 12,
        "Gustavson_SST": 12,
    }
    assert all(one.exact == one.total and one.seconds > 0 for one in report.modes.values())


def test_runs_known_by_their_command_line_only_are_exact() -> None:
    report = verify_stonne(DATA / "perf.json")
    assert report.differences == []
    assert (report.total, report.exact) == (27, 27)


def test_command_line_and_recorded_operands_give_the_same(tmp_path: Path, runs: list[dict[str, Any]]) -> None:
    # Everything but the command line and what came out is left out; where STONNE chose the tile, there is no such run.
    chosen = [run for run in runs if run["status"] == "ok" and "argv" in run and "generated_tile" not in run]
    kept = ("id", "argv", "status", "cycles", "globalbuffer_reads", "globalbuffer_writes", "sdmemory", "counters")
    bare = [{key: run[key] for key in kept} for run in chosen]
    report = verify_stonne(written(tmp_path / "bare.json", bare))
    assert report.differences == []
    assert report.total == len(chosen) > 200


def test_what_the_reference_fails_at_is_answered(runs: list[dict[str, Any]], tmp_path: Path) -> None:
    failed = [run for run in runs if run["status"] != "ok"]
    report = verify_stonne(written(tmp_path / "failed.json", failed))
    assert (report.total, report.exact, report.exit_status) == (0, 0, 0)
    says = {one.run: one.says for one in report.failures}
    assert len(says) == 14
    # Strided convolutions with several windows: the schedule is right, the reference's numbers are not.
    assert says["run 141"] == "712 cycles (the reference printed 712)"
    assert "T_K = 1" in says["run 223"]
    assert "multipliers = 256" in says["run 248"]


@pytest.mark.parametrize(
    ("path", "what"),
    [
        (("cycles",), "cycles"),
        (("globalbuffer_reads",), "reads"),
        (("globalbuffer_writes",), "writes"),
        (("sdmemory", "N_SRAM_input_reads"), "memory.input_reads"),
        (("counters", "MSNetwork", "FIFO", "POP"), "counters.MSNetwork.FIFO.POP"),
        (("counters", "DSNetwork", "DN_WIRE", "entries"), "counters.DSNetwork.DN_WIRE.entries"),
    ],
)
@pytest.mark.parametrize("mode", ["TPU", "SparseGEMM", "SparseDense", "Gustavson_SST", "DenseGEMM"])
def test_a_number_that_is_off_by_one_is_found(
    mode: str, path: tuple[str, ...], what: str, runs: list[dict[str, Any]], tmp_path: Path
) -> None:
    run = json.loads(json.dumps(next(run for run in runs if run["mode"] == mode and run["status"] == "ok")))
    holder = run
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] += 1
    report = verify_stonne(written(tmp_path / "off.json", [run]))
    (difference,) = report.differences
    assert (difference.what, difference.expected, difference.found) == (what, holder[path[-1]], holder[path[-1]] - 1)
    assert (report.exact, report.total, report.exit_status) == (0, 1, 1)


def test_a_counter_that_the_reference_does_not_have_is_a_difference(runs: list[dict[str, Any]], tmp_path: Path) -> None:
    run = json.loads(json.dumps(next(run for run in runs if run["mode"] == "TPU" and run["status"] == "ok")))
    del run["counters"]["CollectionBus"]["FIFO"]["FRONT"]
    (difference,) = verify_stonne(written(tmp_path / "less.json", [run])).differences
    assert (difference.what, difference.expected, difference.found) == ("counters.CollectionBus.FIFO.FRONT", None, 0)


def test_a_run_said_to_be_ok_that_cannot_be_is_a_difference(runs: list[dict[str, Any]], tmp_path: Path) -> None:
    run = {**next(run for run in runs if run["id"] == 223), "status": "ok"}
    report = verify_stonne(written(tmp_path / "claimed.json", [run]))
    assert report.exit_status == 1
    assert "T_K = 1" in str(report.differences[0].found)


def test_the_document_has_totals_and_the_same_per_mode(runs: list[dict[str, Any]], tmp_path: Path) -> None:
    report = verify_stonne(
        written(tmp_path / "some.json", [run for run in runs if run["mode"] in ("TPU", "SparseDense")])
    )
    document = json.loads(json.dumps(report.to_document()))
    assert (document["total"], document["exact"]) == (57, 57)
    assert document["modes"]["TPU"]["total"] == document["modes"]["TPU"]["exact"] == 24
    assert document["seconds"] == pytest.approx(sum(one["seconds"] for one in document["modes"].values()))
    assert document["differences"] == []
    assert {one["run"] for one in document["failures"]} == {"run 216", "run 223", "run 248"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("{}", "is not a list of runs"),
        ("[]", "is not a list of runs"),
        ("[7]", "run 0 cannot be read"),
        ('[{"mode": "TPU"}]', "run 0: 'status' is missing"),
        ('[{"mode": "Winograd", "status": "ok", "dims": {}, "config": {}}]', "mode 'Winograd' is none of"),
        ('[{"tag": "x", "argv": "-Pool -M=1", "status": "ok"}]', "x 0 cannot be read (the command line has none of"),
        ('[{"argv": "-DenseGEMM -M=1 -N=1 -K=1 -T_M=1 -T_N=1", "status": "ok"}]', "'T_K' is missing"),
        ('[{"argv": "-FC -M=1 -N=1 -K=1 -generate_tile=energy", "status": "ok"}]', "leaves the tile to STONNE"),
    ],
)
def test_a_bad_file_is_said_in_one_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(SondaError) as caught:
        verify_stonne(path)
    assert said in str(caught.value)


def test_a_missing_file_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SondaError, match="cannot be read"):
        verify_stonne(tmp_path / "none.json")


def test_random_numbers_are_the_c_librarys() -> None:
    # The values that every glibc program without srand() prints first.
    first = [1804289383, 846930886, 1681692777, 1714636915, 1957747793, 424238335, 719885386, 1649760492]
    assert LibraryRandom().draw(8).tolist() == first
    one_by_one = LibraryRandom()
    assert [int(one_by_one.draw(1)[0]) for _ in range(100)] == LibraryRandom().draw(100).tolist()


def test_drawn_matrices_take_a_second_draw_for_values_only() -> None:
    draws = iter(LibraryRandom().draw(1000).tolist())
    expected = []
    for _ in range(60):
        nonzero = next(draws) % 100 > 40
        expected.append(nonzero)
        if nonzero:
            next(draws)
    random = LibraryRandom()
    assert random.sparse_matrix(6, 10, 40).ravel().tolist() == expected
    assert int(random.draw(1)[0]) == next(draws)


def test_drawn_operands_are_the_recorded_ones(runs: list[dict[str, Any]]) -> None:
    checked = 0
    for run in runs:
        if run["mode"] != "SparseGEMM" or run["status"] != "ok" or "argv" not in run:
            continue
        sizes, sparsity, options = run["dims"], run["sparsity"], run["options"]
        random = LibraryRandom()
        mk = random.sparse_matrix(sizes["M"], sizes["K"], sparsity["MK"])
        kn = random.sparse_matrix(sizes["K"], sizes["N"], sparsity["KN"])
        if options["optimize"] and options["dataflow"] == "MK_STA_KN_STR":
            mk = mk[packed_order(mk.sum(axis=1), run["config"]["num_ms"])]
        elif options["optimize"]:
            kn = kn[:, packed_order(kn.sum(axis=0), run["config"]["num_ms"])]
        assert np.array_equal(filled(mk), read_pattern(run["data"]["MK_bitmap"])), run["id"]
        assert np.array_equal(filled(kn.T).T, read_pattern(run["data"]["KN_bitmap"])), run["id"]
        checked += 1
    assert checked == 39


def test_patterns_are_read_row_by_row_highest_bit_first() -> None:
    # 2 x 5: 10100 01011, filled up with zeros: 10100010 11000000.
    assert read_pattern({"shape": [2, 5], "packbits_b64": "osA="}).tolist() == [[1, 0, 1, 0, 0], [0, 1, 0, 1, 1]]
    for bad in ({"shape": [2, 9], "packbits_b64": "osA="}, {"shape": [2, 5]}, {"shape": [2, 5], "packbits_b64": "?"}):
        with pytest.raises(SondaError, match="pattern"):
            read_pattern(bad)


def test_compressed_rows_and_their_transposition() -> None:
    pattern = np.array([[0, 2, 0], [0, 0, 0], [1, np.nan, 3]])
    rows = compressed_rows(pattern)
    assert (rows.rows, rows.columns, rows.nonzeros) == (3, 3, 4)
    assert (rows.pointer.tolist(), rows.indices.tolist()) == ([0, 1, 1, 4], [1, 0, 1, 2])
    turned = rows.transposed()
    assert (turned.pointer.tolist(), turned.indices.tolist()) == ([0, 1, 3, 4], [2, 0, 2, 2])
    assert rows_from_lists([[1], [], [2, 0, 1, 1]], 3).indices.tolist() == rows.indices.tolist()
    with pytest.raises(SondaError, match="outside 0 to 2"):
        rows_from_lists([[3]], 3)
