"""Second sources: `perf stat` and PAPI around a program, beside Sonda's own counters around the same one.

Each counts a run of its own, from exec to exit: sources that share a run would share the PMU, and each would see a part
of the time only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from sonda.frameworks.collector.perf_event import Event
from sonda.probes.counted_command import SYSTEM, CommandCounter, KernelCounter
from sonda.probes.papi import Papi
from sonda.probes.perf_stat import PerfStat
from sonda.probes.pmu_events import quantity
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState
from sonda.record.saying import Expected, Say
from sonda.record.span import Spans
from sonda.record.store import Store
from sonda.targets.job import Job
from sonda.targets.keeping import STARTING_S
from sonda.targets.signals import ending
from sonda.targets.whole import command_of

SECOND: dict[str, Callable[[], CommandCounter]] = {"perf-stat": PerfStat, "papi": Papi}
HARDWARE = ("cycles", "instructions")
OWN = "sonda"


def count_command(name: str, command: Sequence[str]) -> tuple[ProbeState, dict[str, Any]]:
    """What a second source counted in a run of the command of its own, for `second` of a run; and its state."""
    return _counted(name, SECOND[name](), command)


def count_workload(
    names: Sequence[str], job: Job, spans: Spans, events: Mapping[str, Event], store: Store, say: Say
) -> tuple[dict[str, Any], list[ProbeState]]:
    """The same of a workload, with as many steps as were timed; Sonda's own counters first, `events` of the PMU too."""
    timed = spans.where(kind="step", pass_="timed")
    steps, lasted = int(timed.sum()) or job.steps, float(spans.number("duration")[timed].sum()) * 1e-9
    job = msgspec.structs.replace(job, steps=steps, probe="")
    kept: dict[str, Any] = {}
    states: list[ProbeState] = []
    for name in (OWN, *names):
        counter: CommandCounter = KernelCounter(known=events) if name == OWN else SECOND[name]()
        say(Expected(f"counting {job.workload} once more, with {counter.name}", STARTING_S + lasted))
        wanted = (*SYSTEM, *events) if name == OWN else (*SYSTEM, *HARDWARE)
        with store.scratch() as directory:
            state, counted = _counted(name, counter, command_of(job, directory), wanted)
        if name != OWN:
            states.append(state)
        if counted:
            kept[name] = counted
    return kept, states


def _counted(
    name: str, counter: CommandCounter, command: Sequence[str], events: Sequence[str] = (*SYSTEM, *HARDWARE)
) -> tuple[ProbeState, dict[str, Any]]:
    state = counter.state()
    if state.state != "ok":
        return ProbeState(name, state.state, state.reason, state.remedy), {}
    try:
        found = counter.count(command, events)
        if found.code and not found.counts:
            raise SondaError(f"its run of the program {ending(found.code)}", "see its output above")
    except SondaError as error:
        return ProbeState(name, "dead", error.cause, error.remedy), {}
    counts = {quantity(one): {"value": count.value, "scaled": count.scaled} for one, count in found.counts.items()}
    missing = {quantity(one): reason for one, reason in found.missing.items()}
    kept = {"counts": counts, **({"missing": missing} if missing else {})}
    return ProbeState(name, "ok", state.reason), kept
