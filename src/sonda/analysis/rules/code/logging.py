"""Logging: the program prints, logs or writes records inside of its steps."""

from __future__ import annotations

from sonda.analysis.code.summary import Activity
from sonda.analysis.rules.advice import LineChange
from sonda.analysis.rules.code.own_code import causes_of, code_verdict
from sonda.analysis.rules.code_findings import WritesRecords
from sonda.analysis.summary import Summary, Verdict


def rule(summary: Summary) -> Verdict | None:
    """Fires when functions that write records take a tenth of the step each, for sure."""
    leads = causes_of(summary, Activity.LOG)
    return code_verdict(Activity.LOG, WritesRecords(leads), LineChange.LOG_LESS) if leads else None
