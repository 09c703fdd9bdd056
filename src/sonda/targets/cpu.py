"""The target `cpu`: a workload in a child process of its own on this machine's processor."""

from __future__ import annotations

from time import perf_counter_ns

import msgspec

from sonda.frameworks.assembly import assemble
from sonda.probes.ceilings import load_or_measure
from sonda.probes.contamination import read_conditions
from sonda.record.errors import SondaError
from sonda.record.run import Run, RunInfo, new_id, write_run
from sonda.record.store import Store
from sonda.targets.child import run_child
from sonda.targets.counting import ask
from sonda.targets.job import Job, check_job
from sonda.targets.keeping import Place, Say, observed
from sonda.targets.modelled import Modelled, asked_for, instruction_set, model_job
from sonda.targets.spec import available_threads, parse_target, runnable


def measure(job: Job, store: Store, place: Place | None = None, say: Say = lambda text: None) -> Run:
    """Run a job in a process of its own and keep what was seen. Raises SondaError when it cannot be run."""
    place = place or Place()
    job = check_job(job)
    device = runnable(parse_target(job.on))
    if job.threads and device.threads and job.threads != device.threads:
        raise SondaError(f"--on {job.on} and --threads {job.threads} do not agree", "give one of them")
    threads = job.threads or device.threads or available_threads()
    modelling = asked_for(job.probe)
    asked = job.threads or device.threads or 1
    job = msgspec.structs.replace(job, threads=threads)
    with store.scratch() as directory:
        counters = ask(job.probe, directory)
        say("measuring what this machine can do")
        load_or_measure(store.root, [threads])
        say(f"running {job.workload} on {job.on}")
        before = read_conditions()
        begin = perf_counter_ns()
        outcome = run_child(job, directory, threads)
        end = perf_counter_ns()
        after = read_conditions()
        assembly = assemble(directory, begin, end)
        isa = instruction_set(directory) if modelling else ""
    fields = observed(assembly, threads, store.root, before, after, job.redact)
    modelled = Modelled()
    if modelling:
        modelled = model_job(job, modelling, asked, assembly.spans, fields["machine"], isa, store, say)
    info = RunInfo(
        id=place.identity or new_id(),
        status="complete",
        workload={**outcome.workload, "framework": job.framework, **job.how()},
        target={"spec": job.on, "device": device.kind, "threads": threads, **counters.target, **modelled.kept()},
        seed=job.seed,
        group=place.group,
        study=place.study,
        point=place.point,
        **counters.said(modelled.said(fields)),
    )
    return write_run(store.root, info, modelled.added(assembly.spans))
