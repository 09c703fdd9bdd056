"""Points of a study that are measured elsewhere: in other processes, or on the nodes of a cluster.

A node measures into a store of its own and sends the run's files; they come together by copying. What is measured has
its node for itself; what is simulated need not be alone.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from sonda.record.errors import SondaError
from sonda.record.store import Store
from sonda.studies.engine import Outcome
from sonda.studies.executors.executor import Executor, Task
from sonda.studies.measure import measuring
from sonda.studies.plan import NODE, Point, configurations, simulated
from sonda.studies.study import Study

EACH = "each"


class PointOrder(msgspec.Struct, frozen=True):
    """A point to be measured, and the study that says how."""

    point: Point
    study: Study


class Shipped(msgspec.Struct, frozen=True):
    """The files of a run, by name, and the name of its directory."""

    name: str
    files: dict[str, bytes]


def measure_there(order: PointOrder) -> Shipped:
    """Measure a point in a store of this node, and take its run out of it. Raises SondaError."""
    store = Store(Path(tempfile.gettempdir()) / f"sonda-node-{os.getuid()}")
    run = measuring(store, order.study)(order.point)
    try:
        return Shipped(run.directory.name, {path.name: path.read_bytes() for path in run.directory.iterdir()})
    finally:
        store.remove(run.directory)


def elsewhere(study: Study, store: Store, executor: Executor, points: Sequence[Point]) -> Iterator[Outcome]:
    """Measure points wherever the executor has room; runs appear whole in the store as they come."""
    tasks = [
        Task(number, PointOrder(point, study), _needs(point), str(point.configuration.get(NODE, "")))
        for number, point in enumerate(points)
    ]
    for done in executor.run(measure_there, tasks):
        point = points[done.number]
        if done.failure:
            yield point, SondaError(done.failure, done.remedy)
            continue
        try:
            yield point, store.adopt(done.value.name, done.value.files)
        except SondaError as error:
            yield point, error


def all_simulated(study: Study) -> bool:
    """Whether nothing in the study is measured, so that its points do not disturb each other."""
    return all(simulated(configuration) for configuration in configurations(study))


def on_nodes(study: Study, kinds: Sequence[str], nodes: str) -> Study:
    """The study for the nodes of a cluster: on one `kind`, or on `each` kind, which then is an axis.

    Raises SondaError where there are several kinds and nobody said which: times of different nodes are not compared.
    """
    if all_simulated(study):
        return study
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


def _needs(point: Point) -> tuple[str, ...]:
    return ("gpu",) if "cuda" in str(point.configuration.get("on", "")) else ()
