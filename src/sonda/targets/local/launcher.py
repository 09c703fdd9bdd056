"""The targets `cpu` and `cuda:N`: a workload in a child process of its own on this machine's processor or GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns

import msgspec

from sonda.frameworks.reconstruction.assembly import assemble
from sonda.probes.ceilings.gpu import load_or_measure_gpu
from sonda.probes.ceilings.processor import TAKES_S, load_or_measure
from sonda.probes.machine.contamination import ContaminationWatch
from sonda.record.errors import SondaError
from sonda.record.progress import Expected, Say
from sonda.record.run import Run, write_run
from sonda.record.store import Store
from sonda.record.target import WorkloadTarget
from sonda.record.workload import Workload
from sonda.targets.adapters.registry import ADAPTERS, require_framework
from sonda.targets.applicability import drop_inapplicable
from sonda.targets.circumstances import describe_gpus, gpu_identities, observed_circumstances
from sonda.targets.instrument import (
    AGAIN,
    AROUND,
    INSIDE,
    REPLAY,
    Command,
    Draft,
    Launcher,
    Observation,
    Rerun,
    RunPlan,
)
from sonda.targets.instruments.registry import instruments_for
from sonda.targets.job import DEFAULTS, JOB, Job, check_job
from sonda.targets.local.binding import binding_variables, bound_threads, choose_cores
from sonda.targets.local.child import run_child
from sonda.targets.local.command import job_command
from sonda.targets.local.worker import REPLAY_VARIABLE
from sonda.targets.pipeline import STARTING_S, RunLabels, make_run
from sonda.targets.profiles.kernels import with_kernels
from sonda.targets.target import available_threads, describe_slow_devices, parse_target, require_one_device
from sonda.targets.training.supervisor import SupervisedTraining


def measure_local(job: Job, store: Store, labels: RunLabels | None = None, say: Say = lambda text: None) -> Run:
    """Run a job in a process of its own and keep what was seen. Raises SondaError when it cannot be run."""
    launcher = LocalLauncher(job)
    return make_run(launcher, instruments_for(job.probe, launcher), store, labels, say)


WHOLE_TRAINING = " of a whole training"
"""Said of a run that is not run once more, since it takes hours."""
MEASURING_CEILINGS = Expected("measuring what this machine can do, once", TAKES_S)
"""Said while the ceilings are measured; where they are known it is gone at once."""


def describe_running(job: Job) -> str:
    """The line on the screen while a job runs, with the expected time in s where the job is given by seconds."""
    counted = job.steps is not None or bool(job.epochs)
    text = f"{'starting' if counted else 'running'} {job.workload} on {job.on}"
    if job.framework != DEFAULTS["framework"]:
        # Importing it may take longer than all that follows.
        text = f"importing {ADAPTERS[job.framework].words}, then {text}"
    # The worker reports progress by itself where steps or epochs are given, once the first has begun.
    return Expected(text, STARTING_S + (0.0 if counted else job.seconds))


class LocalLauncher(Launcher):
    """Runs a job in a process of its own. Raises SondaError for a job that cannot be."""

    kind = "workload"
    offers = frozenset({AROUND, INSIDE, AGAIN, REPLAY})

    def __init__(self, job: Job) -> None:
        job = check_job(job)
        self.device = require_one_device(parse_target(job.on))
        require_framework(job.framework)
        if job.threads and self.device.threads and job.threads != self.device.threads:
            raise SondaError(f"--on {job.on} and --threads {job.threads} do not agree", "give one of them")
        job, self.inapplicable_notes = drop_inapplicable(job)
        asked_threads = self.device.threads or bound_threads(job)
        self.threads = asked_threads or available_threads()
        self.asked_threads = asked_threads or 0
        self.bound = binding_variables(choose_cores(job.bind, self.threads))
        self.job = msgspec.structs.replace(job, threads=self.threads)
        if job.epochs:
            self.where, self.offers = WHOLE_TRAINING, frozenset({AROUND, INSIDE})

    @property
    def on_gpu(self) -> bool:
        return self.device.kind == "cuda"

    def plan(self, store: Store, directory: Path, say: Say) -> RunPlan:
        return RunPlan(self.kind, store, directory, say, self.job, on_gpu=self.on_gpu, asked_threads=self.asked_threads)

    @contextmanager
    def around(self, plan: RunPlan) -> Iterator[None]:
        """Measure the machine's ceilings and prepare the data of a whole training; lock its checkpoints meanwhile."""
        self.training = SupervisedTraining.prepare(self.job, plan.store, plan.say)
        plan.say(MEASURING_CEILINGS)
        load_or_measure(plan.store.root, [self.threads])
        if self.on_gpu:
            load_or_measure_gpu(plan.store.root, self.device.index, plan.say)
        plan.say(describe_running(self.job))
        with self.training.lock_checkpoints(plan.directory, plan.say):
            yield

    def launch(self, plan: RunPlan, environment: Mapping[str, str]) -> None:
        with ContaminationWatch() as self.watch:
            self.begin = perf_counter_ns()
            variables = {**environment, **self.bound}
            self.outcome = run_child(self.training.job, plan.directory, self.threads, variables, plan.processes.add)
            self.end = perf_counter_ns()

    def observe(self, plan: RunPlan) -> Observation:
        job, training, watch = self.job, self.training, self.watch
        assembly = assemble(plan.directory, self.begin, self.end)
        kernels = with_kernels(assembly, plan.directory, self.begin)
        spans = training.add_walks(kernels.spans, plan.directory, self.begin)
        return Observation(
            spans,
            workload=Workload.of(
                {**self.outcome.workload, "framework": job.framework, **job.settings_record(), **training.describe()}
            ),
            target=WorkloadTarget.of(
                spec=job.on, device=self.device.kind, threads=self.threads, **describe_gpus(assembly)
            ),
            circumstances=observed_circumstances(
                assembly, self.threads, plan.store.root, watch.before, watch.after, job.redact
            ),
            begin=self.begin,
            end=self.end,
            assembly=assembly,
            used=("cpu", f"cuda:{self.device.index}") if self.on_gpu else ("cpu",),
            identities=gpu_identities(assembly),
            notes=[*self.inapplicable_notes, *describe_slow_devices([self.device]), *kernels.notes, *training.notes()],
        )

    def again(self, plan: RunPlan, rerun: Rerun) -> Command:
        changes = {"warmup": rerun.warmup, "steps": rerun.steps, "threads": rerun.threads}
        job = msgspec.structs.replace(self.job, probe="", **{name: value for name, value in changes.items() if value})
        if not rerun.observed:
            return Command(job.workload, tuple(job_command(job, rerun.directory)), environment=self.bound)
        task = msgspec.json.encode(job)
        (rerun.directory / JOB).write_bytes(task)
        words = (*rerun.under, sys.executable, "-P", "-m", "sonda.targets.local.worker", str(rerun.directory))
        return Command(job.workload, words, task, {**self.bound, **({REPLAY_VARIABLE: "1"} if rerun.replay else {})})

    def keep(self, plan: RunPlan, draft: Draft) -> Run:
        run = write_run(plan.store.root, draft.info, draft.spans, draft.samples, files=self.training.files())
        self.training.discard_checkpoints()
        return run
