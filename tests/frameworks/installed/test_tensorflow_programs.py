"""Unmodified TensorFlow and Keras programs: what is seen of them, and that nothing about them changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns

import numpy as np
import pytest

from sonda.frameworks.reconstruction.assembly import Assembly, assemble
from sonda.record.spans import Spans
from sonda.targets.profiles.kernels import with_kernels
from sonda.targets.profiles.tensorflow import with_graph_layers
from sonda.targets.profiles.tensorflow_events import read_profile_events

pytest.importorskip("tensorflow")
PROGRAMS = Path(__file__).parent / "programs"

from gpu_profile import with_gpu  # noqa: E402
from observed import check_structure, seen, share_of_data  # noqa: E402


@dataclass
class Ran:
    code: int
    output: str
    directory: Path
    begin: int = 0
    assembly: Assembly | None = None

    @property
    def spans(self) -> Spans:
        assert self.assembly is not None
        return self.assembly.spans

    @property
    def traced(self) -> dict[str, dict]:
        assert self.assembly is not None
        return {one["function"]: one for one in self.assembly.traced}


class Nursery:
    """One process with TensorFlow in memory that forks a child per program."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.ran: dict[tuple[str, ...], Ran] = {}
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAMS / "tensorflow_nursery.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"},
        )

    def run(self, program: str, *arguments: str, observe: bool = True, **settings: bool) -> Ran:
        """Each once, whoever asks."""
        key = (program, *arguments, str(observe), *settings)
        if key not in self.ran:
            self.ran[key] = self._run(program, *arguments, observe=observe, settings=settings)
        return self.ran[key]

    def _run(self, program: str, *arguments: str, observe: bool, settings: dict[str, bool]) -> Ran:
        directory = self.place / str(len(self.ran))
        directory.mkdir()
        order = {
            "program": str(PROGRAMS / f"{program}.py"),
            "arguments": list(arguments),
            "output": str(directory / "output.txt"),
            # Five calls are waited for however long a loaded machine takes: tests count them.
            "settings": {"directory": str(directory), "longest": 1 << 62, **settings} if observe else None,
        }
        assert self._process.stdin and self._process.stdout
        begin = perf_counter_ns()
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        code = os.waitstatus_to_exitcode(int(self._process.stdout.readline()))
        ran = Ran(code, (directory / "output.txt").read_text(), directory, begin)
        assert [path.read_text() for path in directory.glob("*.failure")] == []
        if observe:
            ran.assembly = assemble(directory, begin, perf_counter_ns())
        return ran

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    made = Nursery(tmp_path_factory.mktemp("programs"))
    yield made
    made.close()


def words(spans: Spans, column: str, **wanted: str) -> list[str]:
    return list(spans.words(column).decoded()[spans.where(**wanted)])


@pytest.mark.parametrize(
    ("program", "mode", "code"),
    [
        ("keras_fit", "graph", 0),
        ("keras_fit", "eager", 0),
        ("custom_loop", "graph", 5),
        ("custom_loop", "eager", 5),
        ("custom_loop", "manual", 5),
        ("slow_input", "map", 0),
        ("slow_input", "executions", 0),
        ("slow_input", "workers", 0),
        ("slow_input", "iterator", 0),
    ],
)
def test_weights_output_and_exit_code_are_those_of_the_bare_program(
    nursery: Nursery, program: str, mode: str, code: int
) -> None:
    bare, observed = nursery.run(program, mode, observe=False), nursery.run(program, mode)
    assert bare.code == observed.code == code
    assert bare.output == observed.output and len(bare.output) > 64
    check_structure(observed.spans)


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_the_loops_of_keras_say_parts_and_epochs(nursery: Nursery, mode: str) -> None:
    """48 samples by 8, three times, each followed by 16 by 8; then 64 by 16, and 64 by 32."""
    found = seen(nursery.run("keras_fit", mode).spans)
    assert found.parts == [("train", 6), ("validate", 2)] * 3 + [("test", 4 + 2)]
    assert found.epochs == 3 + 3 + 2


def test_a_step_that_is_one_graph_is_one_phase_behind_its_wait(nursery: Nursery) -> None:
    spans = nursery.run("keras_fit", "graph").spans
    steps = np.flatnonzero(spans.where(kind="step", pass_="timed"))
    name, parent = spans.words("name").decoded(), spans.number("parent")
    training = {step for step in steps if name[parent[parent[step]]] == "train"}
    phases = np.flatnonzero(spans.where(kind="phase", pass_="timed"))
    # Of 18 one is traced, five run under TensorFlow's profiler, and one waits for it; the last of each walk through the
    # data has no next fetch to tell its wait by, and one of these three is among the five.
    assert [name[row] for row in phases if parent[row] in training] == ["data", "fused"] * 9
    assert sorted(words(spans, "name", kind="phase", pass_="pieces")) == ["data"] * 4 + ["fused"] * 5
    assert {name[row] for row in phases if parent[row] not in training} == {"forward", "data"}
    assert seen(spans).phases == {"fused": 18, "forward": 6 + 4 + 2, "data": (18 - 1 - 3) + (2 - 0) + (4 - 2) + 2}
    assert not words(spans, "path", kind="layer"), "layers cannot be seen inside a graph"


def test_layers_inside_a_graph_are_joined_from_tensorflows_profile(nursery: Nursery) -> None:
    """They are the layers that the same program has where it runs layer by layer, and lie inside their calls."""
    ran = nursery.run("keras_fit", "graph")
    assert ran.assembly is not None
    spans, notes = with_graph_layers(ran.assembly, ran.spans, ran.directory, ran.begin)
    assert len(notes) == 3 and "under TensorFlow's profiler" in notes[0] and notes[2].startswith("FLOPs are those")
    assert ran.assembly.graphs[0]["spent_s"] > 0 and notes[1].startswith("the program waited ")
    eager = nursery.run("keras_fit", "eager").spans
    found = {*zip(words(spans, "path", kind="layer"), words(spans, "name", kind="layer"), strict=True)}
    known = {*zip(words(eager, "path", kind="layer"), words(eager, "name", kind="layer"), strict=True)}
    assert {("hidden", "Dense"), ("output", "Dense")} <= found <= known
    for direction in ("forward", "backward"):
        assert {"hidden", "output"} <= set(words(spans, "path", kind="layer", direction=direction))
    # 8 x 12 x 16 and 8 x 16 x 3, forward and for the weights, the second also for its input: 2 FLOP each.
    products = spans.metric("flops", "nominal")[spans.where(kind="op", name="tensorflow.MatMul")]
    assert products.sum() == 2 * (2 * 8 * 12 * 16 + 3 * 8 * 16 * 3)
    inner = sorted(words(spans, "name", kind="phase", pass_="pieces"))
    assert inner == sorted(["forward", "loss", "backward", "optimizer"] * 5 + ["data"] * 4)
    check_structure(spans)


@pytest.mark.parametrize(
    ("mode", "products", "said"),
    [
        ("turns", 2 * 2 * 4 * (8 * 8 + 32 * 32), "FLOPs are those of the graph"),
        ("folds", 2 * 4 * (2 * 12 * 8 + 3 * 8), "FLOPs are those of the graph"),
        ("models", 0, "FLOPs are not counted: its steps do not all call the same functions"),
        ("last", 2 * 2 * 4 * 8 * 8, "FLOPs are those of the graph"),
        ("lengths", 0, "FLOPs are not counted: calls have 3 shapes, the most frequent in 8 of 23 calls"),
        ("five", 0, "FLOPs are not counted: 5 functions learn, and no more than 4 are counted"),
    ],
)
def test_flops_of_several_functions_are_those_of_their_steps_or_nobodys(
    nursery: Nursery, mode: str, products: int, said: str
) -> None:
    """4 rows through 8 x 8 and 32 x 32, or 12 x 8 and 8 x 1: 2 FLOP each forward and for the weight, and for the input
    of the second layer. Most calls say the shapes; of the first nothing is known before it is over."""
    ran = nursery.run("several_learners", mode)
    assert ran.code == 0 and ran.assembly is not None
    spans, notes = with_graph_layers(ran.assembly, ran.spans, ran.directory, ran.begin)
    assert [note for note in notes if note.startswith(said)] and len([one for one in notes if "FLOPs" in one]) == 1
    counted = spans.where(kind="op", name="tensorflow.MatMul")
    assert (spans.metric("flops", "nominal")[counted].sum() if counted.any() else 0) == products
    one_of_them = "2 functions of the program learn; layers are those of 1 of them"
    assert (one_of_them in notes) == (mode in ("folds", "models"))
    check_structure(spans)


def test_layers_of_two_networks_that_learn_in_turns_are_told_apart(nursery: Nursery) -> None:
    """Steps of both functions are whole; a layer that a step calls again is one row. Products of 4 rows, 8 x 16 and
    16 x 8, by hand: the critic reads twice and learns (its last layer also for its input), then reads once for the
    generator (both for their input); the generator draws twice, and learns once."""
    ran = nursery.run("several_learners", "adversaries")
    assert ran.code == 0 and ran.assembly is not None
    spans, notes = with_graph_layers(ran.assembly, ran.spans, ran.directory, ran.begin)
    assert [note for note in notes if "missing" in note or "learn;" in note] == []
    steps = spans.number("parent")[spans.where(kind="phase", name="backward", pass_="pieces")]
    assert len(steps) == 8 and len(set(steps.tolist())) == 4, "the fifth step waits for the profile to be written"
    found = {*zip(words(spans, "path", kind="layer"), words(spans, "name", kind="layer"), strict=True)}
    layers = {(f"{model}.{layer}", "Dense") for model in ("generator", "critic") for layer in ("hidden", "last")}
    assert found == layers | {("generator", "Sequential"), ("critic", "Sequential")}
    each = 2 * 4 * 8 * 16
    flops = {path: 0.0 for path, _ in layers}
    path = spans.words("path").decoded()[spans.number("parent")]
    for row in np.flatnonzero(spans.where(kind="op", name="tensorflow.MatMul")):
        flops[path[row]] += spans.metric("flops", "nominal")[row]
    assert flops == {
        "critic.hidden": (2 + 2 + 1 + 1) * each, "critic.last": (2 + 2 + 2 + 1 + 1) * each,
        "generator.hidden": (2 + 1) * each, "generator.last": (2 + 2) * each,
    }  # fmt: skip
    check_structure(spans)


def test_tracing_is_apart_from_running(nursery: Nursery) -> None:
    """`fit`, its validation, `evaluate` by another size and `predict` trace once each; one step waits for a profile."""
    run = nursery.run("keras_fit", "graph")
    spans = run.spans
    # Four are traced, one waits for the profiler, and the last of each walk is set apart.
    assert int(spans.where(kind="step", pass_="warmup").sum()) == 4 + 1 + 2 + 3 + 1
    inside = spans.where(kind="compile", pass_="warmup")
    assert int(inside.sum()) == 4
    around = spans.number("parent")[inside]
    assert set(spans.words("kind").decoded()[around]) == {"phase"}
    assert np.all(spans.number("duration")[inside] < spans.number("duration")[around])
    assert {one: fact["traces"] for one, fact in run.traced.items()} == {
        "the train function of Keras": 1, "the test function of Keras": 2, "the predict function of Keras": 1,
    }  # fmt: skip
    fit = run.traced["the train function of Keras"]
    assert fit["calls"] == 18 and 0 < fit["trace_s"] < fit["call_s"]


def test_without_a_graph_layers_and_phases_are_seen(nursery: Nursery) -> None:
    run = nursery.run("keras_fit", "eager")
    found = seen(run.spans)
    calls = 18 + 6 + 4 + 2
    assert found.forward == {"": calls, "hidden": calls, "dropout": calls, "output": calls}
    assert found.phases["forward"] == found.phases["data"] == calls
    assert found.phases["backward"] == found.phases["optimizer"] == 18
    assert run.traced == {}
    assert set(words(run.spans, "name", kind="layer")) == {"Sequential", "Dense", "Dropout"}


@pytest.mark.parametrize("mode", ["graph", "eager", "manual"])
def test_a_loop_of_ones_own_has_steps_and_epochs(nursery: Nursery, mode: str) -> None:
    """60 samples by 10, three times, then two batches without learning. In a graph a function without weights changes
    each batch before: no validation, also not its first call, before anything is known to have weights."""
    run = nursery.run("custom_loop", mode)
    found = seen(run.spans)
    assert found.parts == [("train", 18), ("test", 2)]
    assert found.epochs == 3 + 1
    assert found.phases["data"] == 20
    if mode == "graph":
        assert found.phases["fused"] == 18 and found.phases["forward"] == 2
    else:
        assert found.phases["backward"] == 18
        assert found.phases.get("optimizer", 0) == (18 if mode == "eager" else 0)


def test_layers_of_one_name_are_told_apart(nursery: Nursery) -> None:
    assert seen(nursery.run("custom_loop", "eager").spans).forward == {"": 20, "same": 20, "same#2": 20}


def test_tracing_again_is_found_with_its_cause(nursery: Nursery) -> None:
    traced = nursery.run("retracing").traced
    assert {name: (one["traces"], one["calls"]) for name, one in traced.items()} == {
        "by_shape": (6, 6), "by_value": (6, 6), "steady": (1, 6), "anew": (6, 6),
    }  # fmt: skip
    assert [(traced[name]["cause"], traced[name]["argument"]) for name in ("by_shape", "by_value", "anew")] == [
        ("shape", "x"), ("python", "power"), ("new", ""),
    ]  # fmt: skip
    assert traced["by_shape"]["examples"] == [f"float32[{rows}, 4]" for rows in (1, 2, 3, 4)]
    assert traced["by_value"]["examples"] == ["0", "1", "2", "3"]
    assert traced["steady"]["cause"] == ""
    assert traced["anew"]["where"].startswith("retracing.py:")


def test_a_graph_that_was_made_before_it_is_called_is_known_to_learn(nursery: Nursery) -> None:
    """After the functions without gradients, `made_before` is called three times."""
    run = nursery.run("retracing")
    assert seen(run.spans).parts == [("validate", 24), ("train", 3)]
    assert "made_before" in words(run.spans, "name", kind="compile")
    assert "made_before" not in run.traced, "it was not traced in a call"


def test_what_xla_compiles_is_apart_from_running(nursery: Nursery) -> None:
    """Two functions of one body: three calls that trace and compile; then one trace, three compilations, six calls."""
    run = nursery.run("xla_shapes")
    assert [(one["traces"], one["calls"], one["xla"]) for one in run.assembly.traced] == [(6, 9, True)]
    told = run.assembly.traced[0]
    assert (told["cause"], told["argument"]) == ("shape", "x")
    assert told["examples"] == [f"float32[{rows}, 4]" for rows in (1, 2, 3)]
    spans = run.spans
    assert words(spans, "pass", kind="phase") == ["warmup"] * 6 + ["timed"] * 3
    compiled = spans.where(kind="compile", name="body: XLA")
    assert int(compiled.sum()) == 6 and int(spans.where(kind="compile", name="body").sum()) == 3 + 1
    around = spans.number("parent")[compiled]
    assert set(spans.words("kind").decoded()[around]) == {"phase"}
    assert np.all(spans.number("duration")[compiled] <= spans.number("duration")[around])
    check_structure(spans)


def test_what_xla_compiles_for_a_smaller_last_batch_of_keras_is_apart_from_running(nursery: Nursery) -> None:
    """Of 3 x 5 steps two make something: the first, and the first of 8 samples; the last four run under the profiler.

    Validation has 10 and 6 samples, `evaluate` 16 four times, `predict` 32 twice.
    """
    run = nursery.run("keras_fit", "xla")
    spans = run.spans
    of = {one["function"]: one for one in run.assembly.traced}
    fit, test = of["the train function of Keras"], of["the test function of Keras"]
    assert (fit["calls"], fit["traces"], fit["xla"]) == (15, 2, True)
    assert (fit["cause"], fit["argument"], fit["examples"]) == ("shape", "data", ["batch[10]", "batch[8]"])
    assert (test["calls"], test["traces"]) == (3 * 2 + 4, 2 + 1)
    passes = words(spans, "pass", kind="phase", name="fused")
    # The wait of the fourth ends where the fifth, which is compiled anew, begins its own.
    assert passes == ["warmup", *["timed"] * 2, *["warmup"] * 2, *["timed"] * 4, "warmup", "timed", *["pieces"] * 4]
    compiled = spans.where(kind="compile", name="the train function of Keras: XLA")
    assert int(compiled.sum()) == 2
    assert spans.number("duration")[compiled].min() > 0
    layers, notes = with_graph_layers(run.assembly, spans, run.directory, run.begin)
    assert "under TensorFlow's profiler" in notes[0]
    assert {"hidden", "output"} <= set(words(layers, "path", kind="layer", direction="backward"))
    check_structure(layers)


def test_kernels_of_a_program_on_a_gpu_belong_to_the_calls_that_launched_them(nursery: Nursery) -> None:
    """There is none here: the program is taken to run on one, and a GPU is put into the profile of its calls."""
    run = nursery.run("custom_loop", "graph", as_on_gpu=True)
    assert run.output == nursery.run("custom_loop", "graph", observe=False).output
    assembly = run.assembly
    assert assembly.devices == {"0": {"name": "Example"}} and assembly.no_kernels == ""
    assert ["profile" in graph for graph in assembly.graphs] == [False], "the host's times say nothing of layers"
    calls = np.flatnonzero(run.spans.where(kind="phase", name="fused", pass_="kernels"))
    assert len(calls) == 5
    with_gpu(assembly, run.directory, run.begin, calls, 40)
    found = with_kernels(assembly, run.directory, run.begin)
    kernels = np.flatnonzero(found.spans.where(kind="kernel"))
    assert found.spans.number("parent")[kernels].tolist() == calls.tolist()
    assert set(found.spans.number("duration")[kernels]) == {40}
    assert [note for note in found.notes if "left out" in note] == []


def test_the_framework_and_its_threads_are_stated(nursery: Nursery) -> None:
    assembly = nursery.run("keras_fit", "graph").assembly
    assert assembly is not None
    assert assembly.framework == "tensorflow"
    assert assembly.threads == 1
    assert {"python", "tensorflow", "keras"} <= set(assembly.versions)
    assert assembly.span_ns and assembly.phase_ns and assembly.reading["os_ns"]
    assert not assembly.truncated


# ---- waiting for input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "part"), [("map", "train"), ("dataset", "train"), ("iterator", "train"), ("validation", "validate")]
)
def test_a_graph_that_fetches_slow_input_waits_for_it(nursery: Nursery, mode: str, part: str) -> None:
    """A batch takes 40 ms of sleep, one after the other; the model takes a millisecond or two."""
    assert share_of_data(nursery.run("slow_input", mode).spans, part) > 0.5


def test_the_wait_is_that_of_tensorflows_own_profile(nursery: Nursery) -> None:
    """A second source: the profiler's events of the operation that fetches, in the calls that it recorded."""
    ran = nursery.run("slow_input", "map")
    assert ran.assembly is not None
    graph = ran.assembly.graphs[0]
    events = [
        one for one in read_profile_events(ran.directory / graph["profile"]) if one.name.startswith("IteratorGetNext")
    ]
    fetched = [one.end - one.start for one in sorted(events, key=lambda one: one.start)]
    spans = ran.spans
    waited = spans.number("duration")[spans.where(kind="phase", name="data", pass_="pieces")]
    assert len(fetched) == len(waited) == 5
    # On a busy machine a call begins some milliseconds before its fetch does, now more and now less: 20 of 40 at most.
    assert waited.sum() == pytest.approx(sum(fetched), rel=0.5)


def test_the_stages_of_the_pipeline_are_told(nursery: Nursery) -> None:
    """40 batches of four elements that sleep 10 ms each: the stage that maps has worked for 40 ms a batch at least."""
    assembly = nursery.run("slow_input", "map").assembly
    assert assembly is not None
    (told,) = assembly.pipelines
    stages = {stage["name"]: stage for stage in told["stages"]}
    assert stages["Root"]["elements"] == 40
    assert max(stages, key=lambda name: stages[name]["ns"]) == "MapAndBatch"
    assert stages["MapAndBatch"]["ns"] > 40 * 40e6 and stages["MapAndBatch"]["parallel"] == 1
    assert assembly.crew.part_fed_by(told["loader"]) == "train"
    assert assembly.crew.busiest.loads["loader"] == "tf.data"


def test_workers_of_a_dataset_are_told(nursery: Nursery) -> None:
    assembly = nursery.run("slow_input", "workers").assembly
    assert assembly is not None
    loads = assembly.crew.busiest.loads
    assert (loads["loader"], loads["workers"], loads["worker_kind"]) == ("PyDataset", 2, "threads")
    assert not any("cannot be told" in note for note in assembly.notes)


@pytest.mark.parametrize(
    ("program", "mode"),
    [("keras_fit", "graph"), ("keras_fit", "eager"), ("custom_loop", "graph"), ("slow_input", "map"),
     ("slow_input", "validation"), ("slow_input", "iterator"), ("slow_input", "executions")],
)  # fmt: skip
def test_steps_and_epochs_add_up(nursery: Nursery, program: str, mode: str) -> None:
    """Steps lie one behind the other in their epoch, from its begin to its end; so do epochs in their part."""
    spans = nursery.run(program, mode).spans
    kind, parent = spans.words("kind").decoded(), spans.number("parent")
    start = spans.number("start")
    end = start + spans.number("duration")
    for outer, inner in (("part", "epoch"), ("epoch", "step")):
        for row in np.flatnonzero(kind == outer):
            inside = np.flatnonzero((parent == row) & (kind == inner))
            if not len(inside):
                continue
            inside = inside[np.argsort(start[inside], kind="stable")]
            between = start[inside[1:]] - end[inside[:-1]]
            assert (between >= 0).all()
            assert (start[inside[0]], end[inside[-1]]) == (start[row], end[row])
            assert int((end - start)[inside].sum() + between.sum()) == int(end[row] - start[row])
