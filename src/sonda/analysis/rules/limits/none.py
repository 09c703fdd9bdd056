"""No clear limit: what nothing explains, and what is known about it."""

from __future__ import annotations

from sonda.analysis import reasons
from sonda.analysis.rules import remedies
from sonda.analysis.rules.code import waiting
from sonda.analysis.rules.code.busy_line import code_share
from sonda.analysis.rules.limit_findings import (
    BetweenPhases,
    LongestPhase,
    NoClearLimit,
    NoLimitNamed,
    NothingToJudge,
    OutsideLayers,
    PieceOfStep,
    UnexplainedWork,
)
from sonda.analysis.rules.limits import retracing
from sonda.analysis.rules.program import cores
from sonda.analysis.rules.work import (
    LAYERED,
    WORTH,
    Work,
    explained,
    first_part,
    over_time,
    pieces_of,
    share,
    waiting_share,
    works,
)
from sonda.analysis.steps.program import CHECKPOINTS
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
        why = summary.parts[0].step.reason if summary.parts else reasons.NO_STEP_SEEN
        return Verdict("nothing", NothingToJudge(why or reasons.NO_STEP_TIMED), {})
    outside = max(waiting_share(summary, part), code_share(summary))  # code may wait: the two are not added up
    crowded = cores.own(summary)
    limits = [*explained(part).values(), outside, crowded.share if crowded is not None else 0.0]
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
        unnamed = NoLimitNamed(_reason(summary, part), _longest(part, summary))
        return Verdict("unknown", unnamed, evidence, advice, rest)
    largest = _largest(part, summary)
    if largest is None:
        return Verdict("none", NoClearLimit(None), evidence, advice, rest)
    # A limit that explains more than this piece takes is the larger thing to know: it comes first.
    return Verdict(
        kind="none",
        finding=NoClearLimit(largest),
        evidence=evidence,
        remedies=advice,
        share=rest if _size(largest) >= max(limits) else min(_size(largest), rest),
    )


def _reason(summary: Summary, part: PartSummary) -> str:
    if "reason" in summary.ceilings:
        return str(summary.ceilings["reason"])
    known_reasons = (row.cost.roof.reason for row in part.phases if row.cost.roof.reason)
    return next(known_reasons, reasons.NO_OPERATION_COUNTED)


def _size(piece: PieceOfStep) -> float:
    return piece.share.value or 0.0


def _of_step(share: float) -> Value:
    return Value(share, "1", "derived")


def _largest(part: PartSummary, summary: Summary) -> PieceOfStep | None:
    """The family of layers, the phase, or the code around them that takes most of the unexplained time; where no such
    takes a tenth of the step, the largest phase."""
    groups: dict[tuple[bool, str], list[Work]] = {}
    for work in works(part):
        if not work.cost.bound and not work.above:
            groups.setdefault(work.family, []).append(work)
    pieces: list[PieceOfStep] = [_family(members) for members in groups.values()]
    pieces += [_uncovered(part), _between(part, summary)]
    largest = max(pieces, key=_size)
    return largest if _size(largest) >= WORTH else _longest(part, summary)


def _family(members: list[Work]) -> UnexplainedWork:
    known = [work for work in members if work.cost.roof.value]
    least = sum((work.cost.roof.value or 0.0) * (work.cost.time.value or 0.0) for work in known)
    of_roof = over_time("roof", least, members) if least > 0 else None
    # What has no formula is not in the roof that is known.
    whole = len(known) == len(members) and not any(work.cost.roof.reason for work in known)
    return UnexplainedWork(_of_step(share(members)), pieces_of(members), of_roof, not whole)


def _uncovered(part: PartSummary) -> OutsideLayers:
    """What the phases of layers took beyond the layers that are known: functions, and code of modules."""
    rows = [row for row in part.phases if row.name in LAYERED and row.cost.share == row.cost.share]
    layers = [work for work in works(part) if work.layer]
    if not layers or not rows:
        return OutsideLayers(_of_step(0.0), ())
    rest = min(max(sum(row.cost.share for row in rows) - share(layers), 0.0), 1.0)
    return OutsideLayers(_of_step(rest), tuple(row.name for row in rows))


def _between(part: PartSummary, summary: Summary) -> BetweenPhases:
    rest = sum(row.cost.share for row in part.phases if row.name == "other" and row.cost.share == row.cost.share)
    if waiting.rule(summary) is not None:
        rest = max(rest - waiting_share(summary, part), 0.0)  # which has a verdict of its own
    rest = max(rest - code_share(summary), 0.0)
    files = summary.program.stage(CHECKPOINTS) if summary.program is not None else None
    saved = files is not None and files.count > EXPLAINED * part.steps
    return BetweenPhases(_of_step(rest), saved)


def _longest(part: PartSummary, summary: Summary) -> PieceOfStep | None:
    """The phase that takes most; None where none has a time."""
    rows = [row for row in part.phases if row.cost.time.value and row.cost.share == row.cost.share]
    if not rows:
        return None
    longest = max(rows, key=lambda row: row.cost.share)
    if longest.name == "other":
        return _between(part, summary)
    return LongestPhase(_of_step(min(longest.cost.share, 1.0)), longest.name)
