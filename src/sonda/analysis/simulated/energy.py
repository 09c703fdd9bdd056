"""What a reader of a simulated run's energy and area must know: the table, what it lacks, and what nobody verified."""

from __future__ import annotations

from sonda.analysis import reasons
from sonda.analysis.findings import Finding
from sonda.analysis.simulated.findings import (
    ImplausibleTable,
    NoArea,
    NoSimulatedEnergy,
    SimulatedArea,
    SimulatedEnergy,
    UsedEnergyTable,
)
from sonda.analysis.summary import TABLES, Value
from sonda.record.simulated import AreaTaken, BoundedAmount, EnergySpent
from sonda.record.target import SimulatedTarget

STATIC = "STATIC"


def energy_notes(target: SimulatedTarget) -> tuple[Finding, ...]:
    """Where the energy went and where its numbers come from, then the areas; nothing for a run without energy."""
    energy = target.energy
    if energy is None:
        return ()
    return (_where(energy), _table(energy), *_areas(target.area))


def energy_warnings(target: SimulatedTarget) -> tuple[Finding, ...]:
    """Why a table is not to be believed, where it is not."""
    energy = target.energy
    if energy is None or not energy.implausible:
        return ()
    return (ImplausibleTable(energy.table or "", energy.implausible),)


def _value(figure: BoundedAmount, unit: str) -> Value:
    return Value(figure.value, unit, "simulated", figure.low, figure.high, bounds=TABLES)


def _where(energy: EnergySpent) -> Finding:
    total, parts = energy.total, energy.parts or {}
    if total is None or total.value is None or total.low is None or total.high is None:
        return NoSimulatedEnergy(energy.reason or reasons.OTHER_VERSION)
    if energy.unit != "J":
        return NoSimulatedEnergy(str(energy.reason), _value(total, ""))
    shares = sorted(
        ((part.value / (total.value or 1.0), name) for name, part in parts.items() if part.value),
        reverse=True,
    )
    return SimulatedEnergy(_value(total, "J"), tuple((name, share) for share, name in shares))


def _table(energy: EnergySpent) -> Finding:
    static = [name for name in energy.missing or () if STATIC in name.split()]
    return UsedEnergyTable(
        table=energy.table or "",
        nodes=tuple(node for node in energy.nodes or () if node != "not stated"),
        assumed_buffer=energy.buffer_bytes if energy.buffer_assumed and energy.buffer_bytes else None,
        dram=energy.dram or "",
        lacking=tuple(name for name in energy.missing or () if STATIC not in name.split()),
        static=tuple(dict.fromkeys(name.split()[0] for name in static)),
        no_clock=any("clock" in name for name in static),
        recalled=tuple(energy.recalled or ()),
    )


def _areas(areas: AreaTaken | None) -> list[Finding]:
    if areas is None:
        return []
    together, parts = areas.together, dict(areas.engines or {})
    if not parts or together is None:
        return [NoArea(reasons.OTHER_VERSION)]
    if areas.global_buffer is not None:
        parts["global buffer"] = areas.global_buffer
    known = {name: part for name, part in parts.items() if part.value is not None}
    if together.value is not None and (together.low is None or together.high is None):
        return [NoArea(reasons.OTHER_VERSION)]
    findings: list[Finding] = []
    if known and together.value is not None:
        findings.append(
            SimulatedArea(
                parts=tuple((name, area.value or 0.0) for name, area in known.items()),
                together=_value(together, "mm²"),
                lacking=tuple(dict.fromkeys(part for area in known.values() for part in area.missing or ())),
                recalled=tuple(dict.fromkeys(part for area in known.values() for part in area.recalled or ())),
            )
        )
    lacking: dict[str, list[str]] = {}
    for name, part in parts.items():
        if part.value is None:
            lacking.setdefault(part.reason or reasons.OTHER_VERSION, []).append(name)
    return [*findings, *(NoArea(reason, tuple(names)) for reason, names in lacking.items())]
