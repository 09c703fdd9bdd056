"""Why calls of compiled functions have no profile: the cause that is told is the one that there was."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sonda.frameworks.collector import piece_pass
from sonda.frameworks.collector.piece_pass import AFTER, CALLS, PROFILING, PiecePass
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.jax.observe.jit_pass import JaxPass
from sonda.frameworks.jax.observe.profiler import start_trace
from sonda.frameworks.reconstruction.assembly import Assembly
from sonda.frameworks.tensorflow.observe.graph_pass import GraphPass
from sonda.record.spans import Spans, Words
from sonda.targets.profiles.tensorflow import with_graph_layers

FULL = OSError(28, "No space left on device")
GRAPH = SimpleNamespace(_list_all_concrete_functions=lambda: [SimpleNamespace(name="__inference_train_12")])


class Pieces(PiecePass):
    """A profiler that fails as it is told."""

    TRIES = 3
    starting: Exception | None = None
    stopping: Exception | None = None

    def start_profile(self, folder: str) -> None:
        if self.starting:
            raise self.starting

    def stop_profile(self, save: bool) -> None:
        if self.stopping:
            raise self.stopping

    def keep_profile(self) -> None:
        pass

    def call(self, traced: bool = False) -> None:
        if self.begin_call(1):
            self.end_call(traced)


@pytest.fixture
def pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pieces:
    monkeypatch.setattr(piece_pass, "LONGEST", 1 << 62)
    return Pieces(Recorder(str(tmp_path)), True)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (RuntimeError("Profile has already been started. Only one profile may be run at a time."), PROFILING),
        (RuntimeError("Another profiler is running."), PROFILING),
        (RuntimeError("ALREADY_EXISTS: Another profiling session is active."), PROFILING),
        (OSError("libcuda.so.1: cannot open shared object file\nat all"),
         "the profiler did not start: libcuda.so.1: cannot open shared object file"),
        (FULL, "the profiler did not start: [Errno 28] No space left on device"),
    ],
)  # fmt: skip
def test_a_profiler_that_does_not_start_says_why(pieces: Pieces, error: Exception, cause: str) -> None:
    """As JAX, TensorFlow and XLA say that one runs already; anything else is not the program's own profile."""
    pieces.starting = error
    for _ in range(AFTER + 1):
        pieces.call()
    assert (pieces.why, pieces.left, pieces.running) == (cause, 0, False)


def test_a_profile_that_is_not_written_says_why(pieces: Pieces) -> None:
    pieces.stopping = FULL
    for _ in range(AFTER + CALLS):
        pieces.call()
    assert pieces.why == "the profile was not written: [Errno 28] No space left on device" and not pieces.folder


def jax_facts(place: Path, profiler: Any, compiled: bool) -> dict:
    """What is stated of 400 calls of a function of JAX."""
    made = JaxPass(Recorder(str(place)), profiler, True)
    text = SimpleNamespace(compile=lambda: SimpleNamespace(as_text=lambda: "HloModule jit_step"))
    for _ in range(400):
        if made.begin_call(1, 0):
            made.note_call(1, "step", "fused", 0, True, compiled, 0, lambda: text)
    return made.facts(True, {})


def test_a_function_of_jax_that_compiles_in_every_call_is_the_cause(tmp_path: Path) -> None:
    profiler = SimpleNamespace(
        ProfileOptions=SimpleNamespace, start_trace=lambda folder, profiler_options: None, stop_trace=lambda: None
    )
    facts = jax_facts(tmp_path, profiler, compiled=True)
    assert facts == {"jitted": [], "why": PiecePass.SPOILT} and "compiled" in PiecePass.SPOILT


def test_a_jax_that_knows_no_options_of_profiles_is_profiled(tmp_path: Path) -> None:
    took: list[str] = []
    start_trace(SimpleNamespace(start_trace=took.append), str(tmp_path))
    assert took == [str(tmp_path)]


@pytest.mark.parametrize("gpus", [[], ["GPU:0"]])
@pytest.mark.parametrize(("traced", "stopping"), [(True, None), (False, FULL)])
def test_a_graph_without_a_profile_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: list[str], traced: bool, stopping: Exception | None
) -> None:
    """A function that is traced in every call, and a disk that is full; of layers on a processor, of kernels on a
    GPU, where it was said that the program took too few steps."""
    monkeypatch.setattr(piece_pass, "LONGEST", 1 << 62)
    tf = SimpleNamespace(config=SimpleNamespace(list_logical_devices=lambda kind: gpus))
    graph = GraphPass(Recorder(str(tmp_path)), tf, True)
    monkeypatch.setattr(graph, "start_profile", lambda folder: None)

    def stop(save: bool) -> None:
        if stopping and save:
            raise stopping

    monkeypatch.setattr(graph, "stop_profile", stop)
    monkeypatch.setattr("sonda.frameworks.tensorflow.observe.devices.describe_gpu", lambda tf, number: {"name": "Toy"})
    graph.note_scope("sequential/dense", "layer", "dense", "Dense", 9)
    for _ in range(400):
        if graph.begin_call(1, GRAPH):
            graph.note_call(1, GRAPH, 0, traced)
    facts = graph.facts()
    cause = GraphPass.SPOILT if traced else "the profile was not written: [Errno 28] No space left on device"
    if gpus:
        assert facts["no_kernels"] == cause
        return
    (about,) = facts["graphs"]
    assert about["why"] == cause
    spans = Spans({"start": np.array([0])}, {"kind": Words.of(["run"])})
    found, notes = with_graph_layers(Assembly(spans=spans, graphs=[about]), spans, tmp_path, 0)
    assert notes == [f"layers inside the graph are missing: {cause}"] and found is spans
