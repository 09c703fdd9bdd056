"""Host-bound: a GPU waits for the program that launches its work."""

from __future__ import annotations

from sonda.analysis.rules import remedies
from sonda.analysis.rules.limit_findings import HostBound
from sonda.analysis.rules.work import data_share, first_part, host_share
from sonda.analysis.summary import Summary, Value, Verdict

WORTH = 0.20
"""A GPU that is idle for less than a fifth of the step is as good as busy: gaps between kernels are a few per cent."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when a GPU does nothing for a fifth of the step or more, and does not wait for input meanwhile."""
    part = first_part(summary)
    side = part.device if part else None
    waiting = host_share(part) if part else 0.0
    if part is None or side is None or waiting < WORTH:
        return None
    share = Value(waiting, "1", "derived")
    launching = Value((part.step.value or 0.0) * (1 - data_share(part)), "ns", "derived")
    busy = Value(side.devices * (side.busy.value or 0.0), "ns", side.busy.source)
    return Verdict(
        kind="host",
        finding=HostBound(share, side.launches, launching, busy),
        evidence={
            "share": share,
            "busy": side.busy,
            "launches": side.launches,
            "latency": side.latency,
        },
        remedies=remedies.remedies(summary, remedies.batch, remedies.compiled, remedies.graphs),
        share=waiting,
    )
