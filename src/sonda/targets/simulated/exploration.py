"""A job on every accelerator of a grid: what is checked beforehand, and what one process explores of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.description.accelerator import Accelerator, load_accelerator
from sonda.accelerators.description.settings import NONE, own_values, parse_settings
from sonda.accelerators.designs.work import EngineWork
from sonda.accelerators.mapping.placement import MAPPINGS
from sonda.probes.machine.environment import installed_versions
from sonda.probes.machine.record import machine_record
from sonda.record.errors import SondaError, nearest
from sonda.targets.job import Job, check_job
from sonda.targets.simulated.design_space import AND, MAPPING, Points, by_field, explore, patterns, why_not
from sonda.targets.simulated.program import program_of
from sonda.targets.target import parse_target, runnable
from sonda.workloads.catalogue import describe

CLOCK = "clock_GHz"
MOST_SIMULATIONS = 2_000_000
"""Operations on designs that a process remembers; with more, it forgets them and begins anew."""


@dataclass(frozen=True)
class Grid:
    """What is to be explored, checked: no model was run yet."""

    job: Job
    axes: dict[str, dict[str, tuple[str, ...]]]
    """The fields that each target has, and their values, by target."""
    zeros: tuple[str, ...]
    """Kinds of operation whose zeros some point must know."""
    descriptions: dict[str, Any]
    """The accelerators, before anything varies, by target."""
    workload: dict[str, Any]
    machine: dict[str, Any]
    versions: dict[str, str]


def grid_of(job: Job, targets: Sequence[str], axes: Mapping[str, Sequence[str]]) -> Grid:
    """The grid of a job on each target with every combination of settings; `axes` are settings and `mapping`.

    Raises SondaError for a field that no target has and for a target that is not simulated.
    """
    job = check_job(msgspec.structs.replace(job, on=targets[0]))
    accelerators = {on: _accelerator(job, on) for on in targets}
    for chosen in axes.get(MAPPING, (job.mapping,)):
        if chosen not in MAPPINGS:
            raise SondaError(f"mapping {chosen!r} is unknown", nearest(chosen, MAPPINGS[1:]))
    fixed = parse_settings(job.set)
    for key in (*axes, *fixed):
        refusals = [why_not(accelerator, key) for accelerator in accelerators.values()]
        if refusals and all(refusals):
            raise refusals[0]  # type: ignore[misc]  # all are errors here
    workload = describe(job.workload, job.options)
    zeros = frozenset[str]().union(*(patterns(one, axes, fixed) for one in accelerators.values()))
    return Grid(
        job=job,
        axes={
            on: {key: tuple(values) for key, values in axes.items() if why_not(accelerator, key) is None}
            for on, accelerator in accelerators.items()
        },
        zeros=tuple(sorted(zeros)),
        descriptions={on: asdict(accelerator) for on, accelerator in accelerators.items()},
        workload={**workload.parameters(), "name": workload.name, "framework": job.framework, **job.how()},
        machine=machine_record(redact=job.redact),
        versions=installed_versions(),
    )


class Explorer:
    """What one process needs to explore parts of a grid: the operations of the model, and what it simulated already."""

    def __init__(self, job: Job, zeros: Sequence[str]) -> None:
        """Raises SondaError when the model fails."""
        self.job = job
        self._fixed = parse_settings(job.set)
        self._program = program_of(job, frozenset(zeros))
        self._work = EngineWork(self._program)
        self._accelerators: dict[str, Accelerator] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said of the model."""
        return self._program.notes

    def explore(self, on: str, axes: Mapping[str, Sequence[str]]) -> tuple[Points, float, int]:
        """The points of a target with every combination of these settings, the seconds it took, and how many distinct
        operations on distinct engines were simulated for them. Compiling is not counted."""
        if on not in self._accelerators:
            self._accelerators[on] = _accelerator(self.job, on)
            first = {key: tuple(values)[:1] for key, values in axes.items() if key != MAPPING}
            # This compiles. The first point may be impossible; the accelerator as it is described never is.
            for some in ({}, first):
                explore(EngineWork(self._program), self._accelerators[on], some, fixed=self._fixed)
        if self._work.simulations > MOST_SIMULATIONS:
            self._work = EngineWork(self._program)
        before, begin = self._work.simulations, time.perf_counter()
        points = explore(self._work, self._accelerators[on], axes, self.job.mapping, self._fixed)
        return points, time.perf_counter() - begin, self._work.simulations - before

    def clocks(self, on: str, points: Points) -> NDArray[np.float64]:
        """The clock of every point in Hz; NaN where it has none."""
        return _clocks(self._accelerators[on], points, self._fixed)


def _clocks(accelerator: Accelerator, points: Points, fixed: Mapping[str, str]) -> NDArray[np.float64]:
    base = np.nan if accelerator.clock_hz is None else accelerator.clock_hz
    for key, value in fixed.items():
        if CLOCK in key.split(AND):
            base = _hertz(own_values(key, value)[key.split(AND).index(CLOCK)])
    shape = [len(values) for values in points.axes.values()]
    for place, (key, values) in enumerate(points.axes.items()):
        if CLOCK in key.split(AND):
            varied = np.array([_hertz(one) for one in by_field({key: values})[CLOCK]])
            along = varied.reshape([-1 if one == place else 1 for one in range(len(shape))])
            return np.broadcast_to(along, shape).ravel()
    return np.full(len(points.cycles), base)


def _hertz(text: str) -> float:
    """NaN for no clock, and for what is none: such points are impossible."""
    try:
        return np.nan if text == NONE else float(text) * 1e9
    except ValueError:
        return np.nan


def _accelerator(job: Job, on: str) -> Accelerator:
    device = runnable(parse_target(on))
    if device.kind != "sim":
        raise SondaError(f"{on} is not a simulated accelerator", "explore sim:NAME, e.g. --on sim:maeri-256")
    if job.train or job.compile or job.precision != "float32":
        raise SondaError("only inference in float32 can be explored", "leave out train, compile and precision")
    return load_accelerator(device.name)
