"""The words of a study that other rooms know: workloads with their options, options of every run, targets."""

from __future__ import annotations

from collections.abc import Callable

from sonda.record.errors import SondaError, near
from sonda.studies.engine.corun_point import NOBODY, SETTINGS, WITH, check_company, has_company, options_alone
from sonda.studies.engine.plan import is_simulated, options
from sonda.studies.engine.serving_point import SETTINGS as SERVED_SETTINGS
from sonda.studies.engine.serving_point import check_served, is_served
from sonda.studies.file.check import Vocabulary
from sonda.studies.file.settings import name_of
from sonda.studies.file.study import Configuration, Scalar
from sonda.targets.job import RUN_OPTIONS, make_job, option_text
from sonda.targets.target import parse_target
from sonda.workloads.catalogue import describe


def vocabulary_of_sonda() -> Vocabulary:
    """The workloads, options and targets of this Sonda."""
    read: set[tuple[str, str]] = set()
    return Vocabulary(_workload, _option, lambda configuration: _configuration(configuration, read), _target)


def _workload(name: str) -> str:
    return _problem(lambda: describe(name, {}))


def _option(workload: str, key: str, value: Scalar) -> str:
    if key == WITH:
        return _problem(lambda: check_company({"workload": workload, WITH: value})) if value != NOBODY else ""
    if name_of(key) in (*SETTINGS, *SERVED_SETTINGS):
        return ""  # right or wrong in the company of the others only
    if name_of(key) in RUN_OPTIONS:
        return _problem(lambda: make_job({"workload": workload, key: value}))
    problem = _problem(lambda: describe(workload, {key: option_text(value)}))
    own = describe(workload, {}).parameters()
    meant = near(key, [*RUN_OPTIONS, *own])
    if f"has no option {key!r}" in problem and meant in RUN_OPTIONS:
        return f"{workload} has no option {key!r}; did you mean {meant!r}?"
    return problem


def _configuration(configuration: Configuration, read: set[tuple[str, str]]) -> str:
    """`read` are the accelerators, with their settings, whose descriptions were found right already."""

    def try_it() -> None:
        if has_company(configuration):
            check_company(options(configuration))
            return
        check_served(options(configuration))
        if is_served(configuration):
            return
        job = make_job(options_alone(options(configuration)))
        describe(job.workload, job.options)
        if is_simulated(configuration) and (job.on, job.set) not in read:
            from sonda.targets.simulated.launcher import accelerator_of

            accelerator_of(job)
            read.add((job.on, job.set))

    return _problem(try_it)


def _target(spec: str) -> str:
    """Only how it is written: whether a machine has the device is found out point by point."""
    return _problem(lambda: parse_target(spec))


def _problem(attempt: Callable[[], object]) -> str:
    """What a SondaError says, or nothing where there is none."""
    try:
        attempt()
    except SondaError as error:
        return str(error)
    return ""
