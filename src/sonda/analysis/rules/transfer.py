"""Transfer-bound: a GPU waits while its input is copied to it."""

from __future__ import annotations

from sonda.analysis import wording
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
    whence = " from pageable memory" if pageable else ""
    pinned = summary.workload.pin and not summary.target.spec
    advice = (
        (Remedy("copy from pinned memory only, and without waiting: tensor.to(device, non_blocking=True)"),)
        if pageable and pinned
        else (Remedy("pin the batches' memory and copy them without waiting: DataLoader(pin_memory=True), "
                     "tensor.to(device, non_blocking=True)"),)
        if pageable
        else (Remedy("copy the next batch while this one is computed, on a stream of its own"),)
    )  # fmt: skip
    return Verdict(
        kind="transfer",
        sentence=f"Transfer-bound: copying input to the GPU{whence} takes {wording.percent(waiting)} of the step "
        f"({wording.duration(spent.value or 0.0)}), in which it computes nothing.",
        evidence={"share": Value(waiting, "1", "derived"), "transfer": spent},
        remedies=advice,
        share=waiting,
    )
