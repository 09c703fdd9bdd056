"""Executors: every task once, whatever dies; measurements alone on their node and never repeated in silence."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cluster_work
from sonda.record.errors import SondaError
from sonda.studies.executors.choice import executor_for
from sonda.studies.executors.executor import Done, Executor, Here, Task, attempt
from sonda.studies.executors.processes import Processes
from sonda.version import VERSION

TESTS = Path(__file__).parent


def outcomes(executor: Executor, work: Any, orders: list[Any]) -> list[Done]:
    tasks = [Task(number, order) for number, order in enumerate(orders)]
    return sorted(executor.run(work, tasks), key=lambda done: done.number)


@pytest.fixture(scope="module")
def crew() -> Iterator[Processes]:
    executor = Processes(2)
    yield executor
    executor.close()


@pytest.mark.parametrize("kind", ["here", "processes"])
def test_every_task_is_done_once(kind: str, crew: Processes) -> None:
    executor: Executor = Here() if kind == "here" else crew
    assert [done.value for done in outcomes(executor, cluster_work.square, list(range(7)))] == [
        0, 1, 4, 9, 16, 25, 36,
    ]  # fmt: skip
    (refused,) = outcomes(executor, cluster_work.refuse, [5])
    assert (refused.failure, refused.remedy, refused.lost) == ("5 cannot be", "give another", False)
    (failed,) = outcomes(executor, cluster_work.fail, [5])
    assert failed.failure == "ValueError: number 5"


def test_a_process_that_dies_is_replaced_and_its_task_done_again(crew: Processes, tmp_path: Path) -> None:
    file = str(tmp_path / "was here")
    found = outcomes(crew, cluster_work.die_once, [(number, file) for number in range(6)])
    assert [done.value for done in found] == [0, 1, 2, 3, 4, 5]


def test_what_kills_every_process_is_given_up(crew: Processes) -> None:
    found = outcomes(crew, cluster_work.die, list(range(6)))
    assert [done.value for done in found] == [0, 1, 2, None, 4, 5]
    assert found[3].lost and "died" in found[3].failure
    assert [done.value for done in outcomes(crew, cluster_work.square, [2, 3])] == [4, 9]


def test_whoever_stops_listening_leaves_no_process_at_work(tmp_path: Path) -> None:
    executor = Processes(2)
    tasks = [Task(0, (str(tmp_path / "a"), 0.0)), Task(1, (str(tmp_path / "b"), 60.0))]
    running = executor.run(cluster_work.append_and_wait, tasks)
    first = next(running)
    assert first.number == 0
    running.close()  # type: ignore[attr-defined]
    executor.close()
    assert [done.value for done in outcomes(executor, cluster_work.square, [3])] == [9]
    executor.close()


def test_another_version_is_refused() -> None:
    done = attempt(cluster_work.square, Task(0, 3), "0.0.9")
    assert VERSION in done.failure and "0.0.9" in done.failure and done.value is None


def test_choices() -> None:
    with executor_for() as one, executor_for(3) as three:
        assert isinstance(one, Here) and isinstance(three, Processes) and three.workers == 3
    with pytest.raises(SondaError, match="--workers -1"), executor_for(-1):
        pass


# ---- Dask, with real schedulers and workers ---------------------------------------------------------------------


class Machinery:
    """A scheduler on the loopback and workers, each a process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "scheduler.json"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.begin("scheduler", ["scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(self.file)])
        self.wait_for(self._written)

    def _written(self) -> bool:
        """The file appears before its content."""
        return self.file.exists() and self.file.read_text().rstrip().endswith("}")

    def begin(self, name: str, words: list[str], node: str = "", before: str = "pass") -> None:
        program = f"{before}; from dask.__main__ import main; main()"
        environment = {**os.environ, "PYTHONPATH": str(TESTS), "SONDA_NODE": node, "OMP_NUM_THREADS": "1"}
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-c", program, *words, *([] if "worker" in words else ["--no-dashboard"])],
                stdout=log, stderr=log, env=environment,
            )  # fmt: skip

    def worker(self, name: str, node: str, before: str = "pass") -> None:
        words = ["worker", "--scheduler-file", str(self.file), "--nthreads", "1", "--no-nanny", "--no-dashboard"]
        self.begin(name, [*words, "--name", name], node, before)

    @property
    def address(self) -> str:
        return str(json.loads(self.file.read_text())["address"])

    def wait_for(self, true: Any, seconds: float = 60) -> None:
        until = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < until, "waited too long"
            time.sleep(0.1)

    def wait_for_workers(self, count: int) -> None:
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(count, timeout=90)

    def end(self, name: str, how: int = signal.SIGKILL) -> None:
        process = self.processes.pop(name)
        process.send_signal(how)
        process.wait()

    def close(self) -> None:
        for name in list(self.processes):
            self.end(name)


@pytest.fixture(scope="module")
def machinery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machinery]:
    pytest.importorskip("distributed", reason="Dask is not installed")
    made = Machinery(tmp_path_factory.mktemp("dask"))
    made.worker("one", "north")
    made.worker("two", "north")
    made.worker("three", "south")
    made.wait_for_workers(3)
    yield made
    made.close()


@pytest.mark.slow
def test_measuring_is_alone_on_its_node(machinery: Machinery) -> None:
    with executor_for(cluster=machinery.address, exclusive=True) as executor:
        assert executor.workers == 2
        found = [done.value for done in outcomes(executor, cluster_work.when, [("", 0.3)] * 6)]
    for node in ("north", "south"):
        spans = sorted((begin, end) for where, begin, end, _ in found if where == node)
        assert spans and all(one[1] <= other[0] for one, other in itertools.pairwise(spans))


@pytest.mark.slow
def test_simulating_uses_every_worker(machinery: Machinery) -> None:
    with executor_for(cluster=machinery.address) as executor:
        assert executor.workers == 3
        found = [done.value for done in outcomes(executor, cluster_work.when, [("", 0.2)] * 9)]
    assert len({process for *_, process in found}) == 3


@pytest.mark.slow
def test_tasks_go_where_they_must(machinery: Machinery) -> None:
    with executor_for(cluster=machinery.address, exclusive=True) as executor:
        tasks = [Task(number, ("", 0.0), node="south") for number in range(3)]
        assert {done.value[0] for done in executor.run(cluster_work.when, tasks)} == {"south"}
        (lacking,) = executor.run(cluster_work.when, [Task(0, ("", 0.0), needs=("gpu",))])
        assert "no worker has what it needs (gpu)" in lacking.failure


@pytest.mark.slow
def test_a_killed_measurement_is_lost_and_not_repeated(machinery: Machinery, tmp_path: Path) -> None:
    file = tmp_path / "began"
    machinery.worker("four", "west")
    machinery.wait_for_workers(4)
    with executor_for(cluster=machinery.address, exclusive=True) as executor:
        killer = threading.Thread(target=lambda: (machinery.wait_for(file.exists), machinery.end("four")))
        killer.start()
        (done,) = executor.run(cluster_work.append_and_wait, [Task(0, (str(file), 60.0), node="west")])
        killer.join()
    assert done.lost and done.value is None
    time.sleep(1)
    assert file.read_text() == "begun\n"


@pytest.mark.slow
def test_a_node_that_comes_back_gets_its_other_tasks(machinery: Machinery, tmp_path: Path) -> None:
    file = tmp_path / "began"
    machinery.worker("five", "east")
    machinery.wait_for_workers(4)

    def replace() -> None:
        machinery.wait_for(file.exists)
        machinery.end("five")
        machinery.worker("six", "east")

    with executor_for(cluster=machinery.address, exclusive=True) as executor:
        thread = threading.Thread(target=replace)
        thread.start()
        tasks = [Task(0, (str(file), 60.0), node="east"), Task(1, (str(tmp_path / "second"), 0.0), node="east")]
        found = {done.number: done for done in executor.run(cluster_work.append_and_wait, tasks)}
        thread.join()
    assert found[0].lost and not found[1].failure
    machinery.end("six")


@pytest.mark.slow
def test_two_versions_do_not_work_together(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed")
    made = Machinery(tmp_path)
    try:
        with pytest.raises(SondaError, match="has no workers"), executor_for(cluster=made.address):
            pass
        made.worker("old", "north", "import sonda.version; sonda.version.VERSION = '0.0.9'")
        made.wait_for_workers(1)
        with pytest.raises(SondaError, match=rf"north has Sonda 0\.0\.9, and this is {VERSION}"):
            with executor_for(cluster=made.address):
                pass
    finally:
        made.close()


@pytest.mark.slow
@pytest.mark.parametrize("exclusive", [True, False])
def test_a_scheduler_that_goes_away_loses_its_tasks_and_says_so(
    exclusive: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = pytest.importorskip("sonda.studies.executors.cluster")
    pytest.importorskip("distributed", reason="Dask is not installed")
    monkeypatch.setattr(cluster, "PATIENCE_S", 2)
    made = Machinery(tmp_path)
    file = tmp_path / "began"
    try:
        made.worker("one", "north")
        made.wait_for_workers(1)
        with executor_for(cluster=made.address, exclusive=exclusive) as executor:
            killer = threading.Thread(target=lambda: (made.wait_for(file.exists), made.end("scheduler")))
            killer.start()
            found = outcomes(executor, cluster_work.append_and_wait, [(str(file), 60.0), (str(file), 0.0)])
            killer.join()
        assert [done.lost for done in found] == [True, True]
        assert file.read_text() == "begun\n"
    finally:
        made.close()


def test_no_scheduler_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed")
    monkeypatch.setattr("sonda.studies.executors.cluster.TIMEOUT_S", 2)
    with pytest.raises(SondaError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        with executor_for(cluster="tcp://127.0.0.1:9"):
            pass


SBATCH = """#!/bin/sh
# Stands in for Slurm: runs the job at once on this machine.
for last; do :; done
cp "$last" {folder}/job.sh
setsid sh {folder}/job.sh >{folder}/job.log 2>&1 &
echo "Submitted batch job $!"
"""


@pytest.mark.slow
def test_workers_that_a_queue_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a stand-in for sbatch and scancel: there is no Slurm where tests run."""
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    for name, text in {"sbatch": SBATCH.format(folder=tmp_path), "scancel": "#!/bin/sh\nkill -- -$1\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.chdir(tmp_path)
    with executor_for(1, "slurm:partition=short,time=00:10:00,host=127.0.0.1", exclusive=True) as executor:
        assert [done.value for done in outcomes(executor, cluster_work.square, [3, 4])] == [9, 16]
    job = (tmp_path / "job.sh").read_text()
    assert "#SBATCH -p short" in job and "#SBATCH --exclusive" in job and "#SBATCH -t 00:10:00" in job


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
