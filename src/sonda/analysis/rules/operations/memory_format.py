"""Memory format: operations read tensors that lie in memory with gaps, or in another order."""

from __future__ import annotations

from sonda.analysis.rules import remedies
from sonda.analysis.rules.advice import MakeContiguous
from sonda.analysis.rules.cause_findings import ChannelsFirst, StridedOperands
from sonda.analysis.rules.operations.evidence import TimedEvidence, TimedGroup, evidence_of, is_built_in, layer_row
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.rules.work import WORTH
from sonda.analysis.summary import Remedy, Summary, Value, Verdict
from sonda.record.evidence import TriedFormat

LAST = 0.20
"""Of the step, that channels last have to save: channels first are no mistake where they cost little."""
CRAWLS = 4.0
"""A kernel without vector instructions, which have four lanes or more, takes so many times as long."""
LINE = 64
"""Bytes of a cache line: an element that lies apart from its neighbours costs one at most."""
SMALLEST = 2
"""Bytes of an element, where numbers have 16 bits: those of 32 cost less than what is assumed here."""
MOSTLY = 0.5
"""Part of a group's bytes that lie so, from which on that is what it reads."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when operations on such tensors take a tenth of the step beyond what memory asks for, or more; or when
    operations on images would take a fifth of the step less with channels last. Copies have a rule of their own."""
    evidence = evidence_of(summary)
    if evidence is None:
        return None
    choices = [_strided(summary, evidence), _channels_first(summary, evidence)]
    return max((choice for choice in choices if choice is not None), key=lambda verdict: verdict.share, default=None)


def _channels_first(summary: Summary, evidence: TimedEvidence) -> Verdict | None:
    """What was tried in the counted step."""
    # The whole time of a layer of the framework counts once, however many lines call it.
    largest_of = {tried.layer: tried for tried in sorted(evidence.step.formats, key=lambda tried: tried.ns)}
    saved = {
        number: _gain(evidence, tried)
        for number, tried in enumerate(evidence.step.formats)
        if tried is largest_of[tried.layer] or not is_built_in(evidence.part, tried.layer)
    }
    time = sum(saved.values())
    share = evidence.share(max(time, 0.0))
    if share < LAST:
        return None
    largest = evidence.step.formats[max(saved, key=lambda number: saved[number])]
    place = StepPlace(largest.layer or "", largest.line, largest.phase)
    crawling = sum(ns for number, ns in saved.items() if evidence.step.formats[number].times >= CRAWLS)
    of_step, lost = Value(share, "1", "derived"), Value(time, "ns", "derived")
    times = Value(float(largest.times), "1", "measured")
    return Verdict(
        kind="memory_format",
        finding=ChannelsFirst(of_step, lost, place, times, evidence.share(crawling) >= LAST),
        evidence={"share": of_step, "time": lost, "times": times},
        remedies=remedies.remedies(summary, remedies.channels_last),
        share=share,
    )


def _gain(evidence: TimedEvidence, tried: TriedFormat) -> float:
    """ns of a timed step that are saved in what was tried. Of a layer of the framework its backward, which was not
    tried, is taken to gain as much; but with no format does work run above its roof."""
    least = 1 / float(tried.times)
    row = layer_row(evidence.part, tried.layer) if tried.layer is not None else None
    if row is not None and is_built_in(evidence.part, tried.layer):
        spent = (row.forward.value or 0.0) + (row.backward.value or 0.0)
        return spent * (1 - max(least, min(row.cost.roof.value or 0.0, 1.0)))
    here = [
        timed.ns / timed.group.ns for timed in evidence.groups
        if (timed.group.phase, timed.group.layer, timed.group.line) == (tried.phase, tried.layer, tried.line)
        and timed.group.ns
    ]  # fmt: skip
    return float(tried.ns) * min(here, default=0.0) * (1 - least)


def _strided(summary: Summary, evidence: TimedEvidence) -> Verdict | None:
    if "dram_bandwidth" not in summary.ceilings:
        return None
    bandwidth = summary.ceilings["dram_bandwidth"].value or 1.0
    cost = (summary.ceilings["operation"].value or 0.0) if "operation" in summary.ceilings else 0.0
    lost: list[tuple[float, TimedGroup]] = []
    for timed in evidence.groups:
        group = timed.group
        if group.family == "copy" or group.phase == "optimizer" or not group.bytes:
            continue
        if float(group.strided) >= MOSTLY * float(group.bytes):
            least = 1e9 * float(group.bytes) / bandwidth + cost * group.operations
            apart = 1e9 * float(group.strided) * LINE / SMALLEST / bandwidth
            lost.append((min(max(timed.ns - least, 0.0), apart), timed))
    spent = sum(ns for ns, _ in lost)
    share = evidence.share(spent)
    if share < WORTH:
        return None
    strided = {id(timed.group) for _, timed in lost}
    place = evidence.largest_place(lambda group: id(group) in strided)
    of_step, time = Value(share, "1", "derived"), Value(spent, "ns", "derived")
    moved = Value(sum(float(timed.group.strided) for _, timed in lost), "B", "nominal")
    return Verdict(
        kind="memory_format",
        finding=StridedOperands(of_step, time, place, moved),
        evidence={"share": of_step, "time": time, "bytes": moved},
        remedies=(Remedy(MakeContiguous(place)), *remedies.remedies(summary, remedies.channels_last)),
        share=share,
    )
