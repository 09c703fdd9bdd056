"""Layers inside a compiled step of a TensorFlow program, joined from a profile that TensorFlow left."""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter_ns as now
from types import SimpleNamespace

import numpy as np
import pytest

from sonda.frameworks.collector import piece_pass
from sonda.frameworks.collector.piece_pass import AFTER, CALLS
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.reconstruction.assembly import Assembly
from sonda.frameworks.tensorflow.observe import devices as tensorflow_devices
from sonda.frameworks.tensorflow.observe import graph_pass
from sonda.frameworks.tensorflow.observe.graph_pass import GraphPass
from sonda.frameworks.tensorflow.profile.operations import Place, ProfileEvent, Scope, scoped_place
from sonda.record.spans import Spans, Words
from sonda.targets.profiles import tensorflow as tensorflow_layers
from sonda.targets.profiles.tensorflow import paths_of, with_graph_layers

SCOPES = {
    "sequential": ("layer", "sequential", "Sequential"),
    "sequential/dense": ("layer", "dense", "Dense"),
    "sequential_1": ("layer", "sequential", "Sequential"),
    "sequential_1/dense_1": ("layer", "dense", "Dense"),
    "sequential_1/sub_1": ("layer", "sub", "Sequential"),
    "sequential_1/sub_1/dense_1_2": ("layer", "dense", "Dense"),
    "compile_loss": ("loss", "compile_loss", "CompileLoss"),
    "adam": ("optimizer", "adam", "Adam"),
}
"""As Keras makes them: the first two are of a graph that shapes were found with, and never runs."""
ORIGIN = 10**9
"""When the run began, ns."""
KNOWN = {scope: Scope(*about) for scope, about in SCOPES.items()}


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("StatefulPartitionedCall/sequential_1/dense_1/Relu:_FusedMatMul", Place("forward", "sequential_1/dense_1")),
        (
            "StatefulPartitionedCall/gradient_tape/sequential_1/sub_1/dense_1_2/MatMul/MatMul_1:MatMul",
            Place("backward", "sequential_1/sub_1/dense_1_2"),
        ),
        ("StatefulPartitionedCall/compile_loss/mse/Mean:Mean", Place("loss", "")),
        ("StatefulPartitionedCall/gradient_tape/compile_loss/mse/Mul_1:Mul", Place("backward", "loss")),
        ("StatefulPartitionedCall/adam/Mul_1/ReadVariableOp:ReadVariableOp", Place("optimizer", "")),
        ("replica_1/sequential_1/dense_1/MatMul:_Recv", Place("communicate", "")),
        ("gradient_tape/AddN:AddN", Place("backward", "")),
        ("StatefulPartitionedCall/div_no_nan:DivNoNan", None),
        ("Momentum/update_w/ResourceApplyMomentum:ResourceApplyMomentum", Place("optimizer", "")),
    ],
)
def test_an_operation_belongs_to_the_innermost_known_scope(name: str, place: Place | None) -> None:
    assert scoped_place(name, KNOWN) == place


def test_paths_are_names_below_the_outermost_and_only_of_what_runs() -> None:
    used = {"sequential_1/dense_1", "sequential_1/sub_1/dense_1_2", "sequential_1"}
    assert paths_of(KNOWN, used) == {
        "sequential_1": "", "sequential_1/dense_1": "dense", "sequential_1/sub_1": "sub",
        "sequential_1/sub_1/dense_1_2": "sub.dense",
    }  # fmt: skip


def test_layers_of_one_name_are_numbered_and_what_is_called_again_is_the_same_layer() -> None:
    """A generator, its critic and the critic again, whose two blocks have one name; both models hold a `dense`."""
    scopes = {scope: Scope("layer", name, "Dense", number) for scope, name, number in (
        ("generator_1", "generator", 1), ("generator_1/dense_1", "dense", 2),
        ("critic_1", "critic", 3), ("critic_1/block_1", "block", 4), ("critic_1/block_1/dense_1", "dense", 5),
        ("critic_1/block_2", "block", 6), ("critic_1/block_2/dense_1", "dense", 7),
        ("critic_1/block_2/dense_2", "dense", 8),
        ("critic_2", "critic", 3), ("critic_2/block_1", "block", 4), ("critic_2/block_1/dense_1", "dense", 5),
    )}  # fmt: skip
    critic = {
        "critic_1/block_1/dense_1": "critic.block.dense",
        "critic_1/block_2/dense_1": "critic.block#2.dense",
        "critic_1/block_2/dense_2": "critic.block#2.dense#2",
        "critic_2/block_1/dense_1": "critic.block.dense",
    }
    paths = paths_of(scopes, {"generator_1/dense_1", *critic})
    assert {scope: path for scope, path in paths.items() if "dense" in scope} == {
        "generator_1/dense_1": "generator.dense", **critic,
    }  # fmt: skip
    assert [paths[scope] for scope in ("generator_1", "critic_1", "critic_2")] == ["generator", "critic", "critic"]
    assert paths["critic_1/block_2"] == "critic.block#2", "it holds what is used"
    alone = paths_of(scopes, set(critic))
    assert alone["critic_2/block_1/dense_1"] == "block.dense" and alone["critic_1"] == alone["critic_2"] == ""


def test_layers_that_a_function_calls_by_themselves_have_their_names() -> None:
    """Two layers without a model around them, twins of the second, and a model beside them whose layers lie deeper."""
    scopes = {scope: Scope("layer", name, "Dense") for scope, name in (
        ("first_1", "first"), ("second_1", "second"), ("second_2", "second"), ("model_1", "model"),
        ("model_1/between/inner_1", "inner"),
    )}  # fmt: skip
    assert paths_of(scopes, set(scopes)) == {
        "first_1": "first", "second_1": "second", "second_2": "second#2", "model_1": "",
        "model_1/between/inner_1": "inner",
    }  # fmt: skip


def test_a_scope_that_becomes_a_layer_s_after_the_layer_inside_it_holds_it() -> None:
    """`net` is a plain scope around two layers in one graph, the second deeper; then a model, which is called too."""
    scopes = {scope: Scope("layer", name, "Dense", number) for scope, name, number in (
        ("net/between/dense", "dense", 1), ("net/dense", "dense", 2), ("net", "net", 3), ("net/dense_1", "dense", 4),
    )}  # fmt: skip
    assert paths_of(scopes, {scope for scope in scopes if scope != "net"}) == {
        "net": "", "net/between/dense": "dense", "net/dense": "dense#2", "net/dense_1": "dense#3",
    }  # fmt: skip


def observed() -> Spans:
    """A run, a part, two steps of 1000 ns; the second is in pieces, its call from 2100 to 2900."""
    return Spans(
        {
            "start": np.array([0, 0, 1000, 1100, 2000, 2100]),
            "duration": np.array([9000, 9000, 1000, 800, 1000, 800]),
            "parent": np.array([-1, 0, 1, 2, 1, 4]),
            "thread": np.full(6, 7),
        },
        {
            "kind": Words.of(["run", "part", "step", "phase", "step", "phase"]),
            "name": Words.of(["", "train", "train", "fused", "train", "fused"]),
            "pass": Words.of(["timed", "timed", "timed", "timed", "pieces", "pieces"]),
        },
        {"task_clock:counted": np.array([np.nan, np.nan, np.nan, 700, np.nan, 750])},
    )


EVENTS = [
    # A function of the same name that evaluates.
    ProfileEvent("EagerLocalExecute: __inference_train_99", 40_000, 40_700),
    ProfileEvent("EagerLocalExecute: __inference_train_12", 50_000, 50_700),
    ProfileEvent("StatefulPartitionedCall/sequential_1/dense_1/MatMul:MatMul", 50_010, 50_110),
    ProfileEvent("StatefulPartitionedCall/sequential_1/sub_1/dense_1_2/MatMul:MatMul", 50_110, 50_160),
    ProfileEvent("StatefulPartitionedCall/compile_loss/mse/Mean:Mean", 50_160, 50_180),
    ProfileEvent("StatefulPartitionedCall/gradient_tape/sequential_1/sub_1/dense_1_2/MatMul:MatMul", 50_200, 50_300),
    ProfileEvent("StatefulPartitionedCall/gradient_tape/sequential_1/dense_1/MatMul:MatMul", 50_300, 50_500),
    ProfileEvent("StatefulPartitionedCall/adam/Mul:Mul", 50_500, 50_560),
]


def joined(monkeypatch: pytest.MonkeyPatch, events: list[ProfileEvent]) -> tuple[Spans, list[str]]:
    monkeypatch.setattr(tensorflow_layers, "read_profile_events", lambda folder: events)
    assembly = Assembly(observed())
    scopes = {scope: list(about) for scope, about in SCOPES.items()}
    about = {"profile": "graph-1", "functions": ["__inference_train_12"], "scopes": scopes, "spent_s": 0.25}
    call = [7, ORIGIN + 2105, ORIGIN + 2895, False]
    assembly.graphs.append({**about, "calls": [call], "profiled": 1, "others": 2})
    return with_graph_layers(assembly, assembly.spans, Path(), ORIGIN)


def test_phases_and_layers_are_laid_out_inside_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    spans, notes = joined(monkeypatch, EVENTS)
    new = range(5, len(spans))  # the call itself becomes the first phase: phases do not lie in one another
    kinds, names, paths = (spans.words(name).decoded() for name in ("kind", "name", "path"))
    start, lasted, parent = (spans.number(name) for name in ("start", "duration", "parent"))
    rows = [(kinds[row], names[row], paths[row], int(start[row]), int(lasted[row])) for row in new]
    assert rows == [
        ("phase", "forward", "", 2100, 150), ("layer", "Sequential", "", 2100, 150),
        ("layer", "Dense", "dense", 2100, 100), ("layer", "Sequential", "sub", 2200, 50),
        ("layer", "Dense", "sub.dense", 2200, 50), ("phase", "loss", "", 2250, 20),
        ("phase", "backward", "", 2270, 300), ("layer", "Dense", "sub.dense", 2270, 100),
        ("layer", "Dense", "dense", 2370, 200), ("phase", "optimizer", "", 2570, 60),
    ]  # fmt: skip
    assert [int(parent[row]) for row in new] == [4, 5, 6, 6, 8, 4, 4, 11, 11, 4]
    assert np.isnan(spans.metric("task_clock", "counted")[5]) and spans.metric("task_clock", "counted")[3] == 700
    assert {spans.words("pass").decoded()[row] for row in new} == {"pieces"}
    assert {int(spans.number("thread")[row]) for row in new} == {7}
    assert "tells 66 % of their time apart" in notes[0]  # 530 of 800 ns
    assert "the program waited 0.25 s for TensorFlow's profiler" in notes[1]
    assert notes[2] == "3 functions of the program learn; layers are those of 1 of them"


def test_a_profile_of_other_calls_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    spans, notes = joined(monkeypatch, [EVENTS[0], *EVENTS[2:]])
    assert len(spans) == 6 and notes == ["layers inside the graph are missing: its profile holds 0 of 1 calls"]


def stepped(*names: str) -> Spans:
    """A run, a part, and timed steps whose phases have these names, a letter each: fused, forward."""
    words = {"u": "fused", "o": "forward"}
    kinds, parents = ["run", "part"], [-1, 0]
    for name in names:
        parents += [1, *[len(kinds)] * len(name)]
        kinds += ["step", *(words[letter] for letter in name)]
    return Spans(
        {"start": np.arange(len(kinds)), "duration": np.ones(len(kinds), dtype=np.int64), "parent": np.array(parents)},
        {
            "kind": Words.of("phase" if kind in words.values() else kind for kind in kinds),
            "name": Words.of(kinds),
            "pass": Words.of(["timed"] * len(kinds)),
        },
    )


SMALL, LARGE = ["", "MatMul", "float32", 100, 8], ["", "MatMul", "float32", 7000, 8]


@pytest.mark.parametrize(
    ("steps", "functions", "flops"),
    [
        (("u", "u"), [[SMALL]], 100),
        (("uu", "uu"), [[SMALL], [LARGE]], 7100),  # a generator and its critic
        (("u", "u"), [[SMALL], [LARGE]], None),  # one model after the other
        (("u", "u"), [[SMALL], [["other", *SMALL[1:]]]], 100),  # the same model again, for other data
        (("uu", "u"), [[SMALL], [LARGE]], None),  # the critic comes in every second step
        (("ou", "ou"), [[SMALL]], None),  # somebody else computes too
        (("u", "u"), [[SMALL, ["", "MatrixInverse", "float32", None, None]]], 100),
    ],
)
def test_flops_are_of_the_functions_that_a_step_calls(
    steps: tuple[str, ...], functions: list[list[list]], flops: int | None
) -> None:
    assembly = Assembly(stepped(*steps))
    assembly.graphs.append({"scopes": {}, "costs": functions})
    spans, notes = with_graph_layers(assembly, assembly.spans, Path(), 0)
    if flops is None:
        assert notes == ["FLOPs are not counted: its steps do not all call the same functions"] and not assembly.flops
        assert len(spans) == len(assembly.spans)
        return
    assert assembly.flops == {"float32": flops}
    counted = spans.metric("flops", "nominal")[spans.where(kind="op")]
    lacking = sum(row[3] is None for function in functions for row in function)
    assert np.nansum(counted) == flops and np.isnan(counted).sum() == lacking
    assert assembly.unknown == ({"MatrixInverse": 1} if lacking else {})


NO_GPU = SimpleNamespace(config=SimpleNamespace(list_logical_devices=lambda kind: []))


def test_a_few_calls_are_profiled_after_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    train = SimpleNamespace(_list_all_concrete_functions=lambda: [SimpleNamespace(name="__inference_train_12")])
    other = SimpleNamespace(_list_all_concrete_functions=lambda: [SimpleNamespace(name=b"__inference_other_3")])
    graph = GraphPass(Recorder(str(tmp_path)), NO_GPU, True)

    monkeypatch.setattr(piece_pass, "LONGEST", 1 << 62)
    monkeypatch.setattr(graph, "start_profile", lambda folder: heard.append("start"))
    monkeypatch.setattr(graph, "stop_profile", lambda save: heard.append("stop"))
    assert not any(graph.begin_call(1, train) for _ in range(AFTER + 5)), "no layer of Keras is in the graph"
    graph.note_scope("sequential/dense", "layer", "dense", "Dense", 9)
    for number in range(CALLS):
        assert graph.begin_call(1, train)
        graph.note_call(1, train, number, traced=False)
        if number == 1:  # another function that learns, so that a step is told whole
            assert graph.begin_call(2, other)
            graph.note_call(2, other, number, traced=True)
    assert heard == ["start", "stop"] and not graph.begin_call(1, train) and not graph.begin_call(3, other)
    (fact,) = graph.facts()["graphs"]
    assert fact["functions"] == ["__inference_train_12", "__inference_other_3"]
    assert (fact["profiled"], fact["others"]) == (2, 1)
    assert [(begin, traced) for _, begin, _, traced in fact["calls"]] == [
        (0, False), (1, False), (1, True), (2, False), (3, False), (4, False),
    ]  # fmt: skip
    assert fact["scopes"] == {"sequential/dense": ["layer", "dense", "Dense", 9]}
    assert not any(GraphPass(Recorder(""), NO_GPU, True).begin_call(1, train) for _ in range(99)), "nowhere to write"


def test_a_profile_does_not_grow_while_the_function_stays_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = GraphPass(Recorder(str(tmp_path)), NO_GPU, True)
    stopped: list[bool] = []
    graph.running, graph._until, graph.function = True, now() - 1, 7
    graph._tried[7] = 1
    monkeypatch.setattr(graph, "stop_profile", stopped.append)
    graph.end_if_late()
    assert stopped == [True]


@pytest.mark.parametrize("replay", [False, True])
def test_on_a_gpu_kernels_of_a_few_calls_are_recorded_or_one_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replay: bool
) -> None:
    """Also of a program without layers of Keras; the GPU's queue is empty at both ends."""
    heard: list[str] = []
    train = SimpleNamespace(_list_all_concrete_functions=lambda: [SimpleNamespace(name="__inference_train_12")])
    with_gpu = SimpleNamespace(config=SimpleNamespace(list_logical_devices=lambda kind: ["GPU:0"]))
    recorder = Recorder(str(tmp_path))
    graph = GraphPass(recorder, with_gpu, True, replay)

    def start(folder: str, options: object) -> None:
        heard.append("start")
        (Path(folder) / "plugins").mkdir(parents=True)
        (Path(folder) / "plugins" / "host.xplane.pb").touch()

    profiler = SimpleNamespace(
        start=start, stop=lambda save: heard.append("stop"), ProfilerOptions=lambda host, python, device: host
    )
    for name in ("tensorflow", "tensorflow.python", "tensorflow.python.profiler"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(profiler_v2=profiler))
    monkeypatch.setattr(piece_pass, "LONGEST", 1 << 62)
    monkeypatch.setattr(tensorflow_devices, "wait", lambda tf: heard.append("wait"))
    monkeypatch.setattr(tensorflow_devices, "mark_clock", lambda tf: heard.append("marks"))
    monkeypatch.setattr(tensorflow_devices, "describe_gpu", lambda tf, number: {"name": "Example"})
    marks = (lambda: heard.append("begin"), lambda: heard.append("end"))
    monkeypatch.setattr(graph_pass, "find_profiler_marks", lambda: marks)
    profiled = 0
    for _ in range(AFTER + CALLS + 3):
        graph.comes(1)
        if graph.begin_call(1, train):
            profiled += 1
            graph.note_call(1, train, 0, traced=False)
    assert graph.code == recorder.define(kind="pass", name="kernels")
    facts = graph.facts()
    assert facts["devices"] == {"0": {"name": "Example"}} and "graphs" not in facts
    if replay:
        assert profiled == 1 and heard == ["wait", "begin", "wait", "end"] and "kernels" not in facts
        return
    assert profiled == CALLS and heard == ["wait", "start", "marks", "wait", "marks", "stop"]
    assert (tmp_path / facts["kernels"]).is_file() and facts["launching"] == recorder.stream().native


@pytest.mark.parametrize(("others", "replayed"), [([2], [1, 2]), ([2, 3], [1, 2]), ([], [1])])
def test_a_replayed_step_has_all_functions_that_learn_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: list[int], replayed: list[int]
) -> None:
    """2 learns too, 3 does not, and 4 is called once only, behind a step: what follows a step is not replayed. However
    long a replay takes, it is not broken off."""
    with_gpu = SimpleNamespace(config=SimpleNamespace(list_logical_devices=lambda kind: ["GPU:0"]))
    graph = GraphPass(Recorder(str(tmp_path)), with_gpu, True, replay=True)
    train = SimpleNamespace(_list_all_concrete_functions=list)
    heard: list[object] = []
    marks = (lambda: heard.append("begin"), lambda: heard.append("end"))
    monkeypatch.setattr(graph_pass, "find_profiler_marks", lambda: marks)
    for name in ("tensorflow", "tensorflow.python", "tensorflow.python.profiler"):  # which need not be installed
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(profiler_v2=SimpleNamespace()))
    monkeypatch.setattr(tensorflow_devices, "wait", lambda tf: None)
    monkeypatch.setattr(piece_pass, "LONGEST", -1)

    def call(number: int) -> None:
        graph.comes(number)
        if number < 3 and graph.begin_call(number, train):
            heard.append(number)
            graph.note_call(number, train, 0, traced=False)
        elif number >= 3:
            graph.end_if_late()

    for step in range(AFTER + 3):
        for number in (1, *others, *([4] * (step == AFTER))):
            call(number)
    assert heard == ["begin", *replayed, "end"]
