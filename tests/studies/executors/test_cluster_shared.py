"""A store that several machines see: what one of them wrote may be seen late by another."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster_nodes_cases import SIMULATED, STUDY, carry_out, keep
from sonda.analysis.run_rows import rebuild, rows_of
from sonda.record.index import Index, IndexEntry, sizes_of
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.studies.engine import remote as elsewhere
from sonda.studies.engine.plan import plan_points
from sonda.studies.executors.executor import ExecutorTask, TaskResult, ThisProcess
from sonda.version import VERSION


class Late(ThisProcess):
    """Another machine that wrote the runs: the store has them, and this machine does not see them yet."""

    def __init__(self, store: Store, hidden: Path) -> None:
        self.store, self.hidden = store, hidden

    def run(self, work: Any, tasks: Iterable[ExecutorTask]) -> Iterator[TaskResult]:
        for group in tasks:
            done = []
            for task in group.order:
                run = keep(self.store, task.order.point)
                run.directory.rename(self.hidden / run.directory.name)
                done.append(TaskResult(task.number, run.directory.name))
            yield TaskResult(group.number, done)

    def appear(self) -> None:
        for one in self.hidden.iterdir():
            one.rename(self.store.root / one.name)


def test_a_run_that_another_machine_wrote_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hidden").mkdir()
    node = Late(Store(tmp_path / "home"), tmp_path / "hidden")
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) % 3 == 0:
            node.appear()

    monkeypatch.setattr(elsewhere, "sleep", sleep)
    result = carry_out(node.store, node, "", SIMULATED)
    assert len(result.runs) == 2 and not result.failures and len(slept) >= 3


def test_a_run_that_never_appears_is_missing_after_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hidden").mkdir()
    node = Late(Store(tmp_path / "home"), tmp_path / "hidden")
    slept: list[float] = []
    monkeypatch.setattr(elsewhere, "sleep", slept.append)
    result = carry_out(node.store, node, "", SIMULATED)
    assert [why for _, why in result.failures if "is not a run" in why] and not result.runs
    assert sum(slept) == 2 * 60


def test_which_nodes_measured_a_study_is_asked_of_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are read once, however often their nodes are asked for; not at all where a listing has read them before."""
    store = Store(tmp_path)
    of_nodes = [elsewhere.study_on_nodes(STUDY, ["EPYC", "Xeon"], "each"), dataclasses.replace(STUDY, name="other")]
    runs = [keep(store, point) for study in of_nodes for point in plan_points(study)]
    read: list[str] = []
    load = Run.load

    def noted(directory: Path) -> Run:
        read.append(directory.name)
        return load(directory)

    monkeypatch.setattr(Run, "load", noted)
    for _ in range(2):
        assert elsewhere.nodes_of(STUDY, store) == {"EPYC", "Xeon"}
    assert sorted(read) == sorted(run.directory.name for run in runs)
    rebuild(store)
    read.clear()
    assert elsewhere.nodes_of(STUDY, store) == {"EPYC", "Xeon"} and elsewhere.nodes_of(of_nodes[1], store) == set()
    assert not read, "the index was made anew with it"
    list(rows_of(store, None))
    read.clear()
    assert elsewhere.nodes_of(STUDY, store) == {"EPYC", "Xeon"} and not read
    store.remove(runs[0].directory)
    store.remove(runs[1].directory)
    assert elsewhere.nodes_of(STUDY, store) == {str(run.info.point["node"]) for run in runs[2:4]} and not read


def test_rows_of_an_index_that_do_not_say_which_study_are_completed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (run,) = [keep(store, point) for point in plan_points(elsewhere.study_on_nodes(STUDY, ["EPYC"], "each"))[:1]]
    index, name = Index(store.root, VERSION), run.directory.name
    index.add([IndexEntry(name, sizes_of(run.directory), {"listed": "before"})])
    for _ in range(3):
        assert elsewhere.nodes_of(STUDY, store) == {"EPYC"}
    assert index.known([name])[name].row == {"listed": "before"} and index.known([name])[name].node == "EPYC"
    assert len(list(index.folder.iterdir())) == 2, "it was read once"
