"""No clear limit: what nothing explains, and what is known about it."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.rules import remedies, retracing
from sonda.analysis.rules.work import Work, explained, families, first_part, share, works
from sonda.analysis.summary import PartSummary, Summary, Value, Verdict

EXPLAINED = 0.5
"""Where the limits explain less than half of the step, saying so comes before them."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when all limits together explain less than half of the step, or when there is nothing to explain.

    Where a function is traced again and again most of the time, that is the limit, whatever the other steps do; and it
    is where nothing was counted.
    """
    part = first_part(summary)
    if part is None:
        why = summary.parts[0].step.reason if summary.parts else "no step was seen"
        return Verdict("none", f"Nothing to judge: {why}.", {})
    known = sum(explained(part).values())
    traced = retracing.rule(summary)
    if known >= EXPLAINED or (traced is not None and traced.share >= EXPLAINED):
        return None
    rest = max(1 - known, 0.0)
    evidence = {"unexplained": Value(rest, "1", "derived")}
    advice = remedies.remedies(summary, remedies.float32, remedies.threads, remedies.channels_last, remedies.compiled)
    if not any(work.cost.limits for work in works(part)):
        if traced is not None:
            return None  # nothing else is known
        reason = _reason(summary, part)
        longest = max(part.phases, key=lambda row: row.cost.time.value or 0.0)
        sentence = (
            f"No limit can be named: {reason}. {wording.percent(longest.cost.share)} of the step is {longest.name}."
        )
        return Verdict("none", sentence, evidence, advice, rest)
    return Verdict(
        kind="none",
        sentence=f"No clear limit: {_largest(part)}. Neither arithmetic, memory traffic, overhead nor input explains "
        "half of that.",
        evidence=evidence,
        remedies=advice,
        share=rest,
    )


def _reason(summary: Summary, part: PartSummary) -> str:
    if "reason" in summary.ceilings:
        return str(summary.ceilings["reason"])
    reasons = [row.cost.roof.reason for row in part.phases if row.cost.roof.reason]
    return reasons[0] if reasons else "no operation was counted"


def _largest(part: PartSummary) -> str:
    """The family of layers, or the phase, that takes most of the unexplained time."""
    groups: dict[str, list[Work]] = {}
    for work in works(part):
        if not work.cost.bound:
            groups.setdefault(work.family, []).append(work)
    outside = sum(row.cost.share for row in part.phases if row.name == "other")
    largest = max(groups.values(), key=share, default=[])
    if outside >= share(largest):
        return f"{wording.percent(outside)} of the step lies between the phases: Python code, and the observing itself"
    spent = sum(work.cost.time.value or 0.0 for work in largest)
    least = sum((work.cost.roof.value or 0.0) * (work.cost.time.value or 0.0) for work in largest)
    take, reach = ("take", "reach") if largest[0].layer else ("takes", "reaches")
    return (
        f"{families(largest)} {take} {wording.percent(share(largest))} of the step and {reach} "
        f"{wording.percent(least / spent)} of the roof"
    )
