"""A job on every accelerator of a grid, for one or several targets: the points, and what a run keeps beside them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.description import Accelerator, load_accelerator
from sonda.accelerators.engine_work import EngineWork
from sonda.accelerators.mistake import nearest
from sonda.accelerators.placement import MAPPINGS
from sonda.accelerators.settings import NONE, own_values, parse_settings
from sonda.probes.environment import versions
from sonda.probes.machine import machine_record
from sonda.record.errors import SondaError
from sonda.targets.exploring import AND, MAPPING, Points, by_field, explore, patterns, why_not
from sonda.targets.job import Job, check_job
from sonda.targets.keeping import Say
from sonda.targets.program import program_of
from sonda.targets.spec import parse_target, runnable
from sonda.workloads.catalogue import describe

CLOCK = "clock_GHz"


@dataclass(frozen=True)
class Explored:
    """Points by target, in the order asked for."""

    points: dict[str, Points]
    seconds: float
    """Of simulating and putting together, without running the model to see its operations and without compiling."""
    simulations: int
    """Distinct operations on distinct engines."""
    clocks: dict[str, NDArray[np.float64]]
    """The clock of every possible point in Hz, by target; NaN where it has none."""
    descriptions: dict[str, Any]
    """The accelerators, before anything varies."""
    workload: dict[str, Any]
    machine: dict[str, Any]
    versions: dict[str, str]
    notes: tuple[str, ...] = ()
    """What is to be said of the model."""


def explore_targets(
    job: Job, targets: Sequence[str], axes: Mapping[str, Sequence[str]], say: Say = lambda text: None
) -> Explored:
    """The job on each target with every combination of settings; `axes` are settings and `mapping`.

    Raises SondaError for a field that no target has, for a target that is not simulated, and when the model fails.
    """
    job = check_job(job)
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
    say(f"looking at the operations of {job.workload}")
    program = program_of(job, zeros)
    first = {key: values[:1] for key, values in axes.items() if key != MAPPING}
    for accelerator in accelerators.values():
        explore(EngineWork(program), accelerator, first, fixed=fixed)  # compiles what the engines need
    work = EngineWork(program)
    begin = time.perf_counter()
    found = {}
    for on, accelerator in accelerators.items():
        say(f"exploring {on}")
        found[on] = explore(work, accelerator, axes, job.mapping, fixed)
    return Explored(
        points=found,
        seconds=time.perf_counter() - begin,
        simulations=work.simulations,
        clocks={on: _clocks(accelerators[on], points, fixed) for on, points in found.items()},
        descriptions={on: asdict(accelerator) for on, accelerator in accelerators.items()},
        workload={**workload.parameters(), "name": workload.name, "framework": job.framework, **job.how()},
        machine=machine_record(),
        versions=versions(),
        notes=program.notes,
    )


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
