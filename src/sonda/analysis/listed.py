"""Experiments that are not steps of one program, where summaries of runs are listed."""

from __future__ import annotations

from typing import Any

from sonda.analysis.summary import Remedy, Summary, Verdict
from sonda.record.run import Run


def listed(run: Run, found: Any, subtitle: str, no_roofline: str, **own: Any) -> Summary:
    """What was `found` (its title, sentence and notes, what to try where that is known) as a summary without parts;
    `own` are further fields of it."""
    remedy = getattr(found, "remedy", "")
    return Summary(
        run=run.id,
        title=found.title,
        subtitle=subtitle,
        status=run.info.status,
        parts=(),
        verdicts=(Verdict("none", found.sentence, {}, (Remedy(remedy),) if remedy else ()),),
        warnings=getattr(found, "warnings", ()),
        ceilings={"reason": no_roofline},
        notes=found.notes,
        workload=dict(run.info.workload),
        target=dict(run.info.target),
        machine=dict(run.info.machine),
        **own,
    )
