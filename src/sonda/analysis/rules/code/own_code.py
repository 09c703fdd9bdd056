"""Causes in the user's own code: what rules on sampled stacks share."""

from __future__ import annotations

from collections.abc import Iterable

from sonda.analysis.code.summary import Activity, CodeLead, CodeRegion, PartCode
from sonda.analysis.rules.advice import ChangeLine, LineChange
from sonda.analysis.rules.code_findings import CodeCause
from sonda.analysis.rules.work import first_part
from sonda.analysis.summary import CausePlace, Remedy, Summary, Value, Verdict


def code_of(summary: Summary) -> PartCode | None:
    """The code of the part that verdicts speak of; None where no stacks were sampled."""
    part = first_part(summary)
    return summary.code.part(part.name) if summary.code is not None and part is not None else None


def causes_of(summary: Summary, activity: Activity) -> tuple[CodeLead, ...]:
    """The functions that take a worthwhile share of the step with this, most time first."""
    code = code_of(summary)
    return tuple(lead for lead in code.causes if lead.activity is activity) if code is not None else ()


def region_of(summary: Summary, name: str) -> CodeRegion | None:
    code = code_of(summary)
    return code.region(name) if code is not None else None


def place_of(lead: CodeLead) -> CausePlace:
    return CausePlace(lead.place.file, lead.place.line, lead.place.function, lead.text)


def share_of(leads: Iterable[CodeLead]) -> float:
    """Part of the step that these take together, 0 to 1."""
    return min(sum(lead.share.value or 0.0 for lead in leads), 1.0)


def code_verdict(kind: Activity, finding: CodeCause, *changes: LineChange, share: float | None = None) -> Verdict:
    """A verdict on lines, with changes of the first; `share` where it is not what the lines take."""
    first = finding.leads[0]
    place = place_of(first)
    return Verdict(
        kind=kind.value,
        finding=finding,
        evidence={"share": first.share, "time": Value(first.time.total, "ns", "measured")},
        remedies=tuple(Remedy(ChangeLine(change, place)) for change in changes),
        share=share_of(finding.leads) if share is None else share,
        place=place,
    )
