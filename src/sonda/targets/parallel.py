"""Several devices that train together: `ddp=`, `hybrid=`, `localsgd=`, `pipeline=`, `dp=`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter_ns
from typing import Any

import msgspec

from sonda.frameworks.assembly import assemble
from sonda.probes.ceilings import load_or_measure
from sonda.probes.contamination import read_conditions
from sonda.record.errors import SondaError
from sonda.record.run import Run, RunInfo, new_id, write_run
from sonda.record.store import Store
from sonda.targets.counting import ask
from sonda.targets.job import Job, check_job
from sonda.targets.keeping import Place, Say, gpus, observed
from sonda.targets.parallel_agent import JOB, OUTCOME, PLAN
from sonda.targets.parallel_plan import Plan, plan_of, record
from sonda.targets.parallel_report import BEGUN, Foreseen, RankOutcome, Report, read_outlook
from sonda.targets.spec import parse_target

POLL_S = 0.1


def measure(job: Job, store: Store, place: Place | None = None, say: Say = lambda text: None) -> Run:
    """Train on several devices and keep what all ranks saw as one run. Raises SondaError when it cannot be done."""
    place = place or Place()
    job = check_job(job)
    plan = plan_of(job, parse_target(job.on))
    threads = max(1, sum(plan.threads))
    with store.scratch() as directory:
        counters = ask(job.probe, directory)
        say("measuring what this machine can do")
        load_or_measure(store.root, [threads])
        say(f"running {job.workload} on {job.on}")
        before = read_conditions()
        begin = perf_counter_ns()
        report, foreseen = run_agent(job, plan, directory, say)
        end = perf_counter_ns()
        after = read_conditions()
        assembly = assemble(directory, begin, end)
    fields = observed(assembly, threads, store.root, before, after, job.redact)
    fields["notes"] += foreseen.sentences if foreseen else []
    trained = [rank for rank in report.ranks if not rank.left_out]
    info = RunInfo(
        id=place.identity or new_id(),
        status="complete",
        workload={**trained[0].workload, "framework": job.framework, **job.how()},
        target={
            "spec": job.on,
            "device": "cuda" if any(rank.device.startswith("cuda") for rank in trained) else "cpu",
            "threads": threads,
            **record(plan),
            "ranks": [_kept(rank) for rank in report.ranks],
            **({"outlook": foreseen.numbers} if foreseen else {}),
            **gpus(assembly),
            **counters.target,
        },
        seed=job.seed,
        group=place.group,
        study=place.study,
        point=place.point,
        **counters.said(fields),
    )
    return write_run(store.root, info, assembly.spans)


def run_agent(job: Job, plan: Plan, directory: Path, say: Say) -> tuple[Report, Foreseen | None]:
    """Run the ranks to their end; says the outlook as soon as it is there. Raises SondaError when a rank fails."""
    (directory / JOB).write_bytes(msgspec.json.encode(job))
    (directory / PLAN).write_bytes(msgspec.json.encode(plan))
    # -P: a file in the user's directory that is named like a module must not be imported.
    command = [sys.executable, "-P", "-m", "sonda.targets.parallel_agent", str(directory)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # of the agent; every rank has its own
    foreseen: Foreseen | None = None
    deadline = monotonic() + plan.timeout
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL) as agent:
        try:
            while True:
                try:
                    agent.wait(POLL_S)
                except subprocess.TimeoutExpired:
                    pass
                if foreseen is None:
                    foreseen = read_outlook(directory)
                    for sentence in foreseen.sentences if foreseen else ():
                        say(sentence)
                if agent.returncode is not None:
                    break
                # Whatever else listens at that port may never answer, and PyTorch would wait for it.
                if monotonic() > deadline and not (directory / BEGUN).exists():
                    raise SondaError(
                        f"the ranks did not meet at {plan.at} within {plan.timeout:g} s",
                        "check that all nodes were started and that the port is free and reachable",
                    )
        except BaseException:
            agent.kill()
            raise
    path = directory / OUTCOME
    if not path.exists():
        raise SondaError(f"the process that started the ranks of {job.on} ended with code {agent.returncode}",
                         "see its output above")  # fmt: skip
    report = msgspec.json.decode(path.read_bytes(), type=Report)
    if report.cause:
        raise SondaError(report.cause, report.remedy)
    return report, foreseen


def _kept(rank: RankOutcome) -> dict[str, Any]:
    """A rank for `run.json`: medians over its timed steps, and the shares it had."""
    kept: dict[str, Any] = {"rank": rank.rank, "device": rank.device, "threads": rank.threads}
    if rank.left_out:
        return {**kept, "left_out": True}
    if rank.worked_ns:
        kept |= {
            "samples": rank.samples[-1],
            "worked_ns": median(rank.worked_ns),
            "waited_ns": median(rank.waited_ns),
            "shares": rank.changes,
        }
    return {**kept, **rank.about}
