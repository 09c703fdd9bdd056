"""Helpers of `test_cluster_nodes.py` that other tests use too."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest

from builders import stepped
from plain_runs import target_of
from sonda.record.run import Run, now, write_run
from sonda.record.store import Store
from sonda.studies.engine import remote as elsewhere
from sonda.studies.engine.plan import StudyPoint
from sonda.studies.engine.runner import StudyResult, run_study
from sonda.studies.executors.executor import ThisProcess
from sonda.studies.file.study import Study

STUDY = Study("two", {"workload": "mlp", "on": "cpu"}, {"batch": (1, 2)}, repeat=1)


def keep(store: Store, point: StudyPoint, target: dict[str, Any] | None = None, **machine: Any) -> Run:
    """A run of the point, by hand: three steps of 2 ms."""
    made = stepped([2.0, 2.0, 2.0])
    info = msgspec.structs.replace(
        made.info, id=point.identity, created=now(), study=point.study, point=point.record(),
        machine=msgspec.structs.replace(made.info.machine, **machine),
        target=made.info.target if target is None else target_of(target),
    )  # fmt: skip
    return write_run(store.root, info, made.spans)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Where runs come together; what a node measures is made by hand in its own store."""
    monkeypatch.setattr(elsewhere.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(elsewhere, "measuring", lambda store, study: lambda point: keep(store, point))
    return Store(tmp_path / "home")


def carry_out(store: Store, nodes: ThisProcess, which: str, study: Study = STUDY) -> StudyResult:
    study = elsewhere.study_on_known_nodes(study, store, nodes.kinds, which)
    spread = lambda points: elsewhere.measure_elsewhere(study, store, nodes, points)  # noqa: E731
    return run_study(study, store, lambda point: keep(store, point), lambda _: None, spread=spread)


SIMULATED = dataclasses.replace(STUDY, workload={"workload": "mlp", "on": "sim:maeri-256"})
