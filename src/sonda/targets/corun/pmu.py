"""What the PMU counts of each participant: cycles, instructions, misses of the last-level cache, and events by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sonda.probes.counters.pmu import plan_counting, try_group
from sonda.probes.counters.pmu_events import Pmu, core_pmus, resolve_event
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState
from sonda.targets.instruments.counters import PMU

ALWAYS = (("cycles", "instructions"), ("cache-misses",))
"""Groups that are counted wherever there is a PMU: reading them costs nothing but at both ends of a window."""


def event_groups(
    extra: Sequence[str] = (), pmus: Callable[[], list[Pmu]] = core_pmus, trial: Callable[..., Any] = try_group
) -> tuple[list[dict[str, Any]], ProbeState]:
    """Groups as `WindowCounters` takes them, and the state of the PMU: why there are none, where there are none.

    A processor with two kinds of core has groups for both, which are added up. Raises SondaError for an event that was
    named and that the PMU does not know.
    """
    try:
        plan_counting()
    except SondaError as error:
        return [], ProbeState(PMU, "missing", error.cause, error.remedy)
    found = pmus() or [Pmu("cpu", 4)]
    groups = []
    for pmu in found:
        for names in (*ALWAYS, *((name,) for name in extra)):
            events = [resolve_event(name, pmu, len(found) > 1) for name in names]
            try:
                trial(events)
            except OSError:
                if names in ALWAYS:
                    continue
                raise SondaError(f"the PMU {pmu.name} does not count {names[0]!r}", "leave it out") from None
            plain = [{key: value for key, value in one._asdict().items() if value or key in ("name", "type", "config")}
                     for one in events]  # fmt: skip
            groups.append({"events": plain, "whole": len(found) == 1})
    return groups, ProbeState(PMU, "ok", "counted over windows")
