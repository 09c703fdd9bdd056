"""Where and how a run was made: the machine, versions, probes, disturbances, costs; what programs say of themselves."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from sonda.frameworks.reconstruction.assembly import Assembly
from sonda.probes.availability import probe_states
from sonda.probes.ceilings.gpu import load_or_measure_gpu
from sonda.probes.ceilings.processor import RETRY_MINUTES, is_newer, load_or_measure, raise_to_reached
from sonda.probes.machine.contamination import MachineConditions, find_disturbances, stored_conditions
from sonda.probes.machine.environment import installed_versions, thread_variables, wait_policy
from sonda.probes.machine.record import machine_record
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState, now
from sonda.targets.instrument import Circumstances

PRODUCTS = frozenset(
    {"aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm", "aten.linear", "aten.convolution", "aten.mkldnn_convolution"}
)
"""Operations of PyTorch that execute every FLOP of their formula."""
PRECISIONS = ("float64", "float32", "float16", "bfloat16")
"""Types of weights that say what a network computes in."""


def observed_circumstances(
    assembly: Assembly,
    threads: int,
    root: Path,
    before: MachineConditions,
    after: MachineConditions,
    redact: bool = False,
    whole: bool = True,
) -> Circumstances:
    """The circumstances of a program that was observed from inside, between two readings of the machine's conditions:
    of the whole program, or of a block of it.

    Call it when profiles have been read: they add to the assembly. The machine's ceilings are measured where `root`
    does not hold them, and left out where nothing was observed.
    """
    machine = machine_record(redact=redact)
    seen = assembly.processes > 0
    notes = [*assembly.notes, *_unknown_operations(assembly)]
    ceilings: dict[str, Any] = {}
    if seen:
        try:
            # Threads beyond the cores reach no more than one on each core.
            cores = int(machine.get("effective_cores") or threads)
            ceilings = load_or_measure(root, sorted({threads, min(threads, cores)}), machine=machine)
            ceilings = _hold_above(assembly, threads, ceilings, root, machine)
            devices: dict[str, Any] = {}
            for number in assembly.devices:
                devices |= load_or_measure_gpu(root, int(number)).record()["devices"]
            ceilings |= {"devices": devices} if devices else {}
        except SondaError as error:
            notes.append(str(error))  # what was observed is worth keeping all the same
    # Where a GPU computes, threads of the host need not be busy.
    policy = "passive" if assembly.devices else wait_policy()
    # A program that binds itself to some cores leaves the others to others.
    chief = assembly.crew.busiest
    flags = find_disturbances(before, after, min(threads, chief.habits.get("cores", threads)), policy) if seen else []
    conditions = msgspec.to_builtins(stored_conditions(before, after, flags)) if seen else {}
    if chief.thread_times:
        # The processor time of a block is without what its program ran before.
        before_block = {} if whole else {"ran_before_ns": 0}
        conditions["thread_times"] = {**chief.thread_times, **before_block}
    return Circumstances(
        created=now(),
        machine={
            **machine,
            "ceilings": ceilings,
            "environment": thread_variables(),
            **({"conditions": conditions} if conditions else {}),
        },
        versions={**installed_versions(), **assembly.versions},
        probes=probe_states(virtual=machine.get("virtual_machine"), counting=assembly.counting),
        notes=notes,
        disturbed=[flag.sentence for flag in flags if flag.contaminated],
        overhead=_overhead(assembly),
    )


def _hold_above(
    assembly: Assembly, threads: int, ceilings: dict[str, Any], root: Path, machine: dict[str, Any]
) -> dict[str, Any]:
    """The ceilings, none below what a product of the counted step has reached: where one has, they are measured again,
    and what is still too low is raised to it, for this run."""
    entry = ceilings.get("threads", {}).get(str(threads))
    if entry is None:
        return ceilings
    precision = describe_precision(assembly).get("precision", "")
    rate, operation = _fastest_product(assembly)
    if rate <= entry["flops"].get(precision, math.inf) or entry.get("disturbed"):
        return ceilings
    if not is_newer(entry["measured"], datetime.now(UTC) - timedelta(minutes=RETRY_MINUTES)):
        ceilings = load_or_measure(root, [threads], machine=machine, again=True)
    return raise_to_reached(ceilings, threads, precision, rate, f"{operation} of the program")


def _fastest_product(assembly: Assembly) -> tuple[float, str]:
    """FLOP/s of the fastest matrix product or convolution that was counted, and its name; 0 where that is not known.

    Their FLOPs are really executed, and on the processor they have ended when their call returns. What the counter
    takes of a call makes it slower, never faster. Of a program that computes in several precisions nobody knows in
    which one a product was.
    """
    spans = assembly.spans
    if assembly.devices or sum(flops > 0 for flops in assembly.flops.values()) != 1:
        return 0.0, ""
    name = spans.words("name")
    products = np.array([word in PRODUCTS for word in name.words], dtype=bool)[name.codes]
    rows = np.flatnonzero(spans.where(kind="op") & products & (spans.number("duration") > 0))
    if not len(rows):
        return 0.0, ""
    nominal, executed = (spans.metric(quantity, "nominal")[rows] for quantity in ("flops", "executed_flops"))
    rates = np.nan_to_num(np.fmin(nominal, executed)) / spans.number("duration")[rows] * 1e9
    fastest = int(np.argmax(rates))
    return float(rates[fastest]), name.words[name.codes[rows[fastest]]]


def clocked_circumstances(redact: bool, disturbed: list[str]) -> Circumstances:
    """The circumstances of a program of which only the clock was read."""
    return Circumstances(
        now(), machine_record(redact=redact), installed_versions(), [ProbeState("clock", "ok")], disturbed=disturbed
    )


def describe_gpus(assembly: Assembly) -> dict[str, Any]:
    """Fields of a run's `target`: the GPUs that its program used, whether float32 may be TF32 there, and why their
    kernels were not recorded."""
    if not assembly.devices:
        return {}
    devices = {
        f"cuda:{number}": {
            name: value for name, value in facts.items() if name != "uuid"
        }  # names a machine, not a kind
        for number, facts in assembly.devices.items()
    }
    silent = {"no_kernels": assembly.no_kernels} if assembly.no_kernels else {}
    return {"devices": devices, **({"tf32": assembly.tf32} if assembly.tf32 else {}), **silent}


def gpu_identities(assembly: Assembly) -> dict[str, str]:
    """The driver's UUIDs of the GPUs that the program used, by the program's names."""
    return {f"cuda:{number}": str(facts.get("uuid", "")) for number, facts in assembly.devices.items()}


def describe_precision(assembly: Assembly) -> dict[str, str]:
    """The field `precision` of a run's `workload`: the type in which most FLOPs were done; empty where none were."""
    counted = {kind: flops for kind, flops in assembly.flops.items() if flops}
    return {"precision": max(counted, key=lambda kind: counted[kind])} if counted else {}


def describe_habits(assembly: Assembly) -> dict[str, Any]:
    """Fields of a run's `workload`: options that the program uses, named like those of Sonda's own workloads."""
    chief = assembly.crew.busiest
    options = {**chief.habits, **{name: value for name, value in chief.loads.items() if value is not None}}
    weights = options.pop("weights", "")
    # What most FLOPs were done in may be an evaluation's.
    used = options.get("autocast") or describe_precision(assembly).get("precision") or weights
    # Threads that step beside each other wait for the interpreter's lock, which no loader helps.
    waits = {"waits": chief.waits} if chief.waits and chief.stepping == 1 else {}
    return {**options, **waits, **({"precision": used} if used in PRECISIONS else describe_precision(assembly))}


def describe_evidence(assembly: Assembly) -> dict[str, Any]:
    """Fields of a run's `workload`: what counted steps of the program showed beside costs, and what else was seen."""
    fields = {
        "evidence": assembly.evidence,
        "denormals": assembly.denormals,
        "repeated_forwards": assembly.repeated_forwards,
        "division": assembly.division if assembly.crew.at_once > 1 else {},
        "compilations": assembly.compilations,
        "fault_ns": assembly.fault_ns,
        "step_faults": assembly.step_faults,
    }
    return {name: value for name, value in fields.items() if value}


def describe_pipelines(assembly: Assembly) -> dict[str, Any]:
    """The field `pipelines` of a run's `workload`: the stages of tf.data that fed each of its parts, if any."""
    pipelines: dict[tuple[str, ...], dict[str, Any]] = {}
    for pipeline in assembly.pipelines:
        part, stages = assembly.crew.part_fed_by(pipeline["loader"]), pipeline["stages"]
        joined = pipelines.setdefault((part, *(stage["name"] for stage in stages)), {"part": part, "stages": stages})
        if joined["stages"] is not stages:  # another data set that is made alike
            joined["stages"] = [_add_stages(*pair) for pair in zip(joined["stages"], stages, strict=True)]
    fed = [pipeline for pipeline in pipelines.values() if pipeline["part"]]
    return {"pipelines": fed} if fed else {}


def _add_stages(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return {**first, "elements": first["elements"] + second["elements"], "ns": first["ns"] + second["ns"]}


def describe_processes(assembly: Assembly) -> dict[str, int]:
    """The field `processes` of a run's `target`: how many computed at the same time, where several did."""
    return {"processes": assembly.crew.at_once} if assembly.crew.at_once > 1 else {}


def _unknown_operations(assembly: Assembly) -> list[str]:
    """A note that names the operations whose FLOPs nobody knows."""
    if not assembly.unknown:
        return []
    names = ", ".join(sorted(assembly.unknown)[:5])
    rest = f" and {len(assembly.unknown) - 5} more" if len(assembly.unknown) > 5 else ""
    return [f"no FLOP formula for {names}{rest}: their FLOPs are missing"]


def _overhead(assembly: Assembly) -> dict[str, float]:
    """What observing cost: ns per layer span, phase and reading of counters, and how many of them a timed step has.

    `step_share` is their share of the time of all timed steps. It is a lower bound: these costs were measured in a
    tight loop, and in a program each costs more.
    """
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
    phases, forwards, read, waits = (float(mask.sum() / steps.sum()) for mask in (rows, forward, counted, waited))
    spent = (layers - marks) * assembly.span_ns + marks * costs.get("mark_ns", assembly.span_ns)
    spent += (phases - forwards) * assembly.phase_ns
    spent += forwards * max(costs.get("forward_ns", 0.0), assembly.phase_ns)
    spent += (phases - read) * costs.get("group_ns", 0.0)
    spent += read * costs.get("os_ns", 0.0) + waits * costs.get("wait_ns", 0.0)
    return {
        **costs, "spans_per_step": layers, "phases_per_step": phases, "readings_per_step": read,
        **({"sampling_share": assembly.sampling_share} if assembly.stacks is not None else {}),
        "step_share": spent * float(steps.sum()) / time + assembly.sampling_share,
    }  # fmt: skip
