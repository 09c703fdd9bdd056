"""Points of a study that are measured elsewhere: in other processes, or on the nodes of a cluster.

A node measures into a store of its own and sends the run's files; they come together by copying. What is measured has
its node for itself; what is simulated need not be alone, and is written where it belongs by whoever sees that place.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from time import sleep

import msgspec

from sonda.analysis.run_rows import nodes_of_study
from sonda.record.errors import SondaError
from sonda.record.files.partial import node_name
from sonda.record.run import Run
from sonda.record.store import Store, identity_of
from sonda.studies.engine.measurement import measuring
from sonda.studies.engine.plan import (
    NODE,
    StudyPoint,
    configurations,
    content_of,
    is_simulated,
    needs_gpu,
    study_identity,
)
from sonda.studies.engine.runner import Measure, Outcome, load_study_result
from sonda.studies.executors.executor import Executor, ExecutorTask, TaskResult, attempt_task
from sonda.studies.file.study import Study
from sonda.targets.node import kind_has_gpu

EACH = "each"
MOST_TOGETHER, TURNS = 16, 8
"""Simulated points that a worker is given at once, at most, and how often it is given some, at least: a point may take
some 30 ms, and giving it to somebody takes 7."""
SEEN_S, LOOK_S = 60, 0.5
"""How long a run that another machine wrote into the store may stay unseen, and how often it is looked for: NFS
remembers for up to 60 s what is in a directory."""
_at_work: dict[tuple[str, str], Measure] = {}
IDENTITY_DIGITS = 16
"""Of a point of a study; ids of other runs are shorter."""


class SeenStore(msgspec.Struct, frozen=True):
    """The store as whoever asks for points sees it, and the name of a directory in it that is there meanwhile: who sees
    that one sees the same store."""

    root: str
    mark: str

    def is_here(self) -> bool:
        """Whether this process sees the store, and may write there."""
        return (Path(self.root) / self.mark).is_dir() and os.access(self.root, os.W_OK | os.X_OK)


class PointOrder(msgspec.Struct, frozen=True):
    """A point to be measured, and the study that says how."""

    point: StudyPoint
    study: Study
    content: str = ""
    """Digest of somebody's own file that the point measures; empty for every other workload."""
    store: SeenStore | None = None
    """Where its run may be written; None where it is sent."""


class ShippedRun(msgspec.Struct, frozen=True):
    """The files of a run, by name, and the name of its directory."""

    name: str
    files: dict[str, bytes]


def measure_there(order: PointOrder) -> ShippedRun:
    """Measure a point in a store of this node, and take its run out of it. Raises SondaError."""
    _check_content(order)
    store = Store(Path(tempfile.gettempdir()) / f"sonda-node-{os.getuid()}")
    run = _measure(store, order.study)(order.point)
    try:
        return ShippedRun(run.directory.name, {path.name: path.read_bytes() for path in run.directory.iterdir()})
    finally:
        store.remove(run.directory)


def keep_there(order: PointOrder) -> ShippedRun | str:
    """As `measure_there`; where this process sees the store, the run is written there, and only its name is sent."""
    if order.store is None or not order.store.is_here():
        return measure_there(order)
    _check_content(order)
    return _measure(Store(order.store.root), order.study)(order.point).directory.name


def _measure(store: Store, study: Study) -> Measure:
    """What measures the points of a study in this process: one and the same, for it knows how cool the machine was at
    the beginning, and when it has to rest."""
    key = (str(store.root), study_identity(study))
    if key not in _at_work:
        _at_work.clear()  # a process works for one study at a time
        _at_work[key] = measuring(store, study)
    return _at_work[key]


def simulate_there(tasks: Sequence[ExecutorTask]) -> list[TaskResult]:
    """Simulate points one after the other; one that fails does not keep the others."""
    return [attempt_task(keep_there, task) for task in tasks]


def measure_elsewhere(
    study: Study, store: Store, executor: Executor, points: Sequence[StudyPoint]
) -> Iterator[Outcome]:
    """Measure points wherever the executor has room; runs appear whole in the store as they come."""
    with store.scratch() as mark:
        seen = SeenStore(str(store.root.absolute()), mark.name) if is_all_simulated(study) else None
        kind = "" if seen else _only_kind(study, executor.kinds)
        tasks = [
            ExecutorTask(number, PointOrder(point, study, _content(point), seen), _needs(point),
                 str(point.configuration.get(NODE, kind)))
            for number, point in enumerate(points)
        ]  # fmt: skip
        for done in _simulate_in_batches(tasks, executor) if seen else executor.run(measure_there, tasks):
            point = points[done.number]
            if done.failure:
                yield point, SondaError(done.failure, done.remedy)
                continue
            try:
                yield point, _keep_shipped(done.value, store)
            except SondaError as error:
                yield point, error


def _keep_shipped(came: ShippedRun | str, store: Store) -> Run:
    if not isinstance(came, str):
        return store.adopt(came.name, came.files)
    for _ in range(int(SEEN_S / LOOK_S)):
        if (store.root / came).is_dir():
            break
        sleep(LOOK_S)
        store.names()  # whoever reads a directory on NFS is told whether it has changed
    return Run.load(store.root / came)


def _simulate_in_batches(tasks: Sequence[ExecutorTask], executor: Executor) -> Iterator[TaskResult]:
    """What became of simulations that are given out several at once, few enough that workers end at about the same
    time."""
    size = max(1, min(MOST_TOGETHER, len(tasks) // (TURNS * executor.workers)))
    groups = [tasks[at : at + size] for at in range(0, len(tasks), size)]
    for done in executor.run(simulate_there, [ExecutorTask(number, group) for number, group in enumerate(groups)]):
        if done.failure:
            yield from (dataclasses.replace(done, number=task.number) for task in groups[done.number])
        else:
            yield from done.value


def is_all_simulated(study: Study) -> bool:
    """Whether nothing in the study is measured, so that its points do not disturb each other."""
    return all(is_simulated(configuration) for configuration in configurations(study))


def study_on_known_nodes(study: Study, store: Store, kinds: Iterable[str], nodes: str) -> Study:
    """As `study_on_nodes`; where each kind is meant, also those that have measured the study before: their runs are in
    the store, and what they lack is missing, whether they are there now or not."""
    if nodes == EACH:
        kinds = {*kinds, *nodes_of(study, store)}
    return study_on_nodes(study, sorted(kinds), nodes)


def study_as_measured(study: Study, store: Store, nodes: str) -> Study:
    """The study for the nodes whose runs are in the store: those that are named, or each where nobody has measured it
    without naming nodes. Raises SondaError where none of them is named so."""
    if not nodes and load_study_result(study, store).runs:
        return study
    kinds = sorted(nodes_of(study, store))
    if nodes and not kinds:
        raise SondaError(f"the store has no run of {study.name} that a node of a cluster made", "leave out --nodes")
    return study_on_nodes(study, kinds, nodes or EACH) if kinds else study


def nodes_of(study: Study, store: Store) -> set[str]:
    """The kinds of node that the store has runs of a study from."""
    points = [name for name in store.names() if len(identity_of(name)) == IDENTITY_DIGITS]
    return nodes_of_study(store, study.name, points)


def study_on_nodes(study: Study, kinds: Sequence[str], nodes: str) -> Study:
    """The study for the nodes of a cluster: on one `kind`, or on `each` kind, which then is an axis.

    Raises SondaError where there are several kinds and nobody said which: times of different nodes are not compared.
    """
    if is_all_simulated(study):
        return study
    kinds = _fitting_kinds(study, kinds)
    if nodes and nodes != EACH:
        chosen = [kind for kind in kinds if nodes.lower() in kind.lower()]
        if not chosen:
            raise SondaError(f"no node is {nodes!r}", f"there is {'; '.join(kinds)}")
        kinds = chosen
    if len(kinds) > 1 and nodes != EACH:
        raise SondaError(
            f"the cluster has {len(kinds)} kinds of node ({'; '.join(kinds)}), whose times cannot be compared",
            f"give --nodes {EACH}, or a part of one kind's name",
        )
    return dataclasses.replace(study, axes={NODE: tuple(kinds), **study.axes}) if nodes else study


def _fitting_kinds(study: Study, kinds: Iterable[str]) -> list[str]:
    """Where all points need a GPU, the kinds that have one: others are no reason to ask which."""
    if all(map(needs_gpu, configurations(study))):
        return [kind for kind in kinds if kind_has_gpu(kind)] or list(kinds)
    return list(kinds)


def _only_kind(study: Study, kinds: Iterable[str]) -> str:
    """The kind of node that measures where nobody named one: nodes of other kinds may come while it is at work."""
    fitting = _fitting_kinds(study, kinds)
    return fitting[0] if len(fitting) == 1 else ""


def _content(point: StudyPoint) -> str:
    return content_of(str(point.configuration.get("workload", "")))


def _check_content(order: PointOrder) -> None:
    if _content(order.point) != order.content:
        raise SondaError(
            f"{node_name()} has another {order.point.configuration['workload']} than where the study was started",
            "keep it on a file system that all nodes see",
        )


def _needs(point: StudyPoint) -> tuple[str, ...]:
    return ("gpu",) if needs_gpu(point.configuration) else ()
