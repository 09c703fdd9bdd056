"""Transfer-bound: a GPU waits while its input is copied to it."""

from __future__ import annotations

from sonda.analysis.rules.advice import Change, TryChange
from sonda.analysis.rules.limits import TransferBound
from sonda.analysis.rules.work import WORTH, first_part, transfer_share
from sonda.analysis.summary import Remedy, Summary, Value, Verdict

PAGEABLE = "Pageable"
"""How CUPTI names memory that has to be copied once more before the GPU can fetch it."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when copies that nothing hides take a tenth of the step or more."""
    part = first_part(summary)
    waiting = transfer_share(part) if part else 0.0
    if part is None or waiting < WORTH:
        return None
    spent = next(row.cost.time for row in part.phases if row.name == "transfer")
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
    )
