"""The PMU of this machine: what of it a run counts, and why where it counts nothing."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from sonda.frameworks.collector.counters.perf_event import Event, EventGroup, PerfEventError
from sonda.probes.counters.perf_events import explain_refusal, paranoid_level
from sonda.probes.counters.pmu_events import Pmu, core_pmus, resolve_event
from sonda.probes.counters.topdown_tables import JOINT, TopDownTable, find_table, load_tables
from sonda.probes.kernel_files import read_int
from sonda.probes.machine.processor import is_guest, processor_identity, read_cpuinfo, read_topology
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState

SMALL_CORES = "cpu_atom"
REFUSED = (errno.EINVAL, errno.ENOENT, errno.EOPNOTSUPP)
"""What the kernel says of an event that this PMU has not."""

TryGroup = Callable[[Sequence[Event]], None]
"""Opens a group of events and closes it again. Raises PerfEventError where the kernel refuses it."""


@dataclass(frozen=True)
class CountingPlan:
    """What to count: groups of events that take turns, and groups that are read beside them."""

    groups: list[list[Event]]
    beside: list[list[Event]] = field(default_factory=list)
    """Of a processor with small cores: what is counted on these."""
    table: TopDownTable | None = None
    """The Top-Down table that the groups are of; None where no table fits."""
    notes: list[str] = field(default_factory=list)


def try_group(events: Sequence[Event]) -> None:
    """Open a group on the calling thread and close it again. Raises PerfEventError where the kernel refuses it."""
    EventGroup(events).close()


def plan_counting(root: Path = Path("/"), attempt: TryGroup = try_group, extra: Sequence[str] = ()) -> CountingPlan:
    """Plan what the PMU counts for Top-Down, or cycles and instructions where no table fits; `extra` events by name.

    `attempt` tries whether the kernel takes a group. Raises SondaError where the PMU counts nothing.
    """
    blocks = read_cpuinfo(root)
    block = blocks[0] if blocks else {}
    pmus = core_pmus(root)
    hybrid = len({pmu.name for pmu in pmus} & {"cpu_core", SMALL_CORES}) == 2
    large = pmus[0] if pmus else Pmu("cpu", 4)
    joint = [resolve_event(name, large, hybrid) for name in JOINT]
    refusal = _find_refusal(attempt, joint)
    if refusal is not None:
        cause, remedy = explain_refusal(refusal.errno or 0, paranoid_level(root), True, is_guest(block))
        raise SondaError(cause, remedy)
    notes: list[str] = []
    try:
        table: TopDownTable | None = find_table(processor_identity(block))
    except SondaError as error:
        table = None
        notes.append(error.cause)
    groups = [joint]
    if table is not None:
        table = _with_slots(table, large)
        table, groups = _open_table(table, large, hybrid, root, attempt, notes)
        groups = groups or [joint]
        if table is not None and table.smt and read_topology(root, blocks).smt:
            notes.append(table.smt)
    if extra:
        groups = [*groups, *_group_with_joint(joint, [resolve_event(name, large, hybrid) for name in extra], attempt)]
    beside = _plan_small_cores(pmus, attempt, notes) if hybrid else []
    return CountingPlan(groups, beside, table, notes)


def _find_refusal(attempt: TryGroup, events: Sequence[Event]) -> PerfEventError | None:
    """The error with which the kernel refuses a group; None where it takes it."""
    try:
        attempt(events)
    except PerfEventError as error:
        return error
    return None


def _with_slots(table: TopDownTable, pmu: Pmu) -> TopDownTable:
    """The table with the slots per cycle that an Arm kernel gives. Where it gives none, the table keeps its own."""
    if table.encoding != "arm" or not pmu.slots:
        return table
    return replace(table, definition=msgspec.structs.replace(table.definition, width=pmu.slots))


def _open_table(
    table: TopDownTable, pmu: Pmu, hybrid: bool, root: Path, attempt: TryGroup, notes: list[str]
) -> tuple[TopDownTable | None, list[list[Event]]]:
    """The groups of a table that the kernel takes, and the table; None and no groups where it takes none.

    Where the first group is refused, the table for guests takes the table's place. A guest may have fewer counters than
    its processor: groups that do not fit are split.
    """
    counters = table.counters - _watchdog_counters(root)
    groups = [[_table_event(table, name, pmu, hybrid) for name in group] for group in table.fit_groups(counters)]
    refusal = _find_refusal(attempt, groups[0])
    if refusal is not None and refusal.errno in REFUSED and table.guest:
        notes.append(f"{table.definition.name}: {refusal.event or 'an event'} is not offered here, others are counted")
        return _open_table(load_tables()[table.guest], pmu, hybrid, root, attempt, notes)
    fitted = [_fit_group(table, group, counters, attempt) for group in groups]
    usable = [piece for pieces in fitted for piece in pieces]
    if not usable:
        cause, _ = explain_refusal((refusal.errno if refusal else 0) or 0, paranoid_level(root), False, None)
        notes.append(f"no group of {table.definition.name} can be counted: {cause}")
        return None, []
    if not all(fitted):
        notes.append(f"{fitted.count([])} of {len(groups)} groups of events are refused and missing")
    return table, usable


def _fit_group(table: TopDownTable, group: list[Event], counters: int, attempt: TryGroup) -> list[list[Event]]:
    """A group as the kernel takes it: whole, or in pieces where it does not fit; nothing where an event is refused."""
    known = {event.name: event for event in group}
    pieces = [group]
    while refusals := [
        refusal for refusal in (_find_refusal(attempt, piece) for piece in pieces) if refusal is not None
    ]:
        counters -= 1
        try:
            if any(refusal.errno != errno.EINVAL for refusal in refusals):
                return []
            pieces = [[known[name] for name in piece] for piece in table.split_group(tuple(known), counters)]
        except SondaError:
            return []
    return pieces


def _group_with_joint(joint: list[Event], events: list[Event], attempt: TryGroup) -> list[list[Event]]:
    """Events with cycles and instructions, in as few groups as the kernel takes. A refused event stays alone."""
    refusal = _find_refusal(attempt, [*joint, *events])
    if refusal is None or refusal.errno != errno.EINVAL or len(events) == 1:
        return [[*joint, *events]]
    half = len(events) // 2
    return [*_group_with_joint(joint, events[:half], attempt), *_group_with_joint(joint, events[half:], attempt)]


def _watchdog_counters(root: Path) -> int:
    """Programmable counters that the kernel's watchdog takes away: 0 or 1.

    The watchdog counts cycles all the time. Where cycles have a fixed counter it takes that one, and our own cycles
    need a programmable one. The kernel opens a group that is then too large, and never counts it.
    """
    return int(read_int(root / "proc/sys/kernel/nmi_watchdog") == 1)


def _table_event(table: TopDownTable, name: str, pmu: Pmu, hybrid: bool) -> Event:
    if name in JOINT:
        return resolve_event(name, pmu, hybrid)
    known = table.events[name]
    if known.sysfs and known.sysfs in pmu.events:
        return resolve_event(known.sysfs, pmu, hybrid)._replace(name=name)
    return Event(name, pmu.type, known.config)


def _plan_small_cores(pmus: list[Pmu], attempt: TryGroup, notes: list[str]) -> list[list[Event]]:
    small = next(pmu for pmu in pmus if pmu.name == SMALL_CORES)
    events = [resolve_event(name, small, True)._replace(name=f"{name}_small_cores") for name in JOINT]
    if _find_refusal(attempt, events) is not None:
        notes.append("what runs on the small cores is not counted")
        return []
    notes.append("Top-Down is that of the large cores; cycles and instructions of the small ones stand beside it")
    return [events]


def pmu_state(root: Path = Path("/"), attempt: TryGroup = try_group) -> ProbeState:
    """Whether the PMU can count on this machine, and by which table."""
    try:
        plan = plan_counting(root, attempt)
    except SondaError as error:
        return ProbeState("pmu", "missing", error.cause, error.remedy)
    name = plan.table.definition.name if plan.table is not None else "cycles and instructions only"
    return ProbeState("pmu", "off", f"{name}; counted when asked for", "add --probe pmu")
