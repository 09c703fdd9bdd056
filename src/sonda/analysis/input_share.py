"""The most that options of the input can bring, by what waiting for data takes of a step.

Loading ahead, sharing the loading and keeping what was decoded remove waiting for data, and nothing else: a step of
which it takes the share s becomes at most 1 / (1 - s) times as fast (G. M. Amdahl, AFIPS Conference Proceedings 30,
1967). That is known also where the difference itself is lost in noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sonda.analysis.summary import Summary

OF_INPUT = frozenset({"workers", "prefetch", "cache"})
"""Settings that change how data are loaded, and nothing else."""
LOADS_AHEAD = "tensorflow"
"""The framework that loads ahead unless it is told not to."""


def most_by_input(base: Sequence[Summary], changes: Mapping[str, object]) -> float | None:
    """How many times as fast the base can become by settings of the input alone, taken from the process in which data
    took the largest share.

    None where other settings change too, where the base loads ahead (what is loaded beside a step slows it, which is
    in no wait), or where its steps have no data.
    """
    if not changes or not OF_INPUT.issuperset(changes) or any(_ahead(one) for one in base):
        return None
    shares = [share for one in base if (share := _share(one)) is not None]
    return 1 / (1 - max(shares)) if shares and max(shares) < 1 else None


def _ahead(one: Summary) -> bool:
    prefetch = one.workload.get("prefetch")
    by_itself = prefetch is None and one.workload.get("framework") == LOADS_AHEAD
    return bool(one.workload.get("workers") or prefetch or by_itself)


def _share(one: Summary) -> float | None:
    part = one.parts[0] if one.parts else None
    if part is None or not part.step.value:
        return None
    waits = [wait for row in part.phases if row.name == "data" and (wait := (row.host or row.cost.time).value)]
    return sum(waits) / part.step.value if waits else None
