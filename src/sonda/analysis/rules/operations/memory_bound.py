"""Memory-bound chains: operations on each element alone follow each other, each through a whole tensor."""

from __future__ import annotations

from collections import Counter

from sonda.analysis.rules import remedies
from sonda.analysis.rules.advice import WorkInPlace
from sonda.analysis.rules.cause_findings import PointwiseChain
from sonda.analysis.rules.operations.denormals import slowed_work
from sonda.analysis.rules.operations.evidence import TimedGroup, evidence_of, is_built_in
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.rules.work import WORTH
from sonda.analysis.summary import Remedy, Summary, Value, Verdict

LEAST = 0.20
"""A fifth of the step: activations and normalisations of any network are such operations too."""
APART = ("optimizer", "data", "transfer")
"""Phases that have rules of their own."""


ELEMENTWISE = frozenset({"pointwise", "creation", "copy"})
NEAR = 2
"""Lines from one operation to the next of a chain, at most: a blank one, or a bracket, may lie between."""
_Key = tuple[str | None, str, str]
"""Layer, phase and line."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when one pass in place of each chain would save a fifth of the step. Operations that cost their overhead
    are no such chains."""
    evidence = evidence_of(summary)
    if evidence is None or "operation" not in summary.ceilings:
        return None
    cost, bandwidth = summary.ceilings["operation"].value or 0.0, summary.ceilings["dram_bandwidth"].value or 1.0
    chains: dict[_Key, list[TimedGroup]] = {}
    families: dict[_Key, set[str]] = {}
    for timed in evidence.groups:
        key = timed.group.layer, timed.group.phase, timed.group.line
        families.setdefault(key, set()).add(timed.group.family)
    heads = _join_lines(families)
    for timed in evidence.groups:
        group = timed.group
        large = 1e9 * float(group.bytes) / bandwidth > cost * group.operations
        if (
            group.family == "pointwise"
            and group.phase not in APART
            and large
            and not is_built_in(evidence.part, group.layer)
        ):
            line = "" if group.phase == "backward" else heads.get((group.layer, group.phase, group.line), group.line)
            chains.setdefault((group.layer, group.phase, line), []).append(timed)
    slowed: dict[tuple[str, str], float] = {}
    for work in slowed_work(summary, evidence.part):
        here = work.place.layer, work.place.line
        slowed[here] = slowed.get(here, 0.0) + work.saved
    # A backward goes back through the chains of the forward, with products between them.
    forward = Counter(layer for layer, phase, _ in chains if phase != "backward")
    passes = {key: forward[key[0]] if key[1] == "backward" else 1 for key in chains}
    saved = {key: _saved(members, passes[key] or 1, slowed) for key, members in chains.items()}
    spent = sum(saved.values())
    share = evidence.share(spent)
    if share < LEAST:
        return None
    layer, phase, line = max(saved, key=lambda key: saved[key])
    if not line:
        lines = {timed.group.line: timed.ns for key, members in chains.items() for timed in members
                 if key[0] == layer and key[2]}  # fmt: skip
        line = max(lines, key=lambda name: lines[name], default="")
    place = StepPlace(layer or "", line, phase)
    members = [timed for key, chain in chains.items() if saved[key] for timed in chain]
    of_step, time = Value(share, "1", "derived"), Value(spent, "ns", "derived")
    moved = Value(sum(float(timed.group.bytes) for timed in members), "B", "nominal")
    whole = Value(evidence.share(sum(timed.ns for timed in members)), "1", "derived")
    return Verdict(
        kind="memory_bound",
        finding=PointwiseChain(of_step, time, place, sum(timed.group.operations for timed in members), moved, whole),
        evidence={"share": of_step, "time": time, "bytes": moved},
        remedies=(*remedies.remedies(summary, remedies.compiled), Remedy(WorkInPlace(place))),
        share=share,
    )


def _saved(chain: list[TimedGroup], passes: int, slowed: dict[tuple[str, str], float]) -> float:
    """ns of all passes of a chain but so many. 0 where subnormal numbers slow it: without them its operations take a
    time that nobody knows, for all read these numbers or what they give."""
    operations = sum(timed.group.operations for timed in chain)
    places = {(timed.group.layer or "", timed.group.line) for timed in chain}
    spent = sum(timed.ns for timed in chain)
    lost = sum(slowed.get(place, 0.0) for place in places)
    return 0.0 if lost >= WORTH * spent else spent * max(1 - passes / operations, 0.0)


def _join_lines(families: dict[_Key, set[str]]) -> dict[_Key, str]:
    """The first line of the run of neighbouring lines that each lies in, in one layer and phase.

    Only lines that do nothing but work on elements go on with a run: what a product gives is not there before it.
    """
    heads: dict[_Key, str] = {}
    last: tuple[str | None, str, str, int] | None = None
    head = ""
    for layer, phase, line in sorted(families, key=lambda key: (key[0] or "", key[1], _split_line(key[2]))):
        file, number = _split_line(line)
        near = (
            last is not None
            and last[:3] == (layer, phase, file)
            and number - last[3] <= NEAR
            and families[layer, phase, line] <= ELEMENTWISE
        )
        head = head if near else line
        heads[layer, phase, line] = head
        last = (layer, phase, file, number)
    return heads


def _split_line(line: str) -> tuple[str, int]:
    file, _, number = line.rpartition(":")
    return file, int(number) if number.isdigit() else 0
