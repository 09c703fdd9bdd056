"""Waiting: a training neither computes nor loads through a loader; it waits for a file, a socket, a lock, a sleep."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.rules.input import ALWAYS
from sonda.analysis.rules.work import WORTH, explained, first_part, waiting_share
from sonda.analysis.summary import Remedy, Summary, Value, Verdict

LOADER = Remedy("read in workers, while this process computes: torch.utils.data.DataLoader(dataset, num_workers=2)")
THREAD = Remedy("make the next batch in a thread while this one computes")


def rule(summary: Summary) -> Verdict | None:
    """Fires as for input: at more than a fifth of the step, or a tenth and more than any other limit."""
    part = first_part(summary)
    waiting = waiting_share(summary, part) if part is not None else 0.0
    if part is None or not (waiting > ALWAYS or (waiting >= WORTH and waiting >= max(explained(part).values()))):
        return None
    spent = Value(waiting * sum(part.durations) / len(part.durations), "ns", "derived")
    return Verdict(
        kind="waiting",
        sentence=f"The program waits for {wording.percent(waiting)} of the steps' time "
        f"({wording.duration(spent.value or 0.0)} a step) before its forward, outside of a loader: for a file, a "
        "socket, a lock, a process or a sleep.",
        evidence={"share": Value(waiting, "1", "derived"), "waits": spent},
        remedies=(LOADER, THREAD),
        share=waiting,
    )
