"""The verdict of a simulated run: which layers take most cycles, what these are spent on, what more would bring."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.bounds import BoundedRatio
from sonda.analysis.findings import Remark
from sonda.analysis.summary import PartSummary, Remedy, Simulated, Value, Verdict
from sonda.record.simulated import WhatIf
from sonda.record.target import SimulatedTarget

SPENT = {
    "distribution": "spent bringing operands to the multipliers",
    "compute": "spent multiplying",
    "reduction": "spent adding up products",
    "writeback": "spent writing results back",
    "configuration": "spent setting the engine up",
    "memory": "spent waiting for the memory behind the global buffer",
}
MORE_PRODUCTS = "more products than its multipliers can compute in its cycles"
UNTRIED = {
    "distribution": "more read ports",
    "compute": "more multipliers",
    "reduction": "more write ports",
    "writeback": "more write ports",
    "configuration": "larger tiles",
    "memory": "a larger global buffer or more bandwidth",
}
"""What would widen the bottleneck, where the run does not say what it would bring."""


def verdict_of(part: PartSummary, target: SimulatedTarget) -> Verdict:
    """The family of layers that takes most cycles, and what most of its cycles are spent on."""
    families: dict[str, list[Simulated]] = {}
    for row in part.layers:
        if row.own_simulated is not None:
            families.setdefault(wording.family(row.name), []).append(row.own_simulated)
    whole = part.simulated
    if whole is None or not families:
        accelerator = target.description.name if target.description is not None else ""
        return Verdict("none", Remark(f"Nothing to judge: no operation ran on an engine of {accelerator}."), {})
    name, members = max(families.items(), key=lambda item: sum(member.share for member in item[1]))
    share = sum(member.share for member in members)
    cycles = sum(member.cycles.value or 0.0 for member in members)
    stack = {part: sum(member.stack[part].value or 0.0 for member in members) for part in members[0].stack}
    bound = max(stack, key=lambda part: stack[part])
    busy = sum(member.multiplications.value or 0.0 for member in members)
    room = sum(member.possible for member in members)
    useful = BoundedRatio(Value(busy / room if room else 0.0, "1", "derived")).value(MORE_PRODUCTS)
    evidence = {
        "share": Value(share, "1", "derived"),
        "spent": Value(stack[bound] / cycles, "1", "derived"),
        "utilisation": useful,
        "cycles": whole.cycles,
    }
    if bound == "memory" and whole.traffic is not None:
        evidence |= {"dram_reads": whole.traffic.reads, "dram_writes": whole.traffic.writes,
                     "row_hits": whole.traffic.row_hits}  # fmt: skip
    sentence = (
        f"{bound.capitalize()}-bound in the {name}: {wording.percent(share)} of "
        f"{wording.plural(whole.cycles.value or 0.0, 'cycle')}, {wording.percent(stack[bound] / cycles)} of them "
        f"{SPENT[bound]}"
    )
    if useful.value is not None:
        sentence += f"; the multipliers do useful work {wording.percent(useful.value)} of the time"
    sentence += "."
    return Verdict(bound, Remark(sentence), evidence, _remedies(target, bound, whole.cycles.value or 0.0), share)


def _remedies(target: SimulatedTarget, bound: str, cycles: float) -> tuple[Remedy, ...]:
    """The what-ifs that were simulated with the run and brought something, those that brought most first."""
    remedies = [
        Remedy(Remark(_change(change, target)), (), Value(cycles / change.cycles, "1", "simulated"))
        for change in target.what_if or ()
        if change.cycles and _gains(change.cycles, cycles)
    ]
    remedies.sort(key=lambda remedy: -((remedy.speedup.value or 0.0) if remedy.speedup else 0.0))
    untried = () if target.what_if else (Remedy(Remark(UNTRIED[bound])),)
    return tuple(remedies) or untried


def what_if_notes(target: SimulatedTarget, cycles: float) -> tuple[str, ...]:
    """The what-ifs that brought nothing, or were not simulated."""
    notes = []
    for change in target.what_if or ():
        if not change.cycles:
            notes.append(f"not known what it would bring: {_change(change, target)}; {change.reason or ''}")
        elif not _gains(change.cycles, cycles):
            ratio = cycles / change.cycles
            lead = "would bring nothing" if ratio > 0.995 else "would take longer"
            notes.append(f"{lead}: {_change(change, target)}, {ratio:.2f}x (simulated)")
    return tuple(notes)


def _gains(changed: float, cycles: float) -> bool:
    """Whether a change saves one cycle in two hundred or more: less would be shown as 1.00x."""
    return cycles / changed >= 1.005


def _change(what_if: WhatIf, target: SimulatedTarget) -> str:
    if what_if.mapping:
        return f"--mapping {what_if.mapping} ({what_if.words or ''})"
    also = "also " if target.options is not None and target.options.set else ""
    return f"{also}--set {_quoted(what_if.set or '')} ({what_if.words or ''})"


def _quoted(text: str) -> str:
    return f'"{text}"' if " " in text else text
