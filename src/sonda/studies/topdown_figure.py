"""What a study's table can show of Top-Down: the share of a category, of the whole step or of a phase.

The definition that a run was counted with stands in the run, so its formulas are those of the machine that it ran on.
"""

from __future__ import annotations

import math

from sonda.analysis.summary import Summary, Value
from sonda.record.errors import SondaError
from sonda.record.topdown import read_definition
from sonda.studies.counted_figure import counters_at, why_not

CATEGORIES = (
    "retiring", "bad_speculation", "frontend_bound", "backend_bound", "smt_contention", "memory_bound", "core_bound",
    "fetch_latency", "fetch_bandwidth", "branch_mispredicts", "machine_clears", "heavy_operations", "light_operations",
)  # fmt: skip
"""Categories that the tables of microarchitectures share; those that only one has are in its runs."""
TOPDOWN = dict.fromkeys(CATEGORIES, ("1", None))


def topdown_value(summary: Summary, metric: str, path: str = "") -> Value:
    """The share of a category, 0 to 1; missing with a reason where the run or the machine does not have it."""
    found, reason = counters_at(summary, path)
    table = summary.target.get("topdown")
    if not table or reason:
        return _missing(reason or why_not(summary, hardware=True))
    try:
        definition = read_definition(table)
    except SondaError as error:
        return _missing(error.cause)
    if metric not in {category.name for category in definition.categories}:
        return _missing(f"{definition.name} has no {metric.replace('_', ' ')}")
    # Events that counted a part of the time are estimates, and no ratio is made of them.
    known: dict[str, float] = {"width": definition.width}
    known |= {name.removesuffix(":counted"): value.value for name, value in found.items()
              if name.endswith(":counted") and value.value is not None}  # fmt: skip
    for name, formula in definition.parsed().items():
        lacking = [one for one in formula.names if one not in known]
        if not lacking:
            known[name] = float(formula.value(known))
        elif name == metric:
            return _missing(f"{lacking[0]} was not counted all the time")
    share = known[metric]
    return Value(share, "1", "derived") if math.isfinite(share) else _missing("nothing was counted")


def _missing(reason: str) -> Value:
    return Value(None, "1", "derived", reason=reason)
