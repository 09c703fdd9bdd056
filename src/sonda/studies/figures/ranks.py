"""What a study can show of devices that train together: what was foretold before the first step, what ranks did.

`work_ms@1` is the work of the second rank in a step, `wait_ms@1` what it waited for others; its share of the batch is
`samples_share_percent@1`.
"""

from __future__ import annotations

from collections.abc import Callable

from sonda.analysis import reasons
from sonda.analysis.summary import Summary, Value
from sonda.record.target import OutlookFacts, RanksTarget, Target

FORETOLD = frozenset({"communication"})
"""Times that were not measured as such: of a step's exchanges, each measured before, times how many it has."""


def parallel_value(summary: Summary, metric: str, path: str = "") -> Value:
    """A metric in the unit in which Sonda keeps it; missing with a reason where the run does not have it."""
    unit, read = PARALLEL[metric]
    value = read(summary.target, path)
    if isinstance(value, str):
        return Value(None, unit, "measured", reason=value)
    return Value(value, unit, "derived" if unit == "1" or metric in FORETOLD else "measured")


Read = Callable[[Target, str], float | str]


def _predicted(read: Callable[[OutlookFacts], float | None]) -> Read:
    def value(target: Target, path: str) -> float | str:
        if not isinstance(target, RanksTarget):
            return reasons.NOBODY_TO_SHARE
        if target.outlook is None:
            return reasons.FORETELLS_NOTHING.format(target.mode)
        foretold = read(target.outlook)
        # A pipeline has no bound, and no device may hold the whole batch.
        return float(foretold) if foretold is not None else reasons.NOT_FORETOLD.format(target.mode)

    return value


def _of_rank(name: str) -> Read:
    """What a rank kept: the first where the path names none."""

    def value(target: Target, path: str) -> float | str:
        every = target.ranks if isinstance(target, RanksTarget) else []
        ranks = [rank for rank in every if rank.samples is not None]
        mine = next((rank for rank in ranks if str(rank.rank) == (path or "0")), None)
        if mine is None:
            return reasons.RANK_DID_NOT_TRAIN.format(path or 0) if ranks else reasons.NOBODY_TO_SHARE
        if name == "samples":
            return (mine.samples or 0) / sum(rank.samples or 0 for rank in ranks)
        time: float | None = getattr(mine, name)
        return float(time) if time is not None else reasons.ONLY_DEVICE_KNOWS

    return value


def _load_factor(outlook: OutlookFacts) -> float | None:
    alone = [time for time in outlook.alone_ns or () if time is not None]
    return max(alone) / min(alone) if alone and len(alone) == len(outlook.alone_ns or ()) else None


PARALLEL: dict[str, tuple[str, Read]] = {
    "load_factor": ("1", _predicted(_load_factor)),
    "bound_speedup": ("1", _predicted(lambda outlook: outlook.bound)),
    "predicted_speedup": ("1", _predicted(lambda outlook: outlook.speedup)),
    "communication": ("ns", _predicted(lambda outlook: outlook.communication_ns)),
    "all_reduce": ("ns", _predicted(lambda outlook: outlook.all_reduce_ns)),
    "work": ("ns", _of_rank("worked_ns")),
    "wait": ("ns", _of_rank("waited_ns")),
    "samples_share": ("1", _of_rank("samples")),
}
"""`load_factor` is F: how many times slower the slowest device is than the fastest with the whole batch.
`bound_speedup` is 1 + 1/F for two devices, `predicted_speedup` counts communication too; both against the fastest."""
