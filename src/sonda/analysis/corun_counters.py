"""What was counted of programs side by side: shares of the time, counts per step, and rates of the PMU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sonda.analysis.statistics import median
from sonda.analysis.summary import Value

NO_STEPS = "the command has no steps"
NO_WAIT = {
    "steps": "the kernel keeps no account of waiting",
    "runs": "waiting is not known of a command's processes",
    "window": "waiting is not known of a command's processes",
}
Measured = Mapping[str, Any]


def counted(found: Sequence[Measured], participant: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Value]:
    """Counters of a participant in one company, from each of its windows; missing with a reason.

    cores_used and waiting are shares of the time, page_faults and context_switches per step; occupancy (B) and
    memory_traffic (B/s) are of resctrl; ipc is instructions per cycle, every other event of the PMU per 1000
    instructions.
    """
    region = str(participant.get("region", "steps"))
    reasons = [reason for one in found for reason in one.get("reasons", {}).values()]
    why = reasons[0] if reasons else str(facts["cache"].get("monitor_reason") or "")
    values = {
        "cores_used": _middle(found, _over("cpu_time", "time"), "1", "the kernel refused to count"),
        "waiting": _middle(found, _over("run_queue_wait", "time"), "1", NO_WAIT.get(region, "")),
    }
    for name in ("page_faults", "context_switches"):
        per_step: Callable[[Measured], float | None] = _per_step(name) if region != "window" else lambda one: None
        values[name] = _middle(found, per_step, "1", NO_STEPS if region == "window" else "the kernel refused to count")
    values["occupancy"] = _middle(found, lambda one: one.get("llc_occupancy_B"), "B", why)
    values["memory_traffic"] = _middle(found, lambda one: one.get("memory_B_per_s"), "B/s", why)
    return values | _hardware(found, participant, facts.get("pmu", {}))


def _hardware(found: Sequence[Measured], participant: Mapping[str, Any], pmu: Mapping[str, Any]) -> dict[str, Value]:
    reason = str(pmu.get("refused", {}).get(participant["name"]) or pmu.get("reason") or "it had no counter")
    scaled = any("scaled" in one["counters"] for one in found)
    source = "estimated" if scaled else "counted"
    others = [name for name in pmu.get("events", ()) if name not in ("cycles", "instructions")] or ["cache_misses"]
    values = {"ipc": _middle(found, _over("instructions", "cycles"), "1", reason, source)}
    for name in others:
        values[name] = _middle(found, _over(name, "instructions", 1000), "1", reason, source)
    return values


def _over(name: str, base: str, times: float = 1.0) -> Callable[[Measured], float | None]:
    def read(one: Measured) -> float | None:
        counters = one["counters"]
        return times * counters[name] / counters[base] if name in counters and counters.get(base) else None

    return read


def _per_step(name: str) -> Callable[[Measured], float | None]:
    def read(one: Measured) -> float | None:
        steps = sum(piece[2] for piece in one["slices"])
        return one["counters"][name] / steps if name in one["counters"] and steps else None

    return read


def _middle(
    found: Sequence[Measured],
    read: Callable[[Measured], float | None],
    unit: str,
    reason: str,
    source: str = "counted",
) -> Value:
    known = [float(value) for one in found if (value := read(one)) is not None]
    if not known:
        return Value(None, unit, source, reason=reason or "no counter gave a number")
    estimate = median(known)
    return Value(estimate.value, unit, source, estimate.low, estimate.high, few=estimate.few)
