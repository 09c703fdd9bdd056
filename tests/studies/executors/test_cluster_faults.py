"""Faults on a cluster, with real schedulers and workers: nothing is lost or done twice, and what happened is said."""

from __future__ import annotations

import errno
import itertools
import shutil
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import cluster_work
import rank_work
from dask_nodes import Machinery
from import_ranks_cases import RANKS, same
from sonda.record.errors import SondaError
from sonda.record.store import Store
from sonda.studies.engine.plan import plan_points
from sonda.studies.engine.remote import measure_elsewhere
from sonda.studies.engine.runner import StudyResult, run_study
from sonda.studies.executors import cluster
from sonda.studies.executors.choice import executor_for, spread_over
from sonda.studies.executors.executor import Executor, ExecutorTask, TaskResult, attempt_task
from sonda.studies.explore import exploration as exploring
from sonda.studies.explore.space import parse_space
from sonda.studies.file.study import Study
from sonda.targets.imported.launcher import import_files
from sonda.targets.job import Job
from sonda.version import VERSION

pytestmark = pytest.mark.slow
STUDY = Study("faults", {"workload": "mlp", "on": "cpu"}, {"batch": (1, 2, 3, 4)}, repeat=1)


@pytest.fixture
def nodes(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machinery]:
    """A scheduler that has no workers yet. A busy machine may take its time to start them."""
    pytest.importorskip("distributed", reason="Dask is not installed")
    monkeypatch.setattr(cluster, "PATIENCE_S", 300)
    monkeypatch.setattr(cluster, "TIMEOUT_S", 120)
    made = Machinery(tmp_path_factory.mktemp("dask"))
    yield made
    made.close()


def outcomes(executor: Executor, work: Any, orders: Sequence[Any], node: str = "") -> list[TaskResult]:
    tasks = [ExecutorTask(number, order, node=node) for number, order in enumerate(orders)]
    return sorted(executor.run(work, tasks), key=lambda done: done.number)


def meanwhile(act: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=act)
    thread.start()
    return thread


def begun(nodes: Machinery) -> list[str]:
    """What was begun to be measured: the batch and the node."""
    path = nodes.folder / "begun"
    return path.read_text().splitlines() if path.exists() else []


def carry_out(nodes: Machinery, store: Store) -> StudyResult:
    with executor_for(cluster=nodes.address, exclusive=True) as executor:
        spread = lambda points: measure_elsewhere(STUDY, store, executor, points)  # noqa: E731
        return run_study(STUDY, store, lambda point: pytest.fail(), lambda _: None, spread=spread)  # type: ignore[arg-type, return-value]


def each_once(store: Store) -> None:
    found = Counter(name.rpartition("-")[2] for name in store.names())
    assert found == Counter(point.identity for point in plan_points(STUDY))


# ---- without faults ----------------------------------------------------------------------------------------------


def test_measuring_is_alone_on_its_node_whoever_asks(nodes: Machinery) -> None:
    nodes.workers(one="north", two="north", three="south")
    found: list[Any] = []

    def ask() -> None:
        with executor_for(cluster=nodes.address, exclusive=True) as executor:
            assert executor.workers == 2
            found.extend(done.value for done in outcomes(executor, cluster_work.when, [("", 0.2)] * 4))

    other = meanwhile(ask)
    ask()
    other.join()
    assert len(found) == 8
    for node in ("north", "south"):
        spans = sorted((begin, end) for where, begin, end, _ in found if where == node)
        assert spans and all(one[1] <= other[0] for one, other in itertools.pairwise(spans))


def test_a_worker_that_is_there_is_seen_whatever_dask_asks_meanwhile(
    nodes: Machinery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask's client asks the scheduler every two seconds for all but its workers, and forgets these for a moment: here
    every millisecond. Sonda looks as often, and gives no healthy measurement up."""
    import dask

    nodes.workers(one="north")
    monkeypatch.setattr(cluster, "POLL_S", 0.001)
    with dask.config.set({"distributed.client.scheduler-info-interval": "1ms"}):
        with executor_for(cluster=nodes.address, exclusive=True) as executor:
            (done,) = outcomes(executor, cluster_work.when, [("", 2.0)])
    assert not done.failure and done.value[0] == "north"


def test_simulating_uses_every_worker_and_tasks_go_where_they_must(nodes: Machinery, tmp_path: Path) -> None:
    nodes.workers(one="north", two="north", three="south")
    with executor_for(cluster=nodes.address) as executor, executor_for(cluster=nodes.address, exclusive=True) as other:
        assert executor.workers == 3
        alone: list[TaskResult] = []
        measuring = meanwhile(lambda: alone.extend(outcomes(other, cluster_work.when, [("", 0.3)] * 4, "north")))
        beside = outcomes(executor, cluster_work.when, [("", 0.05)] * 30)
        measuring.join()
        simulated = [(begin, end) for where, begin, end, _ in (done.value for done in beside) if where == "north"]
        for _, begin, end, _ in (done.value for done in alone):
            assert not any(begin < till and since < end for since, till in simulated), "nobody simulates beside it"
        found = outcomes(executor, cluster_work.together, [(str(tmp_path), 3)] * 3)
        assert len({done.value for done in found}) == 3
        there = outcomes(executor, cluster_work.when, [("", 0.0)] * 3, "south")
        assert {done.value[0] for done in there} == {"south"}
        (refused,) = outcomes(executor, cluster_work.refuse, [5], "south")
        assert refused.failure == "south: 5 cannot be"
        (lacking,) = executor.run(cluster_work.when, [ExecutorTask(0, ("", 0.0), needs=("gpu",))])
        assert "no worker has what it needs (gpu)" in lacking.failure


# ---- workers and nodes -------------------------------------------------------------------------------------------


def test_a_worker_killed_in_the_middle_of_a_run(nodes: Machinery, tmp_path: Path) -> None:
    """What it measured is lost and said to be lost; the other node does the rest; started again, the study goes on."""
    nodes.workers(one="north", three="south")
    store = Store(tmp_path)
    for batch in (1, 2, 3, 4):
        (nodes.folder / f"hold-{batch}").touch()

    def kill() -> None:
        nodes.wait_for(lambda: len(begun(nodes)) == 2)  # one on each node
        nodes.end("three")
        for batch in (1, 2, 3, 4):
            (nodes.folder / f"hold-{batch}").unlink()

    killer = meanwhile(kill)
    result = carry_out(nodes, store)
    killer.join()
    ((point, why),) = result.failures
    assert why == "its worker on south or the scheduler went away; start this again"
    assert f"{point.configuration['batch']} south" in begun(nodes)
    assert len(result.runs) == 3 and len(begun(nodes)) == 4, "nothing is measured twice in silence"
    again = carry_out(nodes, store)
    assert again.measured == 1 and not again.failures
    each_once(store)


def test_a_node_that_disappears_and_comes_back(nodes: Machinery, tmp_path: Path) -> None:
    """What it was doing is lost; what else only it may do waits for it."""
    nodes.workers(four="west")
    first = tmp_path / "first"

    def replace() -> None:
        nodes.wait_for(first.exists)
        nodes.end("four")
        nodes.worker("five", "west")

    with executor_for(cluster=nodes.address, exclusive=True) as executor:
        replacing = meanwhile(replace)
        orders = [(str(first), 600.0), (str(tmp_path / "second"), 0.0)]
        found = outcomes(executor, cluster_work.append_and_wait, orders, "west")
        replacing.join()
    assert found[0].lost and "its worker on west" in found[0].failure
    assert not found[1].failure and first.read_text() == (tmp_path / "second").read_text() == "begun\n"


def test_a_node_that_says_nothing_for_a_while(nodes: Machinery, tmp_path: Path) -> None:
    """Its task is waited for; others go on, also when somebody comes new who has to be asked what he is."""
    silent, other = tmp_path / "silent", tmp_path / "other"
    nodes.workers(one="north", three="west")
    process = nodes.processes["three"]

    def hold() -> None:
        nodes.wait_for(lambda: silent.exists() and other.exists())
        process.send_signal(signal.SIGSTOP)
        silent.with_suffix(".quick").touch()
        nodes.workers(five="east")
        other.with_suffix(".quick").touch()
        nodes.wait_for((tmp_path / "came").exists)
        process.send_signal(signal.SIGCONT)

    with executor_for(cluster=nodes.address, exclusive=True) as executor:
        holding = meanwhile(hold)
        tasks = [ExecutorTask(0, (str(silent), 0), node="west"), ExecutorTask(1, (str(other), 1), node="north")]
        found = []
        for done in executor.run(cluster_work.slow, tasks):
            found.append((done.number, done.value))
            (tmp_path / "came").touch()
        holding.join()
    assert found == [(1, 1), (0, 0)]


def test_a_worker_killed_in_the_middle_of_a_batch(
    nodes: Machinery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.workers(one="north", two="north")
    job = Job(workload="dlrm", options={"preset": "5-1M-2-100"}, on="sim:dlrm-hybrid", threads=1)
    space = parse_space(["perceptrons.read_ports=8,16,32"])
    monkeypatch.setattr(exploring, "explore_part", cluster_work.explore_or_die)
    monkeypatch.chdir(tmp_path)  # workers were started elsewhere, and find it
    with executor_for(cluster=nodes.address) as executor:
        run, undisturbed = (
            exploring.explore(job, space, Store(tmp_path / name), executor=executor, batch=1) for name in ("a", "b")
        )
        said = executor.remarks
    assert (tmp_path / "killed").exists()
    assert len(said) == 1 and "done again" in said[0]  # by Dask itself, or by Sonda where the scheduler gave up
    assert run.points.column("perceptrons.read_ports").to_pylist() == [8, 16, 32]
    assert run.points.to_pydict() == undisturbed.points.to_pydict()


def test_a_worker_killed_in_the_middle_of_an_import(nodes: Machinery, tmp_path: Path) -> None:
    nodes.workers(one="north", two="north")
    mark = tmp_path / "killed"
    with executor_for(cluster=nodes.address) as executor:

        def spread(work: Any, orders: Sequence[Any]) -> Iterator[tuple[int, Any]]:
            doomed = [rank_work.Doomed(order, work.__name__, "write_rank", str(mark)) for order in orders]
            return spread_over(executor)(rank_work.do, doomed)

        run = import_files([RANKS], tmp_path / "runs", spread=spread)
    assert mark.exists()
    assert list((tmp_path / "runs").iterdir()) == [run.directory]
    same(import_files([RANKS], tmp_path / "runs"), run)


# ---- disks, versions, schedulers ---------------------------------------------------------------------------------


def small_disk(place: Path) -> list[str]:
    """Starts a process that finds a disk of 16 KiB at `place`; skips where that needs rights that nobody gives."""
    place.mkdir()
    mounted = f'mount -t tmpfs -o size=16k tmpfs {place} && head -c 12288 /dev/zero > {place}/full && exec "$@"'
    within = ["unshare", "--map-root-user", "--mount", "sh", "-c", f"export TMPDIR={place}; {mounted}", "sh"]
    if shutil.which("unshare") is None or subprocess.run([*within, "true"], capture_output=True).returncode:
        pytest.skip("needs unshare and the right to mount in a namespace of one's own")
    return within


def test_a_full_disk_on_one_node(nodes: Machinery, tmp_path: Path) -> None:
    """Its runs are said to have failed and why; the others are kept; with room again, the study goes on."""
    nodes.worker("roomy", "north")
    nodes.worker("small", "south", within=small_disk(nodes.folder / "disk"))
    nodes.wait_for_workers()
    store = Store(tmp_path)
    result = carry_out(nodes, store)
    assert result.failures and result.runs and len(result.failures) + len(result.runs) == 4
    assert all(why.startswith("south: ") and "No space left on device" in why for _, why in result.failures)
    assert {run.info.machine.host for _, run in result.runs} == {"north"}
    nodes.end("small")
    nodes.wait_for_workers()
    assert not carry_out(nodes, store).failures
    each_once(store)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_only_a_full_disk_is_called_full(number: int) -> None:
    """The twin that needs no rights."""
    done = attempt_task(cluster_work.full, ExecutorTask(0, number))
    assert ("the disk is full" in done.failure) == (number != errno.EIO)


def test_two_versions_are_refused_and_both_named(nodes: Machinery) -> None:
    nodes.worker("new", "north")
    nodes.worker("old", "south", "import sonda.version; sonda.version.VERSION = '0.0.9'")
    nodes.wait_for_workers()
    for exclusive in (True, False):
        with pytest.raises(SondaError, match=rf"south has Sonda 0\.0\.9, and this is {VERSION}"):
            with executor_for(cluster=nodes.address, exclusive=exclusive):
                pass


def test_a_node_of_another_version_that_comes_late_is_left_out_and_said(nodes: Machinery, tmp_path: Path) -> None:
    nodes.workers(new="north")
    said: list[str] = []
    file = tmp_path / "seen"
    with executor_for(cluster=nodes.address, say=said.append) as executor:

        def come() -> None:
            nodes.worker("older", "south", "import sonda.version; sonda.version.VERSION = '0.0.8'")
            nodes.wait_for(lambda: any("left out" in remark for remark in executor.remarks))
            file.touch()

        coming = meanwhile(come)
        done = outcomes(executor, cluster_work.until, [str(file)] * 2)
        coming.join()
        assert [one.value for one in done] == [str(file)] * 2
    assert said == [f"south has Sonda 0.0.8, and this is {VERSION}: it was left out"]


def test_a_restarted_scheduler(nodes: Machinery, tmp_path: Path) -> None:
    """Simulations are done again, each once in the end; of measurements, the one under way is lost and said so."""
    files = [tmp_path / "measured", tmp_path / "simulated"]
    nodes.workers(eight="north", nine="east")  # where one is measured on, nothing is simulated

    def restart() -> None:
        nodes.wait_for(lambda: all(file.exists() for file in files))
        nodes.restart()
        files[1].with_suffix(".quick").touch()
        nodes.worker("ten", "north")

    with executor_for(cluster=nodes.address, exclusive=True) as first, executor_for(cluster=nodes.address) as second:
        restarting = meanwhile(restart)
        orders = [(str(files[0]), 600.0), (str(tmp_path / "next"), 0.0)]
        measured: list[TaskResult] = []
        measuring = meanwhile(lambda: measured.extend(outcomes(first, cluster_work.append_and_wait, orders, "north")))
        nodes.wait_for(files[0].exists)
        simulated = outcomes(second, cluster_work.slow, [(str(files[1]), number) for number in range(3)])
        measuring.join()
        restarting.join()
    assert [done.lost for done in measured] == [True, False]
    assert files[0].read_text() == (tmp_path / "next").read_text() == "begun\n"
    assert [done.value for done in simulated] == [0, 1, 2]


def test_a_scheduler_that_stays_away_is_said(nodes: Machinery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes.workers(one="north")
    monkeypatch.setattr(cluster, "PATIENCE_S", 2)
    with executor_for(cluster=nodes.address, exclusive=True) as executor:
        file = tmp_path / "began"
        killing = meanwhile(lambda: (nodes.wait_for(file.exists), nodes.end("scheduler")))
        found = outcomes(executor, cluster_work.append_and_wait, [(str(file), 600.0), (str(tmp_path / "no"), 0.0)])
        killing.join()
    assert [done.lost for done in found] == [True, True] and "went away" in found[1].failure
    assert file.read_text() == "begun\n" and not (tmp_path / "no").exists()
