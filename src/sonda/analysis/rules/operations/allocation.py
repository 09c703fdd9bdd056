"""Allocation: the step writes to memory that the system gives anew each time, page by page."""

from __future__ import annotations

from sonda.analysis.code.summary import Activity
from sonda.analysis.layer_families import BUILT_IN
from sonda.analysis.rules.advice import KeepDeviceMemory, LineChange, ReuseBuffers
from sonda.analysis.rules.cause_findings import AllocatesAnew, DeviceMemoryReturned
from sonda.analysis.rules.code.own_code import causes_of, code_verdict
from sonda.analysis.rules.code_findings import AsksForMemory
from sonda.analysis.rules.device.device_lines import add_shares, find_lines, place_of
from sonda.analysis.rules.device.synchronisation import step_place
from sonda.analysis.rules.operations.evidence import TimedEvidence, evidence_of, is_built_in, layer_row, told_ns
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.rules.work import WORTH, first_part
from sonda.analysis.summary import PartSummary, Remedy, Summary, Value, Verdict

FAULTS, CLOCK = "page_faults:counted", "task_clock:counted"
"""Columns of the counters of a step."""
DRIVER = ("Malloc", "Free")
"""Calls of a GPU's library that take memory and give it back; PyTorch keeps memory, so that a step needs none."""
EMPTIES = "empty_cache"
OF_FRAMEWORK = ("backward", "optimizer")
"""Phases whose memory the framework takes, and no line of the program."""
CREATION = "creation"
"""Family of operations that ask for memory by name."""
HALF = 0.5
PAGE = 4096
"""B of a page."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when page faults, each at its measured cost, take a tenth of the step or more; on a GPU, when giving memory
    back and taking it again does.

    What layers, backwards and optimizers of the framework make, and the results of ordinary operations, are allocated
    anew in any program. So it speaks of lines that ask for memory by name, and of lines of one's own whose results are
    too large for the C library to keep, where their pages are half of the faults.
    """
    part, cost = first_part(summary), summary.workload.fault_ns
    if part is None or not part.step.value:
        return None
    if part.device is not None:
        return _on_device(summary, part)
    faults = _faults(summary, part)
    if not cost or not faults.value:
        return None
    spent = float(cost) * faults.value / _busy(summary, part)
    share = min(spent / told_ns(part), 1.0)
    place = _place(part, evidence_of(summary), faults.value)
    row = layer_row(part, place.layer) if place.layer else None
    ordinary = place.phase in OF_FRAMEWORK or (row is not None and row.name in BUILT_IN)
    if share < WORTH or ordinary or not place.line:
        return None
    of_step, time = Value(share, "1", "derived"), Value(spent, "ns", "derived")
    each = Value(float(cost), "ns", "measured")
    return Verdict(
        kind="allocation",
        finding=AllocatesAnew(of_step, time, place, faults, each),
        evidence={"share": of_step, "time": time, "page_faults": faults, "fault_time": each},
        remedies=(Remedy(ReuseBuffers(place)),),
        share=share,
    )


def at_lines(summary: Summary) -> Verdict | None:
    """Fires when lines that ask for memory by name, and fill it, take a tenth of the step each, for sure."""
    leads = causes_of(summary, Activity.ALLOCATION)
    return code_verdict(Activity.ALLOCATION, AsksForMemory(leads), LineChange.REUSE_BUFFERS) if leads else None


def _on_device(summary: Summary, part: PartSummary) -> Verdict | None:
    """Where the cache of a GPU's memory is emptied in every step, or its memory is too small to keep one."""
    calls = [call for call in summary.workload.device_calls or () if call.name in DRIVER]
    lines = find_lines(summary, (), EMPTIES)
    host = part.device.host.value if part.device is not None else None
    share = max(sum(float(call.ns) for call in calls) / (host or part.step.value or 1.0), add_shares(lines))
    if share < WORTH:
        return None
    share = min(share, 1.0)
    of_step, time = Value(share, "1", "derived"), Value(share * (part.step.value or 0.0), "ns", "derived")
    number = Value(float(sum(call.count for call in calls)), "1", "counted")
    place = place_of(lines, {})
    return Verdict(
        kind="allocation",
        finding=DeviceMemoryReturned(of_step, time, step_place(place), number),
        evidence={"share": of_step, "time": time, "calls": number},
        remedies=(Remedy(KeepDeviceMemory(step_place(place))),),
        share=share,
        place=place if place.line else None,
    )


def _busy(summary: Summary, part: PartSummary) -> float:
    """Processors that are busy in a step, at least 1, as threads have page faults beside each other; where nobody
    counted, all threads."""
    clock = part.counters.get(CLOCK)
    if clock is None or clock.value is None:
        return float(max(summary.target.threads or 1, 1))
    return max(clock.value / (part.step.value or 1.0), 1.0)


def _faults(summary: Summary, part: PartSummary) -> Value:
    """Page faults a step: those of its phases, or of the whole step where they are more."""
    in_phases = part.counters.get(FAULTS)
    whole = Value(float(summary.workload.step_faults or 0.0) if part.name == "train" else 0.0, "1", "counted")
    return in_phases if in_phases is not None and (in_phases.value or 0.0) >= (whole.value or 0.0) else whole


def _place(part: PartSummary, evidence: TimedEvidence | None, total: float) -> StepPlace:
    """The phase with the most faults, and the layer and line that ask for most memory in it."""
    faults = {row.name: row.counters[FAULTS].value or 0.0 for row in part.phases if FAULTS in row.counters}
    phase = max(faults, key=lambda name: faults[name], default="")
    if sum(faults.values()) < HALF * total:
        phase = ""  # outside of all phases
    groups = [timed.group for timed in evidence.groups if timed.group.phase == phase] if evidence is not None else []
    enough = HALF * total * PAGE
    mapped = [group for group in groups if group.mapped >= enough and not is_built_in(part, group.layer)]
    created = [group for group in groups if group.family == CREATION]
    if not mapped and not created:
        return StepPlace(phase=phase)
    largest = max(mapped or created, key=lambda group: group.mapped if mapped else group.bytes)
    return StepPlace(largest.layer or "", largest.line, phase)
