"""Layers of a compiled call from its profile: where instructions belong, how their times become spans."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns as now

import numpy as np
import pytest

from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.harness.announcer import AnnouncedObserver
from sonda.frameworks.harness.attribution import Piece, Place, write_call
from sonda.frameworks.jax.profile.hlo import read_module
from sonda.frameworks.jax.profile.operations import (
    XlaOperation,
    exclusive_times,
    locate_instructions,
    place_of,
    split_runs,
)
from sonda.frameworks.reconstruction.assembly import assemble
from sonda.record.spans import Spans

PATHS = ("", "features", "features.0", "features.1", "blocks.0", "blocks.0.attention")

# Lines of what XLA for a processor made of a convolution, a ReLU and a step of SGD (JAX 0.10.2), shortened in width.
HLO = """\
HloModule jit_train, is_scheduled=true

%fused_computation.19 (param_0: f32[32,32,32,16], param_1: f32[16]) -> f32[32,16,32,32] {
  %param_0 = f32[32,32,32,16]{3,2,1,0} parameter(0)
  ROOT %maximum.1 = f32[32,16,32,32]{3,2,1,0} maximum(%param_0, %param_0), metadata={op_name="jit(train)/jvp(forward)/features.1/max" stack_frame_id=16}
}

ENTRY %main.5 (x.1: f32[32,3,32,32], w.1: f32[16,3,3,3]) -> (f32[16,3,3,3]) {
  %x.1 = f32[32,3,32,32]{3,2,1,0} parameter(0), metadata={op_name="x"}
  %w.1 = f32[16,3,3,3]{3,2,1,0} parameter(1), metadata={op_name="weights['features.0.weight']"}
  %transpose_copy_fusion.3 = f32[32,32,32,3]{3,2,1,0} fusion(%x.1), kind=kLoop, calls=%fused_computation.20
  %convolution = f32[32,32,32,16]{3,2,1,0} convolution(%transpose_copy_fusion.3, %w.1), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, metadata={op_name="jit(train)/jvp(forward)/features.0/conv_general_dilated" stack_frame_id=12}
  %copy_maximum_fusion = f32[32,16,32,32]{3,2,1,0} fusion(%convolution), kind=kLoop, calls=%fused_computation.19, metadata={op_name="jit(train)/jvp(forward)/features.1/max" stack_frame_id=16}
  %wrapped_log = f32[32]{0} fusion(%copy_maximum_fusion), kind=kLoop, calls=%wrapped_log_computation, metadata={op_name="jit(train)/jvp(loss)/jit(log_softmax)/log" stack_frame_id=20}
  %multiply_add_fusion = f32[32,10]{1,0} fusion(%wrapped_log), kind=kLoop, calls=%fused_computation.13, metadata={op_name="jit(train)/transpose(jvp(loss))/jit(log_softmax)/add_any" stack_frame_id=20}
  %ynn_fusion = f32[3,3,3,16]{3,2,1,0} fusion(%multiply_add_fusion), kind=kCustom, calls=%fused_computation, metadata={op_name="jit(train)/transpose(jvp(forward))/features.0/conv_general_dilated" stack_frame_id=12}
  %copy.7 = f32[16,3,3,3]{3,2,1,0} copy(%ynn_fusion)
  %copy_subtract_fusion = f32[16,3,3,3]{3,2,1,0} fusion(%w.1, %copy.7), kind=kLoop, calls=%fused_computation.6, metadata={op_name="jit(train)/optimizer/sub" stack_frame_id=23}
  ROOT %tuple.9 = (f32[16,3,3,3]{3,2,1,0}) tuple(%copy_subtract_fusion)
}
"""  # noqa: E501


@pytest.mark.parametrize(
    ("scopes", "place"),
    [
        ("jit(train)/jvp(forward)/features.0/conv_general_dilated", Place("forward", "features.0")),
        ("jit(train)/transpose(jvp(forward))/features.0/conv_general_dilated", Place("backward", "features.0")),
        ("jit(train)/jvp(loss)/jit(log_softmax)/log", Place("loss", "")),
        ("jit(train)/transpose(jvp(loss))/mul", Place("backward", "loss")),
        ("jit(train)/optimizer/sub", Place("optimizer", "")),
        # Scopes inside one another: the innermost layer.
        ("jit(decode)/forward/blocks.0/blocks.0.attention/dot_general", Place("forward", "blocks.0.attention")),
        ("jit(forward)/forward/add", Place("forward", "")),
        ("jit(other)/mul", None),
        ("", None),
    ],
)
def test_scopes_say_phase_and_layer(scopes: str, place: Place | None) -> None:
    assert place_of(scopes, PATHS) == place


def where(text: str) -> dict[str, Place]:
    return locate_instructions(read_module(text), lambda instruction: place_of(instruction.scopes, PATHS))


def test_instructions_without_scopes_count_for_those_that_use_them() -> None:
    located = where(HLO)
    assert located["convolution"] == located["transpose_copy_fusion.3"] == Place("forward", "features.0")
    assert located["copy_maximum_fusion"] == located["maximum.1"] == Place("forward", "features.1")
    assert located["ynn_fusion"] == Place("backward", "features.0")
    assert located["copy.7"] == located["copy_subtract_fusion"] == Place("optimizer", "")
    assert "tuple.9" not in located


def test_a_fusion_counts_for_its_product_and_for_the_layer_around_several() -> None:
    text = """\
%fused_one (p: f32[8]) -> f32[8] {
  %convolution.1 = f32[8]{0} convolution(%p, %p), metadata={op_name="jit(forward)/forward/features.0/conv"}
  ROOT %maximum.2 = f32[8]{0} maximum(%convolution.1, %p), metadata={op_name="jit(forward)/forward/features.1/max"}
}

%fused_two (p: f32[8]) -> f32[8] {
  %convolution.3 = f32[8]{0} convolution(%p, %p), metadata={op_name="jit(forward)/forward/features.0/conv"}
  ROOT %convolution.4 = f32[8]{0} convolution(%p, %p), metadata={op_name="jit(forward)/forward/features.1/conv"}
}

%fused_update (p: f32[8]) -> f32[8] {
  %dot.5 = f32[8]{0} dot(%p, %p), metadata={op_name="jit(train)/transpose(jvp(forward))/features.1/dot_general"}
  ROOT %subtract.6 = f32[8]{0} subtract(%p, %dot.5), metadata={op_name="jit(train)/optimizer/sub"}
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %one = f32[8]{0} fusion(%p), calls=%fused_one, metadata={op_name="jit(forward)/forward/features.1/max"}
  %two = f32[8]{0} fusion(%one), calls=%fused_two, metadata={op_name="jit(forward)/forward/features.1/conv"}
  ROOT %update = f32[8]{0} fusion(%two), calls=%fused_update, metadata={op_name="jit(train)/optimizer/sub"}
}
"""
    located = where(text)
    assert located["one"] == Place("forward", "features.0")
    assert located["two"] == Place("forward", "features")
    assert located["update"] == Place("backward", "features.1")


def operation(name: str, start: int, end: int, run: int = 1, module: str = "jit_train") -> XlaOperation:
    return XlaOperation(module, run, name, start, end)


def test_every_moment_counts_once() -> None:
    """A loop holds its body; two operations overlap; a gap belongs to nobody."""
    nested = [operation("while", 0, 100), operation("body", 10, 30), operation("body", 40, 70)]
    assert exclusive_times(nested) == {"while": 50, "body": 50}
    side_by_side = [operation("a", 0, 50), operation("b", 30, 80), operation("c", 90, 100)]
    assert exclusive_times(side_by_side) == {"a": 30, "b": 50, "c": 10}
    # The same kernel on two lines of a profile.
    assert exclusive_times([operation("a", 0, 50), operation("a", 0, 50)]) == {"a": 50}
    # A device waits for another that computes: the moment is computing's.
    assert exclusive_times([operation("reduce", 0, 50), operation("a", 20, 40)], {"reduce"}) == {"reduce": 30, "a": 20}
    assert exclusive_times([operation("a", 0, 50), operation("reduce", 20, 60)], {"reduce"}) == {"a": 50, "reduce": 10}
    # One shorter than the profile's clock can tell takes nothing from what runs around it, nor from what comes later.
    short = [operation("a", 0, 100), operation("short", 10, 10), operation("b", 200, 300)]
    assert exclusive_times(short) == {"a": 100, "b": 100}
    assert exclusive_times([]) == {}


def test_runs_are_told_apart_in_the_order_of_time() -> None:
    mixed = [operation("b", 50, 60, 7), operation("a", 0, 10, 9), operation("c", 20, 30, 9),
             operation("d", 40, 45, 7, "jit_decode")]  # fmt: skip
    assert [(module, [operation.name for operation in inside]) for module, inside in split_runs(mixed)] == [
        ("jit_train", ["a", "c"]), ("jit_decode", ["d"]), ("jit_train", ["b"]),
    ]  # fmt: skip


# ---- spans --------------------------------------------------------------------------------------------------------


def written(tmp_path: Path, pieces: list[Piece], classes: dict[str, str]) -> Spans:
    """The spans of one step whose call lasted 1000 ns."""
    begin = now()
    recorder = Recorder(str(tmp_path))
    observer = AnnouncedObserver(recorder, None, "Net")
    observer.open({}, 1)
    with observer.span("pass", "pieces"), observer.span("step", "train"):
        start = now()
        while now() < start + 2000:
            pass
    write_call(observer, start, start + 1000, pieces, classes)
    observer.finish(1)
    recorder.close()
    return assemble(tmp_path, begin, now()).spans


def rows(spans: Spans, kind: str) -> list[tuple[str, str, str, int]]:
    names, paths = spans.words("name").decoded(), spans.words("path").decoded()
    directions, duration = spans.words("direction").decoded(), spans.number("duration")
    return [(names[row], paths[row], directions[row], int(duration[row]))
            for row in np.flatnonzero(spans.where(kind=kind))]  # fmt: skip


def test_layers_stand_in_their_holders_and_phases_in_their_step(tmp_path: Path) -> None:
    pieces = [
        Piece("forward", "features", "Sequential", 30), Piece("forward", "features.0", "Conv2d", 200),
        Piece("forward", "features.1", "ReLU", 50), Piece("loss", "MSELoss", "MSELoss", 20),
        Piece("backward", "MSELoss", "MSELoss", 10), Piece("backward", "features.1", "ReLU", 60),
        Piece("backward", "features.0", "Conv2d", 300), Piece("optimizer", "", "", 40),
    ]  # fmt: skip
    spans = written(tmp_path, pieces, {"": "Net", "features": "Sequential"})
    assert rows(spans, "phase") == [
        ("forward", "", "", 280), ("loss", "", "", 20), ("backward", "", "", 370), ("optimizer", "", "", 40),
    ]  # fmt: skip
    assert rows(spans, "layer") == [
        ("Net", "", "forward", 280), ("Sequential", "features", "forward", 280),
        ("Conv2d", "features.0", "forward", 200), ("ReLU", "features.1", "forward", 50),
        ("MSELoss", "MSELoss", "forward", 20), ("MSELoss", "MSELoss", "backward", 10),
        ("ReLU", "features.1", "backward", 60), ("Conv2d", "features.0", "backward", 300),
    ]  # fmt: skip
    parent, kinds, paths = spans.number("parent"), spans.words("kind").decoded(), spans.words("path").decoded()
    inner = [row for row in np.flatnonzero(spans.where(kind="layer")) if paths[row] == "features.0"]
    assert [(kinds[parent[row]], paths[parent[row]]) for row in inner] == [("layer", "features"), ("phase", "")]
    steps = {kinds[parent[row]] for row in np.flatnonzero(spans.where(kind="phase"))}
    assert steps == {"step"} and set(spans.words("pass").decoded()[1:]) >= {"pieces"}


def test_a_call_of_one_phase_is_this_phase_from_begin_to_end(tmp_path: Path) -> None:
    spans = written(tmp_path, [Piece("decode", "features.0", "Conv2d", 200)], {"": "Net"})
    assert rows(spans, "phase") == [("decode", "", "", 1000)]
    assert rows(spans, "layer") == [("Net", "", "forward", 200), ("Conv2d", "features.0", "forward", 200)]
