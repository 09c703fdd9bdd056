"""Counters of a run: what is asked of the observed program (`pmu`, `os`), and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from sonda.frameworks.collector.counters.perf_event import Event
from sonda.frameworks.collector.counters.process import FILE
from sonda.probes.counters.pmu import CountingPlan, plan_counting
from sonda.probes.counters.pmu_events import event_quantity
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState
from sonda.targets.instrument import INSIDE, Contribution, Instrument, RunPlan, Seen
from sonda.targets.job import split_probes

PMU = "pmu"
ALWAYS = "os"
HARDWARE = ("cycles", "instructions")
CHILDREN, NO_LAYERS = "children", "no-layers"
"""Options of `pmu` that are no events."""


@dataclass(frozen=True)
class Counters(Contribution):
    """What counters add to a run: `topdown`, the definition that was counted; `shown`, what is shown in any case."""

    events: dict[str, Event] = field(default_factory=dict)
    """Events of the PMU, by name, for whoever counts the whole program from outside."""


class CounterInstrument(Instrument):
    """The probes `pmu` and `os`: the collector inside the program reads them."""

    needs = frozenset({INSIDE})

    def __init__(self, probes: Sequence[str] | str) -> None:
        self.probes = probes
        self.asked = Counters()

    def prepare(self, plan: RunPlan) -> Mapping[str, str]:
        self.asked = ask(self.probes, plan.directory, plan.counted)
        if plan.counted:
            plan.events.update(self.asked.events)
        return {}

    def collect(self, seen: Seen) -> Contribution:
        return self.asked


def named_events(probes: Sequence[str] | str) -> list[str]:
    """The events that `pmu:branch-misses+r01c2` names."""
    options = [option for word in split_probes(probes) if word.name == PMU for option in word.options]
    return [option for option in options if option not in (CHILDREN, NO_LAYERS)]


def ask(probes: Sequence[str] | str, directory: Path, counted: str = "") -> Counters:
    """Leave in `directory` what the collector is to count, where `pmu` is among `probes`.

    `pmu:children+no-layers+branch-misses` counts child processes too, layers not, and an event more. A machine without
    a PMU leaves nothing: the run goes on without, and its probes say why. `counted` says how the launcher counts the
    PMU, which is left to it then: both would share its counters, and each would see a part of the time only.
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
        children, layers = CHILDREN in word.options, NO_LAYERS not in word.options
        extra = named_events([word.text])
        try:
            found = plan_counting(extra=extra)
        except SondaError as error:
            states.append(ProbeState(PMU, "missing", error.cause, error.remedy))
            continue
        events = _for_the_whole(found, extra)
        if counted:
            states.append(ProbeState(PMU, "ok", f"counted {counted}"))
            if found.beside:
                notes.append("counts of large and of small cores are each scaled to all of the time, and too high")
            continue
        write(found, directory, children, layers)
        notes += found.notes
        if found.table is not None:
            target["topdown"] = msgspec.to_builtins(found.table.counted_definition())
    return Counters(target=target, notes=notes, states=states, events=events)


def _for_the_whole(found: CountingPlan, extra: Sequence[str]) -> dict[str, Event]:
    """Cycles, instructions and the events that were named: few enough to count all the time."""
    wanted = {*HARDWARE, *(event_quantity(name) for name in extra)}
    events = {event.name: event for group in found.groups for event in group if event.name in wanted}
    return events | {event.name: event for group in found.beside for event in group}


def write(found: CountingPlan, directory: Path, children: bool = False, layers: bool = True) -> None:
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
