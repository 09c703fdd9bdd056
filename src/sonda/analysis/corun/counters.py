"""What was counted of programs side by side: shares of the time, counts per step, and rates of the PMU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sonda.analysis import reasons
from sonda.analysis.statistics import median
from sonda.analysis.summary import Value
from sonda.record.target import CorunFacts, CorunPmu, ParticipantFacts, WindowPart

NO_WAIT = {
    "steps": reasons.WAITING_UNKNOWN,
    "runs": reasons.WAITING_OF_COMMAND,
    "window": reasons.WAITING_OF_COMMAND,
}


def corun_counters(windows: Sequence[WindowPart], participant: ParticipantFacts, facts: CorunFacts) -> dict[str, Value]:
    """Counters of a participant in one company, from each of its windows; missing with a reason.

    cores_used and waiting are shares of the time, page_faults and context_switches per step; occupancy (B) and
    memory_traffic (B/s) are of resctrl; ipc is instructions per cycle, every other event of the PMU per 1000
    instructions.
    """
    region = participant.region or "steps"
    known_reasons = (reason for window in windows for reason in (window.reasons or {}).values())
    why = next(known_reasons, facts.cache.monitor_reason or "")
    values = {
        "cores_used": _middle(windows, _over("cpu_time", "time"), "1", reasons.COUNTER_REFUSED),
        "waiting": _middle(windows, _over("run_queue_wait", "time"), "1", NO_WAIT.get(region, "")),
    }
    for name in ("page_faults", "context_switches"):
        per_step: Callable[[WindowPart], float | None] = _per_step(name) if region != "window" else lambda window: None
        values[name] = _middle(
            windows, per_step, "1", reasons.COMMAND_HAS_NO_STEPS if region == "window" else reasons.COUNTER_REFUSED
        )
    values["occupancy"] = _middle(windows, lambda window: window.occupancy, "B", why)
    values["memory_traffic"] = _middle(windows, lambda window: window.traffic, "B/s", why)
    return values | _hardware(windows, participant, facts.pmu or CorunPmu())


def _hardware(windows: Sequence[WindowPart], participant: ParticipantFacts, pmu: CorunPmu) -> dict[str, Value]:
    reason = (pmu.refused or {}).get(participant.name) or pmu.reason or reasons.HAD_NO_COUNTER
    scaled = any("scaled" in window.counters for window in windows)
    source = "estimated" if scaled else "counted"
    events = [name for name in pmu.events or () if name not in ("cycles", "instructions")] or ["cache_misses"]
    values = {"ipc": _middle(windows, _over("instructions", "cycles"), "1", reason, source)}
    for name in events:
        values[name] = _middle(windows, _over(name, "instructions", 1000), "1", reason, source)
    return values


def _over(name: str, base: str, times: float = 1.0) -> Callable[[WindowPart], float | None]:
    def read(window: WindowPart) -> float | None:
        counters = window.counters
        return times * counters[name] / counters[base] if name in counters and counters.get(base) else None

    return read


def _per_step(name: str) -> Callable[[WindowPart], float | None]:
    def read(window: WindowPart) -> float | None:
        steps = sum(piece[2] for piece in window.slices)
        return window.counters[name] / steps if name in window.counters and steps else None

    return read


def _middle(
    windows: Sequence[WindowPart],
    read: Callable[[WindowPart], float | None],
    unit: str,
    reason: str,
    source: str = "counted",
) -> Value:
    known = [float(value) for window in windows if (value := read(window)) is not None]
    if not known:
        return Value(None, unit, source, reason=reason or reasons.NO_COUNTER_TOLD)
    estimate = median(known)
    return Value(estimate.value, unit, source, estimate.low, estimate.high, few=estimate.few)
