"""What a study's table can show of a workload that ran beside others: how much it suffered, and how all fared.

`slowdown` is the workload's, `slowdown@with` that of the first of the others, `slowdown@forward` that of a phase, and
`slowdown@ways=2` that with two ways of the last-level cache to itself. `alone_ipc` and `together_ipc` are counters of
the workload, `together_ipc@with` those of the first of the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sonda.analysis import reasons
from sonda.analysis.corun.interference import Company, Interference
from sonda.analysis.summary import Summary, Value

WAYS = re.compile(r"ways=(\d+)")


def corun_value(summary: Summary, metric: str, path: str = "") -> Value:
    """A figure in the unit in which Sonda keeps it; missing with a reason where the run does not have it."""
    unit, read = CORUN[metric]
    interference = summary.corun
    if interference is None:
        return Value(None, unit, "derived", reason=reasons.NOT_TOGETHER)
    ways = WAYS.fullmatch(path)
    company: Company | None = interference.together
    if ways:
        company = _with_ways(interference, int(ways[1]))
        if company is None:
            return Value(None, unit, "derived", reason=_no_ways(interference, int(ways[1])))
    assert company is not None
    return read(interference, company, "" if ways else path)


def _with_ways(interference: Interference, count: int) -> Company | None:
    wanted = re.compile(rf"(?:.* )?{count} of \d+ ways")
    return next((company for company in interference.partitions if wanted.fullmatch(company.partition)), None)


def _no_ways(interference: Interference, count: int) -> str:
    if interference.partition_reason:
        return interference.partition_reason
    return reasons.NO_WAYS.format(count) if interference.partitions else reasons.NO_PARTITION


Read = Callable[[Interference, Company, str], Value]


def _slowdown(cpu: bool) -> Read:
    def read(interference: Interference, company: Company, path: str) -> Value:
        first, *others = interference.participants
        values = company.cpu_slowdowns if cpu else company.slowdowns
        if not path:
            return values[first]
        if path == "with":
            return values[others[0]]
        phases = {} if cpu else company.phases.get(first, {})
        return phases.get(path) or Value(None, "1", "derived", reason=reasons.NO_PHASE_BY_ITSELF.format(first, path))

    return read


def _whole_step(field: Callable[[Company], Value]) -> Read:
    def read(interference: Interference, company: Company, path: str) -> Value:
        if path:
            return Value(None, "1", "derived", reason=reasons.OF_ALL_PROGRAMS.format(path))
        return field(company)

    return read


def _step(together: bool) -> Read:
    def read(interference: Interference, company: Company, path: str) -> Value:
        first = interference.participants[0]
        return (company if together else interference.alone[first]).steps[first]

    return read


def _counter(name: str, together: bool) -> Read:
    def read(interference: Interference, company: Company, path: str) -> Value:
        first, *others = interference.participants
        who = others[0] if path == "with" else first
        counters = (company if together else interference.alone[who]).counters[who]
        return counters.get(name) or Value(None, "1", "counted", reason=reasons.NOT_COUNTED_IN_EXPERIMENT)

    return read


COUNTERS = ("ipc", "cache_misses", "page_faults", "context_switches", "waiting", "cores_used")
"""What is known of a program alone and together, see `analysis/corun/counters.py`."""

CORUN: dict[str, tuple[str, Read]] = {
    "slowdown": ("1", _slowdown(cpu=False)),
    "cpu_slowdown": ("1", _slowdown(cpu=True)),
    "weighted_speedup": ("1", _whole_step(lambda company: company.weighted_speedup)),
    "harmonic_mean": ("1", _whole_step(lambda company: company.harmonic_mean)),
    "fairness": ("1", _whole_step(lambda company: company.fairness)),
    "alone_step": ("ns", _step(together=False)),
    "together_step": ("ns", _step(together=True)),
    **{f"alone_{name}": ("1", _counter(name, together=False)) for name in COUNTERS},
    **{f"together_{name}": ("1", _counter(name, together=True)) for name in COUNTERS},
}
"""Figures of a co-run: the unit in which each is kept, and how it is read."""
