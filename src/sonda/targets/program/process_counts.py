"""A command counted from outside while it runs: by the kernel's own counters, and the PMU's events where asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any

from sonda.frameworks.collector.counters.perf_event import Event
from sonda.probes.counters.command_counter import SYSTEM, CountedCommand, EventCount, KernelCounter, StoppedCommand
from sonda.probes.counters.pmu_events import event_quantity
from sonda.record.quantities import Metric
from sonda.record.samples import Sample

NEVER_COUNTED = "the kernel does not count a program that takes other rights when it starts (setuid)"


def count_outside(
    command: Sequence[str],
    events: Mapping[str, Event],
    interval: float,
    environment: Mapping[str, str],
    output: int | None,
    around: Callable[[StoppedCommand], AbstractContextManager[None]],
) -> CountedCommand:
    """Run a command once and count it with all its threads and child processes; see `KernelCounter.count`."""
    return KernelCounter(known=events).count(command, (*SYSTEM, *events), interval, environment, output, around)


def describe_counts(counted: CountedCommand) -> dict[str, Any]:
    """`outside` of a run's `target`: `counts` of the whole by quantity, what is `missing`, the `interval` in ns."""
    counts = {event_quantity(name): count for name, count in counted.counts.items() if count.enabled}
    never = {event_quantity(name): NEVER_COUNTED for name, count in counted.counts.items() if not count.enabled}
    missing = {event_quantity(name): reason for name, reason in counted.missing.items()} | never
    record: dict[str, Any] = {
        "counts": {name: {"value": count.value, "scaled": count.scaled} for name, count in counts.items()},
        **({"missing": missing} if missing else {}),
        **({"interval": round(counted.interval * 1e9)} if counted.interval else {}),
    }
    return {"outside": record}


def interval_samples(counted: CountedCommand) -> list[Sample]:
    """What was counted in every interval, at the interval's end."""
    samples = []
    begin: dict[str, EventCount] = dict.fromkeys(counted.counts, EventCount(0.0))
    for (_, before), (time, after) in pairwise([(0.0, begin), *counted.series]):
        # What only the kernel's account at the end has is in no reading.
        for name in after:
            if name not in counted.counts:
                continue
            added = after[name].growth_since(before[name])
            if added is not None:
                source = "estimated" if added.scaled else "counted"
                sensor = event_quantity(name)
                samples.append(Sample(round(time * 1e9), sensor, added.value, Metric(sensor, source).unit, source))
    return samples
