"""The PMU of this machine: what of it a run counts, and why where it counts nothing."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from sonda.frameworks.collector.counters.perf_event import Event, EventGroup, PerfEventError
from sonda.probes.counters.perf_events import explain, paranoid_level
from sonda.probes.counters.pmu_events import Pmu, core_pmus, resolve
from sonda.probes.counters.topdown_tables import JOINT, Table, table_for, tables
from sonda.probes.kernel_files import read_int
from sonda.probes.machine.processor import identity, is_guest, read_cpuinfo, topology
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState

SMALL_CORES = "cpu_atom"
REFUSED = (errno.EINVAL, errno.ENOENT, errno.EOPNOTSUPP)
"""What the kernel says of an event that this PMU has not."""

Trial = Callable[[Sequence[Event]], None]
"""Opens a group and closes it again; raises PerfEventError where the kernel refuses."""


@dataclass(frozen=True)
class Plan:
    """What to count: groups that take turns, groups read beside them, and what follows from them."""

    groups: list[list[Event]]
    beside: list[list[Event]] = field(default_factory=list)
    """Of a processor with small cores: what ran there."""
    table: Table | None = None
    notes: list[str] = field(default_factory=list)

    def topdown(self) -> dict[str, Any]:
        """The definition for `run.json`; empty without a table."""
        return self.table.plain() if self.table is not None else {}


def try_group(events: Sequence[Event]) -> None:
    EventGroup(events).close()


def plan(root: Path = Path("/"), trial: Trial = try_group, extra: Sequence[str] = ()) -> Plan:
    """What the PMU can count for Top-Down, or cycles and instructions where no table fits; `extra` events by name.

    Raises SondaError with cause and remedy where the PMU counts nothing.
    """
    blocks = read_cpuinfo(root)
    block = blocks[0] if blocks else {}
    pmus = core_pmus(root)
    hybrid = len({pmu.name for pmu in pmus} & {"cpu_core", SMALL_CORES}) == 2
    large = pmus[0] if pmus else Pmu("cpu", 4)
    joint = [resolve(name, large, hybrid) for name in JOINT]
    refusal = _refusal(trial, joint)
    if refusal is not None:
        cause, remedy = explain(refusal.errno or 0, paranoid_level(root), True, is_guest(block))
        raise SondaError(cause, remedy)
    notes: list[str] = []
    try:
        table: Table | None = table_for(identity(block))
    except SondaError as error:
        table = None
        notes.append(error.cause)
    groups = [joint]
    if table is not None:
        table = _with_slots(table, large)
        table, groups = _opened(table, large, hybrid, root, trial, notes)
        groups = groups or [joint]
        if table is not None and table.smt and topology(root, blocks).smt:
            notes.append(table.smt)
    if extra:
        groups = [*groups, *_together(joint, [resolve(name, large, hybrid) for name in extra], trial)]
    beside = _small_cores(pmus, trial, notes) if hybrid else []
    return Plan(groups, beside, table, notes)


def _refusal(trial: Trial, events: Sequence[Event]) -> PerfEventError | None:
    try:
        trial(events)
    except PerfEventError as error:
        return error
    return None


def _with_slots(table: Table, pmu: Pmu) -> Table:
    """Arm's kernel says how many slots a cycle has; a table's own number is for one that does not."""
    if table.encoding != "arm" or not pmu.slots:
        return table
    return replace(table, definition=msgspec.structs.replace(table.definition, width=pmu.slots))


def _opened(
    table: Table, pmu: Pmu, hybrid: bool, root: Path, trial: Trial, notes: list[str]
) -> tuple[Table | None, list[list[Event]]]:
    """The table's groups, each tried once; where the first is refused, those of the table that takes its place.

    A guest may have fewer counters than its processor: groups that do not fit are cut. No table where none is taken.
    """
    counters = table.counters - _watchdog(root)
    groups = [[_event(table, name, pmu, hybrid) for name in group] for group in table.fitting(counters)]
    refusal = _refusal(trial, groups[0])
    if refusal is not None and refusal.errno in REFUSED and table.guest:
        notes.append(f"{table.definition.name}: {refusal.event or 'an event'} is not offered here, others are counted")
        return _opened(tables()[table.guest], pmu, hybrid, root, trial, notes)
    taken = [_taken(table, group, counters, trial) for group in groups]
    usable = [piece for pieces in taken for piece in pieces]
    if not usable:
        cause, _ = explain((refusal.errno if refusal else 0) or 0, paranoid_level(root), False, None)
        notes.append(f"no group of {table.definition.name} can be counted: {cause}")
        return None, []
    if not all(taken):
        notes.append(f"{taken.count([])} of {len(groups)} groups of events are refused and missing")
    return table, usable


def _taken(table: Table, group: list[Event], counters: int, trial: Trial) -> list[list[Event]]:
    """A group as the kernel takes it: whole, or cut where it does not fit; nothing where an event is refused alone."""
    known = {event.name: event for event in group}
    pieces = [group]
    while refusals := [one for one in (_refusal(trial, piece) for piece in pieces) if one is not None]:
        counters -= 1
        try:
            if any(one.errno != errno.EINVAL for one in refusals):
                return []
            pieces = [[known[name] for name in piece] for piece in table.cut(tuple(known), counters)]
        except SondaError:
            return []
    return pieces


def _together(joint: list[Event], events: list[Event], trial: Trial) -> list[list[Event]]:
    """Events beside cycles and instructions, in as few groups as the kernel takes; one that it refuses stays alone."""
    refusal = _refusal(trial, [*joint, *events])
    if refusal is None or refusal.errno != errno.EINVAL or len(events) == 1:
        return [[*joint, *events]]
    half = len(events) // 2
    return [*_together(joint, events[:half], trial), *_together(joint, events[half:], trial)]


def _watchdog(root: Path) -> int:
    """Programmable counters that the kernel's watchdog costs.

    It counts cycles all the time. Where these have a fixed counter it keeps that one, and our own cycles need another.
    The kernel opens a group that is then too large, and never counts it.
    """
    return int(read_int(root / "proc/sys/kernel/nmi_watchdog") == 1)


def _event(table: Table, name: str, pmu: Pmu, hybrid: bool) -> Event:
    if name in JOINT:
        return resolve(name, pmu, hybrid)
    known = table.events[name]
    if known.sysfs and known.sysfs in pmu.events:
        return resolve(known.sysfs, pmu, hybrid)._replace(name=name)
    return Event(name, pmu.type, known.config)


def _small_cores(pmus: list[Pmu], trial: Trial, notes: list[str]) -> list[list[Event]]:
    small = next(pmu for pmu in pmus if pmu.name == SMALL_CORES)
    events = [resolve(name, small, True)._replace(name=f"{name}_small_cores") for name in JOINT]
    if _refusal(trial, events) is not None:
        notes.append("what runs on the small cores is not counted")
        return []
    notes.append("Top-Down is that of the large cores; cycles and instructions of the small ones stand beside it")
    return [events]


def state(root: Path = Path("/"), trial: Trial = try_group) -> ProbeState:
    """Whether the PMU counts on this machine, and how far."""
    try:
        found = plan(root, trial)
    except SondaError as error:
        return ProbeState("pmu", "missing", error.cause, error.remedy)
    name = found.table.definition.name if found.table is not None else "cycles and instructions only"
    return ProbeState("pmu", "off", f"{name}; counted when asked for", "add --probe pmu")
