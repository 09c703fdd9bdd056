"""Availability: which probes a run of this version reads on this machine, and why it does not read the others."""

from __future__ import annotations

from pathlib import Path

from sonda.probes.perf_events import HARDWARE, TYPE_HARDWARE, PerfEvent, PerfEventError, explain, paranoid_level
from sonda.probes.sensors import rapl_powercap
from sonda.record.run import ProbeState


def probe_states(root: Path = Path("/"), virtual: bool | None = None) -> list[ProbeState]:
    """State of every probe, for `run.json`. `virtual` says whether this is a virtual machine, where known."""
    return [
        ProbeState("clock", "ok"),
        ProbeState("os", "ok"),
        ProbeState("memory", "ok"),
        _counters(root, virtual),
        _energy(root),
    ]


def _counters(root: Path, virtual: bool | None) -> ProbeState:
    try:
        with PerfEvent(TYPE_HARDWARE, HARDWARE["instructions"]):
            pass
    except PerfEventError as error:
        cause, remedy = explain(error.errno or 0, paranoid_level(root), True, virtual)
        return ProbeState("counters", "missing", cause, remedy)
    return ProbeState("counters", "off", "hardware counters are there, but runs do not read them yet")


def _energy(root: Path) -> ProbeState:
    found = rapl_powercap(root, work=lambda seconds: None)
    if found.state == "missing":
        return ProbeState("energy", "missing", found.detail, found.remedy)
    return ProbeState("energy", "off", "energy counters are there, but runs do not read them yet")
