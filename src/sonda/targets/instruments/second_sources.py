"""Second sources: `perf stat` and PAPI around a program, beside Sonda's own counters around the same one.

Each source counts a run of its own, from exec to exit. Sources that share a run would share the PMU, and each would see
only a part of the time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from sonda.probes.counters.command_counter import SYSTEM, CommandCounter, KernelCounter
from sonda.probes.counters.papi import Papi
from sonda.probes.counters.perf_stat import PerfStat
from sonda.probes.counters.pmu_events import event_quantity
from sonda.record.errors import SondaError
from sonda.record.progress import Expected
from sonda.record.run import ProbeState
from sonda.targets.instrument import AGAIN, Command, Contribution, EndedRun, Instrument, Rerun
from sonda.targets.instruments.counters import HARDWARE
from sonda.targets.job import ProbeWord
from sonda.targets.pipeline import STARTING_S
from sonda.targets.signals import describe_exit

SOURCES: dict[str, Callable[[], CommandCounter]] = {"perf-stat": PerfStat, "papi": Papi}
SONDA = "sonda"


class SecondSourcesInstrument(Instrument):
    """The probes `perf-stat` and `papi`: each counts the program once more, when it has been measured.

    Where the launcher does not count the whole program itself, Sonda's own counters count it once more too.
    """

    needs = frozenset({AGAIN})

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(dict.fromkeys(names))

    @classmethod
    def from_words(cls, words: Sequence[ProbeWord]) -> SecondSourcesInstrument:
        return cls([word.name for word in words])

    def collect(self, ended_run: EndedRun) -> Contribution:
        counts, states = count_again(self.names, ended_run)
        return Contribution(target={"second": counts} if counts or not ended_run.plan.outside else {}, states=states)


def count_again(names: Sequence[str], ended_run: EndedRun) -> tuple[dict[str, Any], list[ProbeState]]:
    """Run the program once for each source; returns `second` of a run's target, and the states of the sources.

    A workload takes as many steps as were timed. Where the launcher does not count the whole program, Sonda's own
    counters come first, with the events of the PMU that were asked for.
    """
    plan, events, spans = ended_run.plan, ended_run.plan.events, ended_run.observation.native
    rank = spans.number("rank")
    timed = spans.where(kind="step", pass_="timed") & (rank == rank.min(initial=0))
    lasted = (
        (ended_run.observation.end - ended_run.observation.begin) * 1e-9
        if plan.job is None
        else STARTING_S + float(spans.number("duration")[timed].sum()) * 1e-9
    )
    counts_by_source: dict[str, Any] = {}
    states: list[ProbeState] = []
    for name in names if plan.outside else (SONDA, *names):
        counter: CommandCounter = KernelCounter(known=events) if name == SONDA else SOURCES[name]()
        counted_events = (*SYSTEM, *events) if name == SONDA else (*SYSTEM, *HARDWARE)
        with plan.store.scratch() as directory:
            command = ended_run.again(Rerun(directory, observed=False, steps=int(timed.sum()) or None))
            plan.say(Expected(f"counting {command.name} once more, with {counter.name}", lasted))
            state, counted = _count_once(name, counter, command, counted_events)
        if name != SONDA:
            states.append(state)
        if counted:
            counts_by_source[name] = counted
    return counts_by_source, states


def _count_once(
    name: str, counter: CommandCounter, command: Command, events: Sequence[str]
) -> tuple[ProbeState, dict[str, Any]]:
    state = counter.state()
    if state.state != "ok":
        return ProbeState(name, state.state, state.reason, state.remedy), {}
    try:
        result = counter.count(command.words, events, environment={**os.environ, **command.environment})
        if result.code and not result.counts:
            raise SondaError(f"its run of the program {describe_exit(result.code)}", "see its output above")
    except SondaError as error:
        return ProbeState(name, "dead", error.cause, error.remedy), {}
    counts = {
        event_quantity(event): {"value": count.value, "scaled": count.scaled} for event, count in result.counts.items()
    }
    missing = {event_quantity(event): reason for event, reason in result.missing.items()}
    record = {"counts": counts, **({"missing": missing} if missing else {})}
    return ProbeState(name, "ok", state.reason), record
