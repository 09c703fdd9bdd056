"""Availability: which probes a run of this version reads on this machine, and why it does not read the others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sonda.probes.counters.perf_events import explain_refusal, paranoid_level
from sonda.probes.counters.pmu import pmu_state
from sonda.probes.kernel_files import read_text
from sonda.probes.sensors import check_powercap
from sonda.record.run import ProbeState


def probe_states(
    root: Path = Path("/"), virtual: bool | None = None, counting: Mapping[str, Any] | None = None
) -> list[ProbeState]:
    """State of every probe, for `run.json`. `virtual` says whether this is a virtual machine, where that is known.

    `counting` are the facts that the observed program left about its counters (`Assembly.counting`).
    """
    counting = counting or {}
    return [
        ProbeState("clock", "ok"),
        _os_state(root, counting.get("os", {})),
        ProbeState("memory", "ok"),
        _observed_pmu_state(root, virtual, counting.get("pmu", {})),
        _energy_state(root),
    ]


def _os_state(root: Path, counting: Mapping[str, Any]) -> ProbeState:
    source = counting.get("source", "")
    if source == "perf":
        return ProbeState("os", "ok", "kernel counters, inherited by every thread")
    if source:
        cause, remedy = explain_refusal(int(counting.get("errno", 0)), paranoid_level(root), False, None, kernel=True)
        how = "getrusage; CPU time from the kernel's counters" if source == "clock" else "getrusage"
        return ProbeState("os", "ok", f"{how}; no migrations between processors: {cause}", remedy)
    return ProbeState("os", "ok")


def _observed_pmu_state(root: Path, virtual: bool | None, counting: Mapping[str, Any]) -> ProbeState:
    if "groups" in counting:
        groups, threads, stable = counting["groups"], counting["threads"], counting.get("stable", True)
        turns = f"{groups} groups of events in turn, one a step" if groups > 1 else "one group of events"
        late = f"; {threads} threads were there already" if threads > 1 else ""
        unsure = "" if stable else "; threads kept appearing, some may be counted twice or not at all"
        return ProbeState("pmu", "ok", f"{turns}, inherited by every thread{late}{unsure}")
    if "message" in counting:
        code = int(counting["errno"])
        cause, remedy = counting["message"], ""
        if code:
            cause, remedy = explain_refusal(code, paranoid_level(root), True, virtual)
        event = f"{counting['event']}: " if counting.get("event") else ""
        return ProbeState("pmu", "dead", f"{event}{cause}", remedy)
    return pmu_state(root)


def _energy_state(root: Path) -> ProbeState:
    sensor = check_powercap(root, work=lambda seconds: None)
    if sensor.state == "missing" and read_text(root / "proc/driver/nvidia/version") is not None:
        return ProbeState("energy", "off", "a GPU's energy counter may be there; read it with --probe energy")
    if sensor.state == "missing":
        return ProbeState("energy", "missing", sensor.detail, sensor.remedy)
    return ProbeState("energy", "off", "energy counters are there; read them with --probe energy")
