"""The targets `cpu` and `cuda:N`: a workload in a child process of its own on this machine's processor or GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns

import msgspec

from sonda.frameworks.assembly import assemble
from sonda.probes.ceilings import TAKES_S, load_or_measure
from sonda.probes.contamination import Watch
from sonda.probes.gpu_ceilings import load_or_measure_gpu
from sonda.record.errors import SondaError
from sonda.record.run import Run, RunInfo, new_id, write_run
from sonda.record.saying import Expected, Say
from sonda.record.store import Store
from sonda.targets.adapters import ADAPTERS, compiled_once, require
from sonda.targets.applicable import applied
from sonda.targets.binding import cores_of, threads_of, variables
from sonda.targets.child import run_child
from sonda.targets.counting import ask
from sonda.targets.energy_sampling import asked as asked_energy
from sonda.targets.energy_sampling import sampling
from sonda.targets.job import DEFAULTS, Job, check_job
from sonda.targets.keeping import STARTING_S, Place, gpus, identities, observed
from sonda.targets.kernels import with_kernels
from sonda.targets.modelled import Modelled, asked_for, instruction_set, model_job
from sonda.targets.ncu_pass import Replayed, count_job, settings_for
from sonda.targets.own_probes import own_probes, reading
from sonda.targets.spec import available_threads, parse_target, runnable
from sonda.targets.training import Training


def measure(job: Job, store: Store, place: Place | None = None, say: Say = lambda text: None) -> Run:
    """Run a job in a process of its own and keep what was seen. Raises SondaError when it cannot be run."""
    with store.scratch() as compiled:
        return _measure(check_job(job), store, place or Place(), say, compiled)


MEASURING = Expected("measuring what this machine can do, once", TAKES_S)
"""Said while the ceilings are measured; where they are known it is gone at once."""


def lasting(job: Job) -> str:
    """What is said while a job runs: where it is the time that is given and not the steps, how long it will take."""
    counted = job.steps is not None or bool(job.epochs)
    text = f"{'starting' if counted else 'running'} {job.workload} on {job.on}"
    if job.framework != DEFAULTS["framework"]:
        # Importing it may take longer than all that follows.
        text = f"importing {ADAPTERS[job.framework].words}, then {text}"
    # Steps and epochs that are asked for are counted by who does them, once the first has begun.
    return Expected(text, STARTING_S + (0.0 if counted else job.seconds))


def _measure(job: Job, store: Store, place: Place, say: Say, compiled: Path) -> Run:
    """`compiled` is for what the processes of one run compile for each other."""
    device = runnable(parse_target(job.on))
    require(job.framework)
    if job.threads and device.threads and job.threads != device.threads:
        raise SondaError(f"--on {job.on} and --threads {job.threads} do not agree", "give one of them")
    job, without = applied(job)
    job = msgspec.structs.replace(job, threads=device.threads or threads_of(job))
    threads = job.threads or available_threads()
    bound = variables(cores_of(job.bind, threads))
    on_gpu = device.kind == "cuda"
    modelling = asked_for(job.probe)
    if modelling and on_gpu:
        raise SondaError(f"--probe callgrind models a processor, not {job.on}", "use --on cpu, or leave it out")
    counting = settings_for(job.probe, on_gpu)
    compiling = compiled_once(job.framework, compiled) if counting else {}
    asked = job.threads or 1
    job = msgspec.structs.replace(job, threads=threads)
    training = Training.of(job, store, say)
    with store.scratch() as directory:
        counters = ask(job.probe, directory)
        say(MEASURING)
        load_or_measure(store.root, [threads])
        card = load_or_measure_gpu(store.root, device.index, say).device if on_gpu else None
        say(lasting(job))
        own = own_probes(job.probe)
        energy_asked = asked_energy(job.probe)
        with training.held(directory, say), sampling(energy_asked, directory, say) as energy, reading(own):
            with Watch() as watch:
                begin = perf_counter_ns()
                outcome = run_child(training.job, directory, threads, {**energy.environment, **compiling, **bound})
                end = perf_counter_ns()
        assembly = assemble(directory, begin, end)
        energy.finish(begin, end, ["cpu", f"cuda:{device.index}"] if on_gpu else ["cpu"], identities(assembly))
        kernels = with_kernels(assembly, directory, begin)
        kernels = replace(kernels, spans=training.added(kernels.spans, directory, begin))
        isa = instruction_set(directory) if modelling else ""
    counters = counters.with_second(job, assembly.spans, store, say)
    fields = observed(assembly, threads, store.root, watch.before, watch.after, job.redact)
    fields["notes"] += [*without, *kernels.notes, *training.notes()]
    replayed = Replayed()
    if counting and card is not None:
        replayed = count_job(job, counting, card, kernels.spans, store, say, compiling)
    modelled = Modelled()
    if modelling:
        modelled = model_job(job, modelling, asked, assembly.spans, fields["machine"], isa, store, say)
    info = RunInfo(
        id=place.identity or new_id(),
        status="complete",
        workload={**outcome.workload, "framework": job.framework, **job.how(), **training.about()},
        target={
            "spec": job.on,
            "device": device.kind,
            "threads": threads,
            **gpus(assembly),
            **counters.target,
            **replayed.kept(),
            **modelled.kept(),
            **energy.target,
            **own.target,
        },
        seed=job.seed,
        group=place.group,
        study=place.study,
        point=place.point,
        **own.said(energy.said(counters.said(modelled.said(replayed.said(fields))))),
    )
    spans = energy.added(modelled.added(replayed.added(kernels.spans)))
    run = write_run(store.root, info, spans, [*energy.samples, *own.samples(begin)], files=training.files())
    training.done()
    return run
