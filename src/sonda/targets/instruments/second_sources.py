"""Second sources: `perf stat` and PAPI around a program, beside Sonda's own counters around the same one.

Each counts a run of its own, from exec to exit: sources that share a run would share the PMU, and each would see a part
of the time only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sonda.frameworks.collector.counters.perf_event import Event
from sonda.probes.counters.command_counter import SYSTEM, CommandCounter, KernelCounter
from sonda.probes.counters.papi import Papi
from sonda.probes.counters.perf_stat import PerfStat
from sonda.probes.counters.pmu_events import event_quantity
from sonda.record.errors import SondaError
from sonda.record.progress import Expected
from sonda.record.run import ProbeState
from sonda.targets.instrument import AGAIN, Command, Contribution, Instrument, Rerun, Seen
from sonda.targets.instruments.counters import HARDWARE, CounterInstrument
from sonda.targets.pipeline import STARTING_S
from sonda.targets.signals import ending

SECOND: dict[str, Callable[[], CommandCounter]] = {"perf-stat": PerfStat, "papi": Papi}
OWN = "sonda"


class SecondSources(Instrument):
    """The probes `perf-stat` and `papi`: each counts the program once more, when it has been measured.

    Where the launcher does not count the whole program itself, Sonda's own counters count it once more too.
    """

    needs = frozenset({AGAIN})

    def __init__(self, names: Sequence[str], counters: CounterInstrument) -> None:
        self.names = tuple(dict.fromkeys(names))
        self.counters = counters

    def collect(self, seen: Seen) -> Contribution:
        kept, states = count_again(self.names, seen, self.counters.asked.events)
        return Contribution(target={"second": kept} if kept or not seen.plan.outside else {}, states=states)


def count_again(
    names: Sequence[str], seen: Seen, events: Mapping[str, Event]
) -> tuple[dict[str, Any], list[ProbeState]]:
    """What each source counted in a run of its own, for `second` of a run's target, and their states.

    A workload takes as many steps as were timed. Sonda's own counters come first, where they are wanted, with `events`
    of the PMU.
    """
    plan, spans = seen.plan, seen.observation.native
    rank = spans.number("rank")
    timed = spans.where(kind="step", pass_="timed") & (rank == rank.min(initial=0))
    lasted = (
        (seen.observation.end - seen.observation.begin) * 1e-9
        if plan.job is None
        else STARTING_S + float(spans.number("duration")[timed].sum()) * 1e-9
    )
    kept: dict[str, Any] = {}
    states: list[ProbeState] = []
    for name in names if plan.outside else (OWN, *names):
        counter: CommandCounter = KernelCounter(known=events) if name == OWN else SECOND[name]()
        wanted = (*SYSTEM, *events) if name == OWN else (*SYSTEM, *HARDWARE)
        with plan.store.scratch() as directory:
            command = seen.again(Rerun(directory, observed=False, steps=int(timed.sum()) or None))
            plan.say(Expected(f"counting {command.name} once more, with {counter.name}", lasted))
            state, counted = _counted(name, counter, command, wanted)
        if name != OWN:
            states.append(state)
        if counted:
            kept[name] = counted
    return kept, states


def _counted(
    name: str, counter: CommandCounter, command: Command, events: Sequence[str]
) -> tuple[ProbeState, dict[str, Any]]:
    state = counter.state()
    if state.state != "ok":
        return ProbeState(name, state.state, state.reason, state.remedy), {}
    try:
        found = counter.count(command.words, events, environment={**os.environ, **command.environment})
        if found.code and not found.counts:
            raise SondaError(f"its run of the program {ending(found.code)}", "see its output above")
    except SondaError as error:
        return ProbeState(name, "dead", error.cause, error.remedy), {}
    counts = {
        event_quantity(name): {"value": count.value, "scaled": count.scaled} for name, count in found.counts.items()
    }
    missing = {event_quantity(one): reason for one, reason in found.missing.items()}
    kept = {"counts": counts, **({"missing": missing} if missing else {})}
    return ProbeState(name, "ok", state.reason), kept
