"""What a study can show of devices that train together: what was foretold before the first step, what ranks did.

`work_ms@1` is the work of the second rank in a step, `wait_ms@1` what it waited for others; its share of the batch is
`samples_share_percent@1`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sonda.analysis.summary import Summary, Value

FORETOLD = frozenset({"communication"})
"""Times that were not measured as such: of a step's exchanges, each measured before, times how many it has."""
ALONE = "one device has nobody to share with"


def parallel_value(summary: Summary, metric: str, path: str = "") -> Value:
    """A metric in the unit in which Sonda keeps it; missing with a reason where the run does not have it."""
    unit, read = PARALLEL[metric]
    found = read(summary.target, path)
    if isinstance(found, str):
        return Value(None, unit, "measured", reason=found)
    return Value(found, unit, "derived" if unit == "1" or metric in FORETOLD else "measured")


Read = Callable[[Mapping[str, Any], str], float | str]


def _foretold(read: Callable[[Mapping[str, Any]], float]) -> Read:
    def value(target: Mapping[str, Any], path: str) -> float | str:
        outlook = target.get("outlook")
        if not isinstance(outlook, Mapping):
            return ALONE if not target.get("mode") else f"{target['mode']} foretells nothing"
        try:
            return read(outlook)
        except (KeyError, TypeError):  # a pipeline has no bound, and no device may hold the whole batch
            return f"{target['mode']} does not foretell it"

    return value


def _of_rank(name: str) -> Read:
    """What a rank kept: the first where the path names none."""

    def value(target: Mapping[str, Any], path: str) -> float | str:
        ranks = [one for one in target.get("ranks", ()) if "samples" in one]
        mine = next((one for one in ranks if str(one["rank"]) == (path or "0")), None)
        if mine is None:
            return f"rank {path or 0} did not train" if ranks else ALONE
        if name == "samples":
            return float(mine["samples"] / sum(one["samples"] for one in ranks))
        return float(mine[name]) if name in mine else "only the device knows how long its steps took"

    return value


PARALLEL: dict[str, tuple[str, Read]] = {
    "load_factor": ("1", _foretold(lambda outlook: max(outlook["alone_ns"]) / min(outlook["alone_ns"]))),
    "bound_speedup": ("1", _foretold(lambda outlook: float(outlook["bound"]))),
    "predicted_speedup": ("1", _foretold(lambda outlook: float(outlook["speedup"]))),
    "communication": ("ns", _foretold(lambda outlook: float(outlook["communication_ns"]))),
    "all_reduce": ("ns", _foretold(lambda outlook: float(outlook["all_reduce_ns"]))),
    "work": ("ns", _of_rank("worked_ns")),
    "wait": ("ns", _of_rank("waited_ns")),
    "samples_share": ("1", _of_rank("samples")),
}
"""`load_factor` is F: how many times slower the slowest device is than the fastest with the whole batch.
`bound_speedup` is 1 + 1/F for two devices, `predicted_speedup` counts communication too; both against the fastest."""
