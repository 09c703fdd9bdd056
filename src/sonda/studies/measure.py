"""From a point of a study to a measured run: the configuration becomes a job, the job a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.studies.engine import Measure
from sonda.studies.plan import Point
from sonda.studies.study import Configuration, Scalar
from sonda.targets.job import Job, check_job

RUN_OPTIONS = tuple(name for name in Job.__struct_fields__ if name not in ("workload", "options"))
"""Options that every workload has; all others are the workload's own."""


def job_of(configuration: Configuration) -> Job:
    """The job that measures a configuration; raises SondaError when a value cannot be."""
    settings: dict[str, Any] = {"workload": configuration.get("workload", "")}
    options: dict[str, str] = {}
    for key, value in configuration.items():
        name = key.replace("-", "_")
        if name in RUN_OPTIONS:
            settings[name] = value
        elif name != "workload":
            options[key] = as_text(value)
    try:
        return check_job(msgspec.convert({**settings, "options": options}, Job))
    except msgspec.ValidationError as error:
        # `Expected `int`, got `str` - at `$.steps``
        what, _, where = str(error).replace("`", "").partition(" - at $.")
        raise SondaError(
            f"{where} cannot be {as_text(configuration.get(where, ''))}", what[:1].lower() + what[1:]
        ) from None


def as_text(value: Scalar) -> str:
    """A value as the command line writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def measuring(store: Store, say: Callable[[str], None] = lambda text: None) -> Measure:
    """What the engine needs to measure points on this machine and keep them in a store."""

    def measure_point(point: Point) -> Run:
        from sonda.targets.cpu import Place, measure

        place = Place(point.identity, point.group, point.study, point.record())
        return measure(job_of(point.configuration), store, place, say)

    return measure_point
