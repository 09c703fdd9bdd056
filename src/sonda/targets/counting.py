"""Counters of a run: what is asked of the observed program, what became of it, and which second sources to ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from sonda.frameworks.collector.counting import FILE
from sonda.frameworks.collector.perf_event import Event
from sonda.probes.pmu import Plan, plan
from sonda.probes.pmu_events import quantity
from sonda.record.added import PROBES, added
from sonda.record.errors import SondaError
from sonda.record.nearest import nearest
from sonda.record.run import ProbeState
from sonda.record.saying import Say
from sonda.record.span import Spans
from sonda.record.store import Store
from sonda.targets.job import Job
from sonda.targets.second import HARDWARE, SECOND, count_command, count_workload

PMU = "pmu"
ALWAYS = "os"
OTHERS = ("callgrind", "ncu", "energy", "energy-model")


@dataclass(frozen=True)
class Counters:
    """What counters add to a run's record."""

    target: dict[str, Any] = field(default_factory=dict)
    """`topdown`: the definition that was counted; `second`: what second sources counted of the whole program; `shown`:
    what is shown though it is nothing remarkable."""
    notes: list[str] = field(default_factory=list)
    states: list[ProbeState] = field(default_factory=list)
    outside: dict[str, Event] = field(default_factory=dict)
    """Events of the PMU to count from outside, by name."""
    second: tuple[str, ...] = ()
    """Second sources that are to count the workload once it has been measured."""

    def with_second(self, job: Job, spans: Spans, store: Store, say: Say) -> Counters:
        """The same with what second sources counted of the workload, where any was asked for."""
        if not self.second:
            return self
        kept, states = count_workload(self.second, job, spans, self.outside, store, say)
        return replace(self, target={**self.target, "second": kept}, states=[*self.states, *states], second=())

    def said(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields of a run's `info` with what is to be said of counters."""
        known = {one.name for one in self.states}
        probes = [one for one in fields["probes"] if one.name not in known]
        return {**fields, "probes": [*probes, *self.states], "notes": [*fields["notes"], *self.notes]}


def probe_names() -> list[str]:
    """Probes that can be asked for: Sonda's, then those that other packages add."""
    own = [PMU, ALWAYS, *OTHERS, *SECOND]
    return [*own, *(name for name in added(PROBES) if name not in own)]


def ask(probes: Sequence[str] | str, directory: Path, command: Sequence[str] = (), outside: bool = False) -> Counters:
    """Leave in `directory` what the collector is to count, where `pmu` is among `probes`; ask second sources.

    `pmu:children+no-layers+branch-misses` counts child processes too, layers not, and an event more. A machine without
    a PMU leaves nothing: the run goes on without, and its probes say why. `outside` leaves the PMU to whoever counts
    the command from outside: both would share its counters, and each would see a part of the time only. Second sources
    count a `command` at once; a workload, which has none, by `with_second`. Raises SondaError for a probe that is none.
    """
    target: dict[str, Any] = {}
    notes: list[str] = []
    states: list[ProbeState] = []
    events: dict[str, Event] = {}
    second: list[str] = []
    for word in probes.split(",") if isinstance(probes, str) else probes:
        name, _, rest = word.strip().partition(":")
        options = [one for one in rest.split("+") if one]
        if name == PMU:
            children, layers = "children" in options, "no-layers" not in options
            extra = [one for one in options if one not in ("children", "no-layers")]
            try:
                found = plan(extra=extra)
            except SondaError as error:
                states.append(ProbeState(PMU, "missing", error.cause, error.remedy))
                continue
            if outside:
                events = _for_the_whole(found, extra)
                states.append(ProbeState(PMU, "ok", "counted from outside, per interval"))
                notes.append(
                    "hardware counters were read per interval, from outside; leave --interval out to have them per "
                    "phase and layer"
                )
                if found.beside:
                    notes.append("counts of large and of small cores are each scaled to all of the time, and too high")
                continue
            if not command:
                events = _for_the_whole(found, extra)
            write(found, directory, children, layers)
            notes += found.notes
            if found.table is not None:
                target["topdown"] = found.topdown()
        elif name in SECOND:
            if not command:
                second.append(name)
                continue
            state, counted = count_command(name, command)
            states.append(state)
            if counted:
                target.setdefault("second", {})[name] = counted
        elif name == ALWAYS:
            target["shown"] = [ALWAYS]
        elif name and name not in probe_names():
            raise SondaError(f"there is no probe {name!r}", nearest(name, probe_names()))
    return Counters(target, notes, states, events, tuple(dict.fromkeys(second)))


def _for_the_whole(found: Plan, extra: Sequence[str]) -> dict[str, Event]:
    """Cycles, instructions and the events that were named: few enough to count all the time."""
    wanted = {*HARDWARE, *(quantity(name) for name in extra)}
    events = {event.name: event for group in found.groups for event in group if event.name in wanted}
    return events | {event.name: event for group in found.beside for event in group}


def write(found: Plan, directory: Path, children: bool = False, layers: bool = True) -> None:
    """Write the file that the collector reads when it starts."""
    asked = {
        "groups": [[_plain(event) for event in group] for group in found.groups],
        "beside": [[_plain(event) for event in group] for group in found.beside],
        "children": children,
        "layers": layers,
    }
    (directory / FILE).write_bytes(msgspec.json.encode(asked))


def _plain(event: Event) -> dict[str, Any]:
    needed = ("name", "type", "config")
    return {key: value for key, value in event._asdict().items() if value or key in needed}
