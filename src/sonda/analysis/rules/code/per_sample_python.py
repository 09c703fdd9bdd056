"""Python loops: Python code walks through samples, tokens or pixels inside of the step."""

from __future__ import annotations

from sonda.analysis.code.summary import Activity
from sonda.analysis.rules.advice import LineChange
from sonda.analysis.rules.code.own_code import causes_of, code_verdict
from sonda.analysis.rules.code_findings import LoopsInPython
from sonda.analysis.summary import Summary, Verdict


def rule(summary: Summary) -> Verdict | None:
    """Fires when Python code in loops inside of the step takes a tenth of it in a function, for sure."""
    leads = causes_of(summary, Activity.LOOP)
    return code_verdict(Activity.LOOP, LoopsInPython(leads), LineChange.VECTORISE) if leads else None
