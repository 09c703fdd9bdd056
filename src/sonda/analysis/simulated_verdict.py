"""The verdict of a simulated run: which layers take most cycles, what these are spent on, what more would bring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sonda.analysis import wording
from sonda.analysis.summary import PartSummary, Remedy, Simulated, Value, Verdict

SPENT = {
    "distribution": "spent bringing operands to the multipliers",
    "compute": "spent multiplying",
    "reduction": "spent adding up products",
    "writeback": "spent writing results back",
    "configuration": "spent setting the engine up",
    "memory": "spent waiting for the memory behind the global buffer",
}
UNTRIED = {
    "distribution": "more read ports",
    "compute": "more multipliers",
    "reduction": "more write ports",
    "writeback": "more write ports",
    "configuration": "larger tiles",
    "memory": "a larger global buffer or more bandwidth",
}
"""What would widen the bottleneck, where the run does not say what it would bring."""


def verdict_of(part: PartSummary, target: Mapping[str, Any]) -> Verdict:
    """The family of layers that takes most cycles, and what most of its cycles are spent on."""
    families: dict[str, list[Simulated]] = {}
    for row in part.layers:
        if row.own_simulated is not None:
            families.setdefault(wording.family(row.name), []).append(row.own_simulated)
    whole = part.simulated
    if whole is None or not families:
        accelerator = (target.get("description") or {}).get("name", "")
        return Verdict("none", f"Nothing to judge: no operation ran on an engine of {accelerator}.", {})
    name, members = max(families.items(), key=lambda item: sum(one.share for one in item[1]))
    share = sum(one.share for one in members)
    cycles = sum(one.cycles.value or 0.0 for one in members)
    stack = {part: sum(one.stack[part].value or 0.0 for one in members) for part in members[0].stack}
    bound = max(stack, key=lambda part: stack[part])
    busy = sum(one.multiplications.value or 0.0 for one in members)
    room = sum(one.possible for one in members)
    evidence = {
        "share": Value(share, "1", "derived"),
        "spent": Value(stack[bound] / cycles, "1", "derived"),
        "utilisation": Value(busy / room if room else 0.0, "1", "derived"),
        "cycles": whole.cycles,
    }
    if bound == "memory" and whole.traffic is not None:
        evidence |= {"dram_reads": whole.traffic.reads, "dram_writes": whole.traffic.writes,
                     "row_hits": whole.traffic.row_hits}  # fmt: skip
    sentence = (
        f"{bound.capitalize()}-bound in the {name}: {wording.percent(share)} of "
        f"{wording.plural(whole.cycles.value or 0.0, 'cycle')}, {wording.percent(stack[bound] / cycles)} of them "
        f"{SPENT[bound]}; the multipliers do useful work "
        f"{wording.percent(evidence['utilisation'].value or 0.0)} of the time."
    )
    return Verdict(bound, sentence, evidence, _remedies(target, bound, whole.cycles.value or 0.0), share)


def _remedies(target: Mapping[str, Any], bound: str, cycles: float) -> tuple[Remedy, ...]:
    """The what-ifs that were simulated with the run and brought something, those that brought most first."""
    found = [
        Remedy(_change(one, target), (), Value(cycles / one["cycles"], "1", "simulated"))
        for one in target.get("what_if") or ()
        if _gains(one, cycles)
    ]
    found.sort(key=lambda remedy: -((remedy.speedup.value or 0.0) if remedy.speedup else 0.0))
    untried = () if target.get("what_if") else (Remedy(UNTRIED[bound]),)
    return tuple(found) or untried


def what_if_notes(target: Mapping[str, Any], cycles: float) -> tuple[str, ...]:
    """The what-ifs that brought nothing, or were not simulated."""
    said = []
    for one in target.get("what_if") or ():
        if not one.get("cycles"):
            said.append(f"not known what it would bring: {_change(one, target)}; {one.get('reason', '')}")
        elif not _gains(one, cycles):
            ratio = cycles / one["cycles"]
            lead = "would bring nothing" if ratio > 0.995 else "would take longer"
            said.append(f"{lead}: {_change(one, target)}, {ratio:.2f}x (simulated)")
    return tuple(said)


def _gains(what_if: Mapping[str, Any], cycles: float) -> bool:
    """Whether it saves one cycle in two hundred or more: less would be shown as 1.00x."""
    return bool(what_if.get("cycles")) and cycles / what_if["cycles"] >= 1.005


def _change(what_if: Mapping[str, Any], target: Mapping[str, Any]) -> str:
    if what_if.get("mapping"):
        return f"--mapping {what_if['mapping']} ({what_if.get('words', '')})"
    also = "also " if (target.get("options") or {}).get("set") else ""
    return f"{also}--set {_quoted(str(what_if.get('set', '')))} ({what_if.get('words', '')})"


def _quoted(text: str) -> str:
    return f'"{text}"' if " " in text else text
