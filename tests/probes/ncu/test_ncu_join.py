"""Counted launches meet the kernels of a run: by order, by name, and where they differ without a wrong number."""

from __future__ import annotations

import csv
import gzip
import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import RunBuilder
from ncu_examples import ADD, ADDED
from sonda.probes.ncu.join import join_counts, kernel_rows
from sonda.probes.ncu.kernel_names import align_names, demangle, function_name, name_outline
from sonda.probes.ncu.replay import CountedKernels, CountedLaunch
from sonda.record.spans import Spans
from trace_examples import GPU, KINETO

FLOPS = "flops:counted"


def counted(*names: str, process: str = "1", flops: int = 100) -> CountedKernels:
    """Launches with 101, 102, ... FLOPs."""
    return CountedKernels(
        tuple(
            CountedLaunch(name, process, 0, 7, "", "", 10, {FLOPS: flops + number})
            for number, name in enumerate(names, 1)
        ),
        (),
    )


def run(*steps: list[str], latencies: list[float] | None = None) -> Spans:
    """Steps of the pass `kernels`, each with a layer that launched these kernels; a timed step before them."""
    builder = RunBuilder()
    part = builder.part("train")
    builder.add("kernel", "timed", builder.step(part, 1)["step"], 5, 10)
    for names in steps:
        step = builder.step(part, 1, {"forward": 1}, pass_="kernels")
        layer = builder.layer(step["forward"], "fc", "Linear", 1)
        for number, name in enumerate(names):
            late = {"launch_latency:measured": latencies[number]} if latencies else None
            builder.add("kernel", name, layer, builder.rows[step["step"]]["start"] + 100 * number, 10,
                        pass_="kernels", metrics=late)  # fmt: skip
        builder.clock += 1000
    return builder.spans()


def flops(spans: Spans, name: str = "kernel") -> list[float | None]:
    rows = np.flatnonzero(spans.where(kind=name))
    return [None if np.isnan(value) else float(value) for value in spans.metric("flops", "counted")[rows]]


def test_counts_go_onto_the_first_step_of_the_pass_in_the_order_of_launches() -> None:
    spans, notes = join_counts(run(["a", "b"], ["a", "b"]), counted("a", "b"))
    assert flops(spans) == [None, 101, 102, None, None] and notes == []
    assert spans.metrics.keys() == {FLOPS}


def test_launches_of_every_rank_go_onto_its_own_kernels() -> None:
    """Two ranks launched the same kernels; processes 30 and 20 are ranks 0 and 1, and the agent launched one too."""
    spans = run(["a", "b"], ["a", "b"])
    second = np.flatnonzero(spans.where(kind="kernel"))[-2]
    rank = spans.number("rank")
    rank[spans.number("start") >= spans.number("start")[second]] = 1
    both = CountedKernels(
        (*counted("a", "b", process="20", flops=200).launches, *counted("b", process="9").launches,
         *counted("a", "b", process="30").launches), (),
    )  # fmt: skip
    joined, notes = join_counts(spans, both, {"30": 0, "20": 1})
    assert flops(joined) == [None, 101, 102, 201, 202] and notes == []
    less, notes = join_counts(spans, counted("a", "b", process="30"), {"30": 0, "20": 1})
    assert flops(less) == [None, 101, 102, None, None]
    assert "2 are, 2 of 4 kernels and 0 of 2 counted launches are not" in notes[0]


def test_kernels_of_two_streams_are_taken_in_the_order_of_their_launches() -> None:
    """The second began at 100 and was launched at -50, before the first."""
    spans = run(["late", "early"], latencies=[20, 150])
    assert [spans.words("name").decoded()[row] for row in kernel_rows(spans)] == ["early", "late"]
    joined, notes = join_counts(spans, counted("early", "late"))
    assert flops(joined) == [None, 102, 101] and notes == []


def test_sequences_that_differ_are_aligned_and_the_rest_is_missing_and_counted() -> None:
    spans, notes = join_counts(run(["a", "tune", "b", "c"]), counted("a", "b", "other", "c"))
    assert flops(spans) == [None, 101, None, 102, 104]
    assert "3 are, 1 of 4 kernels and 1 of 4 counted launches are not" in notes[0]


def test_names_of_another_demangler_are_matched_by_outline() -> None:
    sigmoid = ("void at::native::vectorized_elementwise_kernel<4, at::native::sigmoid_kernel_cuda(at::"
               "TensorIteratorBase&)::{lambda()#2}::operator()() const::{lambda()#2}::operator()() const::"
               "{lambda(float)#1}, std::array<char*, 2ul> >(int, int)")  # fmt: skip
    theirs = [name for name in ncu_names() if "sigmoid" in name or "CUDAFunctor_add" in name]
    spans, notes = join_counts(run([ADDED, sigmoid]), counted(*theirs))
    assert flops(spans) == [None, 101, 102] and notes == []
    swapped, notes = join_counts(run([sigmoid, ADDED]), counted(*theirs))
    assert [value for value in flops(swapped) if value is not None] in ([101], [102]) and len(notes) == 1


def test_one_demangler_never_matches_two_kernels_of_one_function() -> None:
    """Both are element-wise; only whole names tell them apart."""
    other = ADDED.replace("CUDAFunctor_add", "CUDAFunctor_mul")
    spans, notes = join_counts(run([ADDED, other]), counted(ADDED, ADDED))
    assert flops(spans) == [None, 101, None] and len(notes) == 1


def test_other_processes_and_runs_without_kernels_are_said() -> None:
    two = CountedKernels(counted("a", "b").launches + counted("a", process="2").launches, ())
    spans, notes = join_counts(run(["a", "b"]), two)
    assert flops(spans) == [None, 101, 102] and notes == [
        "launches of other processes were counted too, and belong to no span of this one: 1"
    ]
    empty, notes = join_counts(run(), counted("a"))
    assert flops(empty) == [None] and "no kernel that counts could be put on" in notes[0]


def test_counts_that_a_column_cannot_hold_exactly_are_said() -> None:
    assert join_counts(run(["a"]), counted("a", flops=2**53 - 1))[1] == []
    assert join_counts(run(["a"]), counted("a", flops=2**53))[1] == ["counts above 2^53 are rounded"]


def test_kernels_outside_every_step_are_taken_as_they_are() -> None:
    builder = RunBuilder()
    builder.add("kernel", "a", -1, 5, 10, pass_="kernels")
    builder.add("collective", "b", -1, 9, 10, pass_="kernels")
    spans, notes = join_counts(builder.spans(), counted("a", "b"))
    assert flops(spans) == [101] and flops(spans, "collective") == [102] and notes == []


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=12))
def test_an_alignment_is_ordered_and_only_joins_equal_names(left: list[str], right: list[str]) -> None:
    pairs = align_names(left, right)
    assert all(left[one] == right[other] for one, other in pairs)
    for (one, other), (next_one, next_other) in pairwise(pairs):
        assert one < next_one and other < next_other
    if left == right:
        assert len(pairs) == len(left)


# ---- names ------------------------------------------------------------------------------------------------------


def ncu_names() -> list[str]:
    """As ncu demangled them on an H200."""
    lines = (GPU / "ncu" / "raw.csv").read_text().splitlines()
    return [row[4] for row in csv.reader(line for line in lines if line[:1] == '"') if row[0].isdigit()]


def kineto_names() -> set[str]:
    """As torch.profiler wrote them on the same H200."""
    found: set[str] = set()
    for name in ("mlp", "resnet18", "streams"):
        trace = json.loads(gzip.decompress((KINETO / f"{name}.json.gz").read_bytes()))
        found |= {event["name"] for event in trace["traceEvents"] if event.get("cat") == "kernel"}
    return found


def test_a_mangled_name_becomes_what_torch_profiler_wrote() -> None:
    assert demangle(ADD) == ADDED and ADDED in kineto_names()


@pytest.mark.parametrize("name", ["sm80_xmma_gemm_f32_5x", "_Zwrong", "", "void f<int>()", "_Z3<b>"])
def test_what_is_not_mangled_stays_as_it_is(name: str) -> None:
    assert demangle(name) == name


def test_two_demanglers_agree_on_the_outline() -> None:
    theirs = {name_outline(name) for name in kineto_names()}
    both = [name for name in ncu_names() if name_outline(name) in theirs]
    assert {"CUDAFunctor_add", "sigmoid_kernel_cuda", "cutlass_80_simt_sgemm_256x128_8x4_nn_align1"} <= {
        word for name in both for word in ("CUDAFunctor_add", "sigmoid_kernel_cuda",
                                           "cutlass_80_simt_sgemm_256x128_8x4_nn_align1") if word in name}  # fmt: skip
    assert len({name_outline(name) for name in ncu_names()}) == 6


def test_functions_are_bare_names() -> None:
    assert function_name(ADDED) == "vectorized_elementwise_kernel"
    assert function_name("void (anonymous namespace)::softmax_warp_forward<float, 4>(float*)") == "softmax_warp_forward"
    assert function_name("triton_poi_fused_add_0") == "triton_poi_fused_add_0"
    assert function_name("") == ""
