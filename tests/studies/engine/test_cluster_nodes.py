"""Studies over nodes of different kinds: what each has measured is seen wherever the study is looked at."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import sleep
from typing import Any

import msgspec
import pytest

from builders import stepped
from cluster_nodes_cases import SIMULATED, STUDY, carry_out, keep, store
from sonda.record.errors import SondaError
from sonda.record.files import partial
from sonda.record.run import CoolDown, Run, now, write_run
from sonda.record.store import Store
from sonda.report.words import in_words
from sonda.studies.engine import remote as elsewhere
from sonda.studies.engine.plan import NODE, StudyPoint, plan_points
from sonda.studies.engine.runner import StudyResult, load_study_result
from sonda.studies.executors.executor import ExecutorTask, TaskResult, ThisProcess, attempt_task
from sonda.studies.file.study import Study
from sonda.studies.results.notes import table_notes
from sonda.targets.cooling import Cooling
from sonda.targets.job import Job
from sonda.targets.node import node_facts
from sonda.targets.pipeline import RunLabels

__all__ = ["store"]


class Nodes(ThisProcess):
    """Nodes of these kinds, in this process; a task for another kind finds nobody."""

    def __init__(self, *kinds: str) -> None:
        self._kinds = set(kinds)

    @property
    def kinds(self) -> set[str]:
        return self._kinds

    def run(self, work: Any, tasks: Iterable[ExecutorTask]) -> Iterator[TaskResult]:
        for task in tasks:
            if task.node and task.node not in self._kinds:
                yield TaskResult(
                    task.number, failure=f"no worker has what it needs (node {task.node})", remedy="start one"
                )
            else:
                yield attempt_task(work, task)


def seen(result: StudyResult) -> list[tuple[Any, Any]]:
    return [(point.configuration[NODE], point.configuration["batch"]) for point, _ in result.runs]


def shown(store: Store, nodes: str = "") -> StudyResult:
    return load_study_result(elsewhere.study_as_measured(STUDY, store, nodes), store)


def test_what_nodes_measured_is_shown_without_them(store: Store) -> None:
    carry_out(store, Nodes("EPYC", "Xeon"), "each")
    everything = [("EPYC", 1), ("EPYC", 2), ("Xeon", 1), ("Xeon", 2)]
    assert seen(shown(store)) == seen(shown(store, "each")) == everything
    assert not shown(store).failures
    assert seen(shown(store, "xeon")) == everything[2:]
    with pytest.raises(SondaError, match="no node is 'arm'; there is EPYC; Xeon"):
        shown(store, "arm")


def test_a_study_of_this_machine_is_shown_as_it_is(store: Store) -> None:
    assert not shown(store).runs
    with pytest.raises(SondaError, match="no run of two that a node of a cluster made"):
        shown(store, "each")
    carry_out(store, Nodes("EPYC"), "")
    carry_out(store, Nodes("EPYC"), "each")
    assert [NODE in point.configuration for point, _ in shown(store).runs] == [False, False]
    assert seen(shown(store, "each")) == [("EPYC", 1), ("EPYC", 2)]


def test_a_node_that_is_away_keeps_its_rows_and_what_it_lacks_is_said(store: Store) -> None:
    """Everything on the Xeon but one run; then it is switched off."""
    first = carry_out(store, Nodes("Xeon"), "each")
    store.remove(first.runs[0][1].directory)
    result = carry_out(store, Nodes("EPYC"), "each")
    assert seen(result) == [("EPYC", 1), ("EPYC", 2), ("Xeon", 2)]
    ((point, why),) = result.failures
    assert point.configuration["batch"] == 1 and why == "no worker has what it needs (node Xeon); start one"
    assert any("1 of 4 points have no run" in note for note in in_words(table_notes(result, [], {})))
    whole = carry_out(store, Nodes("EPYC", "Xeon"), "each")
    assert not whole.failures and whole.measured == 1 and len(store.names()) == 4


def test_simulations_are_given_out_several_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 points to one worker: eight times five; one that fails does not keep the others of its five."""
    given: list[int] = []

    class Noting(Nodes):
        def run(self, work: Any, tasks: Iterable[ExecutorTask]) -> Iterator[TaskResult]:
            for task in tasks:
                given.append(len(task.order))
                yield from super().run(work, [task])

    def measuring(store: Store, study: Study) -> Any:
        def measure(point: StudyPoint) -> Run:
            if point.configuration["batch"] == 3:
                raise SondaError("three cannot be", "give another")
            return keep(store, point)

        return measure

    monkeypatch.setattr(elsewhere, "measuring", measuring)
    study = Study("many", {"workload": "mlp", "on": "sim:maeri-256"}, {"batch": tuple(range(1, 41))}, repeat=1)
    result = carry_out(store, Noting("EPYC"), "", study)
    assert given == [5] * 8 and len(result.runs) == 39
    ((point, why),) = result.failures
    assert point.configuration["batch"] == 3 and why == "three cannot be; give another"


def test_times_of_different_machines_are_not_mixed_in_silence(store: Store) -> None:
    points = plan_points(STUDY)
    keep(store, points[0], processor="EPYC", logical_cores=8)
    keep(store, points[1], processor="Xeon", logical_cores=4)
    (said,) = [
        note for note in in_words(table_notes(load_study_result(STUDY, store), [], {})) if "kinds of machine" in note
    ]
    assert "(EPYC, 8 cores: 1; Xeon, 4 cores: 1)" in said
    simulated = dataclasses.replace(STUDY, workload={"workload": "mlp", "on": "sim:maeri-256"})
    for point, name in zip(plan_points(simulated), ("EPYC", "Xeon"), strict=True):
        keep(store, point, processor=name, logical_cores=8)
    notes = in_words(table_notes(load_study_result(simulated, store), [], {}))
    assert not [note for note in notes if "kinds of machine" in note]


def test_times_of_different_gpus_are_not_mixed_in_silence(store: Store) -> None:
    """One processor, and the same target: another card is another machine. What ran beside them on the CPU is not."""
    study = dataclasses.replace(STUDY, workload={"workload": "mlp"}, axes={"on": ("cpu", "cuda:0"), "batch": (1, 2)})
    cards = {("cuda:0", 1): "NVIDIA H200", ("cuda:0", 2): "NVIDIA L4"}

    def notes() -> list[str]:
        for point in plan_points(study):
            card = cards.get((str(point.configuration["on"]), int(str(point.configuration["batch"]))))
            target = {"spec": point.configuration["on"], "devices": {"cuda:0": {"name": card}} if card else {}}
            keep(store, point, target, processor="EPYC", logical_cores=8)
        said = in_words(table_notes(load_study_result(study, store), [], {}))
        return [note for note in said if "kinds of machine" in note]

    (said,) = notes()
    assert said.startswith("runs of cuda:0 come from 2 kinds of machine (NVIDIA H200: 1; NVIDIA L4: 1)")
    for name in store.names():
        store.remove(store.root / name)
    cards["cuda:0", 2] = "NVIDIA H200"
    assert not notes()


def test_a_node_with_another_file_of_the_same_name_is_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("made = 1\n")
    study = dataclasses.replace(STUDY, workload={"workload": f"{tmp_path}/model.py:make", "on": "cpu"})
    points = plan_points(study)
    order = elsewhere.PointOrder(points[0], study, elsewhere._content(points[0]))
    assert elsewhere.measure_there(order).name.endswith(points[0].identity)
    (tmp_path / "model.py").write_text("made = 2\n")
    with pytest.raises(SondaError, match=r"has another .*model\.py:make than where the study was started"):
        elsewhere.measure_there(order)


def test_nodes_that_share_a_hosts_name_leave_each_others_work_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two containers: process numbers of one mean nothing to the other."""
    monkeypatch.setenv("SONDA_NODE", "rack/1")
    theirs = partial.partial_path(tmp_path)
    assert theirs.parent == tmp_path
    dead = tmp_path / theirs.name.replace(f"-{os.getpid()}-", "-999999999-")
    dead.mkdir()
    assert partial.is_abandoned(dead)
    monkeypatch.setenv("SONDA_NODE", "rack/2")
    assert not partial.is_abandoned(dead)


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir])
def test_what_another_node_has_not_touched_for_long_is_abandoned(tmp_path: Path, make: Callable[[Path], None]) -> None:
    theirs = tmp_path / ".partial-rack_1-1-abcdef"
    make(theirs)
    assert not partial.is_abandoned(theirs)
    os.utime(theirs, (0, 0))
    assert partial.is_abandoned(theirs)


# ---- nodes that come late -------------------------------------------------------------------------------------------


def test_a_node_of_another_kind_that_comes_late_measures_nothing(store: Store) -> None:
    """The tasks say which kind was there when the study began, or there would be two kinds in one column."""
    asked: list[str] = []

    class Noting(Nodes):
        def run(self, work: Any, tasks: Iterable[ExecutorTask]) -> Iterator[TaskResult]:
            tasks = list(tasks)
            asked.extend(task.node for task in tasks)
            self._kinds = {"EPYC", "Xeon"}
            return super().run(work, tasks)

    assert len(carry_out(store, Noting("EPYC"), "").runs) == 2
    assert asked == ["EPYC", "EPYC"]
    gpu = dataclasses.replace(STUDY, name="gpu", workload={"workload": "mlp", "on": "cuda:0"})
    assert len(carry_out(store, Noting("Xeon", GPU), "", gpu).runs) == 0, "that kind is gone"
    assert asked[2:] == [GPU, GPU]
    carry_out(store, Noting("EPYC"), "", dataclasses.replace(SIMULATED, name="simulated"))
    assert set(asked[4:]) == {""}, "whoever simulates, results are the same"


@pytest.mark.parametrize(("exclusive", "count"), [(True, 3), (False, 1)])
def test_all_workers_that_are_to_measure_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, exclusive: bool, count: int
) -> None:
    """Or kinds of node that come from the queue a moment later would not be among the study's."""
    distributed = pytest.importorskip("distributed")
    from sonda.studies.executors import cluster

    waited: list[int] = []

    class Queue:
        """One of three jobs has begun."""

        scheduler_address = "tcp://127.0.0.1:1"

        def wait_for_workers(self, count: int, timeout: float) -> None:
            waited.append(count)
            if count > 1:
                raise TimeoutError

        def nthreads(self) -> dict[str, int]:
            return {"tcp://one": 1}

        def close(self) -> None:
            pass

    monkeypatch.setattr(cluster, "slurm_cluster", lambda *_: Queue())
    monkeypatch.setattr(distributed, "Client", lambda *_, **__: Queue())
    monkeypatch.setattr(
        cluster.Cluster, "_ask_workers", lambda _, workers: {worker: node_facts() for worker in workers}
    )
    made = cluster.Cluster("slurm:partition=short", exclusive, 3)
    assert waited == [count] and made.workers == 1
    late = "1 of 3 workers came within 600 s; those of other kinds measured nothing"
    assert made.remarks == ([late] if exclusive else [])


# ---- where the runs of a simulated study are written ----------------------------------------------------------------


class Elsewhere(ThisProcess):
    """A node with a folder of the same name, which is not the same folder: the mark is not in it."""

    def run(self, work: Any, tasks: Iterable[ExecutorTask]) -> Iterator[TaskResult]:
        for task in tasks:
            there = [
                dataclasses.replace(one, order=msgspec.structs.replace(one.order, store=elsewhere.SeenStore(
                    one.order.store.root, ".partial-of-another-node")))
                for one in task.order
            ]  # fmt: skip
            yield attempt_task(work, dataclasses.replace(task, order=there))


@pytest.mark.parametrize(("nodes", "kept"), [(ThisProcess(), "home"), (Elsewhere(), f"sonda-node-{os.getuid()}")])
def test_a_simulated_run_is_written_where_it_belongs_by_who_sees_that_place(
    store: Store, monkeypatch: pytest.MonkeyPatch, nodes: Any, kept: str
) -> None:
    written: list[str] = []

    def keep_noted(store: Store, study: Study) -> Any:
        def measure(point: StudyPoint) -> Run:
            written.append(store.root.name)
            return keep(store, point)

        return measure

    monkeypatch.setattr(elsewhere, "measuring", keep_noted)
    result = carry_out(store, nodes, "", SIMULATED)
    assert written == [kept, kept] and result.measured == 2 and not result.failures
    assert [run.id for _, run in result.runs] == [point.identity for point in plan_points(SIMULATED)]
    assert all(run.directory.parent == store.root and run.spans for _, run in result.runs)
    assert not list(store.root.glob(".partial-*")), "the mark goes when the study ends"
    assert not list((store.root.parent / f"sonda-node-{os.getuid()}").glob("*")), "nothing is left on the node"


def test_a_run_that_its_worker_wrote_before_it_died_is_not_there_twice(store: Store) -> None:
    """The worker dies after it has written the run and before it has said so; another does the point again."""

    class Dying(ThisProcess):
        def run(self, work: Any, tasks: Iterable[ExecutorTask]) -> Iterator[TaskResult]:
            for task in tasks:
                attempt_task(work, task)
                sleep(0.002)  # a run's name has its moment in ms
                yield attempt_task(work, task)

    result = carry_out(store, Dying(), "", SIMULATED)
    assert len(store.names()) == 2 and len(result.runs) == 2 and not result.failures
    assert all(run.directory.is_dir() for _, run in result.runs), "the runs that are told of are those that were left"


# ---- what a process of a cluster measures ---------------------------------------------------------------------------


def test_a_node_knows_from_point_to_point_how_cool_it_was(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 °C at the beginning and 80 after every run: before the second the machine is waited for."""
    monkeypatch.undo()
    monkeypatch.setattr(elsewhere.tempfile, "gettempdir", lambda: str(store.root.parent))
    clock, heat = [0.0], [40.0]

    def slept(seconds: float) -> None:
        clock[0] += seconds
        heat[0] -= 10 * seconds

    def measured(job: Job, kept: Store, place: RunLabels, say: Callable[[str], None]) -> Run:
        made = stepped([2.0, 2.0, 2.0])
        heat[0] = 80.0
        cool_down = CoolDown(**place.cool_down)
        info = msgspec.structs.replace(
            made.info, id=place.identity, created=now(), study=place.study, point=place.point, cool_down=cool_down
        )
        return write_run(kept.root, info, made.spans)

    read: dict[str, Any] = {"read": lambda: {"package": heat[0]}, "clock": lambda: clock[0], "sleep": slept}
    monkeypatch.setattr("sonda.targets.cooling.Cooling", functools.partial(Cooling, **read))
    monkeypatch.setattr("sonda.targets.pipeline.measure", measured)
    result = carry_out(store, Nodes("EPYC"), "", dataclasses.replace(STUDY, cool_down_s=60))
    waited = [run.info.cool_down for _, run in result.runs]
    assert [one.start for one in waited] == [{"package": 40.0}] * 2
    # 80 °C down to 42 (2 °C from the beginning are near enough), 10 °C a second.
    assert [one.waited_s for one in waited] == [0.0, 4.0]


def test_what_is_measured_inherits_nothing_of_dasks_nanny(monkeypatch: pytest.MonkeyPatch) -> None:
    dask = pytest.importorskip("dask")
    pytest.importorskip("distributed")  # whose settings are Dask's once it is there
    from sonda.studies.executors import worker as on_node

    sets = {"MALLOC_TRIM_THRESHOLD_": 65536, "OMP_NUM_THREADS": 1, "MKL_NUM_THREADS": 1}  # Dask's own, in part
    for name, value in sets.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")  # somebody's own
    with dask.config.set({"distributed.nanny.pre-spawn-environ": sets}):
        on_node.undo_nanny()
    assert "MALLOC_TRIM_THRESHOLD_" not in os.environ and "MKL_NUM_THREADS" not in os.environ
    assert os.environ["OMP_NUM_THREADS"] == "3"


def test_a_node_that_cannot_note_what_it_begins_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file stands where the folder for temporary files should be: as a disk that is full or may not be written."""
    from sonda.studies.executors import worker as on_node

    (tmp_path / "full").touch()
    monkeypatch.setattr(on_node.tempfile, "gettempdir", lambda: str(tmp_path / "full"))
    monkeypatch.setenv(partial.NODE, "north")
    done = on_node.attempt_once(len, ExecutorTask(3, []), "", str(tmp_path), "token")
    assert done.number == 3 and done.failure == f"north cannot write {tmp_path / 'full'}: Not a directory"


# ---- targets with a GPU ---------------------------------------------------------------------------------------------

GPU = "EPYC + NVIDIA H200"


def test_a_gpus_points_are_not_asked_of_nodes_without_one(store: Store) -> None:
    both = dataclasses.replace(STUDY, workload={"workload": "mlp"}, axes={"on": ("cpu", "cuda:0")})
    result = carry_out(store, Nodes("Xeon", GPU), "each", both)
    assert not result.failures and len(result.runs) == 3
    ((point, why),) = result.inapplicable
    assert (point.configuration[NODE], point.configuration["on"]) == ("Xeon", "cuda:0")
    assert why == "not applicable: nodes of this kind have no GPU"


def test_a_study_of_gpus_needs_no_choice_among_nodes_without_one() -> None:
    study = dataclasses.replace(STUDY, workload={"workload": "mlp", "on": "cuda:0"})
    assert elsewhere.study_on_nodes(study, ["Xeon", GPU], "") == study
    with pytest.raises(SondaError, match="the cluster has 2 kinds of node"):
        elsewhere.study_on_nodes(STUDY, ["Xeon", GPU], "")
