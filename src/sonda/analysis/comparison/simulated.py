"""Comparing simulated runs: cycles are exact, so there is nothing to estimate and every difference counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sonda.analysis.comparison.findings import (
    DifferingClocks,
    DifferingDescriptions,
    ExactCycles,
    OtherEngines,
    SimulatedEnergies,
    SimulatedTraffic,
)
from sonda.analysis.comparison.summary import ComparedRow, Comparison, PartComparison, describe, lonely
from sonda.analysis.findings import Finding
from sonda.analysis.summary import PartSummary, SimulatedCost, Summary, Value
from sonda.analysis.titles import describe_engine
from sonda.record.errors import SondaError
from sonda.record.simulated import DescribedAccelerator, DescribedEngine
from sonda.record.stored import Number, plain
from sonda.record.target import SimulatedTarget, Target

EXACT = "exact, simulated"
EQUAL = "equal"
BESIDES = ("name", "notes")
"""What a description says that does not change what is simulated."""


def compare_simulated(a: Summary, b: Summary) -> Comparison:
    """B against A, in cycles: the step, its phases and its layers.

    Raises SondaError when nothing ran on an engine on one side.
    """
    part_a, part_b = a.parts[0], b.parts[0]
    whole_a, whole_b = part_a.simulated, part_b.simulated
    if whole_a is None or whole_b is None:
        idle = a.run if whole_a is None else b.run
        raise SondaError(f"nothing of {idle} ran on an engine", "there are no cycles to compare")

    def row(name: str, path: str, left: SimulatedCost, right: SimulatedCost) -> ComparedRow:
        ratio = (right.cycles.value or 0.0) / (left.cycles.value or 1.0)
        changed = left.cycles.value != right.cycles.value
        text = describe(ratio) if changed else EQUAL
        return ComparedRow(name, path, left.cycles, right.cycles, Value(ratio, "1", "derived", reason=EXACT),
                           changed, text)  # fmt: skip

    phases_a, phases_b = _phases(part_a), _phases(part_b)
    layers_a, layers_b = _layers(part_a), _layers(part_b)
    step = row("step", "", whole_a, whole_b)
    part = PartComparison(
        name=part_a.name,
        step=step,
        phases=tuple(
            row(name, "", left_row, phases_b[name]) for name, left_row in phases_a.items() if name in phases_b
        ),
        layers=tuple(
            row(key[1], key[0], left_row, layers_b[key]) for key, left_row in layers_a.items() if key in layers_b
        ),
        only_a=lonely(phases_a, phases_b, layers_a, layers_b),
        only_b=lonely(phases_b, phases_a, layers_b, layers_a),
    )
    slowdown = (step.ratio.value or 0.0) - 1
    return Comparison(
        a=(a.run,),
        b=(b.run,),
        parts=(part,),
        slowdown=Value(slowdown, "1", "derived", slowdown, slowdown),
        warnings=(),
        notes=tuple(_notes(a, b, whole_a, whole_b)),
        exact=True,
    )


def cycles_of(summary: Summary) -> tuple[float | None, ...]:
    """Of the step and every layer: runs that are the same have them equal."""
    part = summary.parts[0]
    whole = part.simulated.cycles.value if part.simulated else None
    return whole, *(layer.cycles.value for layer in _layers(part).values())


def _phases(part: PartSummary) -> dict[str, SimulatedCost]:
    return {row.name: row.simulated for row in part.phases if row.simulated is not None}


def _layers(part: PartSummary) -> dict[tuple[str, str], SimulatedCost]:
    """By path and class, modules inside included."""
    return {(row.path, row.name): row.simulated for row in part.layers if row.simulated is not None}


def _notes(a: Summary, b: Summary, left: SimulatedCost, right: SimulatedCost) -> list[Finding]:
    notes: list[Finding] = [ExactCycles(), *_differing_fields(a.target, b.target)]
    clock_a, clock_b = (_clock(summary.target) for summary in (a, b))
    if clock_a != clock_b:
        notes.append(DifferingClocks(clock_a, clock_b))
    if left.energy.value is not None and right.energy.value is not None:
        notes.append(SimulatedEnergies(left.energy, right.energy))
    if left.traffic is not None and right.traffic is not None:
        moved = [
            (traffic.reads.value or 0.0) + (traffic.writes.value or 0.0) for traffic in (left.traffic, right.traffic)
        ]
        notes.append(SimulatedTraffic(*moved))
    return notes


def _differing_fields(a: Target, b: Target) -> list[Finding]:
    """Fields in which accelerators differ; engines that only one of them has are named as a whole."""
    engines = [_engines(target) for target in (a, b)]
    lonely = [[name for name in here if name not in there] for here, there in (engines, engines[::-1])]
    findings: list[Finding] = []
    if any(lonely):
        own = [
            tuple((name, describe_engine(of[name])) for name in names)
            for of, names in zip(engines, lonely, strict=True)
        ]
        findings.append(OtherEngines(*own))
    left, right = (
        _without(_flat({**_description(target), "mapping": _rule(target)}), names)
        for target, names in zip((a, b), lonely, strict=True)
    )
    names = [name for name in dict.fromkeys([*left, *right]) if left.get(name) != right.get(name)]
    if any(lonely):
        names = [name for name in names if not name.startswith("route.")]
    if names:
        fields = tuple((name, _word(left.get(name)), _word(right.get(name))) for name in names)
        findings.append(DifferingDescriptions(fields))
    return findings


def _without(fields: Mapping[str, Any], engines: Iterable[str]) -> dict[str, Any]:
    """Fields that stand in none of these engines."""
    return {name: value for name, value in fields.items() if name.partition(".")[0] not in engines}


def _described(target: Target) -> DescribedAccelerator | None:
    return target.description if isinstance(target, SimulatedTarget) else None


def _clock(target: Target) -> Number | None:
    description = _described(target)
    return description.clock_hz if description is not None else None


def _engines(target: Target) -> dict[str, DescribedEngine]:
    description = _described(target)
    return description.engines if description is not None else {}


def _description(target: Target) -> dict[str, Any]:
    description = _described(target)
    if description is None:
        return {}
    return {name: value for name, value in plain(description).items() if name not in BESIDES}


def _rule(target: Target) -> str:
    options = target.options if isinstance(target, SimulatedTarget) else None
    return (options.mapping if options is not None else "") or "as described"


def _flat(tables: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """`{"engines": {"dense": {"hardware": {"rows": 8}}}}` -> `{"dense.rows": 8}`."""
    flat: dict[str, Any] = {}
    for name, value in tables.items():
        inside = before if name in ("engines", "hardware") else f"{before}{name}"
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{inside}." if inside and not inside.endswith(".") else inside)
        else:
            flat[inside] = value
    return flat


def _word(value: Any) -> str:
    return "none" if value is None or value == "" else str(value)
