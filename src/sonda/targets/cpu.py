"""The target `cpu`: a workload in a child process of its own on this machine's processor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import msgspec

from sonda.frameworks.assembly import Assembly, assemble
from sonda.probes.ceilings import load_or_measure
from sonda.probes.contamination import Conditions, contamination, read_conditions
from sonda.probes.environment import thread_variables, versions, wait_policy
from sonda.probes.machine import machine_record
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState, Run, RunInfo, new_id, now, write_run
from sonda.record.store import Store
from sonda.targets.job import Job, check_job
from sonda.targets.spec import available_threads, parse_target, runnable
from sonda.targets.worker import Outcome


@dataclass(frozen=True)
class Place:
    """Where a run belongs: its id where that is decided beforehand, its repetitions, its study."""

    identity: str = ""
    group: str = ""
    study: str = ""
    point: dict[str, Any] = field(default_factory=dict)


Say = Callable[[str], None]
"""Told what is going on, for whoever watches."""


def measure(job: Job, store: Store, place: Place | None = None, say: Say = lambda text: None) -> Run:
    """Run a job in a process of its own and keep what was seen. Raises SondaError when it cannot be run."""
    place = place or Place()
    job = check_job(job)
    device = runnable(parse_target(job.on))
    threads = job.threads or device.threads or available_threads()
    job = msgspec.structs.replace(job, threads=threads)
    say("measuring what this machine can do")
    ceilings = load_or_measure(store.root, [threads])
    say(f"running {job.workload} on {job.on}")
    with store.scratch() as directory:
        before = read_conditions()
        begin = perf_counter_ns()
        outcome = _run_child(job, directory, threads)
        end = perf_counter_ns()
        assembly = assemble(directory, begin, end)
        disturbed = disturbances(before, read_conditions(), threads)
    info = RunInfo(
        id=place.identity or new_id(),
        created=now(),
        status="complete",
        workload={**outcome.workload, "framework": job.framework, **job.how()},
        target={"spec": job.on, "device": device.kind, "threads": threads},
        machine={**machine_record(), "ceilings": ceilings, "environment": thread_variables()},
        versions={**versions(), **assembly.versions},
        seed=job.seed,
        probes=probe_states(),
        notes=[*assembly.notes, *unknown_operations(assembly)],
        disturbed=disturbed,
        group=place.group,
        study=place.study,
        point=place.point,
        overhead=overhead(assembly),
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


def disturbances(before: Conditions, after: Conditions, threads: int) -> list[str]:
    """What others did to this run, in sentences."""
    flags = contamination(before, after, threads, wait_policy())
    return [flag.sentence for flag in flags if flag.contaminated]


def probe_states() -> list[ProbeState]:
    """What every run of this machine can and cannot say."""
    return [
        ProbeState("clock", "ok"),
        ProbeState("os", "ok"),
        ProbeState("memory", "ok"),
    ]


def unknown_operations(assembly: Assembly) -> list[str]:
    """A note that names the operations whose FLOPs nobody knows."""
    if not assembly.unknown:
        return []
    names = ", ".join(sorted(assembly.unknown)[:5])
    more = f" and {len(assembly.unknown) - 5} more" if len(assembly.unknown) > 5 else ""
    return [f"no FLOP formula for {names}{more}: their FLOPs are missing"]


def overhead(assembly: Assembly) -> dict[str, float]:
    """What observing cost: ns per layer span, layer spans per timed step, and their share of the step."""
    import numpy as np

    spans = assembly.spans
    if assembly.span_ns is None:
        return {}
    steps = spans.where(kind="step", pass_="timed")
    layers = spans.where(kind="layer", pass_="timed")
    if not steps.any():
        return {"span_ns": assembly.span_ns}
    per_step = layers.sum() / steps.sum()
    step = float(np.median(spans.number("duration")[steps]))
    return {
        "span_ns": assembly.span_ns,
        "spans_per_step": float(per_step),
        "step_share": float(assembly.span_ns * per_step / step) if step else 0.0,
    }
