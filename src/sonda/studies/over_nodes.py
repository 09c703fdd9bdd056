"""Points of a study that are trainings over several nodes: each is one job of a queue, one after the other.

Everything else in the study is measured as ever, before them: workers of a cluster hold nodes that such a job waits
for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sonda.record.errors import SondaError
from sonda.record.saying import Say
from sonda.record.store import Store
from sonda.studies.company import accompanied, alone
from sonda.studies.elsewhere import elsewhere
from sonda.studies.engine import Measure, Outcome
from sonda.studies.executors.cluster import LOCAL
from sonda.studies.executors.executor import Executor
from sonda.studies.executors.slurm import PREFIX
from sonda.studies.executors.training_jobs import check_training_job, nodes_of, submitted
from sonda.studies.measure import measuring
from sonda.studies.plan import Point, configurations, options
from sonda.studies.served_point import is_served
from sonda.studies.study import Configuration, Study
from sonda.targets.job import Job, job_of
from sonda.targets.parallel_plan import OPTIONS
from sonda.targets.spec import parse_target

QUEUED = "nodes that a queue gives are not waited for to cool"


def asks_for_nodes(configuration: Configuration) -> bool:
    """Whether this is one training over several nodes."""
    try:
        spec = parse_target(str(configuration.get("on", "")))
    except SondaError:
        return False  # what is wrong with it is said when its turn comes
    nodes = spec.options.get("nodes", "1")
    return "nodes" in OPTIONS.get(spec.mode, ()) and nodes.isdecimal() and int(nodes) > 1


def check_over_nodes(study: Study, cluster: str, nodes: str) -> None:
    """Raises SondaError where a point of the study is a training over several nodes that nobody would start, or that
    every node would refuse."""
    trainings = [one for one in configurations(study) if asks_for_nodes(one)]
    for target in dict.fromkeys(str(one["on"]) for one in trainings):
        asked = parse_target(target).options
        if not cluster:  # nor with at=: started by hand on every node, none of them knows which points the others lack
            raise SondaError(
                f"study {study.name}: {target} is a training over {asked['nodes']} nodes, and nobody starts them",
                f"{'leave out at= and ' if 'at' in asked else ''}add --on-cluster slurm:partition=NAME, or {LOCAL}: "
                "processes of this machine then play the nodes",
            )
        if nodes:
            raise SondaError(
                f"study {study.name}: --nodes {nodes} places what one node measures, and {target} takes "
                f"{asked['nodes']}",
                "leave out --nodes; constraint= of slurm: says which nodes it may take",
            )
        submitted(_jobs(cluster))
        nodes_of(Job(workload="", on=target))
    for one in trainings:
        wanted = options(one)
        if not accompanied(wanted) and not is_served(wanted):
            check_training_job(job_of(alone(wanted)))


def needs_queue(study: Study) -> list[str]:
    """For a plan: what has to be given so that trainings over nodes can be started."""
    targets = dict.fromkeys(str(one["on"]) for one in configurations(study) if asks_for_nodes(one))
    return [f"{', '.join(targets)}: add --on-cluster, which starts the nodes"] if targets else []


def only_over_nodes(study: Study) -> bool:
    """Whether every point of the study is such a training."""
    found = configurations(study)
    return bool(found) and all(map(asks_for_nodes, found))


def over_nodes(study: Study, store: Store, cluster: str, say: Say) -> Measure:
    """What measures these points, each in a job that is submitted and waited for. Raises SondaError."""
    cooling = None if cluster == LOCAL else _Queued(study)
    return measuring(store, study, say=say, measured=submitted(_jobs(cluster)), cooling=cooling)


def elsewhere_and_over_nodes(
    study: Study, store: Store, executor: Executor, points: Sequence[Point], cluster: str, say: Say
) -> Iterator[Outcome]:
    """As `elsewhere`; then, when the executor's workers have gone, every training over nodes."""
    trainings = [point for point in points if asks_for_nodes(point.configuration)]
    others = [point for point in points if not asks_for_nodes(point.configuration)]
    if others:
        yield from elsewhere(study, store, executor, others)
    if not trainings:
        return
    executor.close()
    measure = over_nodes(study, store, cluster, say)
    for point in trainings:
        try:
            yield point, measure(point)
        except SondaError as error:
            yield point, error


def _jobs(cluster: str) -> str:
    """Without `host`, at which a study's workers call home: nodes of a training meet each other."""
    if not cluster.startswith(PREFIX):
        return cluster
    words = cluster.removeprefix(PREFIX).split(",")
    return PREFIX + ",".join(word for word in words if not word.startswith("host="))


class _Queued:
    """In place of cooling down: whose turn it is, and where, is the queue's to say."""

    def __init__(self, study: Study) -> None:
        self._asked = bool(study.cool_down_s or study.rest_s)

    def wait(self) -> dict[str, Any]:
        return {"waited_s": 0.0, "reason": QUEUED} if self._asked else {}
