"""What the PMU counts of each participant: cycles, instructions, misses of the last-level cache, and events by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sonda.probes.counters.pmu import plan_counting, try_group
from sonda.probes.counters.pmu_events import Pmu, core_pmus, resolve_event
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState
from sonda.targets.instruments.counters import PMU, event_fields

ALWAYS = (("cycles", "instructions"), ("cache-misses",))
"""Groups that are counted wherever there is a PMU: reading them costs nothing but at both ends of a window."""


def event_groups(
    extra: Sequence[str] = (), pmus: Callable[[], list[Pmu]] = core_pmus, trial: Callable[..., Any] = try_group
) -> tuple[list[dict[str, Any]], ProbeState]:
    """Groups of events as `WindowCounters` takes them, and the state of the PMU, which says why there are none.

    A processor with two kinds of core has groups for both, and their counts are added up. Raises SondaError for a named
    event that the PMU does not know.
    """
    try:
        plan_counting()
    except SondaError as error:
        return [], ProbeState(PMU, "missing", error.cause, error.remedy)
    units = pmus() or [Pmu("cpu", 4)]
    groups = []
    for pmu in units:
        for names in (*ALWAYS, *((name,) for name in extra)):
            events = [resolve_event(name, pmu, len(units) > 1) for name in names]
            try:
                trial(events)
            except OSError:
                if names in ALWAYS:
                    continue
                raise SondaError(f"the PMU {pmu.name} does not count {names[0]!r}", "leave it out") from None
            groups.append({"events": [event_fields(event) for event in events], "whole": len(units) == 1})
    return groups, ProbeState(PMU, "ok", "counted over windows")
