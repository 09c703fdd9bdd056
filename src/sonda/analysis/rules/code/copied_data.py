"""Copies: the program copies or converts tensors, arrays, lists or objects in its own lines."""

from __future__ import annotations

from sonda.analysis.code.summary import Activity
from sonda.analysis.rules.advice import LineChange
from sonda.analysis.rules.code.own_code import causes_of, code_verdict
from sonda.analysis.rules.code_findings import CopiesData
from sonda.analysis.summary import Summary, Verdict


def rule(summary: Summary) -> Verdict | None:
    """Fires when such lines take a tenth of the step each, for sure."""
    leads = causes_of(summary, Activity.COPY)
    return code_verdict(Activity.COPY, CopiesData(leads), LineChange.COPY_LESS) if leads else None
