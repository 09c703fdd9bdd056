"""Host-bound: a GPU waits for the program that launches its work."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.rules import remedies
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
    launches = side.launches.value or 0.0
    launching = (part.step.value or 0.0) * (1 - data_share(part))
    return Verdict(
        kind="host",
        sentence=f"Host-bound: for {wording.percent(waiting)} of the step the GPU waits for the program, which makes "
        f"{launches:,.0f} {'launch' if round(launches) == 1 else 'launches'} in {wording.duration(launching)}, "
        f"{wording.duration(launching / max(launches, 1))} each, "
        f"and the GPU needs {wording.duration(side.devices * (side.busy.value or 0.0) / max(launches, 1))} for one.",
        evidence={
            "share": Value(waiting, "1", "derived"),
            "busy": side.busy,
            "launches": side.launches,
            "latency": side.latency,
        },
        remedies=remedies.remedies(summary, remedies.batch, remedies.compiled, remedies.graphs),
        share=waiting,
    )
