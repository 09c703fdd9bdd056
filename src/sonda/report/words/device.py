"""Words for counters of kernels."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.device.findings import CountedUnlikeNominal
from sonda.report.words.describe import describe

MULTIPLYING = ("convolution", "linear layer", "attention", "Dot")
"""Families whose FLOPs are those of products of matrices."""
CALLING = ("activation", "softmax", "Sigmoid", "Tanh", "loss", "normalisation")
"""Families that call functions which the device makes of several multiply-adds."""


@describe.register
def _(finding: CountedUnlikeNominal) -> str:
    several, ratio = finding.places > 1, finding.ratio
    who = f"{finding.places} {finding.name} count" if several else f"{finding.name} counts"
    times = f"{ratio:.2f}" if ratio < 1 else f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"
    counted, nominal = wording.amount(finding.counted, "FLOP"), wording.amount(finding.nominal, "FLOP")
    because = _because(finding.name, ratio) if finding.layer else ""
    return (
        f"{who} {times} times {'their' if several else 'its'} nominal FLOPs ({counted} where formulas have {nominal})"
        f"{because}"
    )


def _because(name: str, ratio: float) -> str:
    """A reason that fits, or ''."""
    family = wording.family(name, 1)
    if ratio < 1:
        if family == "convolution":
            return ": a transform such as Winograd's needs fewer multiplications"
        return ": the rest is not counted as FLOPs (special functions, comparisons, integers)"
    if name == "Add":
        return ": a + alpha · b is a multiply-add of two"
    if family in MULTIPLYING or name in MULTIPLYING:
        return ": tiles at the edges are filled up, or parts are computed twice"
    if family in CALLING or name in CALLING:
        return ": a function such as exp is one in a formula and several multiply-adds on the device"
    return ""
