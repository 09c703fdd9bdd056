"""Where and how a run was made: the machine, versions, probes, disturbances, costs; what programs say of themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sonda.frameworks.reconstruction.assembly import Assembly
from sonda.probes.availability import probe_states
from sonda.probes.ceilings.gpu import load_or_measure_gpu
from sonda.probes.ceilings.processor import load_or_measure
from sonda.probes.machine.contamination import Conditions, conditions_record, contamination
from sonda.probes.machine.environment import thread_variables, versions, wait_policy
from sonda.probes.machine.record import machine_record
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState, now
from sonda.targets.instrument import Circumstances

PRECISIONS = ("float64", "float32", "float16", "bfloat16")
"""Types of weights that say what a network computes in."""


def observed_circumstances(
    assembly: Assembly, threads: int, root: Path, before: Conditions, after: Conditions, redact: bool = False
) -> Circumstances:
    """What follows from what was observed inside a program, between two readings of the machine's conditions.

    Call it when profiles have been read: they add to the assembly. The machine's ceilings are measured where `root`
    does not hold them, and left out where nothing was observed.
    """
    machine = machine_record(redact=redact)
    seen = assembly.processes > 0
    notes = [*assembly.notes, *_unknown_operations(assembly)]
    ceilings: dict[str, Any] = {}
    if seen:
        try:
            ceilings = load_or_measure(root, [threads], machine=machine)
            devices: dict[str, Any] = {}
            for number in assembly.devices:
                devices |= load_or_measure_gpu(root, int(number)).record()["devices"]
            ceilings |= {"devices": devices} if devices else {}
        except SondaError as error:
            notes.append(str(error))  # what was observed is worth keeping all the same
    # Where a GPU computes, threads of the host need not be busy.
    policy = "passive" if assembly.devices else wait_policy()
    flags = contamination(before, after, threads, policy) if seen else []
    conditions = {"conditions": conditions_record(before, after, flags)} if seen else {}
    return Circumstances(
        created=now(),
        machine={**machine, "ceilings": ceilings, "environment": thread_variables(), **conditions},
        versions={**versions(), **assembly.versions},
        probes=probe_states(virtual=machine.get("virtual_machine"), counting=assembly.counting),
        notes=notes,
        disturbed=[flag.sentence for flag in flags if flag.contaminated],
        overhead=_overhead(assembly),
    )


def clocked_circumstances(redact: bool, disturbed: list[str]) -> Circumstances:
    """What is known of a program that only the clock was read of."""
    return Circumstances(
        now(), machine_record(redact=redact), versions(), [ProbeState("clock", "ok")], disturbed=disturbed
    )


def gpus(assembly: Assembly) -> dict[str, Any]:
    """For the `target` of a run: the GPUs that its program used, whether float32 may be TF32 there, and why their
    kernels were not recorded; or nothing."""
    if not assembly.devices:
        return {}
    devices = {
        f"cuda:{number}": {
            name: value for name, value in about.items() if name != "uuid"
        }  # names a machine, not a kind
        for number, about in assembly.devices.items()
    }
    silent = {"no_kernels": assembly.no_kernels} if assembly.no_kernels else {}
    return {"devices": devices, **({"tf32": assembly.tf32} if assembly.tf32 else {}), **silent}


def identities(assembly: Assembly) -> dict[str, str]:
    """The GPUs that the program used, as the driver knows them, by its own names."""
    return {f"cuda:{number}": str(about.get("uuid", "")) for number, about in assembly.devices.items()}


def precision(assembly: Assembly) -> dict[str, str]:
    """The type of elements that most of a program's FLOPs were done in, for its `workload`; nothing where none were."""
    known = {kind: flops for kind, flops in assembly.flops.items() if flops}
    return {"precision": max(known, key=lambda kind: known[kind])} if known else {}


def habits(assembly: Assembly) -> dict[str, Any]:
    """For the `workload` of a program: options that it has in use, as those of Sonda's own workloads are kept."""
    chief = assembly.crew.chief
    found = {**chief.habits, **{name: value for name, value in chief.loads.items() if value is not None}}
    weights = found.pop("weights", "")
    # What most FLOPs were done in may be an evaluation's.
    used = found.get("autocast") or precision(assembly).get("precision") or weights
    # Threads that step beside each other wait for the interpreter's lock, which no loader helps.
    waits = {"waits": chief.waits} if chief.waits and chief.stepping == 1 else {}
    return {**found, **waits, **({"precision": used} if used in PRECISIONS else precision(assembly))}


def pipelines(assembly: Assembly) -> dict[str, Any]:
    """For the `workload` of a program: the stages of tf.data that fed each of its parts, where there were such."""
    known: dict[tuple[str, ...], dict[str, Any]] = {}
    for one in assembly.pipelines:
        part, stages = assembly.crew.part_fed_by(one["loader"]), one["stages"]
        same = known.setdefault((part, *(stage["name"] for stage in stages)), {"part": part, "stages": stages})
        if same["stages"] is not stages:  # another data set that is made alike
            same["stages"] = [_joined_stage(*both) for both in zip(same["stages"], stages, strict=True)]
    told = [one for one in known.values() if one["part"]]
    return {"pipelines": told} if told else {}


def _joined_stage(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {**one, "elements": one["elements"] + other["elements"], "ns": one["ns"] + other["ns"]}


def processes(assembly: Assembly) -> dict[str, int]:
    """For the `target` of a program: how many of its processes computed at the same time, where several did."""
    return {"processes": assembly.crew.at_once} if assembly.crew.at_once > 1 else {}


def _unknown_operations(assembly: Assembly) -> list[str]:
    """A note that names the operations whose FLOPs nobody knows."""
    if not assembly.unknown:
        return []
    names = ", ".join(sorted(assembly.unknown)[:5])
    more = f" and {len(assembly.unknown) - 5} more" if len(assembly.unknown) > 5 else ""
    return [f"no FLOP formula for {names}{more}: their FLOPs are missing"]


def _overhead(assembly: Assembly) -> dict[str, float]:
    """What observing cost: ns per layer span, phase and reading of counters, how many of them a timed step has, and
    the least share of the time of all timed steps that this is: in a program each costs more than over and over."""
    spans = assembly.spans
    if assembly.span_ns is None or assembly.phase_ns is None:
        return {}
    costs = {"span_ns": assembly.span_ns, "phase_ns": assembly.phase_ns, **assembly.reading}
    steps = spans.where(kind="step", pass_="timed")
    # What the host does while a GPU computes costs nothing: the longer of the two is the step.
    lasted = np.fmax(spans.number("duration"), spans.metric("device_time", "measured"))
    time = float(lasted[steps].sum())
    if not time:
        return costs
    layers = float(spans.where(kind="layer", pass_="timed").sum() / steps.sum())
    marks = float(spans.where(kind="layer", pass_="timed", direction="backward").sum() / steps.sum())
    rows = spans.where(kind="phase", pass_="timed")
    counted = rows & ~np.isnan(spans.metric("task_clock", "counted"))
    waited = rows & ~np.isnan(spans.metric("run_queue_wait", "counted"))
    forward = rows & spans.words("name").equal("forward")
    phases, forwards, read, asked = (float(which.sum() / steps.sum()) for which in (rows, forward, counted, waited))
    spent = (layers - marks) * assembly.span_ns + marks * costs.get("mark_ns", assembly.span_ns)
    spent += (phases - forwards) * assembly.phase_ns
    spent += forwards * max(costs.get("forward_ns", 0.0), assembly.phase_ns)
    spent += (phases - read) * costs.get("group_ns", 0.0)
    spent += read * costs.get("os_ns", 0.0) + asked * costs.get("wait_ns", 0.0)
    return {
        **costs, "spans_per_step": layers, "phases_per_step": phases, "readings_per_step": read,
        "step_share": spent * float(steps.sum()) / time,
    }  # fmt: skip
