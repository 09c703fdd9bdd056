"""Nsight Compute's tables: both shapes, exact counts, output in between, numbers that are not there."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

import pytest

from sonda.imports.ncu import files as ncu
from sonda.imports.ncu import tables as ncu_table
from sonda.imports.ncu.metrics import SCALAR_PEAK, counted_quantities, duration, peaks, roofs
from sonda.imports.ncu.tables import Launch, parse_number, read_launches
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.targets.imported.launcher import import_files
from trace_examples import GPU, table

NCU = GPU / "ncu"
LEADING = ",".join(f'"{name}"' for name in ncu_table.LEADING)
START = '"{}","1","python","host","{}","1","7","(1, 1, 1)","(1, 1, 1)","0","9.0"'
FADD, FMUL, FFMA = (f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum" for name in ("fadd", "fmul", "ffma"))
DADD, DMUL, DFMA = (f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum" for name in ("dadd", "dmul", "dfma"))


def wide(*rows: tuple[str, ...], metrics: tuple[str, ...] = (FADD, FMUL, FFMA), units: tuple[str, ...] = ()) -> str:
    """A table in the shape of --page raw."""
    head = LEADING + "".join(f',"{name}"' for name in metrics)
    unit = ",".join(['""'] * 11) + "".join(f',"{one}"' for one in units or ("inst",) * len(metrics))
    body = [
        START.format(number, f"k{number}") + "".join(f',"{value}"' for value in row) for number, row in enumerate(rows)
    ]
    return "\n".join([head, unit, *body]) + "\n"


def imported(folder: Path, text: str) -> Run:
    (folder / "launches.csv").write_text(text, encoding="utf-8")
    return import_files([folder / "launches.csv"], folder / "runs")


def flops(path: Path) -> list[int]:
    return [int(counted_quantities(launch)["flops"]) for launch in ncu.read_csv(path)]


def test_counted_flops_are_whole_numbers_that_theory_gives() -> None:
    """The six operations at 2048²: add is one FFMA an element, mul and scalar one FMUL, sigmoid 2 FADD + 7 FFMA."""
    found = flops(NCU / "raw.csv")
    elements = 2048**2
    assert found[0] == 2 * elements and found[1] == found[3] == elements and found[4] == 16 * elements
    assert 0 <= found[2] / (2 * 2048**3) - 1 < 0.01
    assert 13 * elements < found[5] < 15 * elements


def test_the_same_launches_printed_by_ncu_itself_and_from_its_report_agree() -> None:
    one, other = (list(ncu.read_csv(NCU / name)) for name in ("raw.csv", "from_rep.csv"))
    assert [launch.kernel for launch in one] == [launch.kernel for launch in other]
    assert [counted_quantities(launch) for launch in one] == [counted_quantities(launch) for launch in other]
    assert [duration(launch) for launch in one] == [12736, 12928, 343680, 9472, 10112, 10304]


def test_the_programs_output_between_the_rows_is_passed_over() -> None:
    found = flops(NCU / "mixed.csv")
    assert found[0] == 2 * 1024**2 and found[1] == 1024**2 and len(found) == 6


def test_the_long_shape_gives_a_launch_for_all_its_rows() -> None:
    found = list(ncu.read_csv(NCU / "details.csv"))
    assert [launch.number for launch in found] == list(range(6))
    assert found[0].values["Elapsed Cycles"] == 10_100 and duration(found[0]) == 5_120
    assert counted_quantities(found[0])["sm_clock"] == Decimal("1967895507.81")


def test_stalls_become_quantities(tmp_path: Path) -> None:
    rows = table(import_files([NCU / "stalls.csv"], tmp_path / "runs"))
    assert rows[0]["stall_long_scoreboard:counted"] == 82.14 and rows[0]["stall_drain:counted"] == 13.99
    assert all(row["kind"] == "kernel" for row in rows)
    assert "flops:counted" not in rows[0]


def test_a_metric_that_does_not_exist_leaves_flops_missing_and_says_so(tmp_path: Path) -> None:
    run = import_files([NCU / "unknown.txt"], tmp_path / "runs")
    assert len(run.spans) == 7 and "flops:counted" not in run.spans.metrics
    assert any("FLOPs are missing" in note for note in run.info.notes)


def test_a_row_that_output_ran_into_and_one_that_is_gone(tmp_path: Path) -> None:
    lines = wide(("1", "2", "3"), ("10", "20", "30"), ("5", "5", "5"), ("1", "1", "1")).splitlines()
    lines[3] = "loss = 0.5" + lines[3]
    lines[4] = '"a line", "of the program\'s"'
    run = imported(tmp_path, "\n".join(["==PROF== Connected", "epoch 1", *lines, "done"]) + "\n")
    assert [row["flops:counted"] for row in table(run)] == [9, 90, 4]
    assert any(note == "launches are missing from the table: 2" for note in run.info.notes)


@pytest.mark.parametrize("lacking", ["n/a", "", "nan", "no data", "3,5", "1.234,5"])
def test_a_number_that_is_not_there_is_missing_never_zero(lacking: str, tmp_path: Path) -> None:
    run = imported(tmp_path, wide(("1", "2", "3"), ("1", "2", lacking)))
    assert [row["flops:counted"] for row in table(run)] == [9, None]
    assert any(FFMA in note for note in run.info.notes)


BF16, FP8, INT8 = (f"sm__ops_path_tensor_src_{kind}.sum" for kind in ("bf16_dst_fp32", "fp8", "int8"))


@pytest.mark.parametrize("lacking", [FADD, FMUL, FFMA, DADD, DMUL, DFMA, BF16, FP8])
def test_one_count_that_is_missing_leaves_the_sum_of_all_precisions_missing(lacking: str, tmp_path: Path) -> None:
    """What is left of the sum would be a number, and a wrong one: 0 for a kernel that works in single precision."""
    values = {FADD: "100", FMUL: "10", FFMA: "1", DADD: "0", DMUL: "0", DFMA: "0", BF16: "7", FP8: "5"}
    run = imported(
        tmp_path,
        wide(tuple(values.values()), tuple({**values, lacking: "n/a"}.values()), metrics=tuple(values)),
    )
    assert [row["flops:counted"] for row in table(run)] == [124, None]
    second = {name.removesuffix(":counted"): value for name, value in table(run)[1].items() if "flops_" in name}
    whole = {"flops_single": 112.0, "flops_double": 0.0, "flops_tensor": 12.0, "flops_tensor_bf16": 7.0,
             "flops_tensor_fp8": 5.0}  # fmt: skip
    gone = {FADD: "single", FMUL: "single", FFMA: "single", BF16: "tensor", FP8: "tensor"}.get(lacking, "double")
    parts = {f"flops_{gone}"} | {
        f"flops_tensor_{kind}" for kind, name in (("bf16", BF16), ("fp8", FP8)) if name == lacking
    }
    assert second == {name: None if name in parts else value for name, value in whole.items()}
    assert any("FLOPs are missing" in note for note in run.info.notes)
    assert any(lacking in note for note in run.info.notes)


def test_integers_that_were_not_counted_are_no_part_of_flops() -> None:
    launch = next(read_launches(wide(("3", "n/a"), metrics=(BF16, INT8)).splitlines()))
    assert counted_quantities(launch) == {"flops_tensor_bf16": 3, "flops_tensor": 3, "flops": 3}


def test_a_share_of_the_peak_is_not_said_where_a_unit_was_not_counted() -> None:
    clock, lanes, tensor = "sm__cycles_elapsed.avg.per_second", SCALAR_PEAK.format("ffma"), f"{BF16}.peak_sustained"
    values = {FADD: "1", FMUL: "0", FFMA: "0", BF16: "n/a", lanes: "10", tensor: "80", clock: "1,000,000,000",
              "gpu__time_duration.sum": "100"}  # fmt: skip
    units = tuple("ns" if "time" in name else "" for name in values)
    launch = next(read_launches(wide(tuple(values.values()), metrics=tuple(values), units=units).splitlines()))
    assert "flops_roof" not in roofs(launch) and counted_quantities(launch)["flops_single"] == 1


def test_units_are_brought_to_one_and_whole_counts_stay_whole(tmp_path: Path) -> None:
    text = wide(
        ("1.5", "2.25", "9,007,199,254,740,991", "0", "0"),
        metrics=("gpu__time_duration.sum", "dram__bytes_read.sum", FADD, FMUL, FFMA),
        units=("us", "Mbyte", "inst", "inst", "inst"),
    )
    row = table(imported(tmp_path, text))[0]
    assert row["duration"] == 1500 and row["dram_read_bytes:counted"] == 2_250_000
    assert int(row["flops:counted"]) == 2**53 - 1


def test_tensor_operations_add_up_and_variants_of_them_do_not() -> None:
    names = ("sm__ops_path_tensor_src_bf16_dst_fp32.sum", "sm__ops_path_tensor_src_fp8.sum",
             "sm__ops_path_tensor_src_fp8_sparsity_on.sum", "sm__ops_path_tensor_src_fp8_realtime.sum",
             "sm__ops_path_tensor_op_hmma_src_fp16.sum")  # fmt: skip
    launch = next(read_launches(wide(("100", "10", "1", "2", "4"), metrics=names).splitlines()))
    assert counted_quantities(launch) == {
        "flops_tensor_bf16": 100,
        "flops_tensor_fp8": 10,
        "flops_tensor": 110,
        "flops": 110,
    }


def test_integers_on_tensor_cores_are_no_flops_and_accumulators_of_one_kind_add_up() -> None:
    names = ("sm__ops_path_tensor_src_fp16_dst_fp16.sum", "sm__ops_path_tensor_src_fp16_dst_fp32.sum",
             "sm__ops_path_tensor_src_int8.sum", "sm__ops_path_tensor_src_int4.sum")  # fmt: skip
    launch = next(read_launches(wide(("3", "4", "50", "60"), metrics=names).splitlines()))
    assert counted_quantities(launch) == {"flops_tensor_fp16": 7, "integer_tensor": 110, "flops_tensor": 7, "flops": 7}


def test_tensor_cores_of_an_h200_have_the_peaks_of_its_data_sheet() -> None:
    """As its ncu says them, at 1.98 GHz: twice the dense rate but in double precision, where no zeros are left out. The
    data sheet has 67 TFLOP/s in double precision, and 989 and 495 at 1.83 GHz in bf16 and TF32."""
    launch = Launch(0, "k", "", 0, 0, "", "")
    for kind, said in (("bf16_dst_fp32", 1_081_344), ("tf32_dst_fp32", 540_672), ("fp64", 33_792)):
        launch.values[f"sm__ops_path_tensor_src_{kind}.sum"] = Decimal(0)
        launch.values[f"sm__ops_path_tensor_src_{kind}.sum.peak_sustained"] = Decimal(said)
    launch.values["sm__cycles_elapsed.avg.per_second"] = Decimal(1_980_000_000)
    found = {name: float(value) / 1e12 for name, value in peaks(launch).items()}
    assert found["flops_tensor_fp64"] == pytest.approx(67, rel=0.005)
    assert found["flops_tensor_bf16"] == pytest.approx(989 * 1.98 / 1.83, rel=0.005)
    assert found["flops_tensor_tf32"] == pytest.approx(495 * 1.98 / 1.83, rel=0.005)
    # A V100 has no structured zeros: 1,024 FLOP a cycle on each of 80 multiprocessors.
    volta = Launch(0, "k", "", 0, 0, "", "", capability="7.0")
    volta.values |= {f"sm__ops_path_tensor_src_fp16_dst_fp32.sum{end}": Decimal(value)
                     for end, value in (("", 0), (".peak_sustained", 81_920))}  # fmt: skip
    volta.values["sm__cycles_elapsed.avg.per_second"] = Decimal(1_530_000_000)
    assert float(peaks(volta)["flops_tensor_fp16"]) == pytest.approx(125e12, rel=0.005)


def test_a_launch_is_held_against_the_devices_own_peaks() -> None:
    """An invented device at 1 GHz: 100 ns of 10 FFMA lanes are 2,000 FLOP at most, of DRAM at 8 B a cycle 800 B."""
    names = {FADD: "100", FMUL: "0", FFMA: "700", "gpu__time_duration.sum": "100",
             "sm__cycles_elapsed.avg.per_second": "1,000,000,000",
             "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": "10",
             "sm__ops_path_tensor_src_bf16_dst_fp32.sum": "1,000",
             "sm__ops_path_tensor_src_bf16_dst_fp32.sum.peak_sustained": "80",
             "dram__bytes.sum": "200", "dram__bytes.sum.peak_sustained": "8",
             "dram__cycles_elapsed.avg.per_second": "1,000,000,000"}  # fmt: skip
    units = tuple({"gpu__time_duration.sum": "ns", "dram__bytes.sum": "byte"}.get(name, "") for name in names)
    launch = next(read_launches(wide(tuple(names.values()), metrics=tuple(names), units=units).splitlines()))
    assert peaks(launch) == {"dram_bytes": 8 * 10**9, "flops_single": 20 * 10**9, "flops_tensor_bf16": 40 * 10**9}
    assert roofs(launch) == {"flops_roof": Decimal("0.75"), "dram_roof": Decimal("0.25")}
    del launch.values["gpu__time_duration.sum"]
    assert roofs(launch) == {}


@pytest.mark.parametrize(
    ("text", "number"),
    [("4,194,304.00", 4194304), ("0", 0), ("1e3", 1000), ("-5", -5), ("1,23", None), ("n/a", None), ("12a", None),
     ("(1, 2)", None), ("1,0000", None)],
)  # fmt: skip
def test_numbers(text: str, number: int | None) -> None:
    assert parse_number(text) == number


@pytest.mark.parametrize(
    "text",
    ["==ERROR== ERR_NVGPUCTRPERM - no permission\n", f"==PROF== x\n{LEADING}\n", '"ID","Kernel Name"\n"0","k"\n'],
)
def test_a_table_without_a_launch_says_why(text: str, tmp_path: Path) -> None:
    with pytest.raises(SondaError, match=r"launches.csv: .*(ERR_NVGPUCTRPERM|no launch|no column)"):
        imported(tmp_path, text)


def test_a_kernels_name_with_markup_is_kept_as_it_is(tmp_path: Path) -> None:
    text = wide(("1", "1", "1")).replace("k0", "<b>[red]\x1b[31mk</b>")
    assert table(imported(tmp_path, text))[0]["name"] == "<b>[red]\x1b[31mk</b>"


# ---- reports ----------------------------------------------------------------------------------------------------


def report(folder: Path) -> Path:
    (folder / "a.ncu-rep").write_bytes(b"NVR\x00 constructed")
    return folder / "a.ncu-rep"


def test_a_report_is_read_by_ncu_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Constructed: a program named ncu that prints what the real one printed for this report."""
    program = tmp_path / "ncu"
    program.write_text(f'#!/bin/sh\n[ "$1" = -i ] && cat "{NCU / "from_rep.csv"}"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    rows = table(import_files([report(tmp_path)], tmp_path / "runs"))
    assert rows[0]["flops:counted"] == 2 * 2048**2 and len(rows) == 6
    program.write_text("#!/bin/sh\necho '==ERROR== too old' >&2; exit 1\n")
    with pytest.raises(SondaError, match="too old"):
        import_files([report(tmp_path)], tmp_path / "runs")


def test_a_report_without_a_reader_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ncu_report.py").write_text("raise ImportError")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(SondaError, match="pip install ncu-report"):
        import_files([report(tmp_path)], tmp_path / "runs")


MODULE = f"""
class Metric:
    def __init__(self, value, unit):
        self.value, self.unit = lambda: value, lambda: unit

class Action:
    metrics = {{"{FADD}": Metric(3, "inst"), "{FMUL}": Metric(4, "inst"), "{FFMA}": Metric(2**40 + 1, "inst"),
               "gpu__time_duration.sum": Metric(1234.0, "ns"), "launch__device_id": Metric(1, ""),
               "launch__kernel_name": Metric("k", "")}}
    def name(self):
        return "k"
    def metric_names(self):
        return list(self.metrics)
    def metric_by_name(self, name):
        return self.metrics[name]

def load_report(path):
    if "bad" in path:
        raise RuntimeError("cannot open it")
    return [[Action()]]
"""


def test_a_report_is_read_by_ncu_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Constructed: a module with the interface of NVIDIA's."""
    (tmp_path / "ncu_report.py").write_text(MODULE)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    path = report(tmp_path)
    row = table(import_files([path], tmp_path / "runs"))[0]
    assert int(row["flops:counted"]) == 7 + 2 * (2**40 + 1)
    assert row["duration"] == 1234 and row["device"] == "cuda:1"
    large = MODULE.replace('"launch__device_id": Metric(1, ', '"launch__stream_id": Metric(2**40 + 5, ')
    (tmp_path / "ncu_report.py").write_text(large)
    row = table(import_files([path], tmp_path / "runs"))[0]
    assert row["stream"] == 0 and row["device"] == "cuda:0" and row["duration"] == 1234
    with pytest.raises(SondaError, match="ncu_report can read: cannot open it"):
        import_files([path.rename(tmp_path / "bad.ncu-rep")], tmp_path / "runs")
