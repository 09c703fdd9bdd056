"""Synchronisation: the host asks a GPU for numbers again and again, and after each answer the GPU has nothing to do."""

from __future__ import annotations

from sonda.analysis.rules.advice import SynchroniseLess
from sonda.analysis.rules.cause_findings import AsksDevice
from sonda.analysis.rules.device.device_lines import ASK, TO_HOST, add_shares, count_at_lines, find_lines, place_of
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.rules.work import WORTH, first_part, host_share
from sonda.analysis.summary import CausePlace, Remedy, Summary, Value, Verdict

WAITS = "Synchronize"
"""How the calls of a GPU's library end that wait for it."""
ASKED = ("item", "tolist", "synchronize", "cpu", "numpy")
"""Calls that ask a GPU, by name."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when lines that ask the GPU take a tenth of the step or more while it has nothing to do.

    A host that asks and waits loses nothing while its GPU is busy, so no more is lost than the GPU was idle. What a
    line computes only in order to ask is lost too.
    """
    part = first_part(summary)
    if part is None or part.device is None or not part.step.value:
        return None
    counts = count_at_lines(summary, ASK, TO_HOST)
    lines = find_lines(summary, counts, *ASKED)
    calls = [call for call in summary.workload.device_calls or () if call.name.endswith(WAITS)]
    waited = sum(float(call.ns) for call in calls)
    share = min(max(add_shares(lines), waited / part.step.value), host_share(part), 1.0)
    if share < WORTH or not (counts or lines):
        return None
    of_step, time = Value(share, "1", "derived"), Value(share * part.step.value, "ns", "derived")
    times = Value(float(sum(call.count for call in calls) or sum(counts.values())), "1", "counted")
    place = place_of(lines, counts)
    return Verdict(
        kind="synchronisation",
        finding=AsksDevice(of_step, time, step_place(place), times, Value(waited, "ns", "measured")),
        evidence={"share": of_step, "time": time, "times": times, "waited": Value(waited, "ns", "measured")},
        remedies=(Remedy(SynchroniseLess(step_place(place))),),
        share=share,
        place=place,
    )


def step_place(place: CausePlace) -> StepPlace:
    return StepPlace(line=f"{place.file.rpartition('/')[2]}:{place.line}" if place.line else "")
