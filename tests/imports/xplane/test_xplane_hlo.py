"""Programs of XLA in a profile: which operation of the framework each instruction counts for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sonda.frameworks.harness.attribution import Place
from sonda.frameworks.tensorflow.profile.operations import place_of, split_calls, time_by_place
from sonda.imports.xplane.file import open_space
from sonda.imports.xplane.hlo import programs, shared_scopes
from sonda.targets.profiles.tensorflow_events import read_profile_events
from xplane_examples import H200, PlaneMaker, number, space, stretch, varint

PROGRAM = 7


def instruction(
    identity: int, name: str, opcode: str, scopes: str = "", operands: Sequence[int] = (), called: Sequence[int] = ()
) -> bytes:
    found = stretch(1, name.encode()) + stretch(2, opcode.encode()) + number(35, identity)
    found += stretch(7, stretch(2, scopes.encode())) if scopes else b""
    found += stretch(36, b"".join(map(varint, operands))) if operands else b""
    return found + b"".join(number(38, one) for one in called)  # packed or one by one: both are written


def computation(identity: int, *instructions: bytes) -> bytes:
    return stretch(3, number(5, identity) + b"".join(stretch(2, one) for one in instructions))


INSIDE = computation(
    1,
    instruction(11, "dot.1", "dot", "forward/first/MatMul"),
    instruction(12, "add.1", "add", "forward/second/BiasAdd", [11]),
)
TWINS = computation(
    2,
    instruction(21, "dot.2", "dot", "gradient_tape/forward/first/MatMul"),
    instruction(22, "dot.3", "dot", "gradient_tape/forward/second/MatMul"),
)
PLAIN = computation(
    3, instruction(31, "max.1", "maximum", "forward/relu/Relu"), instruction(32, "neg.1", "negate", "", [31])
)
ENTRY = computation(
    4,
    instruction(41, "given", "parameter", "XLA_Args"),
    instruction(42, "copy.1", "copy", "", [41]),
    instruction(43, "bitcast.1", "bitcast", "", [42]),
    instruction(44, "fusion.1", "fusion", "forward/second/BiasAdd", [43], [1]),
    instruction(45, "fusion.2", "fusion", "", [44], [2]),
    instruction(46, "fusion.3", "fusion", "", [45], [3]),
    instruction(47, "sub.1", "subtract", "optimizer/Sub", [46]),
    instruction(48, "last", "copy", "", [47]),
)
MODULE = stretch(1, INSIDE + TWINS + PLAIN + ENTRY)


def profile(place: Path, module: bytes = MODULE) -> Path:
    """A call of 100 ns whose instructions take 10 ns each, and the program that they are of."""
    host = PlaneMaker("/host:CPU")
    names = ("copy.1", "fusion.1", "fusion.2", "fusion.3", "sub.1", "last")
    ran = [
        host.event(name, 1000 + 12 * at, 10, hlo_op=name, program_id=PROGRAM, hlo_module="a")
        for at, name in enumerate(names)
    ]
    host.line(1, "python", [host.event("EagerLocalExecute: __inference_step_1", 1000, 100)])
    host.line(2, "tf_Eigen", ran)
    about = number(1, PROGRAM) + stretch(2, b"a(7)") + stretch(5, number(1, 1) + stretch(6, module))
    table = stretch(4, number(1, PROGRAM) + stretch(2, about))
    names_of_stats = stretch(5, number(1, 1) + stretch(2, number(1, 1) + stretch(2, b"Hlo Proto")))
    metadata = stretch(1, stretch(2, b"/host:metadata") + table + names_of_stats)
    path = place / "host.xplane.pb"
    path.write_bytes(metadata + space(host))
    return path


def test_an_instruction_counts_for_the_operation_that_it_came_from(tmp_path: Path) -> None:
    with open_space(profile(tmp_path)) as opened:
        found = {name: one.scopes for name, one in programs(opened)[PROGRAM].items()}
    assert found["fusion.1"] == "forward/first/MatMul", "the product, not the last"
    assert found["fusion.2"] == "gradient_tape/forward", "what two products share"
    assert found["fusion.3"] == "forward/relu/Relu", "of what is inside, where the fusion has none"
    assert found["copy.1"] == found["bitcast.1"] == found["given"] == "forward/first/MatMul", "who uses it next"
    assert found["sub.1"] == "optimizer/Sub"
    assert found["last"] == "", "nobody uses it"


def test_what_xla_compiled_is_told_apart_like_a_graph(tmp_path: Path) -> None:
    profile(tmp_path)
    (inside,) = split_calls(read_profile_events(tmp_path), "step")
    classes = {"": "Net", "first": "Linear", "second": "Linear", "relu": "ReLU"}
    assert time_by_place(inside, lambda name: place_of(name, classes)) == {
        Place("forward", "first"): 20, Place("backward", ""): 10, Place("forward", "relu"): 10,
        Place("optimizer", ""): 10,
    }  # fmt: skip


def test_a_program_that_was_cut_short_costs_only_names(tmp_path: Path) -> None:
    for cut in range(0, len(MODULE), 7):
        found = list(read_profile_events(profile(tmp_path, MODULE[:cut]).parent))
        assert [one.end - one.start for one in found] == [100, *[10] * 6], cut


def test_scopes_share_whole_words() -> None:
    assert shared_scopes({"a/bc/x", "a/bd/x"}) == "a"
    assert shared_scopes({"a/b"}) == "a/b"
    assert shared_scopes({"a", "b"}) == ""


def test_a_recorded_program_of_a_gpu() -> None:
    """The step that was recorded: a product and its tanh, their gradient, and an update."""
    with open_space(H200) as opened:
        found = {one.opcode: one.scopes for program in programs(opened).values() for one in program.values()}
        step = next(one for one in programs(opened).values() if "gemm_fusion_dot.1" in one)
    assert step["gemm_fusion_dot.1"].scopes == "jit(step)/jvp()/dot_general"
    assert step["wrapped_subtract"].scopes == "jit(step)/sub"
    assert "fusion" in found
