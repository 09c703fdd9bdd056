"""Transfer-bound: a GPU waits while its input is copied to it."""

from __future__ import annotations

from sonda.analysis.rules.advice import Change, TryChange
from sonda.analysis.rules.device.device_lines import TO_DEVICE, add_shares, count_at_lines, find_lines, place_of
from sonda.analysis.rules.limit_findings import TransferBound
from sonda.analysis.rules.work import WORTH, first_part, host_share, transfer_share
from sonda.analysis.summary import Remedy, Summary, Value, Verdict

PAGEABLE = "Pageable"
"""How CUPTI names memory that has to be copied once more before the GPU can fetch it."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when copies that nothing hides take a tenth of the step or more."""
    part = first_part(summary)
    if part is None or part.device is None:
        return None
    counts = count_at_lines(summary, TO_DEVICE)
    lines = find_lines(summary, counts)
    # Copies outside of the phase are known by their lines; no more is lost in them than the GPU computes nothing.
    waiting = max(transfer_share(part), min(add_shares(lines), host_share(part)))
    if waiting < WORTH:
        return None
    spent = next((row.cost.time for row in part.phases if row.name == "transfer"), None)
    if spent is None or transfer_share(part) < waiting:
        spent = Value(waiting * (part.step.value or 0.0), "ns", "derived")
    place = place_of(lines, counts)
    work = summary.device_work
    copies = [kernel for kernel in work.kernels if kernel.kind == "copy"] if work is not None else []
    pageable = any(PAGEABLE in copy.name for copy in copies)
    pinned = summary.workload.pin and not summary.target.spec
    change = Change.COPY_MEANWHILE
    if pageable:
        change = Change.COPY_FROM_PINNED if pinned else Change.PIN_AND_COPY
    share = Value(waiting, "1", "derived")
    return Verdict(
        kind="transfer",
        finding=TransferBound(share, spent, pageable),
        evidence={"share": share, "transfer": spent},
        remedies=(Remedy(TryChange(change)),),
        share=waiting,
        place=place if place.line else None,
    )
