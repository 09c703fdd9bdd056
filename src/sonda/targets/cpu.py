"""The target `cpu`: a workload in a child process of its own on this machine's processor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from time import perf_counter_ns

import msgspec

from sonda.frameworks.assembly import assemble
from sonda.probes.ceilings import load_or_measure
from sonda.probes.contamination import read_conditions
from sonda.record.errors import SondaError
from sonda.record.run import Run, RunInfo, new_id, write_run
from sonda.record.store import Store
from sonda.targets.job import Job, check_job
from sonda.targets.keeping import Place, Say, observed
from sonda.targets.spec import available_threads, parse_target, runnable
from sonda.targets.worker import Outcome


def measure(job: Job, store: Store, place: Place | None = None, say: Say = lambda text: None) -> Run:
    """Run a job in a process of its own and keep what was seen. Raises SondaError when it cannot be run."""
    place = place or Place()
    job = check_job(job)
    device = runnable(parse_target(job.on))
    threads = job.threads or device.threads or available_threads()
    job = msgspec.structs.replace(job, threads=threads)
    say("measuring what this machine can do")
    load_or_measure(store.root, [threads])
    say(f"running {job.workload} on {job.on}")
    with store.scratch() as directory:
        before = read_conditions()
        begin = perf_counter_ns()
        outcome = _run_child(job, directory, threads)
        end = perf_counter_ns()
        after = read_conditions()
        assembly = assemble(directory, begin, end)
    info = RunInfo(
        id=place.identity or new_id(),
        status="complete",
        workload={**outcome.workload, "framework": job.framework, **job.how()},
        target={"spec": job.on, "device": device.kind, "threads": threads},
        seed=job.seed,
        group=place.group,
        study=place.study,
        point=place.point,
        **observed(assembly, threads, store.root, before, after),
    )
    return write_run(store.root, info, assembly.spans)


def _run_child(job: Job, directory: Path, threads: int) -> Outcome:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "sonda.targets.worker", str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as child:
        try:
            child.communicate(msgspec.json.encode(job))
        except BaseException:
            child.kill()
            raise
    path = directory / "outcome.json"
    if not path.exists():
        raise SondaError(f"the process running {job.workload} {_ending(child.returncode)}", "see its output above")
    outcome = msgspec.json.decode(path.read_bytes(), type=Outcome)
    if outcome.cause:
        raise SondaError(outcome.cause, outcome.remedy)
    return outcome


def _ending(code: int) -> str:
    if code < 0:
        name = signal.Signals(-code).name
        return f"was ended by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    return f"ended with code {code}"
