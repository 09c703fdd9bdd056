"""The one way a run is made: `make_run` has a launcher run something and instruments read it, and keeps the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from sonda.record.errors import SondaError
from sonda.record.machine import Machine
from sonda.record.progress import Say
from sonda.record.run import CoolDown, Run, RunInfo, new_id
from sonda.record.samples import Sample
from sonda.record.store import Store
from sonda.record.stored import Scalar
from sonda.targets.instrument import Command, Draft, EndedRun, Instrument, Launcher, Observation, Rerun, RunPlan
from sonda.targets.job import DEFAULTS, Job
from sonda.targets.target import parse_target, require_one_device

STARTING_S = 6.0
"""s that a framework is imported, a model built and warmed up, and its operations counted; about."""


@dataclass(frozen=True)
class RunLabels:
    """What a run is filed under: its id where that is decided beforehand, its group of repetitions, its study."""

    identity: str = ""
    group: str = ""
    study: str = ""
    point: dict[str, Scalar] = field(default_factory=dict)
    cool_down: dict[str, Any] = field(default_factory=dict)
    """How long the machine cooled down before it; see `record.run.CoolDown`."""


def make_run(
    launcher: Launcher,
    instruments: Sequence[Instrument],
    store: Store,
    labels: RunLabels | None = None,
    say: Say = lambda text: None,
) -> Run:
    """Launch what the launcher is for, read it with the instruments, and keep the run.

    `targets.instrument` says what is called when. Raises SondaError where it cannot be run or fails.
    """
    with ExitStack() as life:
        directory = life.enter_context(store.scratch())
        life.callback(launcher.close)
        plan = launcher.plan(store, directory, say)
        environment: dict[str, str] = {}
        for instrument in instruments:
            environment.update(instrument.prepare(plan))
        with launcher.around(plan), ExitStack() as reading:
            for instrument in instruments:
                reading.enter_context(instrument.around(plan))
            launcher.launch(plan, environment)
        observation = launcher.observe(plan)
        again = partial(launcher.again, plan)
        return launcher.keep(plan, draft_run(plan, observation, labels, instruments, again))


def _refuse_rerun(rerun: Rerun) -> Command:
    raise NotImplementedError


def draft_run(
    plan: RunPlan,
    observation: Observation,
    labels: RunLabels | None = None,
    instruments: Sequence[Instrument] = (),
    again: Callable[[Rerun], Command] = _refuse_rerun,
) -> Draft:
    """The run of what was observed, with what each instrument adds. Every `RunInfo` of a target is made here."""
    labels = labels or RunLabels()
    ended_run = EndedRun(plan, observation, observation.spans, again)
    circumstances = observation.circumstances
    target = observation.target
    states = list(circumstances.probes)
    notes = [*circumstances.notes, *observation.notes]
    samples: list[Sample] = list(observation.samples)
    for instrument in instruments:
        contribution = instrument.collect(ended_run)
        replaced = {state.name for state in contribution.states}
        states = [*(state for state in states if state.name not in replaced), *contribution.states]
        notes += contribution.notes
        samples += contribution.samples
        target = target.extended(contribution.target)
        if contribution.spans is not None:
            ended_run.spans = contribution.spans
    info = RunInfo(
        id=labels.identity or new_id(),
        created=circumstances.created,
        status="complete" if observation.complete else "incomplete",
        workload=observation.workload,
        target=target,
        machine=Machine.of(circumstances.machine),
        versions=circumstances.versions,
        seed=plan.job.seed if plan.job is not None else None,
        probes=states,
        notes=notes,
        disturbed=circumstances.disturbed,
        group=labels.group,
        study=labels.study,
        point=labels.point,
        cool_down=msgspec.convert(labels.cool_down, CoolDown) if labels.cool_down else None,
        exit_code=observation.exit_code,
        overhead=circumstances.overhead,
    )
    assembly = observation.assembly
    return Draft(info, ended_run.spans, samples, assembly.stacks if assembly is not None else None)


# ---- Measuring: a job on whatever target it names -------------------------------------------------------------------

SIMULATED_ONLY = ("mapping", "set")
"""Settings of a job that mean nothing on other targets."""
MEASURED_ONLY = (
    "steps", "warmup", "seconds", "epochs", "split", "images", "transfer", "checkpoint",
    "inter_op_threads", "bind", "gpu_private_threads", "channels_last", "deterministic", "data", "workers", "prefetch",
    "cache", "pin", "probe",
)  # fmt: skip
"""Settings of a job that mean nothing on a simulated accelerator."""


def measure(job: Job, store: Store, labels: RunLabels | None = None, say: Say = lambda text: None) -> Run:
    """Run or simulate a job and keep the run. Raises SondaError when its target cannot run it."""
    spec = parse_target(job.on)
    if not spec.mode and require_one_device(spec).kind == "sim":
        if not (labels and labels.study):  # a study may measure and simulate the same configuration
            _refuse_measured_settings(job)
        from sonda.targets.simulated import launcher as simulated

        return simulated.measure_simulated(job, store, labels, say)
    for name in SIMULATED_ONLY:
        if getattr(job, name):
            raise SondaError(f"--{name} is for a simulated accelerator, not for {job.on}", "use --on sim:NAME")
    if spec.mode:
        from sonda.targets.ranks import launcher as parallel

        return parallel.measure_ranks(job, store, labels, say)
    from sonda.targets.local import launcher as local

    return local.measure_local(job, store, labels, say)


def drop_measured_settings(job: Job) -> Job:
    """The job with defaults for the settings that only matter where time is measured."""
    return msgspec.structs.replace(job, **{name: DEFAULTS[name] for name in MEASURED_ONLY})


def _refuse_measured_settings(job: Job) -> None:
    for name in MEASURED_ONLY:
        if name != "probe" and getattr(job, name) != DEFAULTS[name]:  # refused by name, as elsewhere
            raise SondaError(
                f"--{name.replace('_', '-')} means nothing on {job.on}: a simulation runs once and is exact",
                "leave it out",
            )
