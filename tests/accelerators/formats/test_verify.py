"""Verifying against reference runs, the operands they are made of, and the random numbers these are drawn from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from places import TESTS
from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines import flexible_dense
from sonda.accelerators.engines.bitmap_sparse import fill_short_vectors, packed_order
from sonda.accelerators.formats.stonne.command import parse_command
from sonda.accelerators.formats.stonne.glibc_random import LibraryRandom
from sonda.accelerators.formats.stonne.verification import verify_stonne
from sonda.accelerators.operations.layer import StonneLayer, Tile
from sonda.accelerators.operations.patterns import compressed_rows, read_pattern, rows_from_lists
from sonda.record.errors import SondaError
from sonda.report.screen import render
from sonda.report.views.verification import stonne_blocks

DATA = (TESTS / "data") / "stonne"


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
    # Everything but the command line and what came out is left out; STONNE's mapper is repeated, mRNA is not.
    by_mrna = [run["id"] for run in runs if run["mode"] == "CONV" or run.get("options", {}).get("generator") == "mRNA"]
    chosen = [
        run
        for run in runs
        if run["status"] == "ok" and "argv" in run and not ("generated_tile" in run and run["id"] in by_mrna)
    ]
    assert sum("generated_tile" in run for run in chosen) == 20
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
        ("null", "is not a list of runs"),
        ("[" * 100_000, "is not JSON"),
        ('{"runs": 3}', "is not a list of runs"),
        ('[{"mode": "TPU"}]', "run 0: 'status' is missing"),
        ('[{"mode": "TPU", "status": "ok", "cycles": 3, "dims": {"M": 1}}]', "run 0: 'N' is missing"),
        ('[{"mode": "FC", "status": "ok", "cycles": 3, "dims": {"M": 1, "N": 1, "K": 1}}]', "run 0: 'tile' is missing"),
        ('[{"mode": "Winograd", "status": "ok", "dims": {}, "config": {}}]', "mode 'Winograd' is none of"),
        ('[{"tag": "x", "argv": "-Pool -M=1", "status": "ok"}]', "x 0 cannot be read (the command line has none of"),
        (
            '[{"argv": "-CONV -R=3 -S=3 -X=9 -Y=9 -generate_tile=energy", "status": "ok", "cycles": 9}]',
            "its tile was chosen by mRNA",
        ),
        ('[{"argv": 3, "status": "ok", "cycles": 1}]', "run 0 cannot be read"),
        ('[{"argv": "-FC -M=1 -generate_tile=1 -generator=mRNA", "cycles": 9}]', "its tile was chosen by mRNA"),
        ('[{"argv": "-FC", "status": "ok", "cycles": NaN}]', "run 0 cannot be read"),
    ],
)
def test_a_bad_file_is_said_in_one_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(SondaError) as caught:
        verify_stonne(path)
    assert said in str(caught.value)


@pytest.mark.parametrize("wrapped", [lambda one: {"runs": [one]}, lambda one: {"first": one}, lambda one: one])
def test_runs_may_stand_in_an_object_or_alone(wrapped: Any, runs: list[dict[str, Any]], tmp_path: Path) -> None:
    report = verify_stonne(written(tmp_path / "one.json", wrapped(runs[0])))
    assert (report.total, report.exact) == (1, 1)


def test_a_status_that_is_not_said_is_ok_where_there_are_cycles(runs: list[dict[str, Any]], tmp_path: Path) -> None:
    bare = {key: runs[0][key] for key in ("mode", "config", "dims", "tile", "cycles")}
    wrong = {**bare, "cycles": bare["cycles"] + 1}
    report = verify_stonne(written(tmp_path / "bare.json", [bare, wrong, {**wrong, "status": None}]))
    assert (report.total, report.exact, [one.run for one in report.differences]) == (3, 1, ["run 1", "run 2"])


def test_a_run_without_cycles_is_not_exact_in_anything(runs: list[dict[str, Any]], tmp_path: Path) -> None:
    run = {key: value for key, value in runs[0].items() if key != "cycles"}
    (difference,) = verify_stonne(written(tmp_path / "none.json", [run])).differences
    assert (difference.what, difference.expected, difference.found) == ("cycles", None, 6200)


def test_one_unreadable_run_does_not_keep_the_others_from_being_compared(
    runs: list[dict[str, Any]], tmp_path: Path
) -> None:
    strange = {"id": "w", "mode": "Winograd", "cycles": 5, "status": "OK"}
    report = verify_stonne(written(tmp_path / "mixed.json", [runs[0], strange, {**strange, "status": "assert"}, 7]))
    assert (report.total, report.exact, report.exit_status) == (3, 1, 1)
    assert report.modes["Winograd"].total == 1
    assert ["mode 'Winograd' is none of" in str(one.found) for one in report.differences] == [True, False]
    assert [(one.run, one.status) for one in report.failures] == [("run w", "assert")]


def test_what_is_not_on_the_command_line_has_stonnes_default() -> None:
    # Main program of the reference: M = 4, N = 4, K = 8, both operands at 20 percent; 32 x 32 by 32 x 16 at 70.
    bitmaps = parse_command("-SparseGEMM")
    assert {key: bitmaps["dims"][key] for key in "MNK"} == {"M": 4, "N": 4, "K": 8}
    assert bitmaps["sparsity"] == {"MK": 20, "KN": 20}
    rows = parse_command(["./stonne", "-SparseDense", "-N=5"])
    assert ({key: rows["dims"][key] for key in "MNK"}, rows["sparsity"]["MK"]) == ({"M": 32, "N": 5, "K": 32}, 70)
    assert (rows["tile"]["T_N"], rows["tile"]["T_K"], rows["config"]["accumulation_buffer"]) == (4, 8, 1)
    layer = parse_command("-CONV -C=2")
    assert {key: layer["dims"][key] for key in "RSCKGNXY"} == {**dict.fromkeys("RCKGNX", 1), "C": 2, "S": 3, "Y": 3}
    assert parse_command("-FC -generate_tile=0")["tile"] is not None
    assert parse_command("-FC -generate_tile=Performance")["tile"] is None


IMPOSSIBLE = ["-M=-5", "-M=0", "-M=99999999999", "-num_ms=100", "-dn_bw=3", "-K=-1"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        *((command, said) for command in ("-DenseGEMM", "-SparseDense", "-SparseGEMM") for said in IMPOSSIBLE),
        ("-DenseGEMM", "-T_M=1000"),
        ("-SparseDense", "-T_K=1000"),
        ("-CONV", "-T_X_=1000"),
        ("-CONV", "-G=3 -C=4"),
    ],
)
def test_impossible_numbers_on_a_command_line_are_refused_not_simulated(
    command: str, said: str, runs: list[dict[str, Any]], tmp_path: Path
) -> None:
    bad = {"argv": f"{command} {said}", "status": "ok", "cycles": 1}
    report = verify_stonne(written(tmp_path / "bad.json", [runs[0], bad]))
    (difference,) = report.differences
    assert "defect" not in str(difference.found)
    assert report.exit_status == 1


def test_counters_that_wrapped_in_the_reference_are_known_and_do_not_fail(
    runs: list[dict[str, Any]], tmp_path: Path
) -> None:
    """A product of 4096 x 4096 by 4096 x 4096 has 2^36 products; in 32 bits nothing is left of them."""
    layer, tile = StonneLayer.product(4096, 4096, 4096), Tile.product(1, 4, 64)
    result = flexible_dense.simulate(Hardware(256, 0, 0, 128, 128, accumulators=True), layer, tile)
    products = result.counters["MSNetwork"]["MULTIPLIER"]["MULTIPLICATION"]
    assert products == 1 << 36
    counters = json.loads(json.dumps(result.counters))
    counters["MSNetwork"]["MULTIPLIER"]["MULTIPLICATION"] = 0
    run = {
        "argv": "-DenseGEMM -M=4096 -N=4096 -K=4096 -T_M=1 -T_N=4 -T_K=64 -num_ms=256 -dn_bw=128 -rn_bw=128 "
        "-accumulation_buffer=1",
        "cycles": result.cycles % (1 << 32),
        "globalbuffer_reads": result.reads % (1 << 32),
        "counters": counters,
        "status": "ok",
    }
    report = verify_stonne(written(tmp_path / "wrapped.json", [run]))
    assert (report.total, report.exact, report.differences, report.exit_status) == (1, 1, [], 0)
    whats = {one.what for one in report.known}
    assert {"reads", "counters.MSNetwork.MULTIPLIER.MULTIPLICATION"} <= whats
    assert {one.why for one in report.known} == {"the reference counts in 32 bits"}
    counters["MSNetwork"]["MULTIPLIER"]["MULTIPLICATION"] = 1
    assert verify_stonne(written(tmp_path / "off.json", [run])).exit_status == 1


def test_trailing_zeros_on_the_wires_of_the_tree_are_known_and_nothing_else_is(
    runs: list[dict[str, Any]], tmp_path: Path
) -> None:
    # Two virtual neurons: at most two zeros, each passed on once.
    folded = json.loads(json.dumps(runs[0]))
    wires = folded["counters"]["ReduceNetwork"]["RN_WIRE"]
    wires["WRITE"] -= 4
    report = verify_stonne(written(tmp_path / "less.json", [folded]))
    assert (report.exact, report.exit_status, report.known[0].what) == (1, 0, "counters.ReduceNetwork.RN_WIRE.WRITE")
    wires["WRITE"] -= 1
    assert verify_stonne(written(tmp_path / "lesser.json", [folded])).exit_status == 1
    wires["WRITE"] += 1
    folded["cycles"] += 1
    assert len(verify_stonne(written(tmp_path / "both.json", [folded])).differences) == 2
    accumulated = json.loads(json.dumps(next(run for run in runs if run["config"].get("accumulation_buffer"))))
    accumulated["counters"]["ReduceNetwork"]["RN_WIRE"]["WRITE"] -= 1
    assert verify_stonne(written(tmp_path / "other.json", [accumulated])).exit_status == 1


def test_known_differences_are_told_apart_on_the_screen(runs: list[dict[str, Any]], tmp_path: Path) -> None:
    run = json.loads(json.dumps(runs[0]))
    run["counters"]["ReduceNetwork"]["RN_WIRE"]["WRITE"] -= 2
    text = render(stonne_blocks(verify_stonne(written(tmp_path / "less.json", [run])).to_document()), 200)
    assert "1 of 1 runs are exact in every number" in text
    assert "known: 1 number of 1 run (zeros after the last partial sum), as DenseGEMM run 0: counters." in text


def test_sections_that_the_reference_did_not_record_are_not_compared(
    runs: list[dict[str, Any]], tmp_path: Path
) -> None:
    run = json.loads(json.dumps(runs[0]))
    run["counters"] = {"GlobalBuffer": run["counters"]["GlobalBuffer"]}
    assert verify_stonne(written(tmp_path / "part.json", [run])).exact == 1
    run["counters"]["GlobalBuffer"]["GLOBALBUFFER"]["READ"] += 1
    assert verify_stonne(written(tmp_path / "part.json", [run])).exact == 0


def test_rows_known_by_their_sizes_only(runs: list[dict[str, Any]], tmp_path: Path) -> None:
    chosen = [run for run in runs if run["mode"] == "SparseDense" and "row_nnz_effective" in run.get("data", {})]
    bare = [
        {key: value for key, value in run.items() if key != "argv"}
        | {"data": {"row_nnz_effective": run["data"]["row_nnz_effective"]}}
        for run in chosen
        if run["status"] == "ok"
    ]
    report = verify_stonne(written(tmp_path / "sizes.json", bare))
    assert report.total == report.exact > 20


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
        assert np.array_equal(fill_short_vectors(mk), read_pattern(run["data"]["MK_bitmap"])), run["id"]
        assert np.array_equal(fill_short_vectors(kn.T).T, read_pattern(run["data"]["KN_bitmap"])), run["id"]
        checked += 1
    assert checked == 39


def test_patterns_are_read_row_by_row_highest_bit_first() -> None:
    # 2 x 5: 10100 01011, filled up with zeros: 10100010 11000000.
    assert read_pattern({"shape": [2, 5], "packbits_b64": "osA="}).tolist() == [[1, 0, 1, 0, 0], [0, 1, 0, 1, 1]]
    foreign = {"shape": [2, 5], "packbits_b64": "os?A="}  # a lax decoder would leave out the letter that is none
    for bad in ({"shape": [2, 9], "packbits_b64": "osA="}, {"shape": [2, 5]}, foreign):
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


@pytest.mark.parametrize(
    ("mode", "dims", "tile", "said"),
    [
        ("DenseGEMM", {"M": -3}, {"T_M": 1, "T_N": 1, "T_K": 4}, "M = -3 is not a whole number from 1"),
        ("DenseGEMM", {"N": 0}, {"T_M": 1, "T_N": 1, "T_K": 4}, "N = 0 is not"),
        ("FC", {"K": -1}, {"T_S": 4, "T_K": 1, "T_N": 1}, "K = -1 is not"),
        ("FC", {}, {"T_S": 4, "T_K": -2, "T_N": 1}, "T_K = -2 is not"),
        ("DenseGEMM", {}, {"T_M": 0, "T_N": 1, "T_K": 4}, "T_M = 0 is not"),
    ],
)
def test_a_size_that_is_none_has_the_name_that_the_file_gives_it(
    mode: str, dims: dict[str, int], tile: dict[str, int], said: str, tmp_path: Path
) -> None:
    run = {"mode": mode, "status": "ok", "cycles": 5, "config": {"num_ms": 16, "accumulation_buffer": 1},
           "dims": {"M": 3, "N": 4, "K": 4, **dims}, "tile": tile}  # fmt: skip
    report = verify_stonne(written(tmp_path / "runs.json", [run]))
    (difference,) = report.differences
    assert str(difference.found).startswith(said)
    text = render(stonne_blocks(report.to_document()), 200, False)
    assert f"{mode} run 0: cannot be simulated, though the reference ended well: {said}" in text
