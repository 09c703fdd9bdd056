"""A rule of one's own: says when updating the weights takes a large part of a training step."""

from sonda.analysis.findings import Remark
from sonda.analysis.summary import Remedy, Summary, Value, Verdict

WORTH = 0.2
"""Of the step: from here on it is worth a sentence."""


def rule(summary: Summary) -> Verdict | None:
    """What limits the run, or nothing: what the optimizer takes does not grow with the batch."""
    part = summary.parts[0] if summary.parts else None
    step = part.step.value if part else None
    if not part or not step:
        return None
    share = sum(row.cost.time.value or 0.0 for row in part.phases if row.name == "optimizer") / step
    if share < WORTH:
        return None
    return Verdict(
        kind="updates",
        finding=Remark(f"Bound by updates: {100 * share:.0f} % of the step goes to the optimizer, whatever the batch."),
        evidence={"share": Value(share, "1", "derived")},
        remedies=(Remedy(Remark("a larger batch, or several batches for each update")),),
        share=share,
    )
