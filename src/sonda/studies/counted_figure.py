"""What a study's table can show of counters: of a whole step, of a phase (`ipc@forward`).

What the operating system counts is always there; the rest needs a PMU, and says why where there is none.
"""

from __future__ import annotations

from collections.abc import Callable

from sonda.analysis.summary import Summary, Value
from sonda.record.quantity import QUANTITIES
from sonda.record.span import PHASES

SYSTEM = ("task_clock", "page_faults", "context_switches", "cpu_migrations", "run_queue_wait")
LEVELS = ("resident_memory",)
HARDWARE = ("instructions",)
NOT_ASKED = 'it needs a PMU: probe = "pmu"'


def counted_value(summary: Summary, metric: str, path: str = "") -> Value:
    """A metric in the unit in which Sonda keeps it; missing with a reason where the run does not have it."""
    return COUNTED[metric][1](summary, path)


def _column(quantity: str, source: str = "counted") -> Callable[[Summary, str], Value]:
    unit = QUANTITIES[quantity].unit if quantity in QUANTITIES else "1"

    def read(summary: Summary, path: str) -> Value:
        found, reason = counters_at(summary, path)
        value = found.get(f"{quantity}:{source}")
        if value is not None and value.value is not None:
            return value
        estimated = found.get(f"{quantity}:estimated")
        if estimated is not None and estimated.value is not None:
            return estimated
        hardware = quantity not in SYSTEM and quantity not in LEVELS
        return Value(None, unit, source, reason=reason or why_not(summary, hardware))

    return read


def counters_at(summary: Summary, path: str) -> tuple[dict[str, Value], str]:
    """Counters by column of a step or phase; why there are none."""
    part = summary.parts[0]
    if not path:
        return part.counters, ""
    for phase in part.phases:
        if phase.name == path:
            return phase.counters, ""
    if path in PHASES:
        return {}, f"its steps have no {path}"
    return {}, f"its steps have no phase {path}"


def why_not(summary: Summary, hardware: bool) -> str:
    """Why a counter is missing: a run's notes name the probes that counted nothing, with their reasons."""
    probe = "pmu: " if hardware else "os: "
    said = next((note.removeprefix(probe) for note in summary.notes if note.startswith(probe)), "")
    return said or (NOT_ASKED if hardware else "its phases are too short for counters to cover the step")


def _per_cycle(summary: Summary, path: str) -> Value:
    instructions, cycles = (_column(name)(summary, path) for name in ("instructions", "cycles"))
    if instructions.value is None or not cycles.value:
        return Value(None, "1", "derived", reason=instructions.reason or cycles.reason)
    return Value(instructions.value / cycles.value, "1", "derived")


COUNTED: dict[str, tuple[str, Callable[[Summary, str], Value]]] = {
    **{name: (QUANTITIES[name].unit, _column(name)) for name in (*SYSTEM, *LEVELS, *HARDWARE)},
    "ipc": ("1", _per_cycle),
}
"""Metrics of counters: the unit in which each is kept, and how it is read off a summary at a phase."""
