"""What counters of kernels mean: counted beside nominal FLOPs, kernels out of line, stalls in words; their tables."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from builders import MS, RunBuilder
from ncu_findings_cases import ELEMENTS, NCU, six_operations
from sonda.analysis.device.findings import CountedUnlikeNominal
from sonda.analysis.device.kernel_counters import (
    KernelCounters,
    counted_kernels,
    counted_places,
    summarise_kernel_counters,
    unlike_nominal,
)
from sonda.analysis.device.stalls import MENDABLE, NVPROF, nvprof_shares, stall_rows
from sonda.analysis.rules import judge
from sonda.analysis.rules.limit_findings import KernelStalled
from sonda.analysis.rules.limits.counted_flops import rule as counted_rule
from sonda.analysis.rules.limits.stalls import rule as stall_rule
from sonda.analysis.run_summary import summarise
from sonda.imports.ncu.files import read_csv
from sonda.imports.ncu.spans import launch_spans
from sonda.probes.ncu.outliers import find_outlying_launches
from sonda.record.quantities import STALLS
from sonda.record.spans import Spans
from sonda.report.markup import blocks_html
from sonda.report.screen import render
from sonda.report.views.device.counted import counted_blocks, counted_fields, titled_tables
from sonda.report.views.steps.verdict import evidence
from sonda.report.words import describe
from sonda.report.words.device import MENDS, WAITS, kernel_label


def launches(*rows: dict[str, float], names: tuple[str, ...] = ()) -> Spans:
    """Launches of 100 µs; `duration` is ns, other keys are quantities."""
    builder = RunBuilder()
    for number, row in enumerate(rows):
        metrics = {f"{key}:{'derived' if key.endswith('_roof') else 'counted'}": value for key, value in row.items()
                   if key != "duration"}  # fmt: skip
        name = names[number] if names else "k"
        builder.add("kernel", name, -1, number * MS, row.get("duration", 100_000), pass_="kernels", metrics=metrics)
    return builder.spans()


# ---- counted and nominal ----------------------------------------------------------------------------------------


def test_an_h200_counts_what_theory_says_beside_the_formulas() -> None:
    """add is a multiply-add (2), sigmoid 2 FADD + 7 FFMA (16) for a formula of 4, mul and scalar 1 each; a product has
    2,048 multiply-adds an element."""
    found = {place.path: place for place in counted_places(six_operations().spans())}
    assert list(found) == ["add", "mul", "dot", "scalar", "sigmoid", "tanh"]
    ratios = {path: place.ratio.value for path, place in found.items()}
    assert ratios["add"] == 2 and ratios["mul"] == ratios["scalar"] == 1 and ratios["sigmoid"] == 4
    assert ratios["dot"] == 4097 / 4096, "every element is multiplied by alpha"
    assert 13 < (ratios["tanh"] or 0) < 15
    assert found["sigmoid"].counted.value == 16 * ELEMENTS and found["sigmoid"].kernels == 1


def test_differences_are_found_the_largest_first() -> None:
    found = unlike_nominal(counted_places(six_operations().spans()))
    assert [(one.name, one.layer, one.places, one.ratio) for one in found] == [
        ("Tanh", True, 1, pytest.approx(14, abs=1)), ("Sigmoid", True, 1, 4.0), ("Add", True, 1, 2.0),
    ]  # fmt: skip


def test_layers_of_a_class_are_one_finding() -> None:
    builder = RunBuilder()
    part = builder.part("train")
    for pass_ in ("kernels", "count"):
        step = builder.step(part, 1, {"forward": 1}, pass_=pass_)
        for path in ("a", "b"):
            layer = builder.layer(step["forward"], path, "Conv2d", 0.1)
            if pass_ == "kernels":
                builder.add("kernel", "winograd", layer, 0, 10, pass_=pass_, metrics={"flops:counted": 450.0})
            else:
                builder.op(layer, "convolution", 1000, 100)
    assert unlike_nominal(counted_places(builder.spans())) == (CountedUnlikeNominal("Conv2d", True, 2, 900, 2000),)


def test_a_part_of_a_sum_is_no_sum() -> None:
    builder = six_operations()
    spans = builder.spans()
    kernels = [row for row, one in enumerate(builder.rows) if one["kind"] == "kernel"]
    extra = next(row for row, one in enumerate(builder.rows) if one["kind"] == "layer" and one["path"] == "sigmoid")
    builder.add("kernel", "second", extra, builder.rows[extra]["start"] + 5, 10, pass_="kernels")
    counts = next(row for row, one in enumerate(builder.rows) if one["kind"] == "op" and one["name"] == "add")
    builder.rows[counts]["metrics"]["flops:nominal"] = float("nan")
    found = {place.path: place for place in counted_places(builder.spans())}
    assert found["sigmoid"].counted.value is None
    assert found["sigmoid"].ratio.reason == "1 of 2 kernels were not counted"
    assert found["add"].ratio.reason == "1 of 1 operation without a formula"
    assert len(counted_kernels(spans)) == len(kernels)


def test_kernels_outside_layers_belong_to_their_phase_and_nothing_counted_is_nothing() -> None:
    builder = RunBuilder()
    step = builder.step(builder.part("train"), 1, {"optimizer": 1}, pass_="kernels")
    builder.add("kernel", "sgd", step["optimizer"], 0, 10, pass_="kernels", metrics={"flops:counted": 7.0})
    (place,) = counted_places(builder.spans())
    assert (place.name, place.layer, place.counted.value) == ("optimizer", False, 7)
    assert place.nominal.reason == "no operation of it was counted"
    builder.rows[-1]["metrics"] = {"bytes:counted": 3.0}
    assert summarise_kernel_counters(builder.spans()) is None


def test_kernels_have_sums_precisions_and_the_roof_they_are_nearest_to() -> None:
    one = {"flops": 30.0, "flops_single": 10.0, "flops_tensor_bf16": 20.0, "dram_read_bytes": 4.0,
           "dram_write_bytes": 1.0, "flops_roof": 0.2, "dram_roof": 0.8}  # fmt: skip
    (kernel,) = counted_kernels(launches(one, {**one, "dram_roof": 0.5, "duration": 300_000}))
    assert kernel.flops.value == 60 and kernel.precisions == {"single": 20, "tensor_bf16": 40}
    assert kernel.dram.value == 10 and kernel.intensity.value == 6
    assert kernel.nearest == "dram" and kernel.roof.value == pytest.approx((0.8 * 1 + 0.5 * 3) / 4)
    assert kernel.l2.reason == "not counted"


# ---- out of line ------------------------------------------------------------------------------------------------


def test_a_launch_below_half_of_every_roof_is_out_of_line() -> None:
    spans = launches({"flops": 1, "flops_roof": 0.49, "dram_roof": 0.3}, {"flops": 1, "flops_roof": 0.1,
                     "dram_roof": 0.5}, {"flops": 1}, names=("a", "b", "c"))  # fmt: skip
    (one,) = find_outlying_launches(spans)
    assert spans.words("name").decoded()[one.row] == "a"
    assert (one.roof, one.slowdown) == (0.49, None)


def test_without_peaks_a_launch_is_held_against_its_kin() -> None:
    usual = {"flops": 1000.0, "l2_bytes": 100.0}
    spans = launches(usual, usual, {**usual, "duration": 250_000}, {"flops": 2500.0, "l2_bytes": 250.0,
                     "duration": 250_000}, usual)  # fmt: skip
    (one,) = find_outlying_launches(spans)
    assert spans.number("start")[one.row] == 2 * MS
    assert (one.roof, one.slowdown) == (None, 2.5)
    assert find_outlying_launches(launches(usual, {**usual, "duration": 900_000})) == (), "two are no kin"


def test_more_flops_for_the_same_bytes_is_no_reason() -> None:
    """A product of larger matrices takes longer per byte and as long per FLOP."""
    spans = launches(*[{"flops": 1000.0, "dram_bytes": 100.0}] * 3, {"flops": 8000.0, "dram_bytes": 400.0,
                     "duration": 800_000})  # fmt: skip
    assert find_outlying_launches(spans) == ()


def test_what_takes_no_time_is_left_alone_and_few_kernels_are_asked() -> None:
    slow = {"flops": 1.0, "flops_roof": 0.1}
    short = launches({**slow, "duration": 10}, {"flops": 1, "flops_roof": 0.9}, names=("a", "b"))
    assert find_outlying_launches(short) == ()
    many = launches(*[{**slow, "duration": 1000 + number} for number in range(20)],
                    names=tuple(f"k{number}" for number in range(20)))  # fmt: skip
    named = [many.words("name").decoded()[one.row] for one in find_outlying_launches(many)]
    assert sorted(named) == sorted(f"k{number}" for number in range(8, 20))
    assert find_outlying_launches(launches({"flops": 1, "flops_roof": 0.1, "duration": 0})) == ()


def test_the_six_operations_of_a_real_device_have_no_kin_and_no_peaks_so_nothing_is_claimed() -> None:
    assert find_outlying_launches(launch_spans(read_csv(NCU / "raw.csv"))) == ()


# ---- stalls -----------------------------------------------------------------------------------------------------


def test_every_reason_has_a_meaning_and_a_place_among_nvprofs() -> None:
    assert set(WAITS) == set(STALLS) and set(MENDS) == MENDABLE
    placed = [reason for reasons in NVPROF.values() for reason in reasons]
    assert sorted(placed) == sorted(set(STALLS) - {"gmma", "selected"})


def test_stalls_under_nvprofs_names_add_up_reasons() -> None:
    found = nvprof_shares({"wait": 0.1, "short_scoreboard": 0.25, "long_scoreboard": 0.5, "drain": 0.05})
    assert found == {"stall_exec_dependency": 0.35, "stall_memory_dependency": 0.5, "stall_memory_throttle": 0.05}


def test_an_h200s_element_wise_kernels_wait_for_memory() -> None:
    rows = stall_rows(launch_spans(read_csv(NCU / "stalls.csv")))
    assert len(rows) == 6 and sum(row.share for row in rows) == pytest.approx(1)
    add = next(row for row in rows if "CUDAFunctor_add" in row.name)
    assert add.top == "long_scoreboard" and add.shares["long_scoreboard"] == pytest.approx(0.8214)
    assert add.wait is not None and add.remedy is not None
    assert describe(add.wait) == "warps wait 82 % of the time for data from memory (long_scoreboard)"
    assert "torch.compile" in describe(add.remedy)
    assert rows[0].name.startswith("void cutlass"), "the product takes longest"
    assert nvprof_shares(add.shares)["stall_memory_throttle"] == pytest.approx((2.42 + 13.99) / 100)


def test_stalls_of_launches_are_weighted_by_time_and_issuing_is_no_stall() -> None:
    spans = launches({"stall_wait": 10, "stall_selected": 60, "duration": 100_000}, {"stall_wait": 50,
                     "stall_selected": 60, "duration": 300_000}, {"flops": 1, "duration": 400_000})  # fmt: skip
    (row,) = stall_rows(spans)
    assert row.top == "wait" and row.shares["wait"] == pytest.approx(0.4)
    assert row.launches == 2 and row.share == pytest.approx(0.5)


def test_kernels_have_short_names_in_sentences() -> None:
    long = "void at::native::vectorized_elementwise_kernel<4, at::native::sigmoid_kernel_cuda(at::T&)>"
    assert kernel_label(long) == "vectorized_elementwise_kernel (sigmoid_kernel_cuda)"
    assert kernel_label("void (anonymous namespace)::softmax_warp_forward<float>(float*)") == "softmax_warp_forward"
    assert kernel_label("void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_tn_align1>(P)") == (
        "Kernel2 (cutlass_80_simt_sgemm_64x64_8x5_tn_align1)"
    )
    assert kernel_label("triton_poi_fused_add_0") == "triton_poi_fused_add_0"
    assert kernel_label("") == ""


# ---- verdicts and tables ----------------------------------------------------------------------------------------


def test_the_verdict_names_the_kernel_its_share_and_what_to_try() -> None:
    """The product takes longest and has enough to do; the others are too short: nothing to say."""
    builder = six_operations()
    assert stall_rule(summarise(builder.run())) is None
    for row in builder.rows:
        if row["kind"] == "kernel":
            row["duration"] = 90_000
    summary = summarise(builder.run())
    verdict = stall_rule(summary)
    assert verdict is None, "each takes 90 of 1,000 µs"
    row = next(row for row in builder.rows if "CUDAFunctor_add" in row["name"])
    row["duration"] = 100_000
    verdict = stall_rule(summarise(builder.run()))
    assert verdict is not None and verdict.kind == "memory" and verdict.share == pytest.approx(0.1)
    # No peak was asked for in the recorded table: what it waits for is known, whether that is too much is not.
    assert isinstance(verdict.finding, KernelStalled) and verdict.finding.roof is None
    assert verdict.finding.share.value == pytest.approx(0.1) and "CUDAFunctor_add" in verdict.finding.kernel
    assert describe(verdict.remedies[0].advice).startswith("fuse it")
    assert {stall_rule, counted_rule} <= set(judge.BUILT_IN)
    assert stall_rule(replace(summary, kernel_counters=None)) is None


def test_only_a_kernel_that_no_roof_explains_is_out_of_line() -> None:
    builder = six_operations()
    for row in builder.rows:
        if row["kind"] == "kernel":
            row["duration"] = 90_000
    add = next(row for row in builder.rows if "CUDAFunctor_add" in row["name"])
    add["duration"] = 100_000
    # At 99.8 % of the memory's bandwidth it waits for memory, as it must.
    add["metrics"] |= {"dram_roof:derived": 0.998, "flops_roof:derived": 0.01}
    assert stall_rule(summarise(builder.run())) is None
    add["metrics"]["dram_roof:derived"] = 0.38
    verdict = stall_rule(summarise(builder.run()))
    assert verdict is not None and verdict.evidence["roof"].value == pytest.approx(0.38)
    assert "long scoreboard <strong>82 %</strong>" in blocks_html([evidence(verdict)], ""), "a share, not a count"
    assert isinstance(verdict.finding, KernelStalled) and verdict.finding.roof == verdict.evidence["roof"]


def test_the_roof_of_stalled_launches_is_the_highest_of_each_weighted_by_time() -> None:
    spans = launches({"stall_wait": 10, "dram_roof": 0.2, "flops_roof": 0.6}, {"stall_wait": 50, "dram_roof": 0.4,
                     "duration": 300_000}, {"flops_roof": 1.0, "flops": 1, "duration": 400_000})  # fmt: skip
    (row,) = stall_rows(spans)
    assert row.roof == pytest.approx((0.6 * 1 + 0.4 * 3) / 4)


def test_more_arithmetic_than_needed_is_a_verdict_only_where_arithmetic_limits() -> None:
    builder = six_operations()
    summary = summarise(builder.run())
    assert counted_rule(summary) is None, "no peak is known"
    for row in builder.rows:
        if row["kind"] == "kernel":
            row["metrics"] |= {"flops_roof:derived": 0.9}
            row["duration"] = 100_000
    verdict = counted_rule(summarise(builder.run()))
    assert verdict is not None and verdict.evidence["nominal"].value == 6 * ELEMENTS
    assert verdict.share == pytest.approx(0.6 * 3 / 6), "three of six kernels that keep the device busy 0.6 of 1 ms"


def counters() -> KernelCounters:
    found = summarise_kernel_counters(six_operations().spans())
    assert found is not None
    return found


def test_tables_and_document_show_every_number() -> None:
    found = counters()
    text = render(counted_blocks(found, 10), 120, False)
    for part in (
        "CUDAFunctor_add",
        "sigmoid",
        "fp32",
        "4.0",
        "long_scoreboard 82 %",
        "Sigmoid counts 4.0 times",
        "long_scoreboard: warps wait for data from memory; try: fuse",
    ):
        assert part in text, part
    titles = ["Counted kernels", "Counted and nominal FLOPs", "What kernels wait for", "The same under nvprof's names"]
    assert [title for title, _ in titled_tables(found)] == titles
    document = json.loads(json.dumps(counted_fields(found)))
    assert document["places"][4]["ratio"]["value"] == 4 and len(document["kernels"]) == 6
    assert document["stalls"][0]["nvprof"].keys() == NVPROF.keys()


def test_names_with_markup_are_shown_as_text() -> None:
    spans = launches({"flops": 1, "stall_wait": 5}, names=("<b>[red]k\x1b[31m",))
    found = summarise_kernel_counters(spans)
    assert found is not None
    assert "\x1b[31m" not in render(counted_blocks(found, 5), 100, False)
