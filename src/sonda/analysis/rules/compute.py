"""Compute-bound: arithmetic near the peak explains the time."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.roofline import ABOVE_ROOF
from sonda.analysis.rules import remedies
from sonda.analysis.rules.work import WORTH, bound_by, families, first_part, leading, reached, share
from sonda.analysis.summary import Summary, Value, Verdict


def rule(summary: Summary) -> Verdict | None:
    """Fires when layers or phases bound by arithmetic take a tenth of the step or more."""
    part = first_part(summary)
    bounded = bound_by(part, "compute") if part else []
    if share(bounded) < WORTH:
        return None
    named = leading(bounded)
    of_peak = reached(named, "compute")
    peak = f"this {_device(summary)}'s peak"
    return Verdict(
        kind="compute",
        sentence=f"Compute-bound in {families(named)}: {wording.percent(share(named))} of the step at "
        f"{wording.of_ceiling(of_peak, peak)}.",
        evidence={
            "share": Value(share(named), "1", "derived"),
            "of_peak": of_peak.value(ABOVE_ROOF),
            "peak": summary.ceilings["flops"],
        },
        remedies=remedies.remedies(
            summary, remedies.float32, remedies.threads, remedies.channels_last, remedies.bfloat16
        ),
        share=share(bounded),
    )


def _device(summary: Summary) -> str:
    return "GPU" if summary.target.device.startswith("cuda") else "CPU"
