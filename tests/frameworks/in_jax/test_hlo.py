"""What XLA made of a function, read from its text: instructions, calls in the source, costs, phases and layers."""

from __future__ import annotations

import pytest

from sonda.frameworks.harness.attribution import Place
from sonda.frameworks.jax.profile.hlo import Frame, Module, read_module
from sonda.frameworks.jax.profile.hlo_cost import executed_costs
from sonda.frameworks.jax.profile.places import InstructionPlaces, program_places, scope_names, source_calls

# Shortened from what JAX 0.10.2 made for a processor: a loop over two layers, and an update.
LOOP = """\
HloModule jit_step, is_scheduled=true, entry_computation_layout={(f32[2,8,8]{2,1,0})->f32[2,8,8]{2,1,0}}, num_partitions=2

FileNames
1 "/programs/train.py"
2 "/opt/venv/lib/python3.11/site-packages/library/layers.py"

FunctionNames
1 "<module>"
2 "main.<locals>.step"
3 "loss_of"
4 "Dense.__call__"

FileLocations
1 {file_name_id=1 function_name_id=1 line=40 end_line=40 column=9 end_column=25}
2 {file_name_id=1 function_name_id=2 line=18 end_line=18 column=11 end_column=50}
3 {file_name_id=1 function_name_id=3 line=12 end_line=12 column=6 end_column=23}
4 {file_name_id=2 function_name_id=4 line=7 end_line=7 column=4 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}
3 {file_location_id=3 parent_frame_id=3}
4 {file_location_id=4 parent_frame_id=4}

%body (p: (s32[], f32[4,8], f32[2,8,8])) -> (s32[], f32[4,8], f32[2,8,8]) {
  %p = (s32[], f32[4,8]{1,0}, f32[2,8,8]{2,1,0}) parameter(0)
  %x = f32[4,8]{1,0} get-tuple-element(%p), index=1
  %w = f32[8,8]{1,0} get-tuple-element(%p), index=2
  %dot.1 = f32[4,8]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(step)/jvp(dense)/while/body/dot_general" stack_frame_id=4}
  ROOT %tuple.1 = (s32[], f32[4,8]{1,0}, f32[2,8,8]{2,1,0}) tuple(%x, %dot.1, %w)
}

%cond (q: (s32[], f32[4,8], f32[2,8,8])) -> pred[] {
  %q = (s32[], f32[4,8]{1,0}, f32[2,8,8]{2,1,0}) parameter(0)
  ROOT %lt.1 = pred[] compare(%q, %q), direction=LT
}

ENTRY %main (weights.1: f32[2,8,8]) -> f32[2,8,8] {
  %weights.1 = f32[2,8,8]{2,1,0} parameter(0), metadata={op_name="weights"}
  %cast.1 = f32[4,8]{1,0} convert(%weights.1), metadata={op_name="jit(step)/convert_element_type" stack_frame_id=3}
  %while.1 = (s32[], f32[4,8]{1,0}, /*index=2*/f32[2,8,8]{2,1,0}) while(%cast.1), condition=%cond, body=%body, metadata={op_name="jit(step)/jvp(dense)/while" stack_frame_id=3}, backend_config={"known_trip_count":{"n":"2"}}
  %out.1 = f32[4,8]{1,0} get-tuple-element(%while.1), index=1
  %tanh.1 = f32[4,8]{1,0} tanh(%out.1), metadata={op_name="jit(step)/jvp()/tanh" stack_frame_id=3}
  %slope.1 = f32[2,8,8]{2,1,0} broadcast(%tanh.1), metadata={op_name="jit(step)/transpose(jvp(dense))/mul" stack_frame_id=3}
  %decay.1 = f32[2,8,8]{2,1,0} multiply(%weights.1, %weights.1), metadata={op_name="jit(step)/mul" stack_frame_id=2}
  ROOT %subtract.1 = f32[2,8,8]{2,1,0} subtract(%decay.1, %slope.1), metadata={op_name="jit(step)/sub" stack_frame_id=2}
}
"""  # noqa: E501


@pytest.fixture(scope="module")
def module() -> Module:
    return read_module(LOOP)


@pytest.fixture(scope="module")
def places(module: Module) -> InstructionPlaces:
    return program_places(module, "fused")


def test_calls_that_led_to_an_instruction_are_known(module: Module) -> None:
    """XLA writes the number of the frame around a frame one too high."""
    frames = module.frames(module.by_name["dot.1"])
    assert [(frame.function, frame.line) for frame in frames] == [
        ("<module>", 40), ("main.<locals>.step", 18), ("loss_of", 12), ("Dense.__call__", 7),
    ]  # fmt: skip
    # Inside the jitted function, and without a library where there is something else.
    assert [frame.line for frame in source_calls(frames, "jit(step)/jvp()/dot_general")] == [12]
    assert module.frames(module.by_name["lt.1"]) == ()


def test_files_and_lines_as_older_versions_write_them() -> None:
    text = """\
ENTRY %main (b: f32[]) -> f32[] {
  ROOT %a = f32[] add(%b, %b), metadata={op_name="jit(f)/jvp()/add" source_file="/programs/train.py" source_line=3}
}
"""
    module = read_module(text)
    assert module.frames(module.by_name["a"]) == (Frame("/programs/train.py", "", 3),)
    assert program_places(module, "fused").by_name["a"] == Place("forward", "train:3")


def test_a_loop_counts_as_often_as_it_runs_on_every_device(module: Module) -> None:
    assert module.copies == 2
    costs = {instruction.name: (times, cost.flops, cost.bytes) for instruction, times, cost in executed_costs(module)}
    # 2 x 4 x 8 x 8 in each of two rounds; three arrays are read and written.
    assert costs["dot.1"] == (2, 512, 4 * (32 + 64 + 32))
    assert costs["tanh.1"] == (1, 32, 2 * 4 * 32)
    assert costs["subtract.1"] == (1, 128, 3 * 4 * 128)
    # What is given twice is read once.
    assert costs["decay.1"] == (1, 128, 2 * 4 * 128)
    assert costs["cast.1"][1] == 0
    assert "while.1" not in costs and "out.1" not in costs and "lt.1" not in costs


def test_phases_that_no_gradient_names_follow_from_what_uses_them(places: InstructionPlaces) -> None:
    assert places.by_name["cast.1"].phase == "forward", "the forward uses it"
    assert places.by_name["slope.1"] == Place("backward", "dense")
    assert places.by_name["subtract.1"] == Place("optimizer", ""), "it is made of gradients"
    assert places.by_name["decay.1"] == Place("optimizer", ""), "nothing of the forward uses it"


def test_layers_have_their_scopes_or_their_calls(places: InstructionPlaces) -> None:
    assert places.by_name["dot.1"] == Place("forward", "dense")
    assert places.by_name["tanh.1"] == Place("forward", "loss_of:12")
    assert places.layers["dense"] == "Dense", "the class of the library's layer"
    assert places.layers["loss_of:12"] == "train.py:12"
    assert places.by_source and places.looped


@pytest.mark.parametrize(
    ("scopes", "names"),
    [
        ("jit(step)/jvp(head)/dot_general", ["head"]),
        ("jit(step)/transpose(jvp(block))/while/body/closed_call/attention/bhqk,bkhd->bqhd/dot_general",
         ["block", "attention"]),
        ("jit(step)/vmap(transpose(jvp(hidden)))/jit(relu)/max", ["hidden"]),
        ("jit(step)/jvp(jit(take_along_axis))/lt", []),
        ("jit(step)/transpose(jvp(checkpoint))/rematted_computation/mlp/dot_general", ["mlp"]),
        ("jit(step)/jvp(head)", ["head"]),
        ("jit(step)/mul", []),
        ("", []),
    ],
)  # fmt: skip
def test_names_of_scopes(scopes: str, names: list[str]) -> None:
    assert scope_names(scopes) == names


def costs_of(lines: str) -> list[tuple[str, int | None, int]]:
    module = read_module(f"ENTRY %main (a: f32[1]) -> f32[1] {{\n{lines}\n}}\n")
    return [(cost.operation, cost.flops, cost.bytes) for _, _, cost in executed_costs(module)]


def test_a_convolution_and_its_gradients_cost_the_same() -> None:
    """3 x 3 with a stride of 2 on 9 x 9 images: 4 x 4 places. XLA pads the gradient with zeros, which are no work."""
    flops = 2 * (2 * 4 * 4 * 8) * (3 * 3 * 3)
    counted = costs_of(
        "  %image = f32[2,9,9,3]{3,2,1,0} parameter(0)\n"
        "  %kernel = f32[3,3,3,8]{3,2,1,0} parameter(1)\n"
        "  %turned = f32[3,3,8,3]{3,2,1,0} parameter(2)\n"
        "  %slope = f32[2,4,4,8]{3,2,1,0} parameter(3)\n"
        "  %a = f32[2,4,4,8]{3,2,1,0} convolution(%image, %kernel), window={size=3x3 stride=2x2}, "
        "dim_labels=b01f_01io->b01f\n"
        "  %b = f32[2,9,9,3]{3,2,1,0} convolution(%slope, %turned), window={size=3x3 pad=2_2x2_2 lhs_dilate=2x2 "
        "rhs_reversal=1x1}, dim_labels=b01f_01io->b01f\n"
        "  %c = f32[3,3,3,8]{3,2,1,0} convolution(%image, %slope), window={size=4x4 rhs_dilate=2x2}, "
        "dim_labels=f01b_i01o->01bf"
    )
    assert [cost[:2] for cost in counted] == [("convolution", flops)] * 3


def test_slices_are_read_and_written_alone() -> None:
    text = """\
%fused (stack: f32[100,8], new: f32[1,8], at: s32[]) -> f32[100,8] {
  %stack = f32[100,8]{1,0} parameter(0)
  %new = f32[1,8]{1,0} parameter(1)
  %at = s32[] parameter(2)
  %old.1 = f32[1,8]{1,0} dynamic-slice(%stack, %at, %at), dynamic_slice_sizes={1,8}
  %sum.1 = f32[1,8]{1,0} add(%old.1, %new)
  ROOT %put.1 = f32[100,8]{1,0} dynamic-update-slice(%stack, %sum.1, %at, %at)
}

ENTRY %main (a: f32[100,8], b: f32[1,8], i: s32[]) -> f32[100,8] {
  %a = f32[100,8]{1,0} parameter(0)
  %b = f32[1,8]{1,0} parameter(1)
  %i = s32[] parameter(2)
  ROOT %put_fusion = f32[100,8]{1,0} fusion(%a, %b, %i), kind=kLoop, calls=%fused
}
"""
    ((_, times, cost),) = executed_costs(read_module(text))
    # A slice of 8 is read, one added, one written; and the place.
    assert (times, cost.flops, cost.bytes) == (1, 8, 3 * 4 * 8 + 4)


def test_products_of_cublas_are_known_and_other_calls_are_not() -> None:
    counted = costs_of(
        "  %a = bf16[64,32]{1,0} parameter(0)\n"
        "  %b = bf16[32,16]{1,0} parameter(1)\n"
        '  %gemm = (bf16[64,16]{1,0}, s8[4096]{0}) custom-call(%a, %b), custom_call_target="__cublas$gemm", '
        'backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],'
        '"rhs_contracting_dimensions":["0"]}}}\n'
        '  %sorted = f32[16]{0} custom-call(%b), custom_call_target="TopK"'
    )
    # Without the 4,096 bytes that cuBLAS works in.
    assert counted[0] == ("dot", 2 * 64 * 16 * 32, 2 * (64 * 32 + 32 * 16 + 64 * 16)) and counted[1][:2] == (
        "TopK",
        None,
    )


def test_what_begins_and_ends_apart_is_moved_once() -> None:
    counted = costs_of(
        "  %a = f32[64]{0} parameter(0)\n"
        "  %copy = (f32[64]{0}, f32[64]{0}, u32[]) copy-start(%a)\n"
        "  %copied = f32[64]{0} copy-done(%copy)\n"
        "  %gather = (f32[64]{0}, f32[128]{0}) all-gather-start(%a), dimensions={0}\n"
        "  %gathered = f32[128]{0} all-gather-done(%gather)"
    )
    assert counted == [("copy-start", 0, 4 * (64 + 64)), ("all-gather-start", 0, 4 * (64 + 128))]


CUBLAS = (
    'custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{"dot_dimension_numbers":'
    '{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}'
)


@pytest.mark.parametrize("context", ["", ", u32[]"])
def test_what_runs_beside_others_costs_what_it_costs_alone(context: str) -> None:
    """A product of cuBLAS on another stream, with the bytes that it works in; a slice; a collective; each until its
    `-done`. The layouts have commas and brackets of their own."""
    counted = costs_of(
        "  %a = f32[8,4]{1,0} parameter(0)\n"
        "  %b = f32[4,16]{1,0} parameter(1)\n"
        "  %i = s32[] parameter(2)\n"
        "  %begun = ((f32[8,4]{1,0}, f32[4,16]{1,0}), (f32[8,16]{1,0:T(8,128)}, s8[256]{0})"
        f"{context}) custom-call-start(%a, %b), {CUBLAS}\n"
        "  %made = (f32[8,16]{1,0}, s8[256]{0}) custom-call-done(%begun)\n"
        f"  %slice = ((f32[8,4]{{1,0}}, s32[], s32[]), f32[1,4]{{1,0}}{context}) dynamic-slice-start(%a, %i, %i)\n"
        "  %sliced = f32[1,4]{1,0} dynamic-slice-done(%slice)\n"
        f"  %scatter = ((f32[8,4]{{1,0}}), f32[4,4]{{1,0}}{context}) reduce-scatter-start(%a), dimensions={{0}}\n"
        "  %scattered = f32[4,4]{1,0} reduce-scatter-done(%scatter)"
    )
    assert counted == [
        ("dot", 2 * 8 * 16 * 4, 4 * (8 * 4 + 4 * 16 + 8 * 16)),
        ("dynamic-slice", 0, 4 * (4 + 1 + 4)),  # of the array the slice alone, one place given twice, and the result
        ("reduce-scatter", 0, 4 * (32 + 16)),
    ]


def test_a_product_that_xla_wrote_anew_belongs_to_the_layer_of_its_weights() -> None:
    """Of the second layer: of its gradients that of the weights has no scopes, and stands beside the third layer's."""
    text = """\
ENTRY %main (x: f32[4,8], v: f32[8,8], w: f32[8,8]) -> (f32[8,8]) {
  %x = f32[4,8]{1,0} parameter(0), metadata={op_name="x"}
  %v = f32[8,8]{1,0} parameter(1), metadata={op_name="weights['v']"}
  %w = f32[8,8]{1,0} parameter(2), metadata={op_name="weights['w']"}
  %dot.1 = f32[4,8]{1,0} dot(%x, %v), lhs_contracting_dims={1}, metadata={op_name="jit(step)/jvp(first)/dot_general"}
  %copy.1 = f32[8,8]{0,1} copy(%w)
  %dot.2 = f32[4,8]{1,0} dot(%dot.1, %copy.1), lhs_contracting_dims={1}, metadata={op_name="jit(step)/jvp(second)/dot_general"}
  %tanh.3 = f32[4,8]{1,0} tanh(%dot.2), metadata={op_name="jit(step)/jvp(third)/tanh"}
  %mul.3 = f32[4,8]{1,0} multiply(%tanh.3, %tanh.3), metadata={op_name="jit(step)/transpose(jvp(third))/mul"}
  %dot.4 = f32[8,8]{1,0} dot(%dot.1, %mul.3), lhs_contracting_dims={0}
  %copy.4 = f32[8,8]{1,0} copy(%dot.4)
  %subtract.5 = f32[8,8]{1,0} subtract(%w, %copy.4), metadata={op_name="jit(step)/sub"}
  ROOT %tuple.6 = (f32[8,8]{1,0}) tuple(%subtract.5)
}
"""  # noqa: E501
    places = program_places(read_module(text), "fused")
    assert places.by_name["dot.4"] == Place("backward", "second")
    assert places.by_name["copy.1"] == places.by_name["dot.2"] == Place("forward", "second")
    assert places.by_name["copy.4"] == places.by_name["subtract.5"] == Place("optimizer", "")
