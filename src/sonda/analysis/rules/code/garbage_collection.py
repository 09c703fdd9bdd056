"""Garbage collection: the collector takes a share of the step, called by the program or driven by its objects."""

from __future__ import annotations

from sonda.analysis.code.activities import FUNCTIONS
from sonda.analysis.code.summary import Activity
from sonda.analysis.rules.advice import LineChange
from sonda.analysis.rules.code.own_code import causes_of, code_of, code_verdict, share_of
from sonda.analysis.rules.code_findings import CollectsGarbage
from sonda.analysis.summary import Summary, Verdict


def rule(summary: Summary) -> Verdict | None:
    """Fires when collections take a tenth of the step at a function, for sure. The share is the measured one."""
    code, leads = code_of(summary), causes_of(summary, Activity.COLLECTION)
    if code is None or not leads or code.collections is None:
        return None
    asked = FUNCTIONS.get(leads[0].called) is Activity.COLLECTION
    collections = code.collections
    share = collections.share.value if collections.share.value is not None else share_of(leads)
    finding = CollectsGarbage(leads, asked, collections.count, collections.share)
    return code_verdict(Activity.COLLECTION, finding, LineChange.COLLECT_LESS, share=min(share, 1.0))
