"""A store that several machines see: what one of them wrote may be seen late by another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sonda.record.store import Store
from sonda.studies import elsewhere
from sonda.studies.executors.executor import Done, Here, Task
from test_cluster_nodes import SIMULATED, carry_out, keep


class Late(Here):
    """Another machine that wrote the runs: the store has them, and this machine does not see them yet."""

    def __init__(self, store: Store, hidden: Path) -> None:
        self.store, self.hidden = store, hidden

    def run(self, work: Any, tasks: Iterable[Task]) -> Iterator[Done]:
        for group in tasks:
            done = []
            for task in group.order:
                run = keep(self.store, task.order.point)
                run.directory.rename(self.hidden / run.directory.name)
                done.append(Done(task.number, run.directory.name))
            yield Done(group.number, done)

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
