"""From a point of a study to a measured run: the configuration becomes a job, the job a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from sonda.record.errors import SondaError
from sonda.record.progress import Say
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.studies.engine.corun_point import cores_of, corun_setting_of, has_company, options_alone, participants
from sonda.studies.engine.plan import ENERGY, StudyPoint, options
from sonda.studies.engine.runner import Measure
from sonda.studies.engine.serving_point import is_served, measure_served
from sonda.studies.file.study import Study
from sonda.targets.job import Job, make_job
from sonda.targets.pipeline import RunLabels

MeasureJob = Callable[[Job, Store, RunLabels | None, Say], Run]
"""Measures a job and keeps its run in a store; raises SondaError."""


class Cooler(Protocol):
    """What comes before every run."""

    def wait(self) -> dict[str, Any]:
        """Wait, and say what was waited, for the run's record."""


def measuring(
    store: Store,
    study: Study | None = None,
    earlier: Iterable[Run] = (),
    say: Say = lambda text: None,
    measured: MeasureJob | None = None,
    cooling: Cooler | None = None,
) -> Measure:
    """What the engine needs to measure points on this machine and keep them in a store.

    `study` says which probes energy runs have and how long the machine cools before a run. `earlier` are runs of it
    from before: the machine is to be as cool as it was then. `say` is told of waiting, and by every run how far it is.
    `measured` takes the place of measuring a job here, `cooling` that of waiting here.
    """
    from sonda.targets.cooling import Cooling

    study = study or Study("", {}, {})
    waiting: Cooler = cooling or Cooling(study.cool_down_s, study.rest_s, _lowest_temperatures(earlier), say)

    def measure_point(point: StudyPoint) -> Run:
        from sonda.targets.pipeline import measure

        wanted = options(point.configuration)
        if point.measures == ENERGY:
            if has_company(wanted):
                raise SondaError("energy of programs side by side is not measured", "give this variant energy = 0")
            wanted["probe"] = ",".join(probe for probe in (str(wanted.get("probe", "")), study.energy_probe) if probe)
        waited = waiting.wait()
        place = RunLabels(point.identity, point.group, point.study, point.record(), waited)
        if is_served(wanted):
            return measure_served(wanted, store, place, measure)
        if has_company(wanted):
            from sonda.targets.corun.launcher import corun

            return corun(participants(wanted), store, cores_of(wanted), corun_setting_of(wanted), labels=place)
        job = make_job(options_alone(wanted))
        return (measured or measure)(job, store, place, say)

    return measure_point


def _lowest_temperatures(runs: Iterable[Run]) -> dict[str, float]:
    """The lowest temperature at the beginning that the runs tell of, by sensor."""
    coolest: dict[str, float] = {}
    for run in runs:
        start = run.info.cool_down.start if run.info.cool_down is not None else {}
        for sensor, value in start.items():
            coolest[sensor] = min(value, coolest.get(sensor, value))
    return coolest
