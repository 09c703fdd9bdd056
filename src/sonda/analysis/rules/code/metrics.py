"""Metrics: something is computed from what the step has made, and no backward needs it."""

from __future__ import annotations

from sonda.analysis.code.summary import Activity
from sonda.analysis.rules.advice import LineChange
from sonda.analysis.rules.code.own_code import causes_of, code_verdict
from sonda.analysis.rules.code_findings import ComputesMetrics
from sonda.analysis.summary import Summary, Verdict


def rule(summary: Summary) -> Verdict | None:
    """Fires when functions behind the forward, whose values reach neither a backward nor a forward, take a tenth of
    the step each, for sure."""
    leads = causes_of(summary, Activity.METRIC)
    return (
        code_verdict(Activity.METRIC, ComputesMetrics(leads), LineChange.FEWER_METRICS, LineChange.VECTORISE)
        if leads
        else None
    )
