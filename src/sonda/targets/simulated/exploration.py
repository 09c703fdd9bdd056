"""A job on every accelerator of a grid: the grid, checked beforehand, and the explorer of one process."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.description.accelerator import Accelerator, load_accelerator
from sonda.accelerators.description.settings import NONE, parse_settings, split_values
from sonda.accelerators.designs.work import EngineWork
from sonda.accelerators.mapping.placement import MAPPINGS
from sonda.probes.machine.environment import installed_versions
from sonda.probes.machine.record import machine_record
from sonda.record.errors import SondaError, nearest
from sonda.targets.job import Job, check_job
from sonda.targets.simulated.design_space import (
    AND,
    MAPPING,
    GridPoints,
    explore,
    needed_patterns,
    refusal_of_field,
    values_by_field,
)
from sonda.targets.simulated.program import make_program
from sonda.targets.target import parse_target, require_one_device
from sonda.workloads.catalogue import describe

CLOCK = "clock_GHz"
MOST_SIMULATIONS = 2_000_000
"""Operations on designs that a process remembers; with more, it forgets them and begins anew."""


@dataclass(frozen=True)
class Grid:
    """What is to be explored, checked before any model runs."""

    job: Job
    axes: dict[str, dict[str, tuple[str, ...]]]
    """The fields that each target has, and their values, by target."""
    zeros: tuple[str, ...]
    """Kinds of operation for which some point must know where the zeros are."""
    descriptions: dict[str, Any]
    """The accelerators, before anything varies, by target."""
    workload: dict[str, Any]
    machine: dict[str, Any]
    versions: dict[str, str]


def make_grid(job: Job, targets: Sequence[str], axes: Mapping[str, Sequence[str]]) -> Grid:
    """The grid of a job on each target with every combination of settings; `axes` are settings and `mapping`.

    Raises SondaError for a field that no target has and for a target that is not simulated.
    """
    job = check_job(msgspec.structs.replace(job, on=targets[0]))
    accelerators = {on: _load_explorable(job, on) for on in targets}
    for chosen in axes.get(MAPPING, (job.mapping,)):
        if chosen not in MAPPINGS:
            raise SondaError(f"mapping {chosen!r} is unknown", nearest(chosen, MAPPINGS[1:]))
    fixed = parse_settings(job.set)
    for key in (*axes, *fixed):
        refusals = [refusal_of_field(accelerator, key) for accelerator in accelerators.values()]
        if refusals and all(refusals):
            raise refusals[0]  # type: ignore[misc]  # all are errors here
    workload = describe(job.workload, job.options)
    zeros = frozenset[str]().union(
        *(needed_patterns(accelerator, axes, fixed) for accelerator in accelerators.values())
    )
    return Grid(
        job=job,
        axes={
            on: {key: tuple(values) for key, values in axes.items() if refusal_of_field(accelerator, key) is None}
            for on, accelerator in accelerators.items()
        },
        zeros=tuple(sorted(zeros)),
        descriptions={on: asdict(accelerator) for on, accelerator in accelerators.items()},
        workload={**workload.parameters(), "name": workload.name, "framework": job.framework, **job.settings_record()},
        machine=machine_record(redact=job.redact),
        versions=installed_versions(),
    )


class Explorer:
    """Explores parts of a grid in one process. It remembers the model's operations and what it has simulated."""

    def __init__(self, job: Job, zeros: Sequence[str]) -> None:
        """Raises SondaError when the model fails."""
        self.job = job
        self._fixed = parse_settings(job.set)
        self._program = make_program(job, frozenset(zeros))
        self._work = EngineWork(self._program)
        self._accelerators: dict[str, Accelerator] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the model."""
        return self._program.notes

    def explore(self, on: str, axes: Mapping[str, Sequence[str]]) -> tuple[GridPoints, float, int]:
        """The points of a target with every combination of these settings, the s that it took, and the simulations.

        Simulations are distinct operations on distinct engines. The time does not include compiling.
        """
        if on not in self._accelerators:
            self._accelerators[on] = _load_explorable(self.job, on)
            first = {key: tuple(values)[:1] for key, values in axes.items() if key != MAPPING}
            # This compiles. The first point may be impossible; the accelerator as it is described never is.
            for settings in ({}, first):
                explore(EngineWork(self._program), self._accelerators[on], settings, fixed=self._fixed)
        if self._work.simulations > MOST_SIMULATIONS:
            self._work = EngineWork(self._program)
        before, begin = self._work.simulations, time.perf_counter()
        points = explore(self._work, self._accelerators[on], axes, self.job.mapping, self._fixed)
        return points, time.perf_counter() - begin, self._work.simulations - before

    def clocks(self, on: str, points: GridPoints) -> NDArray[np.float64]:
        """The clock of every point in Hz; NaN where it has none."""
        return _point_clocks(self._accelerators[on], points, self._fixed)


def _point_clocks(accelerator: Accelerator, points: GridPoints, fixed: Mapping[str, str]) -> NDArray[np.float64]:
    base = np.nan if accelerator.clock_hz is None else accelerator.clock_hz
    for key, value in fixed.items():
        if CLOCK in key.split(AND):
            base = _hertz(split_values(key, value)[key.split(AND).index(CLOCK)])
    shape = [len(values) for values in points.axes.values()]
    for place, (key, values) in enumerate(points.axes.items()):
        if CLOCK in key.split(AND):
            varied = np.array([_hertz(text) for text in values_by_field({key: values})[CLOCK]])
            along = varied.reshape([-1 if axis == place else 1 for axis in range(len(shape))])
            return np.broadcast_to(along, shape).ravel()
    return np.full(len(points.cycles), base)


def _hertz(text: str) -> float:
    """A clock in Hz from GHz as text; NaN for no clock and for other text, whose points are impossible."""
    try:
        return np.nan if text == NONE else float(text) * 1e9
    except ValueError:
        return np.nan


def _load_explorable(job: Job, on: str) -> Accelerator:
    device = require_one_device(parse_target(on))
    if device.kind != "sim":
        raise SondaError(f"{on} is not a simulated accelerator", "explore sim:NAME, e.g. --on sim:maeri-256")
    if job.train or job.compile or job.precision != "float32":
        raise SondaError("only inference in float32 can be explored", "leave out train, compile and precision")
    accelerator = load_accelerator(device.name)
    accelerator.require_kernels()
    return accelerator
