"""The probes `pmu` and `os`: what the collector inside the program is asked to count, and what the run keeps of it."""

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
from sonda.targets.instrument import INSIDE, Contribution, EndedRun, Instrument, RunPlan
from sonda.targets.job import ProbeWord, split_probes

PMU = "pmu"
OS = "os"
HARDWARE = ("cycles", "instructions")
CHILDREN, NO_LAYERS = "children", "no-layers"
"""Options of `pmu` that are no events."""


@dataclass(frozen=True)
class CounterRequest(Contribution):
    """What counters add to a run. Its target has `topdown`, the definition that was counted, and `shown`."""

    events: dict[str, Event] = field(default_factory=dict)
    """Events of the PMU, by name, for whoever counts the whole program from outside."""


class CounterInstrument(Instrument):
    """The probes `pmu` and `os`: the collector inside the program reads them."""

    needs = frozenset({INSIDE})

    def __init__(self, probes: Sequence[str] | str) -> None:
        self.probes = probes
        self.request = CounterRequest()

    @classmethod
    def from_words(cls, words: Sequence[ProbeWord]) -> CounterInstrument:
        return cls([word.text for word in words])

    def prepare(self, plan: RunPlan) -> Mapping[str, str]:
        self.request = request_counters(self.probes, plan.directory, plan.counted)
        plan.events.update(self.request.events)
        return {}

    def collect(self, ended_run: EndedRun) -> Contribution:
        return self.request


def named_events(probes: Sequence[str] | str) -> list[str]:
    """The events that `pmu:branch-misses+r01c2` names."""
    options = [option for word in split_probes(probes) if word.name == PMU for option in word.options]
    return [option for option in options if option not in (CHILDREN, NO_LAYERS)]


def request_counters(probes: Sequence[str] | str, directory: Path, counted: str = "") -> CounterRequest:
    """Write to `directory` what the collector is to count, where `pmu` is among `probes`.

    `pmu:children+no-layers+branch-misses` counts child processes too, no layers, and one more event. On a machine
    without a PMU nothing is written: the run goes on, and the state of the probe says why. `counted` says how the
    launcher itself counts the PMU; then the collector does not, because both would share the PMU's counters and each
    would see only a part of the time.
    """
    target: dict[str, Any] = {}
    notes: list[str] = []
    states: list[ProbeState] = []
    events: dict[str, Event] = {}
    for word in split_probes(probes):
        if word.name == OS:
            target["shown"] = [OS]
        if word.name != PMU:
            continue
        children, layers = CHILDREN in word.options, NO_LAYERS not in word.options
        extra = named_events([word.text])
        try:
            pmu_plan = plan_counting(extra=extra)
        except SondaError as error:
            states.append(ProbeState(PMU, "missing", error.cause, error.remedy))
            continue
        events = _whole_program_events(pmu_plan, extra)
        if counted:
            states.append(ProbeState(PMU, "ok", f"counted {counted}"))
            if pmu_plan.beside:
                notes.append("counts of large and of small cores are each scaled to all of the time, and too high")
            continue
        write_request(pmu_plan, directory, children, layers)
        notes += pmu_plan.notes
        if pmu_plan.table is not None:
            target["topdown"] = msgspec.to_builtins(pmu_plan.table.counted_definition())
    return CounterRequest(target=target, notes=notes, states=states, events=events)


def _whole_program_events(pmu_plan: CountingPlan, extra: Sequence[str]) -> dict[str, Event]:
    """Cycles, instructions and the named events, by name: few enough to be counted all the time."""
    wanted = {*HARDWARE, *(event_quantity(name) for name in extra)}
    events = {event.name: event for group in pmu_plan.groups for event in group if event.name in wanted}
    return events | {event.name: event for group in pmu_plan.beside for event in group}


def write_request(pmu_plan: CountingPlan, directory: Path, children: bool = False, layers: bool = True) -> None:
    """Write the file that the collector reads when it starts."""
    request = {
        "groups": [[event_fields(event) for event in group] for group in pmu_plan.groups],
        "beside": [[event_fields(event) for event in group] for group in pmu_plan.beside],
        "children": children,
        "layers": layers,
    }
    (directory / FILE).write_bytes(msgspec.json.encode(request))


def event_fields(event: Event) -> dict[str, Any]:
    needed = ("name", "type", "config")
    return {key: value for key, value in event._asdict().items() if value or key in needed}
