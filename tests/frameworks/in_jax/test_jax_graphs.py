"""Kernels of CUDA graphs by instruction: of two JAX programs recorded on an H200, and of small ones by hand."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from places import DATA
from sonda.frameworks.jax.profile import cuda_graphs as jax_graphs
from sonda.frameworks.jax.profile.cuda_graphs import name_by_instruction
from sonda.frameworks.jax.profile.hlo import Module, read_module
from sonda.frameworks.jax.profile.hlo_cost import executed_costs, instruction_cost, runs_nothing
from sonda.frameworks.jax.profile.operations import XlaOperation
from sonda.frameworks.jax.profile.places import program_places

RECORDED = DATA / "gpu" / "jax"
TF32_PEAK = 494.7e12
"""FLOP/s of an H200's tensor cores, dense (NVIDIA's data sheet)."""
SLOWEST = 50e12
"""FLOP/s that no large product stays below on tensor cores; a product held against another's kernel does."""


def read_recording(name: str) -> tuple[Module, list[XlaOperation], list[int]]:
    """The compiled function, the kernels of one call in order, and the number of each in its graph."""
    recording: dict[str, Any] = json.loads(gzip.decompress((RECORDED / f"{name}.json.gz").read_bytes()))
    kernels = [XlaOperation("jit", 1, name, start, end, graph=True) for name, start, end, _, _ in recording["kernels"]]
    return read_module(recording["text"]), kernels, [node for *_, node in recording["kernels"]]


def test_kernels_have_the_place_in_the_graph_that_their_instruction_has_in_the_call() -> None:
    """The call is one graph. A node that is no kernel of XLA's own is a graph by itself, whose nodes come last: so a
    kernel of XLA's has the number of instructions that ran before it."""
    module, kernels, nodes = read_recording("jax_mlp")
    order = [instruction.name for instruction in module.run_sequence(1000) or () if not runs_nothing(instruction)]
    named = name_by_instruction(kernels, module)
    assert len(order) == 23 and len(named) == 24  # one product clears memory first
    placed = [(kernel.name, node) for kernel, node in zip(named, nodes, strict=True) if node < len(order)]
    assert len(placed) == 15 and all(order[node] == name for name, node in placed)
    # Two of the same fusion run one kernel.
    assert [kernel.name for kernel in named if "tanh" in kernel.name] == ["wrapped_tanh", "wrapped_tanh.1"]
    assert [kernel.name for kernel in kernels if "tanh" in kernel.name] == ["wrapped_tanh"] * 2


@pytest.mark.parametrize("name", ["jax_mlp", "jax_scan"])
def test_every_kernel_is_told_and_every_product_takes_as_long_as_its_flops_need(name: str) -> None:
    module, kernels, _ = read_recording(name)
    lasted: dict[str, int] = {}
    for kernel in name_by_instruction(kernels, module):
        assert kernel.name in module.by_name
        lasted[kernel.name] = lasted.get(kernel.name, 0) + kernel.end - kernel.start
    products = [
        (cost.flops * times / lasted[instruction.name] * 1e9)
        for instruction, times, cost in executed_costs(module)
        if cost.operation == "dot" and cost.flops and times and cost.flops > 5e9
    ]
    assert len(products) == {"jax_mlp": 5, "jax_scan": 9}[name] and all(SLOWEST < rate < TF32_PEAK for rate in products)


def test_flops_and_bytes_of_a_scanned_transformer_on_a_gpu() -> None:
    """By hand, forward of a block of 16 x 256 x 512: 2·4096·512·(1536 + 512 + 2·2048) of weights, 2·2·16·256²·512 of
    attention; three times with backward, six blocks; what is counted beside products is below a hundredth."""
    module, _, _ = read_recording("jax_scan")
    products = 6 * 3 * (2 * 4096 * 512 * (1536 + 512 + 4096) + 4 * 16 * 256**2 * 512)
    costs = [(instruction, times, cost) for instruction, times, cost in executed_costs(module)]
    total = sum((cost.flops or 0) * (times or 1) for _, times, cost in costs)
    assert products < total < 1.01 * products
    # Into the array of all blocks a step writes its own block, and reads it elsewhere: 2 x 16·256·2048 floats.
    (saved,) = (cost for instruction, _, cost in costs if instruction.name == "fusion-start.3")
    assert saved.bytes == pytest.approx(2 * 16 * 256 * 2048 * 4, rel=1e-6)
    assert not [instruction for instruction, _, _ in costs if instruction.opcode.endswith("-done")]


def test_layers_of_the_scanned_transformer_have_its_time() -> None:
    """All but the optimizer's and what XLA does around the loop: arrays that it fills, counters."""
    module, kernels, _ = read_recording("jax_scan")
    places = program_places(module, "fused")
    lasted: dict[str, int] = {}
    for kernel in name_by_instruction(kernels, module):
        path = places.by_name[kernel.name].path if kernel.name in places.by_name else ""
        lasted[path] = lasted.get(path, 0) + kernel.end - kernel.start
    layers = sum(time for path, time in lasted.items() if path)
    assert set(lasted) == {"", "eval_jaxpr.attention", "eval_jaxpr.ffn", "loss:11"} and layers > 0.9 * sum(
        lasted.values()
    )


TEXT = """HloModule jit_f
ENTRY %main (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %custom-call.1 = f32[8]{0} custom-call(%a), custom_call_target="__cublas$gemm"
  %add_fusion = f32[8]{0} fusion(%custom-call.1), kind=kLoop, calls=%fused
  %custom-call.2 = f32[8]{0} custom-call(%add_fusion), custom_call_target="__cudnn$conv"
  %custom-call.3 = f32[8]{0} custom-call(%custom-call.2), custom_call_target="__cudnn$conv"
  ROOT %add_fusion.1 = f32[8]{0} fusion(%custom-call.3), kind=kLoop, calls=%fused
}
"""


def instructions_of(*kernels: str) -> list[str]:
    """The instruction of each kernel of a graph; its own name where nothing tells."""
    operations = [XlaOperation("jit_f", 1, name, 10 * at, 10 * at + 9, graph=True) for at, name in enumerate(kernels)]
    return [kernel.name for kernel in name_by_instruction(reversed(operations), read_module(TEXT))][::-1]


def test_kernels_of_libraries_belong_to_the_calls_between_what_xla_wrote() -> None:
    first = ["Memset", "sgemm", "split_k", "add_fusion"]
    named = ["custom-call.1"] * 3 + ["add_fusion"]
    # Two calls and two kernels.
    assert instructions_of(*first, "conv", "conv", "add_fusion") == [
        *named,
        "custom-call.2",
        "custom-call.3",
        "add_fusion.1",
    ]
    # Two calls and any other number: nothing tells where the first ends, nor what memory is cleared for.
    untold = ("turn", "conv", "Memset", "turn back")
    assert instructions_of(*first, *untold, "add_fusion") == [*named, *untold, "add_fusion.1"]
    assert instructions_of(*first, "conv", "add_fusion") == [*named, "conv", "add_fusion.1"]
    # Without a kernel of XLA's between them three calls are three kernels.
    assert instructions_of("first", "second", "third") == ["custom-call.1", "custom-call.2", "custom-call.3"]


def test_instructions_that_the_profile_names_stay_and_are_nobody_elses() -> None:
    module = read_module(TEXT)
    named = [XlaOperation("jit_f", 1, "add_fusion.1", 0, 5), XlaOperation("jit_f", 1, "custom-call.2", 6, 7)]
    assert name_by_instruction(named, module) == named
    in_graph = [
        XlaOperation("jit_f", 1, name, 10 + at, 11 + at, graph=True)
        for at, name in enumerate(("mm", "add_fusion", "conv"))
    ]
    names = [kernel.name for kernel in name_by_instruction([*named, *in_graph], module)]
    assert names == ["add_fusion.1", "custom-call.2", "custom-call.1", "add_fusion", "custom-call.3"]


def test_a_graph_of_xlas_own_kernels_is_told_by_order_too() -> None:
    """Both fusions run one kernel, which has the name of the first."""
    assert instructions_of("add_fusion", "add_fusion") == ["add_fusion", "add_fusion.1"]


def test_gpus_are_told_one_by_one() -> None:
    two = [
        XlaOperation("jit_f", 1, name, at, at + 1, 0, gpu, True)
        for gpu in (0, 1)
        for at, name in enumerate(("mm", "add_fusion"))
    ]
    assert [kernel.name for kernel in name_by_instruction(two, read_module(TEXT))] == [
        "custom-call.1",
        "add_fusion",
    ] * 2


def test_beyond_a_bound_kernels_are_told_by_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax_graphs, "MOST_CELLS", 1)
    assert instructions_of("sgemm", "add_fusion", "add_fusion_1") == ["sgemm", "add_fusion", "add_fusion.1"]


LOOP = """HloModule jit_f
%body (p: (s32[])) -> (s32[]) {
  %p = (s32[]) parameter(0)
  %inner_fusion = f32[8]{0} fusion(%p), kind=kLoop, calls=%fused
}
ENTRY %main (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %while.1 = (s32[]) while(%a), condition=%test, body=%bodyTRIPS
  ROOT %last = f32[8]{0} copy(%a)
}
"""


def test_a_sequence_has_what_a_loop_runs_as_often_as_it_runs() -> None:
    known = read_module(LOOP.replace("bodyTRIPS", 'body, backend_config={"known_trip_count":{"n":"3"}}'))
    names = [instruction.name for instruction in known.run_sequence(100) or () if instruction_cost(instruction, known)]
    assert names == ["inner_fusion"] * 3 + ["last"]
    assert known.run_sequence(3) is None and read_module(LOOP.replace("TRIPS", "")).run_sequence(100) is None
