"""Counters of a run: what is asked of the observed program (`pmu`, `os`), and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from sonda.frameworks.collector.counters.perf_event import Event
from sonda.frameworks.collector.counters.process import FILE
from sonda.probes.counters.pmu import Plan, plan
from sonda.probes.counters.pmu_events import quantity
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState
from sonda.targets.instrument import INSIDE, Contribution, Instrument, RunPlan, Seen
from sonda.targets.job import split_probes

PMU = "pmu"
ALWAYS = "os"
HARDWARE = ("cycles", "instructions")


@dataclass(frozen=True)
class Counters:
    """What counters add to a run's record."""

    target: dict[str, Any] = field(default_factory=dict)
    """`topdown`: the definition that was counted; `shown`: what is shown though it is nothing remarkable."""
    notes: list[str] = field(default_factory=list)
    states: list[ProbeState] = field(default_factory=list)
    events: dict[str, Event] = field(default_factory=dict)
    """Events of the PMU, by name, for whoever counts the whole program from outside."""


class CounterInstrument(Instrument):
    """The probes `pmu` and `os`: the collector inside the program reads them."""

    needs = frozenset({INSIDE})

    def __init__(self, probes: Sequence[str] | str) -> None:
        self.probes = probes
        self.asked = Counters()

    def prepare(self, plan: RunPlan) -> Mapping[str, str]:
        self.asked = ask(self.probes, plan.directory, outside=plan.interval > 0)
        if plan.interval > 0:
            plan.events.update(self.asked.events)
        return {}

    def collect(self, seen: Seen) -> Contribution:
        return Contribution(target=self.asked.target, states=self.asked.states, notes=self.asked.notes)


def ask(probes: Sequence[str] | str, directory: Path, outside: bool = False) -> Counters:
    """Leave in `directory` what the collector is to count, where `pmu` is among `probes`.

    `pmu:children+no-layers+branch-misses` counts child processes too, layers not, and an event more. A machine without
    a PMU leaves nothing: the run goes on without, and its probes say why. `outside` leaves the PMU to whoever counts
    the program from outside: both would share its counters, and each would see a part of the time only.
    """
    target: dict[str, Any] = {}
    notes: list[str] = []
    states: list[ProbeState] = []
    events: dict[str, Event] = {}
    for word in split_probes(probes):
        if word.name == ALWAYS:
            target["shown"] = [ALWAYS]
        if word.name != PMU:
            continue
        children, layers = "children" in word.options, "no-layers" not in word.options
        extra = [option for option in word.options if option not in ("children", "no-layers")]
        try:
            found = plan(extra=extra)
        except SondaError as error:
            states.append(ProbeState(PMU, "missing", error.cause, error.remedy))
            continue
        events = _for_the_whole(found, extra)
        if outside:
            states.append(ProbeState(PMU, "ok", "counted from outside, per interval"))
            notes.append(
                "hardware counters were read per interval, from outside; leave --interval out to have them per "
                "phase and layer"
            )
            if found.beside:
                notes.append("counts of large and of small cores are each scaled to all of the time, and too high")
            continue
        write(found, directory, children, layers)
        notes += found.notes
        if found.table is not None:
            target["topdown"] = found.topdown()
    return Counters(target, notes, states, events)


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
