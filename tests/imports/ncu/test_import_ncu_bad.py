"""Ugly tables of Nsight Compute: what is there is right, what is lost is said, and nothing else."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from ncu_examples import long_table, stand_in, table
from sonda.imports.ncu.metrics import counted_quantities
from sonda.imports.ncu.tables import Damage, Launch, read_launches
from sonda.probes.ncu.chips import find_chip
from sonda.probes.ncu.command import NcuSettings
from sonda.probes.ncu.replay import count_kernels
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.targets.imported.launcher import import_files
from trace_examples import GPU
from trace_examples import table as rows_of

NCU = GPU / "ncu"
SINGLE = tuple(f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum" for name in ("fadd", "ffma", "fmul"))
DOUBLE = tuple(f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum" for name in ("dadd", "dfma", "dmul"))
TENSOR = "sm__ops_path_tensor_src_bf16_dst_fp32.sum"
COLUMNS = {"dram__bytes.sum": "Mbyte", TENSOR: "", **dict.fromkeys((*DOUBLE, *SINGLE), "inst"),
           "gpu__time_duration.sum": "us"}  # fmt: skip
LAUNCHES = [(f"k{number}<int, 4>", (f"{number}.5", "1,048,576", "0", "0", "0", "1,234", "5,678,901", "70", "12.25"))
            for number in range(1, 4)]  # fmt: skip
FLOPS = 1_048_576 + 1_234 + 2 * 5_678_901 + 70
"""Of each of these."""
WIDE, LONG = table(COLUMNS, *LAUNCHES), long_table(COLUMNS, *LAUNCHES)
SHORT = long_table({name: COLUMNS[name] for name in (TENSOR, *SINGLE)}, *((name, (values[1], *values[5:8]))
                   for name, values in LAUNCHES))  # fmt: skip


def read(text: str) -> tuple[list[Launch], Damage]:
    """Launches of a text, none where it is refused in one line."""
    damage = Damage()
    try:
        return list(read_launches(text.splitlines(keepends=True), damage)), damage
    except SondaError as error:
        assert "\n" not in str(error)
        return [], damage


def imported(folder: Path, text: str) -> Run:
    (folder / "launches.csv").write_text(text, encoding="utf-8", newline="")
    return import_files([folder / "launches.csv"], folder / "runs")


def is_right(launch: Launch) -> bool:
    """Whether everything that is said of one of these launches is true; numbers of launches begin with 0."""
    truth = {"flops": FLOPS, "flops_single": FLOPS - 1_048_576, "flops_double": 0, "flops_tensor": 1_048_576,
             "flops_tensor_bf16": 1_048_576, "dram_bytes": (launch.number + 1) * 10**6 + 500_000}  # fmt: skip
    return counted_quantities(launch).items() <= truth.items()


@pytest.mark.parametrize("text", [WIDE, WIDE.replace("\n", "\r\n")], ids=["lf", "crlf"])
def test_cut_at_every_byte_a_wide_table_gives_whole_launches_and_says_that_it_was_cut(text: str) -> None:
    assert [counted_quantities(launch)["flops"] for launch in read(text)[0]] == [FLOPS] * 3
    ends = [at for at in range(len(text)) if text[at] == "\n"]
    first = ends[3]
    for cut in range(len(text)):
        launches, damage = read(text[:cut])
        assert all(is_right(launch) and "flops" in counted_quantities(launch) for launch in launches), cut
        assert len(launches) == sum(text[:end].rstrip() <= text[:cut] for end in ends[3:]), cut
        at_an_end = any(len(text[:end].rstrip()) <= cut <= end + 1 for end in ends)
        assert damage.cut == (cut > first and not at_an_end) or not launches, cut
        assert not damage.rows


def test_cut_at_every_byte_a_long_table_says_nothing_wrong() -> None:
    begin = SHORT.index('"0","')
    second = SHORT.index('"1","1","python')
    for cut in range(begin, len(SHORT)):
        launches, damage = read(SHORT[:cut])
        # A table that ends with a line of its first launch cannot know what else was counted.
        assert all(is_right(launch) for launch in launches if cut >= second or damage.cut), cut
        in_a_row = SHORT[cut - 1] != "\n" and SHORT[cut] != "\n"
        assert damage.cut == in_a_row or not launches, cut
    assert [counted_quantities(launch).get("flops") for launch in read(LONG)[0]] == [FLOPS] * 3


OUTPUT = ("x", '"', "\n", "\r", ",", "loss 0.5\n", '","', '"5","6","', "%²\u0663", '"",')


@pytest.mark.parametrize("output", OUTPUT)
@pytest.mark.parametrize(("text", "rows"), [(WIDE, (2, 3, -1)), (SHORT, (2, 5, -1))], ids=["wide", "long"])
def test_output_of_the_program_anywhere_makes_no_wrong_number_and_loses_none_in_silence(
    text: str, rows: tuple[int, ...], output: str
) -> None:
    """In the units, in the first, a middle and the last row."""
    lines = text.splitlines(keepends=True)
    places = [(row, at) for row in rows for at in range(len(lines[row]) + 1)]
    for row, at in places:
        around = lines[row][max(0, at - 20) : at]
        changed = lines[row][:at] + output + lines[row][at:]
        launches, damage = read("".join([*lines[:row], changed, *lines[row:][1:]]))
        assert all(is_right(launch) for launch in launches), (at, around)
        lost = sum(counted_quantities(launch).get("flops") == FLOPS for launch in launches) < 3
        said = damage.rows or damage.cut or any(launch.missing or not launch.whole for launch in launches)
        assert not lost or said or not launches, (at, around)


@pytest.mark.parametrize(("shape", "text"), [("wide", WIDE), ("long", LONG)])
@pytest.mark.parametrize("lacking", ["n/a", "", "nan", "1,04", "-1,234", "1e99", "²", "0x10", "1 234"])
def test_a_value_that_is_no_count_anywhere_is_missing(shape: str, text: str, lacking: str) -> None:
    for place in range(len(COLUMNS)):
        values = list(LAUNCHES[1][1])
        values[place] = lacking
        made = table if shape == "wide" else long_table
        launches, _ = read(made(COLUMNS, LAUNCHES[0], (LAUNCHES[1][0], tuple(values)), LAUNCHES[2]))
        assert all(is_right(launch) for launch in launches)
        names = list(COLUMNS)
        assert launches[1].missing == {names[place]} and not launches[0].missing and not launches[2].missing
        counts = names[place] not in ("dram__bytes.sum", "gpu__time_duration.sum")
        assert [counted_quantities(launch).get("flops") for launch in launches] == [
            FLOPS,
            None if counts else FLOPS,
            FLOPS,
        ]


def test_a_table_that_was_cut_is_an_incomplete_run(tmp_path: Path) -> None:
    text = (NCU / "small.csv").read_text()
    name = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
    fields = text.splitlines()[-1].split('","')
    place = text[text.index('"ID"') :].splitlines()[0].split('","').index(name)
    cut = '","'.join(fields[:place]) + '","' + fields[place][:5]
    whole = rows_of(imported(tmp_path, text))
    run = imported(tmp_path, "\n".join([*text.splitlines()[:-1], cut]))
    assert rows_of(run) == whole[:-1] and run.info.status == "incomplete"
    assert "the table ends in the middle of a row: left out" in run.info.notes


def test_a_log_that_was_cut_is_said_where_ncu_ran_as_a_probe(tmp_path: Path) -> None:
    settings = NcuSettings(program=stand_in(tmp_path, WIDE[:-20]))
    found = count_kernels(["python", "step.py"], b"", find_chip(9, 0), str, settings=settings)
    assert [launch.metrics["flops:counted"] for launch in found.launches] == [FLOPS] * 2
    assert "the table ends in the middle of a row: left out" in found.notes


def test_every_shape_that_was_recorded_is_whole() -> None:
    for name in ("raw", "from_rep", "details", "mixed", "small", "stalls"):
        damage = Damage()
        with open(NCU / f"{name}.csv", encoding="utf-8", newline="") as file:
            assert len(list(read_launches(file, damage))) >= 3
        assert damage == Damage(), name


def test_a_row_that_is_lost_between_others_is_counted(tmp_path: Path) -> None:
    lines = WIDE.splitlines(keepends=True)
    lines[4] = lines[4].replace('"1,048,576"', '"1,048,576"5')
    run = imported(tmp_path, "".join(lines))
    assert len(run.spans) == 2 and run.info.status == "complete"
    assert "1 rows of the table cannot be read: left out" in run.info.notes
    assert "launches are missing from the table: 1" in run.info.notes


def test_advice_of_ncus_with_quotes_and_new_lines_in_it_is_no_damage() -> None:
    first = next(line for line in LONG.splitlines() if line.startswith('"0",'))
    start = '","'.join(first.split('","')[:11])
    advice = f'{start}","Section","","","","Rule","OPT","say "this"\nor that","",""\n'
    launches, damage = read(LONG + advice)
    assert damage == Damage() and [counted_quantities(launch)["flops"] for launch in launches] == [FLOPS] * 3


# ---- several tables, numbers of launches ------------------------------------------------------------------------


@pytest.mark.parametrize("made", [table, long_table])
def test_tables_behind_one_another_keep_their_launches(made: Callable[..., str], tmp_path: Path) -> None:
    run = imported(tmp_path, made(COLUMNS, LAUNCHES[0]) + made(COLUMNS, LAUNCHES[1], LAUNCHES[2]))
    assert [row["flops:counted"] for row in rows_of(run)] == [FLOPS] * 3
    assert not any("missing" in note for note in run.info.notes)


def test_launches_of_two_processes_with_one_number_are_two() -> None:
    one, other = (long_table(COLUMNS, LAUNCHES[0], process=process) for process in ("1", "2"))
    launches, _ = read(one + "".join(other.splitlines(keepends=True)[2:]))
    assert [launch.process for launch in launches] == ["1", "2"]
    assert [counted_quantities(launch)["flops"] for launch in launches] == [FLOPS] * 2


@pytest.mark.parametrize("number", ["²", "\u0663", "12345678901", "-1", "0x1"])
def test_a_number_of_a_launch_that_is_none_is_a_row_that_cannot_be_read(number: str, tmp_path: Path) -> None:
    run = imported(tmp_path, WIDE.replace('"2","1"', f'"{number}","1"'))
    assert len(run.spans) == 2 and "1 rows of the table cannot be read: left out" in run.info.notes


def test_a_gap_of_any_size_is_counted_without_walking_through_it(tmp_path: Path) -> None:
    run = imported(tmp_path, WIDE.replace('"2","1"', '"999999999","1"'))
    assert "launches are missing from the table: 2, 3, 4, 5, 6 and 999,999,992 more" in run.info.notes
    assert len(run.spans) == 3


def test_a_unit_that_nobody_knows_leaves_the_value_missing() -> None:
    launches, _ = read(WIDE.replace('"Mbyte"', '"sector"').replace('"us"', '"fortnight"'))
    assert all(launch.missing == {"dram__bytes.sum", "gpu__time_duration.sum"} for launch in launches)
    scaled = table({name: {"inst": "Kinst"}.get(unit, unit) for name, unit in COLUMNS.items()}, *LAUNCHES)
    assert counted_quantities(read(scaled)[0][0])["flops_single"] == 1000 * (FLOPS - 1_048_576)


@pytest.mark.parametrize("damaged", [lambda line: "", lambda line: line.replace('"",', "", 1), lambda line: line[:-9]])
def test_a_wide_table_without_its_units_is_one_line(damaged: Callable[[str], str], tmp_path: Path) -> None:
    lines = WIDE.splitlines(keepends=True)
    lines[2] = damaged(lines[2])
    with pytest.raises(SondaError, match="row of units under the heading"):
        imported(tmp_path, "".join(lines))


# ---- packed files -----------------------------------------------------------------------------------------------


def test_a_packed_table_is_read_and_one_that_was_cut_is_incomplete(tmp_path: Path) -> None:
    path = tmp_path / "launches.csv.gz"
    packed = gzip.compress(table(COLUMNS, *LAUNCHES * 200).encode())
    whole = []
    for data in (packed, packed[: len(packed) // 2], packed[:-6]):
        path.write_bytes(data)
        run = import_files([path], tmp_path / "runs")
        found = [row["flops:counted"] for row in rows_of(run)]
        whole.append((run.info.status, len(found)))
        assert set(found) == {float(FLOPS)}
    assert whole[0] == ("complete", 600) and whole[1][0] == whole[2][0] == "incomplete" and 0 < whole[1][1] < 600


@pytest.mark.parametrize(("name", "head"), [("t.sqlite", b"SQLite format 3\0"), ("r.bin", b"NVR\0 constructed")])
def test_what_is_no_text_is_not_read_packed(name: str, head: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.gz"
    path.write_bytes(gzip.compress(head))
    with pytest.raises(SondaError, match=rf"{path.name}: .* not read packed; unpack it: gunzip {path.name}"):
        import_files([path], tmp_path / "runs")
