"""Binding: on which cores the threads of a workload stay.

`compact` fills the hardware threads of a core, then its neighbours; `spread` takes one core of every package in turn,
and the second hardware thread of a core only when all cores have one. Numbers are the kernel's, of the processors that
this process may use.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from sonda.probes.kernel_files import parse_cpu_list, read_int
from sonda.record.errors import SondaError
from sonda.targets.job import Job

CPUS = Path("/sys/devices/system/cpu")
CORES_VARIABLE = "SONDA_CORES"
"""Environment variable: the processors of a bound workload, separated by commas."""


def choose_cores(bind: str, threads: int, allowed: Sequence[int] | None = None, cpus: Path = CPUS) -> tuple[int, ...]:
    """A processor for every thread; empty where nothing is bound. Raises SondaError where there are not enough."""
    if bind == "none":
        return ()
    usable = sorted(allowed if allowed is not None else os.sched_getaffinity(0))
    if bind in ("compact", "spread"):
        cores = _order_cores(bind, usable, cpus)
    else:
        cores = _parse_cores(bind)
        lacking = [core for core in cores if core not in usable]
        if lacking:
            listed = ",".join(map(str, usable))
            raise SondaError(f"--bind {bind}: this process may not use processor {lacking[0]}", f"it may use {listed}")
    if len(cores) < threads:
        raise SondaError(
            f"--bind {bind} gives {len(cores)} processor{'s' if len(cores) > 1 else ''} to {threads} threads",
            "give fewer threads, or more cores",
        )
    return tuple(cores[:threads])


def bound_threads(job: Job) -> int | None:
    """The threads of a job: as given, else as many as its list of cores has; None where neither says."""
    if job.threads or job.bind in ("none", "compact", "spread"):
        return job.threads
    return len(_parse_cores(job.bind))


def binding_variables(cores: Sequence[int]) -> dict[str, str]:
    """Variables that bind threads: OpenMP's places, and `SONDA_CORES` for libraries with threads of their own."""
    if not cores:
        return {}
    return {
        "OMP_PROC_BIND": "true",
        "OMP_PLACES": ",".join(f"{{{core}}}" for core in cores),
        CORES_VARIABLE: ",".join(map(str, cores)),
    }


def confine_process(environment: Mapping[str, str] = os.environ) -> tuple[int, ...]:
    """Keep this process, and threads that are still to come, on the cores of its environment; returns them."""
    cores = tuple(int(word) for word in environment.get(CORES_VARIABLE, "").split(",") if word)
    if cores:
        os.sched_setaffinity(0, cores)
    return cores


def _parse_cores(bind: str) -> list[int]:
    try:
        return parse_cpu_list(bind)
    except ValueError:
        raise SondaError(f"--bind {bind!r} says no cores", "write a list such as 0,2,4-7") from None


def _order_cores(bind: str, usable: Sequence[int], cpus: Path) -> list[int]:
    places = []
    seen: dict[tuple[int, int], int] = {}
    for cpu in usable:
        package = max(read_int(cpus / f"cpu{cpu}/topology/physical_package_id") or 0, 0)
        core = read_int(cpus / f"cpu{cpu}/topology/core_id")
        core = cpu if core is None else core
        sibling = seen[package, core] = seen.get((package, core), -1) + 1
        places.append((cpu, package, core, sibling))
    if bind == "compact":
        return [cpu for cpu, *_ in sorted(places, key=lambda place: (place[1], place[2], place[3]))]
    # Place within its package, so that packages take turns.
    turn: dict[int, list[tuple[int, int, int]]] = {}
    for cpu, package, core, sibling in places:
        turn.setdefault(package, []).append((sibling, core, cpu))
    ranked = [
        (sibling, number, package, cpu)
        for package, members in turn.items()
        for number, (sibling, _, cpu) in enumerate(sorted(members))
    ]
    return [cpu for _, _, _, cpu in sorted(ranked)]
