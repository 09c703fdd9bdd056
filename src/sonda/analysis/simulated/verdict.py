"""The verdict of a simulated run: which layers take most cycles, what these are spent on, what more would bring."""

from __future__ import annotations

from sonda.analysis import reasons
from sonda.analysis.bounds import BoundedRatio
from sonda.analysis.findings import Finding
from sonda.analysis.layer_families import family_of
from sonda.analysis.simulated.findings import (
    CycleBound,
    DesignChange,
    NoGain,
    NothingOnEngines,
    UnknownGain,
    WidenBound,
)
from sonda.analysis.summary import PartSummary, Remedy, SimulatedCost, Value, Verdict
from sonda.record.simulated import WhatIf
from sonda.record.target import SimulatedTarget


def verdict_of(part: PartSummary, target: SimulatedTarget) -> Verdict:
    """The family of layers that takes most cycles, and what most of its cycles are spent on."""
    families: dict[str, list[SimulatedCost]] = {}
    for row in part.layers:
        if row.own_simulated is not None:
            families.setdefault(family_of(row.name), []).append(row.own_simulated)
    whole = part.simulated
    if whole is None or not families:
        accelerator = target.description.name if target.description is not None else ""
        return Verdict("none", NothingOnEngines(accelerator), {})
    name, members = max(families.items(), key=lambda item: sum(member.share for member in item[1]))
    share = sum(member.share for member in members)
    cycles = sum(member.cycles.value or 0.0 for member in members)
    stack = {part: sum(member.stack[part].value or 0.0 for member in members) for part in members[0].stack}
    bound = max(stack, key=lambda part: stack[part])
    busy = sum(member.multiplications.value or 0.0 for member in members)
    room = sum(member.possible for member in members)
    useful = BoundedRatio(Value(busy / room if room else 0.0, "1", "derived")).value(reasons.MORE_PRODUCTS)
    evidence = {
        "share": Value(share, "1", "derived"),
        "spent": Value(stack[bound] / cycles, "1", "derived"),
        "utilisation": useful,
        "cycles": whole.cycles,
    }
    if bound == "memory" and whole.traffic is not None:
        evidence |= {"dram_reads": whole.traffic.reads, "dram_writes": whole.traffic.writes,
                     "row_hits": whole.traffic.row_hits}  # fmt: skip
    finding = CycleBound(bound, name, share, whole.cycles, stack[bound] / cycles, useful)
    return Verdict(bound, finding, evidence, _remedies(target, bound, whole.cycles.value or 0.0), share)


def _remedies(target: SimulatedTarget, bound: str, cycles: float) -> tuple[Remedy, ...]:
    """The what-ifs that were simulated with the run and brought something, those that brought most first."""
    remedies = [
        Remedy(_change(change, target), (), Value(cycles / change.cycles, "1", "simulated"))
        for change in target.what_if or ()
        if change.cycles and _gains(change.cycles, cycles)
    ]
    remedies.sort(key=lambda remedy: -((remedy.speedup.value or 0.0) if remedy.speedup else 0.0))
    untried = () if target.what_if else (Remedy(WidenBound(bound)),)
    return tuple(remedies) or untried


def what_if_notes(target: SimulatedTarget, cycles: float) -> tuple[Finding, ...]:
    """The what-ifs that brought nothing, or were not simulated."""
    notes: list[Finding] = []
    for change in target.what_if or ():
        if not change.cycles:
            notes.append(UnknownGain(_change(change, target), change.reason or ""))
        elif not _gains(change.cycles, cycles):
            notes.append(NoGain(_change(change, target), cycles / change.cycles))
    return tuple(notes)


def _gains(changed: float, cycles: float) -> bool:
    """Whether a change saves one cycle in two hundred or more: less would be shown as 1.00x."""
    return cycles / changed >= 1.005


def _change(what_if: WhatIf, target: SimulatedTarget) -> DesignChange:
    besides = target.options is not None and bool(target.options.set)
    return DesignChange(what_if.words or "", what_if.mapping or "", what_if.set or "", besides)
