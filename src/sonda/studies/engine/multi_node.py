"""Points of a study that are trainings over several nodes: each is one job of a queue, one after the other.

Everything else in the study is measured as ever, before them: workers of a cluster hold nodes that such a job waits
for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sonda.record.errors import SondaError
from sonda.record.progress import Say
from sonda.record.store import Store
from sonda.studies.engine.corun_point import has_company, options_alone
from sonda.studies.engine.measurement import measuring
from sonda.studies.engine.plan import StudyPoint, configurations, options
from sonda.studies.engine.remote import measure_elsewhere
from sonda.studies.engine.runner import Measure, Outcome
from sonda.studies.engine.serving_point import is_served
from sonda.studies.executors.cluster import LOCAL
from sonda.studies.executors.executor import Executor
from sonda.studies.executors.slurm import PREFIX
from sonda.studies.executors.training_jobs import check_training_job, nodes_of, submit_training
from sonda.studies.file.study import Configuration, Study
from sonda.targets.job import Job, make_job
from sonda.targets.ranks.plan import OPTIONS
from sonda.targets.target import parse_target

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
    trainings = [configuration for configuration in configurations(study) if asks_for_nodes(configuration)]
    for target in dict.fromkeys(str(training["on"]) for training in trainings):
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
        submit_training(_jobs(cluster))
        nodes_of(Job(workload="", on=target))
    for training in trainings:
        wanted = options(training)
        if not has_company(wanted) and not is_served(wanted):
            check_training_job(make_job(options_alone(wanted)))


def queue_needed(study: Study) -> list[str]:
    """For a plan: what has to be given so that trainings over nodes can be started."""
    targets = dict.fromkeys(
        str(configuration["on"]) for configuration in configurations(study) if asks_for_nodes(configuration)
    )
    return [f"{', '.join(targets)}: add --on-cluster, which starts the nodes"] if targets else []


def is_only_over_nodes(study: Study) -> bool:
    """Whether every point of the study is such a training."""
    wanted = configurations(study)
    return bool(wanted) and all(map(asks_for_nodes, wanted))


def measure_over_nodes(study: Study, store: Store, cluster: str, say: Say) -> Measure:
    """What measures these points, each in a job that is submitted and waited for. Raises SondaError."""
    cooling = None if cluster == LOCAL else _NoCoolDown(study)
    return measuring(store, study, say=say, measured=submit_training(_jobs(cluster)), cooling=cooling)


def measure_elsewhere_and_over_nodes(
    study: Study, store: Store, executor: Executor, points: Sequence[StudyPoint], cluster: str, say: Say
) -> Iterator[Outcome]:
    """As `measure_elsewhere`; then, when the executor's workers have gone, every training over nodes."""
    trainings = [point for point in points if asks_for_nodes(point.configuration)]
    elsewhere_points = [point for point in points if not asks_for_nodes(point.configuration)]
    if elsewhere_points:
        yield from measure_elsewhere(study, store, executor, elsewhere_points)
    if not trainings:
        return
    executor.close()
    measure = measure_over_nodes(study, store, cluster, say)
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


class _NoCoolDown:
    """In place of cooling down: whose turn it is, and where, is the queue's to say."""

    def __init__(self, study: Study) -> None:
        self._asked = bool(study.cool_down_s or study.rest_s)

    def wait(self) -> dict[str, Any]:
        return {"waited_s": 0.0, "reason": QUEUED} if self._asked else {}
