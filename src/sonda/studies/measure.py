"""From a point of a study to a measured run: the configuration becomes a job, the job a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.record.saying import Say
from sonda.record.store import Store
from sonda.studies.company import accompanied, alone, cores, participants, setting
from sonda.studies.engine import Measure
from sonda.studies.plan import ENERGY, Point, options
from sonda.studies.served_point import is_served, measure_served
from sonda.studies.study import Study
from sonda.studies.table_notes import COOL_DOWN
from sonda.targets.job import Job, job_of
from sonda.targets.keeping import Place

MeasureJob = Callable[[Job, Store, Place | None, Say], Run]
"""Measures a job and keeps its run in a store; raises SondaError."""


class Waiting(Protocol):
    """What comes before every run."""

    def wait(self) -> dict[str, Any]:
        """Wait, and say what was waited, for the run's record."""


def measuring(
    store: Store,
    study: Study | None = None,
    earlier: Iterable[Run] = (),
    say: Say = lambda text: None,
    measured: MeasureJob | None = None,
    cooling: Waiting | None = None,
) -> Measure:
    """What the engine needs to measure points on this machine and keep them in a store.

    `study` says which probes energy runs have and how long the machine cools before a run. `earlier` are runs of it
    from before: the machine is to be as cool as it was then. `say` is told of waiting. `measured` takes the place of
    measuring a job here, `cooling` that of waiting here.
    """
    from sonda.targets.cooling import Cooling

    study = study or Study("", {}, {})
    waiting: Waiting = cooling or Cooling(study.cool_down_s, study.rest_s, _coolest(earlier), say)

    def measure_point(point: Point) -> Run:
        from sonda.targets.measure import measure

        wanted = options(point.configuration)
        if point.measures == ENERGY:
            if accompanied(wanted):
                raise SondaError("energy of programs side by side is not measured", "give this variant energy = 0")
            wanted["probe"] = ",".join(one for one in (str(wanted.get("probe", "")), study.energy_probe) if one)
        waited = waiting.wait()
        record = {**point.record(), **({COOL_DOWN: waited} if waited else {})}
        place = Place(point.identity, point.group, point.study, record)
        if is_served(wanted):
            return measure_served(wanted, store, place, measure)
        if accompanied(wanted):
            from sonda.targets.corun import corun

            return corun(participants(wanted), store, cores(wanted), setting(wanted), place=place)
        job = job_of(alone(wanted))
        return measured(job, store, place, say) if measured else measure(job, store, place)

    return measure_point


def _coolest(runs: Iterable[Run]) -> dict[str, float]:
    """The lowest temperature at the beginning that the runs tell of, by sensor."""
    found: dict[str, float] = {}
    for run in runs:
        start = run.info.point.get(COOL_DOWN, {}).get("start", {})
        for sensor, value in start.items():
            found[sensor] = min(float(value), found.get(sensor, float(value)))
    return found
