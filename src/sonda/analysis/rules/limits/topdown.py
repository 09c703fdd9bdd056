"""Top-Down: where the slots of the pipeline are lost, said only where they were counted."""

from __future__ import annotations

import math

from sonda.analysis.counters.summary import Slots, TopDown
from sonda.analysis.rules import remedies
from sonda.analysis.rules.advice import Change, TryChange
from sonda.analysis.rules.limit_findings import SlotsLost
from sonda.analysis.rules.work import WORTH, first_part
from sonda.analysis.summary import Remedy, Summary, Value, Verdict

USEFUL = frozenset({"retiring", "not_stalled"})
"""Slots that did work are no loss."""
KINDS = {"memory_bound": "memory", "core_bound": "core", "backend_bound": "backend", "frontend_bound": "frontend",
         "bad_speculation": "speculation", "smt_contention": "contention"}  # fmt: skip


def rule(summary: Summary) -> Verdict | None:
    """Fires when one category of lost slots leads in phases that lose a tenth of the step to it or more.

    A category counts above its threshold only, and one of level 2 only under a parent that counts. Where the hardware
    allows no Top-Down, or a category is not told apart from another, nothing is said.
    """
    part = first_part(summary)
    if part is None or part.topdown is None or part.topdown.definition.approximate:
        return None
    topdown = part.topdown
    losses: dict[str, list[tuple[str, float, float]]] = {}
    for row in part.phases:
        slots = topdown.phases.get(row.name)
        lost = _lost_slots(topdown, slots) if slots is not None else None
        if lost is not None and math.isfinite(row.cost.share):
            name, share = lost
            losses.setdefault(name, []).append((row.name, row.cost.share, share))
    if not losses:
        return None
    name, places = max(losses.items(), key=lambda item: sum(time_share * share for _, time_share, share in item[1]))
    lost_of_step = sum(time_share * share for _, time_share, share in places)
    if lost_of_step < WORTH:
        return None
    share = lost_of_step / sum(time_share for _, time_share, _ in places)
    child = _child(topdown, name, [place for place, _, _ in places])
    titles = {category.name: category.words.lower() for category in topdown.definition.categories}
    evidence = {
        "share": Value(lost_of_step, "1", "derived"),
        **{f"{place}: {titles[name]}": topdown.phases[place].shares[name].value for place, _, _ in places},
    }
    if part.counted is not None and part.counted.step.ipc.value is not None:
        evidence["IPC"] = part.counted.step.ipc
    return Verdict(
        kind=KINDS.get(child or name, KINDS.get(name, name)),
        finding=SlotsLost(
            phases=tuple(place for place, _, _ in places),
            category=titles[name],
            inside=titles[child] if child else "",
            share=Value(share, "1", "derived"),
            slots=topdown.definition.of,
        ),
        evidence=evidence,
        remedies=_remedies(summary, name, child),
        share=lost_of_step,
    )


def _lost_slots(topdown: TopDown, slots: Slots) -> tuple[str, float] | None:
    """The largest category of level 1 that counts and is a loss, with its share."""
    lost = [
        (slots.shares[name].value.value or 0.0, name)
        for name in topdown.level_one
        if name not in USEFUL and slots.shares[name].counts
    ]
    if not lost:
        return None
    share, name = max(lost)
    return name, share


def _child(topdown: TopDown, parent: str, places: list[str]) -> str:
    """The child that leads in most of these phases; '' where none counts."""
    votes: dict[str, float] = {}
    for place in places:
        shares = topdown.phases[place].shares
        inside = [
            category.name
            for category in topdown.definition.categories
            if category.parent == parent and shares[category.name].counts
        ]
        for name in inside:
            votes[name] = votes.get(name, 0.0) + (shares[name].value.value or 0.0)
    return max(votes, key=lambda name: votes[name]) if votes else ""


def _remedies(summary: Summary, name: str, child: str) -> tuple[Remedy, ...]:
    if child == "memory_bound":
        return remedies.remedies(summary, remedies.compiled, remedies.bfloat16)
    if name == "frontend_bound":
        return remedies.remedies(summary, remedies.compiled, remedies.batch)
    if name == "smt_contention":
        return (Remedy(TryChange(Change.CORE_PER_THREAD)),)
    return ()
