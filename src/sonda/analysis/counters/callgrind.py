"""From the spans of a modelled step to its summary: mix, misses, mispredictions, and a budget of stalls with bounds.

Every number is a model's: callgrind simulates the caches and the branch predictor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sonda.analysis import reasons
from sonda.analysis.counters.findings import (
    BudgetBasis,
    MarkersTakenOff,
    ModelledBy,
    OtherIsa,
    SharedTime,
    StandInCache,
)
from sonda.analysis.findings import Finding
from sonda.analysis.span_tree import nearest
from sonda.analysis.steps.costs import missing
from sonda.analysis.steps.layers import layer_spans
from sonda.analysis.summary import PartSummary, Value
from sonda.record.readings import MissCurvePoint, ModelledFacts
from sonda.record.run import Run
from sonda.record.spans import Spans, phase_order

# ---- The summary of a modelled step, as plain data ------------------------------------------------------------------


@dataclass(frozen=True)
class Budget:
    """What the instructions may take, in cycles: from the floor, where every stall is hidden, to the sum of all stalls.

    It is no measurement and no Top-Down: it says what the counters allow, not where the cycles went.
    """

    issue: Value
    """Instructions over the processor's width: no processor of this width is faster."""
    mispredictions: Value
    instruction_misses: Value
    data_misses: Value
    """Each miss waited for, one after the other."""
    high: Value
    """All four together."""
    native: Value
    """What the same took natively: processor time of all threads (of a layer: time) times frequency."""


@dataclass(frozen=True)
class Modelled:
    """Counters of a step, phase or layer, and what follows from them."""

    counters: dict[str, Value]
    """By quantity: instructions, loads, stores, misses, branches."""
    share: float
    """Part of the step's instructions, 0 to 1."""
    loads: Value
    """Per instruction."""
    stores: Value
    branches: Value
    """Conditional and indirect, per instruction."""
    l1_misses: Value
    """Data accesses that miss the first level, per 1,000 instructions."""
    l1_instruction_misses: Value
    ll_misses: Value
    """Data and instructions, per 1,000 instructions."""
    mispredictions: Value
    """Per 1,000 instructions."""
    misprediction_rate: Value
    """Of all branches."""
    memory_bytes: Value
    """Lines that data accesses fetch from memory; write-backs are not simulated."""
    budget: Budget | None = None
    """None where the machine's penalties are not known."""


@dataclass(frozen=True)
class ModelledPhase:
    name: str
    modelled: Modelled


@dataclass(frozen=True)
class ModelledLayer:
    path: str
    name: str
    """Class of the module."""
    leaf: bool
    forward: Value
    """Instructions, modules inside included."""
    backward: Value
    own: Modelled
    """Forward and backward together, without the modules inside."""


@dataclass(frozen=True)
class MissPoint:
    """One size of the last-level cache, and the misses of each layer with it."""

    bytes: int
    geometry: str
    phases: dict[str, float]
    """Data misses of the last level by phase."""
    layers: dict[str, float]
    """By layer, forward and backward together, without the modules inside."""
    instructions: float
    """Of the whole step: the same at every size, but for what the program does differently by itself."""


@dataclass(frozen=True)
class ModelledSummary:
    """One modelled step."""

    tool: str
    caches: dict[str, str]
    """I1, D1 and LL in words: `48 MiB, 12-way, lines of 64 B`."""
    isa: str
    native_isa: str
    threads: int
    part: str
    complete: bool
    step: Modelled
    outside: Modelled
    """What belongs to no phase."""
    phases: tuple[ModelledPhase, ...]
    layers: tuple[ModelledLayer, ...]
    findings: tuple[Finding, ...]
    """What a reader of the numbers must know."""
    curve: tuple[MissPoint, ...] = field(default=())
    """Misses over sizes of the last-level cache, smallest first; empty where no sizes were swept."""
    ranks: tuple[tuple[int, Modelled], ...] = ()
    """The step of every rank, where there are several; all else is of the first."""


# ----------------------------------------------------------------------------------------------------------------------

COUNTERS = (
    "instructions", "loads", "stores", "l1i_misses", "l1d_load_misses", "l1d_store_misses", "ll_instruction_misses",
    "ll_load_misses", "ll_store_misses", "branches", "branch_misses", "indirect_branches", "indirect_misses",
)  # fmt: skip
LINE = 64
"""Bytes of a line, where a run does not say."""


def summarise_modelled(run: Run, parts: Sequence[PartSummary]) -> ModelledSummary | None:
    """The modelled step of a run; None where it has none. `parts` give the native times beside the budget."""
    spans = run.spans
    steps = np.flatnonzero(spans.where(kind="step", pass_="modelled"))
    facts = run.info.target.modelled
    if not len(steps) or facts is None:
        return None
    table = np.nan_to_num(np.column_stack([spans.metric(name, "modelled") for name in COUNTERS]))
    part = next((candidate for candidate in parts if candidate.name == facts.part), None)
    scale = _Scale(table[steps[0]], facts)
    rank = spans.number("rank")
    phases = _phases(spans, table, rank == rank[steps[0]])
    several = [(int(rank[row]), scale.modelled(table[row], None)) for row in steps] if len(steps) > 1 else []
    times = {row.name: row.cost.time for row in part.phases} if part else {}
    inside = np.sum(list(phases.values()), axis=0) if phases else np.zeros(len(COUNTERS))
    return ModelledSummary(
        tool=facts.tool,
        caches={name: _geometry(text) for name, text in _simulated(facts).items()},
        isa=facts.isa,
        native_isa=facts.native_isa,
        threads=facts.threads,
        part=facts.part,
        complete=facts.complete,
        step=scale.modelled(table[steps[0]], part.step if part else None),
        outside=scale.modelled(np.maximum(table[steps[0]] - inside, 0), times.get("other")),
        phases=tuple(ModelledPhase(name, scale.modelled(sums, times.get(name))) for name, sums in phases.items()),
        layers=_layers(spans, table, steps, scale, part),
        findings=_findings(facts, run.info.target.threads),
        curve=_curve(facts.miss_curve),
        ranks=tuple(several),
    )


def _phases(spans: Spans, table: np.ndarray, wanted: np.ndarray) -> dict[str, np.ndarray]:
    """Counters by phase of the wanted rows, in the order in which a step walks through them."""
    name = spans.words("name").decoded()
    totals: dict[str, np.ndarray] = {}
    for row in np.flatnonzero(spans.where(kind="phase", pass_="modelled") & wanted):
        totals[str(name[row])] = totals.get(str(name[row]), np.zeros(len(COUNTERS))) + table[row]
    return dict(sorted(totals.items(), key=lambda item: phase_order(item[0])))


def _layers(
    spans: Spans, table: np.ndarray, steps: np.ndarray, scale: _Scale, part: PartSummary | None
) -> tuple[ModelledLayer, ...]:
    parent = spans.number("parent")
    is_step = np.zeros(len(spans), dtype=bool)
    is_step[steps[:1]] = True
    step_index = np.where(nearest(parent, is_step) >= 0, 0, -1)
    layers = layer_spans(spans, step_index, 1, nearest(parent, spans.where(kind="phase")))
    outer = parent[layers.rows]
    sums = []
    for column in range(len(COUNTERS)):
        values = table[layers.rows, column]
        within = np.bincount(outer[outer >= 0], weights=values[outer >= 0], minlength=len(spans))[layers.rows]
        sums.append(layers.fold(values, np.maximum(values - within, 0)))
    times = {row.path: row.own for row in part.layers} if part else {}
    rows = []
    for index, path in enumerate(layers.paths):
        own = np.array([column[2][index, 0] for column in sums])
        forward, backward = (float(sums[0][way][index, 0]) for way in (0, 1))
        rows.append(
            ModelledLayer(
                path=path,
                name=layers.names[index],
                leaf=bool(layers.tree.leaf[index]),
                forward=Value(forward, "1", "modelled"),
                backward=Value(backward, "1", "modelled"),
                own=scale.modelled(own, times.get(path)),
            )
        )
    return tuple(rows)


class _Scale:
    """What the counters of one run are held against."""

    def __init__(self, whole: np.ndarray, facts: ModelledFacts) -> None:
        self.instructions = float(whole[0])
        self.penalties = facts.penalties
        self.line = _line(facts.LL)

    def modelled(self, sums: np.ndarray, native: Value | None) -> Modelled:
        """`native` is the time that the same took on a clock, ns: of steps, phases and layers alike."""
        counts = dict(zip(COUNTERS, (float(value) for value in sums), strict=True))
        instructions = counts["instructions"]
        branches = counts["branches"] + counts["indirect_branches"]
        mispredicted = counts["branch_misses"] + counts["indirect_misses"]
        l1 = counts["l1d_load_misses"] + counts["l1d_store_misses"]
        data = counts["ll_load_misses"] + counts["ll_store_misses"]

        def ratio(value: float, per: float = 1.0, over: float = instructions) -> Value:
            return (
                Value(per * value / over, "1", "modelled")
                if over
                else missing("1", "modelled", reasons.NOTHING_EXECUTED)
            )

        return Modelled(
            counters={name: Value(value, "1", "modelled") for name, value in counts.items()},
            share=instructions / self.instructions if self.instructions else math.nan,
            loads=ratio(counts["loads"]),
            stores=ratio(counts["stores"]),
            branches=ratio(branches),
            l1_misses=ratio(l1, 1000.0),
            l1_instruction_misses=ratio(counts["l1i_misses"], 1000.0),
            ll_misses=ratio(data + counts["ll_instruction_misses"], 1000.0),
            mispredictions=ratio(mispredicted, 1000.0),
            misprediction_rate=ratio(mispredicted, over=branches),
            memory_bytes=Value(self.line * data, "B", "modelled"),
            budget=self._budget(counts, native),
        )

    def _budget(self, counts: dict[str, float], native: Value | None) -> Budget | None:
        known = self.penalties
        if known is None:
            return None
        near, far = known.last_level, known.memory

        def waiting(first: float, last: float) -> float:
            """Misses of the first level that the last level answers, and those that go to memory."""
            return max(first - last, 0.0) * near + last * far

        issue = counts["instructions"] / known.width
        branches = (counts["branch_misses"] + counts["indirect_misses"]) * known.mispredicted
        code = waiting(counts["l1i_misses"], counts["ll_instruction_misses"])
        data = waiting(
            counts["l1d_load_misses"] + counts["l1d_store_misses"], counts["ll_load_misses"] + counts["ll_store_misses"]
        )
        spent = missing("cycle", "derived", reasons.NOT_TIMED_NATIVELY)
        if native is not None and native.value is not None:
            spent = Value(native.value * 1e-9 * known.hertz, "cycle", "derived")
        issue_, branches_, code_, data_, high = (
            Value(value, "cycle", "modelled") for value in (issue, branches, code, data, issue + branches + code + data)
        )
        return Budget(issue_, branches_, code_, data_, high, spent)


def _simulated(facts: ModelledFacts) -> dict[str, str]:
    """The caches as valgrind was told, by name."""
    return {"I1": facts.I1, "D1": facts.D1, "LL": facts.LL}


def _findings(facts: ModelledFacts, threads: int | None) -> tuple[Finding, ...]:
    isa, native, simulated = facts.isa, facts.native_isa, _simulated(facts)
    caches = tuple((name, _geometry(text)) for name, text in simulated.items())
    findings: list[Finding] = [ModelledBy(facts.tool or "callgrind", caches, isa or "", facts.threads, facts.step + 1)]
    if native and isa and native != isa:
        findings.append(OtherIsa(native))
    for name, real in facts.asked.items():
        wanted, used = f"{real.bytes},{real.ways},{real.line}", simulated.get(name, "")
        if used and wanted != used:
            findings.append(StandInCache(name, _geometry(wanted), _geometry(used)))
    marker = facts.marker_instructions
    if marker is not None:
        phase = facts.phase_marker_instructions if facts.phase_marker_instructions is not None else marker
        findings.append(MarkersTakenOff(marker, phase))
    known = facts.penalties
    if known is not None:
        findings.append(
            BudgetBasis(known.width, known.core, known.mispredicted, known.last_level, known.memory, known.hertz)
        )
        if threads and threads != facts.threads:
            findings.append(SharedTime(threads))
    return tuple(findings)


def _curve(points: Sequence[MissCurvePoint]) -> tuple[MissPoint, ...]:
    curve = [
        MissPoint(
            bytes=point.bytes,
            geometry=_geometry(point.LL),
            phases=dict(sorted(point.phases.items(), key=lambda item: phase_order(item[0]))),
            layers=point.layers,
            instructions=point.instructions,
        )
        for point in points
    ]
    return tuple(sorted(curve, key=lambda point: point.bytes))


def _line(text: str) -> int:
    words = text.split(",")
    return int(words[2]) if len(words) == 3 and words[2].isdecimal() else LINE


def _geometry(text: str) -> str:
    """`50331648,12,64` in words."""
    words = text.split(",")
    if len(words) != 3 or not all(word.isdecimal() for word in words):
        return text or "unknown"
    size, ways, line = (int(word) for word in words)
    factor, unit = (1 << 20, "MiB") if size >= 1 << 20 else (1 << 10, "KiB")
    return f"{size / factor:g} {unit} {ways}-way" + ("" if line == LINE else f" lines of {line} B")
