"""No clear limit: what nothing explains, and what is known about it."""

from __future__ import annotations

from dataclasses import dataclass

from sonda.analysis import wording
from sonda.analysis.rules import remedies, retracing, waiting
from sonda.analysis.rules.work import (
    LAYERED,
    WORTH,
    Work,
    explained,
    families,
    first_part,
    over_time,
    share,
    waiting_share,
    works,
)
from sonda.analysis.steps.program import CHECKPOINTS
from sonda.analysis.summary import PartSummary, Summary, Value, Verdict

EXPLAINED = 0.5
"""Where the limits explain less than half of the step, saying so comes before them."""
NEITHER = "Neither arithmetic, memory traffic, overhead nor input explains half of that."


def rule(summary: Summary) -> Verdict | None:
    """Fires when all limits together explain less than half of the step, or when there is nothing to explain.

    Where a function is traced again and again most of the time, that is the limit, whatever the other steps do; and it
    is where nothing was counted.
    """
    part = first_part(summary)
    if part is None:
        why = summary.parts[0].step.reason if summary.parts else "no step was seen"
        return Verdict("none", f"Nothing to judge: {why or 'no step was timed'}.", {})
    limits = [*explained(part).values(), waiting_share(summary, part)]
    known = sum(limits)
    traced = retracing.rule(summary)
    if known >= EXPLAINED or (traced is not None and traced.share >= EXPLAINED):
        return None
    rest = max(1 - known, 0.0)
    evidence = {"unexplained": Value(rest, "1", "derived")}
    advice = remedies.remedies(summary, remedies.float32, remedies.threads, remedies.channels_last, remedies.compiled)
    if not any(work.cost.limits for work in works(part)):
        if traced is not None:
            return None  # nothing else is known
        longest = _longest(part, summary)
        most = f" {longest.sentence}." if longest is not None else ""
        return Verdict("none", f"No limit can be named: {_reason(summary, part)}.{most}", evidence, advice, rest)
    largest = _largest(part, summary)
    if largest is None:
        return Verdict("none", "No clear limit: no phase of the step was timed.", evidence, advice, rest)
    # A limit that explains more than this piece takes is the larger thing to know: it comes first.
    return Verdict(
        kind="none",
        sentence=f"No clear limit: {largest.sentence}. {NEITHER}",
        evidence=evidence,
        remedies=advice,
        share=rest if largest.share >= max(limits) else min(largest.share, rest),
    )


def _reason(summary: Summary, part: PartSummary) -> str:
    if "reason" in summary.ceilings:
        return str(summary.ceilings["reason"])
    reasons = [row.cost.roof.reason for row in part.phases if row.cost.roof.reason]
    return reasons[0] if reasons else "no operation was counted"


@dataclass(frozen=True)
class _Piece:
    """Something that takes a part of the step, and how that is said."""

    share: float
    sentence: str


def _largest(part: PartSummary, summary: Summary) -> _Piece | None:
    """The family of layers, the phase, or the code around them that takes most of the unexplained time; where no such
    takes a tenth of the step, the largest phase."""
    groups: dict[str, list[Work]] = {}
    for work in works(part):
        if not work.cost.bound and not work.above:
            groups.setdefault(work.family, []).append(work)
    pieces = [_family(members) for members in groups.values()]
    pieces += [_uncovered(part), _between(part, summary)]
    largest = max(pieces, key=lambda piece: piece.share)
    return largest if largest.share >= WORTH else _longest(part, summary)


def _family(members: list[Work]) -> _Piece:
    take, reach = ("take", "reach") if members[0].layer else ("takes", "reaches")
    sentence = f"{families(members)} {take} {wording.percent(share(members))} of the step"
    known = [work for work in members if work.cost.roof.value]
    least = sum((work.cost.roof.value or 0.0) * (work.cost.time.value or 0.0) for work in known)
    if least > 0:
        # What has no formula is not in the roof that is known.
        whole = len(known) == len(members) and not any(work.cost.roof.reason for work in known)
        roof = wording.of_ceiling(over_time("roof", least, members), "the roof")
        sentence += f" and {reach} {'' if whole else 'at least '}{roof}"
    return _Piece(share(members), sentence)


def _uncovered(part: PartSummary) -> _Piece:
    """What the phases of layers took beyond the layers that are known: functions, and code of modules."""
    rows = [row for row in part.phases if row.name in LAYERED and row.cost.share == row.cost.share]
    layers = [work for work in works(part) if work.layer]
    if not layers or not rows:
        return _Piece(0.0, "")
    rest = min(max(sum(row.cost.share for row in rows) - share(layers), 0.0), 1.0)
    names = wording.join([row.name for row in rows])
    return _Piece(rest, f"{wording.percent(rest)} of the step is code in {names} outside the layers that were seen")


def _between(part: PartSummary, summary: Summary) -> _Piece:
    rest = sum(row.cost.share for row in part.phases if row.name == "other" and row.cost.share == row.cost.share)
    if waiting.rule(summary) is not None:
        rest = max(rest - waiting_share(summary, part), 0.0)  # which has a sentence of its own
    files = summary.program.stage(CHECKPOINTS) if summary.program is not None else None
    saved = files is not None and files.count > EXPLAINED * part.steps
    what = "files of weights, which most steps save," if saved else "Python code,"
    return _Piece(rest, f"{wording.percent(rest)} of the step lies between the phases: {what} and the observing itself")


def _longest(part: PartSummary, summary: Summary) -> _Piece | None:
    """The phase that takes most; None where none has a time."""
    rows = [row for row in part.phases if row.cost.time.value and row.cost.share == row.cost.share]
    if not rows:
        return None
    longest = max(rows, key=lambda row: row.cost.share)
    share_of_step = min(longest.cost.share, 1.0)
    if longest.name == "other":
        return _between(part, summary)
    return _Piece(share_of_step, f"{wording.percent(share_of_step)} of the step is {longest.name}")
