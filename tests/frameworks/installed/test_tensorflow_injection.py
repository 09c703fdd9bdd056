"""`sonda run -- python train.py` on real interpreters: found by its imports, whichever framework Keras computes in."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sonda.analysis.rules.limit_findings import Retraced
from sonda.analysis.run_summary import summarise
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.targets import circumstances
from sonda.targets.program.launcher import WatchSettings, run_command

pytest.importorskip("tensorflow")
PROGRAMS = Path(__file__).parent / "programs"

from observed import check_structure, seen  # noqa: E402


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store for programs whose machine needs no measuring."""
    monkeypatch.setattr(circumstances, "load_or_measure", lambda root, threads, machine: {})
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return Store(tmp_path / "store")


def watched(store: Store, program: str, *arguments: str) -> Run:
    run, code = run_command((sys.executable, str(PROGRAMS / f"{program}.py"), *arguments), store, WatchSettings())
    assert code == 0
    check_structure(run.spans)
    failed = ("nothing was observed", "the program ran unobserved", "not all of the program")
    assert not [note for note in run.info.notes if note.startswith(failed)], run.info.notes
    return run


@pytest.mark.parametrize("backend", ["tensorflow", "torch", "jax"])
def test_keras_is_seen_alike_on_every_framework(store: Store, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    """Importing TensorFlow imports JAX too, and the program computes in one of them."""
    pytest.importorskip(backend)
    monkeypatch.setenv("KERAS_BACKEND", backend)
    run = watched(store, "keras_fit", "graph")
    found = seen(run.spans)
    assert found.parts == [("train", 6), ("validate", 2)] * 3 + [("test", 4 + 2)]
    assert found.epochs == 3 + 3 + 2
    assert run.info.workload.framework == backend
    assert {"keras", backend} <= set(run.info.versions)
    if backend == "torch":
        assert found.phases["backward"] == 18 and found.counted, "PyTorch's operations are counted"
    else:
        # Five steps of what is compiled ran under the framework's own profiler, which tells their phases apart; fewer
        # where a loaded machine takes too long for them.
        assert 1 <= found.phases["backward"] <= 5 and found.phases["fused"] == 18 - found.phases["backward"]
        assert found.counted, "FLOPs of what is compiled are counted"
        assert len(run.info.workload.traced) >= 2


def test_a_program_that_traces_again_and_again_is_told_so(store: Store) -> None:
    verdicts = summarise(watched(store, "retracing")).verdicts
    said = next(verdict for verdict in verdicts if verdict.kind == "retracing")
    assert isinstance(said.finding, Retraced) and said.finding.where.startswith("retracing.py:")
    assert said.finding.function in ("by_shape", "by_value", "anew")
    assert (said.finding.traces, said.finding.calls) == (6, 6)
    assert len(said.remedies) == 1
