"""What the operating system counted in every phase of a step, and which of it a reader should not overlook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sonda.analysis import reasons
from sonda.analysis.counters.findings import ManyFaults, WaitedForProcessor
from sonda.analysis.counters.summary import SystemRow, SystemSummary
from sonda.analysis.findings import Finding
from sonda.analysis.summary import PartSummary, Value
from sonda.record.quantities import QUANTITIES

QUANTITY = {
    "clock": "task_clock:counted", "faults": "page_faults:counted", "switches": "context_switches:counted",
    "migrations": "cpu_migrations:counted", "wait": "run_queue_wait:counted", "memory": "resident_memory:measured",
}  # fmt: skip
STEP = "step"
MUCH = 0.1
"""Of a phase: what takes less is not worth a table that nobody asked for."""
SHORTEST = 1e6
"""ns. Phases that are shorter are not worth it either."""
FAULT_NS = 1000.0
"""ns. Less than a first touch of a page costs: 4,096 of them took 3,100 each and more on a virtual machine."""


def summarise_system(part: PartSummary, asked: bool) -> SystemSummary | None:
    """The system's counts of a part by phase; None where it counted nothing. `asked`: the reader wants them all."""
    # A GPU's phases last on its own clock; what the system counted belongs to the host's.
    rows = [_row(phase.name, phase.host or phase.cost.time, phase.counters) for phase in part.phases]
    whole = _row(STEP, part.step, part.counters)
    known = [row for row in (*rows, whole) if any(value.value is not None for value in row.values.values())]
    if not known:
        return None
    return SystemSummary(tuple(known), asked, tuple(_remarks(part.name, rows)))


def _row(name: str, time: Value, counters: Mapping[str, Value]) -> SystemRow:
    values = {}
    for key, column in QUANTITY.items():
        quantity, _, source = column.partition(":")
        absent = Value(None, QUANTITIES[quantity].unit, source, reason=reasons.NOT_COUNTED_HERE)
        values[key] = counters.get(column, absent)
    clock = values["clock"]
    busy = Value(None, "1", "derived", reason=clock.reason)
    if clock.value is not None and time.value:
        busy = Value(clock.value / time.value, "1", "derived")
    return SystemRow(name, time, busy, values)


def _remarks(part: str, rows: Iterable[SystemRow]) -> Iterable[Finding]:
    """What takes a good part of a phase: waiting for a processor, and first touches of memory."""
    long = [row for row in rows if (row.time.value or 0.0) >= SHORTEST]
    waiting = tuple((row.name, wait) for row in long if (wait := _of(row, "wait")) >= MUCH * (row.time.value or 0.0))
    if waiting:
        yield WaitedForProcessor(part, waiting)
    for row in long:
        lasted, faults = row.time.value or 0.0, _of(row, "faults")
        if faults * FAULT_NS >= MUCH * lasted:
            yield ManyFaults(part, row.name, faults, lasted)


def _of(row: SystemRow, key: str) -> float:
    return row.values[key].value or 0.0
