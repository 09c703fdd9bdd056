"""From a point of a study to a measured run: the configuration becomes a job, the job a process of its own."""

from __future__ import annotations

from collections.abc import Callable

from sonda.record.run import Run
from sonda.record.store import Store
from sonda.studies.company import accompanied, alone, cores, participants, setting
from sonda.studies.engine import Measure
from sonda.studies.plan import Point, options
from sonda.targets.job import job_of


def measuring(store: Store, say: Callable[[str], None] = lambda text: None) -> Measure:
    """What the engine needs to measure points on this machine and keep them in a store."""

    def measure_point(point: Point) -> Run:
        from sonda.targets.keeping import Place
        from sonda.targets.measure import measure

        place = Place(point.identity, point.group, point.study, point.record())
        wanted = options(point.configuration)
        if accompanied(wanted):
            from sonda.targets.corun import corun

            return corun(participants(wanted), store, cores(wanted), setting(wanted), say, place=place)
        return measure(job_of(alone(wanted)), store, place, say)

    return measure_point
