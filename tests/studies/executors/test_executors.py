"""Executors: every task once, whatever dies; measurements alone on their node and never repeated in silence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cluster_work
from sonda.record.errors import SondaError
from sonda.studies.executors.choice import executor_for
from sonda.studies.executors.executor import Executor, ExecutorTask, TaskResult, ThisProcess, attempt_task
from sonda.studies.executors.processes import ProcessPool
from sonda.version import VERSION


def outcomes(executor: Executor, work: Any, orders: list[Any]) -> list[TaskResult]:
    tasks = [ExecutorTask(number, order) for number, order in enumerate(orders)]
    return sorted(executor.run(work, tasks), key=lambda done: done.number)


@pytest.fixture(scope="module")
def crew() -> Iterator[ProcessPool]:
    executor = ProcessPool(2)
    yield executor
    executor.close()


@pytest.mark.parametrize("kind", ["here", "processes"])
def test_every_task_is_done_once(kind: str, crew: ProcessPool) -> None:
    executor: Executor = ThisProcess() if kind == "here" else crew
    assert [done.value for done in outcomes(executor, cluster_work.square, list(range(7)))] == [
        0, 1, 4, 9, 16, 25, 36,
    ]  # fmt: skip
    (refused,) = outcomes(executor, cluster_work.refuse, [5])
    assert (refused.failure, refused.remedy, refused.lost) == ("5 cannot be", "give another", False)
    (failed,) = outcomes(executor, cluster_work.fail, [5])
    assert failed.failure == "ValueError: number 5"


def test_a_process_that_dies_is_replaced_and_its_task_done_again(crew: ProcessPool, tmp_path: Path) -> None:
    file = str(tmp_path / "was here")
    found = outcomes(crew, cluster_work.die_once, [(number, file) for number in range(6)])
    assert [done.value for done in found] == [0, 1, 2, 3, 4, 5]


def test_what_was_done_again_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    with executor_for(2, say=said.append) as executor:
        found = outcomes(executor, cluster_work.die_once, [(number, str(tmp_path / "was here")) for number in (3, 4)])
        assert [done.value for done in found] == [3, 4] and not said
    assert said == ["1 task was done again, because a worker went away before the end"]


def test_what_kills_every_process_is_given_up(crew: ProcessPool) -> None:
    found = outcomes(crew, cluster_work.die, list(range(6)))
    assert [done.value for done in found] == [0, 1, 2, None, 4, 5]
    assert found[3].lost and "died" in found[3].failure
    assert [done.value for done in outcomes(crew, cluster_work.square, [2, 3])] == [4, 9]


def test_whoever_stops_listening_leaves_no_process_at_work(tmp_path: Path) -> None:
    executor = ProcessPool(2)
    tasks = [ExecutorTask(0, (str(tmp_path / "a"), 0.0)), ExecutorTask(1, (str(tmp_path / "b"), 60.0))]
    running = executor.run(cluster_work.append_and_wait, tasks)
    first = next(running)
    assert first.number == 0
    running.close()  # type: ignore[attr-defined]
    executor.close()
    assert [done.value for done in outcomes(executor, cluster_work.square, [3])] == [9]
    executor.close()


def test_another_version_is_refused() -> None:
    done = attempt_task(cluster_work.square, ExecutorTask(0, 3), "0.0.9")
    assert VERSION in done.failure and "0.0.9" in done.failure and done.value is None


def test_choices() -> None:
    with executor_for() as one, executor_for(3) as three:
        assert isinstance(one, ThisProcess) and isinstance(three, ProcessPool) and three.workers == 3
    with pytest.raises(SondaError, match="--workers -1"), executor_for(-1):
        pass


# ---- Dask and Slurm that are not there ---------------------------------------------------------------------------


def test_no_scheduler_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed")
    monkeypatch.setattr("sonda.studies.executors.cluster.TIMEOUT_S", 2)
    with pytest.raises(SondaError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        with executor_for(cluster="tcp://127.0.0.1:9"):
            pass


def test_settings_of_a_queue() -> None:
    from sonda.studies.executors.slurm import settings_of

    assert settings_of("slurm:partition=a,memory=8GB") == {"partition": "a", "memory": "8GB"}
    for wrong in ("slurm:queue=a", "slurm:partition", "slurm:partition="):
        with pytest.raises(SondaError, match="is no setting of Slurm"):
            settings_of(wrong)


def test_no_queue_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SondaError, match="there is no Slurm here"), executor_for(1, "slurm:"):
        pass
