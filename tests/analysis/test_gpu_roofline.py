"""The roofline on a GPU, by hand: 50 TFLOP/s in float32, 400 in TF32, DRAM 4 TB/s, 40 MB of L2 at 8 TB/s."""

from __future__ import annotations

import numpy as np
import pytest

from builders import RunBuilder, with_spans
from charts import across, name_of, series_of, upright
from gpu_roofline_cases import ENTRY, FIGURE, MACHINE, gpu_run
from plain_runs import change_target, machine_of
from sonda.analysis.device.kernel_roofline import device_roofs, kernel_roofs
from sonda.analysis.device.kernels import KernelTotals
from sonda.analysis.doubts import HeldAgainstTf32
from sonda.analysis.roofline import ceilings, gpu_of, lines, tf32_of
from sonda.analysis.run_summary import summarise
from sonda.report.blocks import Detail
from sonda.report.charts.svg import standalone
from sonda.report.markup import figure_html
from sonda.report.section import section_of
from sonda.report.views.device.roofline import kernel_caption, kernel_roof_fields, kernel_roof_table, kernel_roofline
from sonda.report.views.steps.view import StepsView

MS = 1_000_000


def on(device="cuda:0", precision="float32", tf32=None, machine=MACHINE):
    return ceilings(machine_of(machine), 4, precision, device, tf32)


def test_a_gpu_has_its_own_ceilings():
    found, reason = on()
    assert reason == ""
    assert (found.flops, found.dram_bandwidth, found.cache_bandwidth) == (50e12, 4e12, 8e12)
    assert (found.device, found.threads, found.operation_ns) == ("cuda:0", 0, 5000.0)
    assert on("cuda")[0] == found


def test_missing_ceilings_of_a_gpu_have_a_reason():
    assert on(machine={}) == (None, "the GPU's ceilings were not measured")
    assert on("cuda:1") == (None, "no ceilings were measured on cuda:1")
    assert on(precision="float16") == (None, "no peak was measured for float16")


def test_bytes_that_fit_in_half_of_l2_come_from_there():
    # 20 MB at 8 TB/s take 2.5 µs, 40 MB at 4 TB/s 10 µs.
    _, memory, cached = on()[0].bounds(np.zeros(2), np.array([20e6, 40e6]))
    assert memory == pytest.approx([2500, 10000])
    assert cached.tolist() == [True, False]


@pytest.mark.parametrize(
    ("tf32", "product", "convolution"),
    [
        (None, 50e12, 50e12),
        ({"matmul": False, "convolution": False}, 50e12, 50e12),
        ({"matmul": False, "convolution": True}, 50e12, 400e12),
        ({"matmul": True, "convolution": True}, 400e12, 400e12),
        ({"matmul": True, "convolution": False}, 400e12, 50e12),
    ],
)
def test_float32_is_held_against_the_peak_of_the_unit_it_ran_on(tf32, product, convolution):
    arithmetic, _, _ = on(tf32=tf32)[0].bounds(np.full(2, 1e12), np.zeros(2), np.array([False, True]))
    assert arithmetic == pytest.approx([1e21 / product, 1e21 / convolution])


def test_a_gpu_without_tf32_computes_float32():
    older = {"ceilings": {"devices": {"cuda:0": {**ENTRY, "flops": {"float32": 10e12}}}}}
    found, _ = on(tf32={"matmul": True, "convolution": True}, machine=older)
    assert (found.precision, found.flops, found.convolution_flops) == ("float32", 10e12, 0.0)


def layers(run):
    return {row.path: row.cost for row in summarise(run).parts[0].layers}


def test_percent_of_roof_of_a_driven_workload():
    found = layers(gpu_run())
    # float32 means float32: 0.8 of 1 ms; 0.3 of 0.5 ms; both of 2 ms.
    assert found["conv"].roof.value == pytest.approx(0.8)
    assert found["conv"].bound == "compute"
    assert found["add"].roof.value == pytest.approx(0.6)
    assert found["add"].bound == "memory"
    assert found[""].roof.value == pytest.approx(1.1 / 2)
    assert found["conv"].achieved.value == pytest.approx(40e12)


@pytest.mark.parametrize(("phases", "bound"), [(("forward", "backward"), "overhead"), (("fused",), "")])
def test_operations_of_a_compiled_function_are_not_launched_one_by_one(phases, bound):
    """A training of 100 small operations in 1 ms: at 9 µs each they explain it, unless they are of one function."""
    builder = RunBuilder()
    part = builder.part("train")
    counted = builder.step(part, 2, {"forward": 1, "backward": 1}, pass_="count")
    for number in range(100):
        builder.op(counted["forward" if number % 2 else "backward"], "add", 1e3, 1e3)
    for _ in range(8):
        builder.step(part, 1, dict.fromkeys(phases, 1 / len(phases)))
    run = with_spans(builder.spans(), target={"spec": "cuda:0", "device": "cuda", "threads": 4}, machine=MACHINE,
                     workload={"name": "net", "train": True})  # fmt: skip
    found = {row.name: row.cost.bound for row in summarise(run).parts[0].phases}
    assert found[phases[0]] == bound


def test_a_programs_convolutions_are_taken_for_tf32_and_said_so():
    run = gpu_run(target={"device": "cuda", "devices": {"cuda:0": {"name": "NVIDIA H200"}}},
                  workload={"command": ["python", "train.py"]})  # fmt: skip
    assert layers(run)["conv"].roof.value == pytest.approx(0.1)
    assert HeldAgainstTf32(products=False, convolutions=True, assumed=True) in summarise(run).notes


def test_what_a_program_said_of_tf32_counts():
    said = {"device": "cuda", "devices": {"cuda:0": {}}, "tf32": {"matmul": True, "convolution": False}}
    run = gpu_run(target=said, workload={"command": ["python", "train.py"]})
    assert layers(run)["conv"].roof.value == pytest.approx(0.8)
    assert HeldAgainstTf32(products=True, convolutions=False, assumed=False) in summarise(run).notes


def test_a_run_names_its_gpu():
    assert gpu_of(gpu_run(target={"device": "cpu", "spec": "cpu"}).info) == ""
    assert gpu_of(gpu_run(target={"device": "cuda", "spec": "cuda:1"}).info) == "cuda:1"
    assert gpu_of(gpu_run(target={"device": "cuda"}).info) == "cuda"
    assert tf32_of(gpu_run().info) is None


def test_theoretical_roofs_are_drawn_after_the_measured():
    drawn = lines(summarise(gpu_run()).ceilings)
    assert [(name, value.value, value.source) for name, value in drawn] == [
        ("float32 peak", 50e12, "measured"),
        ("DRAM", 4e12, "measured"),
        ("L2 cache", 8e12, "measured"),
        ("float32 peak in theory", 62.5e12, "published"),
        ("DRAM in theory", 5e12, "published"),
    ]


def recorded(**info):
    """The same with one step whose kernels were recorded: a product of 1 ms, counted, under the convolution."""
    run = gpu_run(**info)
    builder = RunBuilder()
    part = builder.part("test")
    builder.step(part, 2, {"forward": 2})
    rows = builder.step(part, 2, {"forward": 2}, pass_="kernels")
    conv = builder.layer(builder.layer(rows["forward"], "", "Net", 2), "conv", "Conv2d", 1)
    counts = {"flops": 2e11, "flops_tensor_tf32": 2e11, "dram_bytes": 8e8, "l2_bytes": 3.2e9}
    builder.add("kernel", "gemm<128>", conv, builder.rows[conv]["start"], MS, pass_="kernels",
                metrics={f"{name}:counted": amount for name, amount in counts.items()})  # fmt: skip
    change_target(run, devices={"cuda:0": {"name": "NVIDIA H200"}})
    run.spans = builder.spans()
    return run


def test_a_run_with_counted_kernels_shows_them_under_their_roofs():
    summary = summarise(recorded())
    (row,) = summary.kernel_roofline.rows
    assert (row.name, row.precision, row.roof.value) == ("gemm<128>", "tf32", pytest.approx(0.5))
    screen = StepsView(summary).text(160, color=False, detail=Detail.ALL)
    assert "% of theory" in screen and "tf32" in screen
    section = section_of(StepsView(summary), 0, True)
    assert "Kernels against the roofline" in section.html and "gemm&lt;128&gt;" in section.html
    assert StepsView(summary).document()["device"]["kernel_roofline"][0]["roof"]["value"] == pytest.approx(0.5)


def kernel(name, mean, launches=2, counted=1, **amounts):
    """`mean` ns a launch; `amounts` per launch, counted in `counted` of the launches."""
    metrics = {f"{quantity}:counted": counted * amount for quantity, amount in amounts.items()}
    return KernelTotals(name, "kernel", launches, mean * launches, metrics=metrics,
                        counted=dict.fromkeys(metrics, counted))  # fmt: skip


KERNELS = (
    # 2e11 FLOP at 400 TFLOP/s take 0.5 ms, 8e8 B of DRAM 0.2 ms, 3.2e9 B of L2 0.4 ms; it took 1 ms.
    kernel("gemm", MS, flops=2e11, flops_single=0, flops_tensor_tf32=2e11, dram_bytes=8e8, l2_bytes=3.2e9),
    # 1e8 FLOP take 2 µs; read and written apart: 1.2e9 B take 0.3 ms of 0.4 ms.
    kernel("add", 4 * MS // 10, flops=1e8, flops_single=1e8, dram_read_bytes=8e8, dram_write_bytes=4e8),
    # 2.4e9 B of L2 take 0.3 ms of 0.4; no byte from DRAM.
    kernel("cached", 4 * MS // 10, counted=2, flops=1e8, flops_single=1e8, dram_bytes=0, l2_bytes=2.4e9),
    kernel("uncounted", MS),
)


def kernels():
    return {row.name: row for row in kernel_roofs(KERNELS, device_roofs(machine_of(MACHINE), "cuda:0"), "float32")}


def test_a_kernel_is_held_against_the_precision_it_ran_in():
    gemm = kernels()["gemm"]
    assert gemm.precision == "tf32"
    assert gemm.achieved.value == pytest.approx(200e12)
    assert gemm.peak.value == pytest.approx(0.5)
    assert gemm.theory.value == pytest.approx(0.4)
    assert gemm.bandwidth["DRAM"].value == pytest.approx(0.2)
    assert gemm.bandwidth["L2"].value == pytest.approx(0.4)
    assert (gemm.roof.value, gemm.bound) == (pytest.approx(0.5), "compute")
    assert gemm.intensity("DRAM") == pytest.approx(250) and gemm.intensity("L2") == pytest.approx(62.5)


def test_each_memory_level_can_be_the_bound():
    found = kernels()
    assert (found["add"].roof.value, found["add"].bound) == (pytest.approx(0.75), "DRAM")
    assert (found["cached"].roof.value, found["cached"].bound) == (pytest.approx(0.75), "L2")
    assert found["cached"].intensity("DRAM") is None
    assert "uncounted" not in found


def test_tensor_work_without_a_type_is_that_of_the_run():
    roofs = device_roofs(machine_of(MACHINE), "cuda:0")
    whole = [kernel("gemm", MS, flops_tensor=2e11)]
    assert kernel_roofs(whole, roofs, "float32")[0].precision == "tf32"
    assert kernel_roofs(whole, roofs, "bf16")[0].peak.value == pytest.approx(2e11 / 800e12 * 1e3)


def test_float64_is_held_against_the_unit_that_computed_it():
    """An H200: 33.5 TFLOP/s on its cores, 66.9 on tensor cores. 30 GFLOP in 1 ms are 30 TFLOP/s."""
    entry = {**ENTRY, "flops": {**ENTRY["flops"], "float64": 60e12, "float64_cores": 32e12},
             "theory": {"card": "H200 SXM", "flops": {"float64": {"value": 66.9e12, **FIGURE},
                                                      "float64_cores": {"value": 33.5e12, **FIGURE}}}}  # fmt: skip
    roofs = device_roofs(machine_of({"ceilings": {"devices": {"cuda:0": entry}}}), "cuda:0")
    pair = [kernel("dfma", MS, flops_double=30e9), kernel("dgemm", MS, flops_tensor_fp64=30e9)]
    cores, tensor = kernel_roofs(pair, roofs, "float64")
    assert (cores.precision, tensor.precision) == ("float64_cores", "float64")
    assert cores.peak.value == cores.roof.value == pytest.approx(30 / 32)
    assert tensor.peak.value == pytest.approx(30 / 60)
    assert (cores.theory.value, tensor.theory.value) == (pytest.approx(30 / 33.5), pytest.approx(30 / 66.9))


@pytest.mark.parametrize(
    ("quantity", "precision"),
    [
        ("flops_double", "float64_cores"),
        ("flops_half", "float16_cores"),
        ("flops_tensor_fp6", "float6"),
        ("flops_tensor_fp4", "float4"),
    ],
)
def test_a_precision_without_a_peak_is_missing_with_the_reason(quantity, precision):
    (row,) = kernel_roofs([kernel("k", MS, **{quantity: 1e9})], device_roofs(machine_of(MACHINE), "cuda:0"), "float64")
    assert (row.precision, row.peak.value, row.peak.reason) == (
        precision, None, "no peak was measured for this precision")  # fmt: skip
    assert row.roof.value is None and row.achieved.value == pytest.approx(1e12)


def test_no_kernels_without_ceilings():
    assert device_roofs(machine_of({}), "cuda:0") is None
    assert device_roofs(machine_of(MACHINE), "cuda:1") is None
    assert kernel_roofs(KERNELS, None, "float32") == ()


def test_the_table_has_percent_of_peak_and_of_roof():
    table = kernel_roof_table(list(kernels().values()))
    heads = [column.name for column in table.columns]
    gemm = dict(zip(heads, (cell.text for cell in table.rows[0]), strict=True))
    assert (gemm["precision"], gemm["% of peak"], gemm["% of theory"]) == ("tf32", "50 %", "40 %")
    assert (gemm["% of DRAM"], gemm["% of L2"], gemm["% of roof"], gemm["bound"]) == ("20 %", "40 %", "50 %", "compute")
    added = dict(zip(heads, table.rows[1], strict=True))
    assert added["% of L2"].missing == "L2 bytes were not counted"


def test_measured_roofs_are_solid_and_theoretical_dashed():
    figure = kernel_roofline(list(kernels().values()), device_roofs(machine_of(MACHINE), "cuda:0"))
    roofs = {name_of(line): line for line in series_of(figure) if line.line}
    dashes = {name: line.line for name, line in roofs.items()}
    assert dashes == {
        "tf32 peak 400 TFLOP/s": "solid",
        "float32 peak 50.0 TFLOP/s": "solid",
        "DRAM 4.00 TB/s": "solid",
        "L2 8.00 TB/s": "solid",
        "tf32 peak in theory 500 TFLOP/s": "dash",
        "float32 peak in theory 62.5 TFLOP/s": "dash",
        "DRAM in theory 5.00 TB/s": "dash",
    }
    # A measured slope ends at the highest measured peak, a theoretical one at the highest theoretical.
    assert roofs["DRAM 4.00 TB/s"].points[1] == (pytest.approx(100), 400e12)
    assert upright(roofs["DRAM in theory 5.00 TB/s"])[-1] == 500e12


def test_kernels_stand_at_the_intensity_of_each_level():
    figure = kernel_roofline(list(kernels().values()), device_roofs(machine_of(MACHINE), "cuda:0"))
    marks = {series.name: series for series in series_of(figure) if series.symbols}
    assert across(marks["DRAM intensity, compute-bound"]) == pytest.approx([250])
    assert across(marks["L2 intensity, compute-bound"]) == pytest.approx([62.5])
    assert marks["L2 intensity, L2-bound"].symbols == ("diamond-open",)
    assert kernel_roofline([], device_roofs(machine_of(MACHINE), "cuda:0")) is None


def test_the_caption_tells_of_the_marks_and_lines_that_are_drawn():
    found, roofs = kernels(), device_roofs(machine_of(MACHINE), "cuda:0")
    said = {
        names: kernel_caption([found[name] for name in names], kernel_roofline([found[name] for name in names], roofs))
        for names in (("gemm",), ("add",), ("cached",))
    }
    lines = "Lines are ceilings (solid: measured, dashed: theoretical)."
    assert said["gemm",] == f"Each kernel filled by its bytes in DRAM, open by those in L2, as counted. {lines}"
    assert said["add",] == f"Each kernel by its bytes in DRAM, as counted. {lines}"  # no byte of L2 was counted
    assert said["cached",] == f"Each kernel by its bytes in L2, as counted. {lines}"  # none came from DRAM


def test_names_with_markup_do_not_reach_the_page():
    evil = [kernel("<script>alert(1)</script>", MS, flops=1e9, flops_single=1e9, dram_bytes=1e6)]
    rows = kernel_roofs(evil, device_roofs(machine_of(MACHINE), "cuda:0"), "float32")
    figure = kernel_roofline(rows, device_roofs(machine_of(MACHINE), "cuda:0"))
    assert "<script>alert" not in figure_html(figure, "roof", "") + standalone(figure)


def test_the_document_has_values_with_sources():
    (gemm, *_) = kernel_roof_fields(list(kernels().values()))
    assert gemm["peak"]["value"] == pytest.approx(0.5) and gemm["peak"]["source"] == "derived"
    assert gemm["bandwidth"]["L2"]["value"] == pytest.approx(0.4)
