"""Checkpointing: weights are saved, or copied to be kept, inside of the steps."""

from __future__ import annotations

from sonda.analysis.code.summary import Activity
from sonda.analysis.rules.advice import LineChange
from sonda.analysis.rules.limits import SavesState
from sonda.analysis.rules.own_code import causes_of, code_verdict
from sonda.analysis.summary import Summary, Verdict


def rule(summary: Summary) -> Verdict | None:
    """Fires when functions that save take a tenth of the step each, for sure."""
    leads = causes_of(summary, Activity.CHECKPOINT)
    return code_verdict(Activity.CHECKPOINT, SavesState(leads), LineChange.SAVE_LESS) if leads else None
