"""What a study can show of counters: of a whole step, of a phase (`ipc@forward`), of a layer (`ipc@features.0`).

A layer's counts are without the layers inside it. What the operating system counts is always there, of steps and
phases; the rest needs a PMU, and says why where there is none. `changes` is how often the time of a step changed for
longer than a moment, a drift counting once; `changes@IPC` that of another quantity over the steps.
"""

from __future__ import annotations

from collections.abc import Callable

from sonda.analysis import reasons
from sonda.analysis.counters.summary import Counted, Slots
from sonda.analysis.doubts import why_silent
from sonda.analysis.summary import PartSummary, Summary, Value
from sonda.record.quantities import QUANTITIES
from sonda.record.spans import PHASES

SYSTEM = ("task_clock", "page_faults", "context_switches", "cpu_migrations", "run_queue_wait")
MISSES = ("longest_lat_cache_miss", "cache_misses")
"""Events that count misses of the last level, as tables and `--probe pmu:cache-misses` name them."""
CATEGORIES = (
    "retiring", "bad_speculation", "frontend_bound", "backend_bound", "smt_contention", "memory_bound", "core_bound",
    "fetch_latency", "fetch_bandwidth", "branch_mispredicts", "machine_clears", "heavy_operations", "light_operations",
)  # fmt: skip
"""Categories of Top-Down that the tables of microarchitectures share; those that only one has are in its runs."""
STEP = "step time"


def counted_value(summary: Summary, metric: str, path: str = "") -> Value:
    """A metric in the unit in which Sonda keeps it; missing with a reason where the run does not have it."""
    return COUNTED[metric][1](summary, path)


def _system(quantity: str, source: str = "counted") -> Callable[[Summary, str], Value]:
    unit = QUANTITIES[quantity].unit

    def read(summary: Summary, path: str) -> Value:
        part = summary.parts[0]
        phases = {phase.name: phase.counters for phase in part.phases}
        if path and path not in phases:
            return Value(None, unit, source, reason=_nowhere(part, path, reasons.PHASES_ONLY))
        counted = (phases[path] if path else part.counters).get(f"{quantity}:{source}")
        if counted is not None and counted.value is not None:
            return counted
        return Value(None, unit, source, reason=why_silent(summary.notes, "os") or reasons.PHASES_TOO_SHORT_TO_COUNT)

    return read


def _hardware(read: Callable[[Counted], Value | None]) -> Callable[[Summary, str], Value]:
    def value(summary: Summary, path: str) -> Value:
        part = summary.parts[0]
        if part.counted is None:
            return Value(None, "1", "counted", reason=why_not_counted(summary))
        place = part.counted.step if not path else (part.counted.phases | part.counted.layers).get(path)
        if place is None:
            return Value(None, "1", "counted", reason=_nowhere(part, path, reasons.NOT_COUNTED_THERE))
        return read(place) or Value(None, "1", "counted", reason=reasons.IT_WAS_NOT_COUNTED)

    return value


def _misses(place: Counted) -> Value | None:
    return next((place.per_thousand[name] for name in MISSES if name in place.per_thousand), None)


def _category(name: str) -> Callable[[Summary, str], Value]:
    def value(summary: Summary, path: str) -> Value:
        part = summary.parts[0]
        if part.topdown is None:
            return Value(None, "1", "derived", reason=why_not_counted(summary))
        place: Slots | None = part.topdown.step if not path else (part.topdown.phases | part.topdown.layers).get(path)
        if place is None:
            return Value(None, "1", "derived", reason=_nowhere(part, path, reasons.NOT_COUNTED_THERE))
        if name not in place.shares:
            words = name.replace("_", " ")
            return Value(None, "1", "derived", reason=reasons.NO_CATEGORY.format(part.topdown.definition.name, words))
        return place.shares[name].value

    return value


def _changes(summary: Summary, path: str) -> Value:
    over = summary.parts[0].over_time
    series = [curve for curve in over.series if curve.name == (path or STEP)] if over is not None else []
    if not series:
        return Value(None, "1", "derived", reason=reasons.NO_SERIES.format(path or STEP))
    return Value(float(len(series[0].changes) + (series[0].drift is not None)), "1", "derived")


def why_not_counted(summary: Summary) -> str:
    """Why hardware counters are missing: a run's notes name the probes that counted nothing, with their reasons."""
    return why_silent(summary.notes, "pmu") or reasons.NO_PMU


def _nowhere(part: PartSummary, path: str, otherwise: str) -> str:
    if path in PHASES:
        return reasons.NO_PHASE.format(path)
    return otherwise if any(layer.path == path for layer in part.layers) else reasons.NO_MODULE


COUNTED: dict[str, tuple[str, Callable[[Summary, str], Value]]] = {
    **{name: (QUANTITIES[name].unit, _system(name)) for name in SYSTEM},
    "resident_memory": ("B", _system("resident_memory", "measured")),
    "instructions": ("1", _hardware(lambda place: place.counters.get("instructions"))),
    "ipc": ("1", _hardware(lambda place: place.ipc)),
    "mpki": ("1", _hardware(_misses)),
    **{name: ("1", _category(name)) for name in CATEGORIES},
    "changes": ("1", _changes),
}
"""Metrics of counters: the unit in which each is kept, and how it is read off a summary at a phase or layer."""
