"""From the spans of a modelled step to its summary: mix, misses, mispredictions, and a budget of stalls with bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sonda.analysis import wording
from sonda.analysis.costs import missing
from sonda.analysis.layers import layer_spans
from sonda.analysis.modelled_summary import (
    Budget,
    MissPoint,
    Modelled,
    ModelledLayer,
    ModelledPhase,
    ModelledSummary,
)
from sonda.analysis.summary import PartSummary, Value
from sonda.analysis.tree import nearest
from sonda.record.run import Run
from sonda.record.span import Spans, phase_order

COUNTERS = (
    "instructions", "loads", "stores", "l1i_misses", "l1d_load_misses", "l1d_store_misses", "ll_instruction_misses",
    "ll_load_misses", "ll_store_misses", "branches", "branch_misses", "indirect_branches", "indirect_misses",
)  # fmt: skip
LINE = 64
"""Bytes of a line, where a run does not say."""
NO_NATIVE = "not timed natively"


def summarise_modelled(run: Run, parts: Sequence[PartSummary]) -> ModelledSummary | None:
    """The modelled step of a run; None where it has none. `parts` give the native times beside the budget."""
    spans = run.spans
    steps = np.flatnonzero(spans.where(kind="step", pass_="modelled"))
    about = run.info.target.get("modelled")
    if not len(steps) or not isinstance(about, dict):
        return None
    table = np.nan_to_num(np.column_stack([spans.metric(name, "modelled") for name in COUNTERS]))
    part = next((one for one in parts if one.name == about.get("part")), None)
    scale = _Scale(table[steps[0]], about)
    phases = _phases(spans, table)
    times = {row.name: row.cost.time for row in part.phases} if part else {}
    inside = np.sum(list(phases.values()), axis=0) if phases else np.zeros(len(COUNTERS))
    return ModelledSummary(
        tool=str(about.get("tool", "")),
        caches={name: _geometry(str(about.get(name, ""))) for name in ("I1", "D1", "LL")},
        isa=str(about.get("isa", "")),
        native_isa=str(about.get("native_isa", "")),
        threads=int(about.get("threads", 1)),
        part=str(about.get("part", "")),
        complete=bool(about.get("complete", True)),
        step=scale.modelled(table[steps[0]], part.step if part else None),
        outside=scale.modelled(np.maximum(table[steps[0]] - inside, 0), times.get("other")),
        phases=tuple(ModelledPhase(name, scale.modelled(sums, times.get(name))) for name, sums in phases.items()),
        layers=_layers(spans, table, steps, scale, part),
        sentences=_sentences(about, run.info.target.get("threads")),
        curve=_curve(about.get("miss_curve")),
    )


def _phases(spans: Spans, table: np.ndarray) -> dict[str, np.ndarray]:
    """Counters by phase, in the order in which a step walks through them."""
    name = spans.words("name").decoded()
    found: dict[str, np.ndarray] = {}
    for row in np.flatnonzero(spans.where(kind="phase", pass_="modelled")):
        found[str(name[row])] = found.get(str(name[row]), np.zeros(len(COUNTERS))) + table[row]
    return dict(sorted(found.items(), key=lambda item: phase_order(item[0])))


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
    found = []
    for index, path in enumerate(layers.paths):
        own = np.array([column[2][index, 0] for column in sums])
        forward, backward = (float(sums[0][way][index, 0]) for way in (0, 1))
        found.append(
            ModelledLayer(
                path=path,
                name=layers.names[index],
                leaf=bool(layers.tree.leaf[index]),
                forward=Value(forward, "1", "modelled"),
                backward=Value(backward, "1", "modelled"),
                own=scale.modelled(own, times.get(path)),
            )
        )
    return tuple(found)


class _Scale:
    """What the counters of one run are held against."""

    def __init__(self, whole: np.ndarray, about: dict[str, Any]) -> None:
        self.instructions = float(whole[0])
        self.penalties = about.get("penalties") or {}
        self.line = _line(str(about.get("LL", "")))

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
                Value(per * value / over, "1", "modelled") if over else missing("1", "modelled", "nothing was executed")
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
        if not known:
            return None
        near, far = float(known["last_level"]), float(known["memory"])

        def waiting(first: float, last: float) -> float:
            """Misses of the first level that the last level answers, and those that go to memory."""
            return max(first - last, 0.0) * near + last * far

        issue = counts["instructions"] / float(known["width"])
        branches = (counts["branch_misses"] + counts["indirect_misses"]) * float(known["mispredicted"])
        code = waiting(counts["l1i_misses"], counts["ll_instruction_misses"])
        data = waiting(
            counts["l1d_load_misses"] + counts["l1d_store_misses"], counts["ll_load_misses"] + counts["ll_store_misses"]
        )
        spent = missing("cycle", "derived", NO_NATIVE)
        if native is not None and native.value is not None:
            spent = Value(native.value * 1e-9 * float(known["hertz"]), "cycle", "derived")
        issue_, branches_, code_, data_, high = (
            Value(value, "cycle", "modelled") for value in (issue, branches, code, data, issue + branches + code + data)
        )
        return Budget(issue_, branches_, code_, data_, high, spent)


def _sentences(about: dict[str, Any], threads: Any) -> tuple[str, ...]:
    isa, native = str(about.get("isa", "")), str(about.get("native_isa", ""))
    caches = ", ".join(f"{name} {_geometry(str(about.get(name, '')))}" for name in ("I1", "D1", "LL"))
    said = [
        f"modelled by {about.get('tool', 'callgrind')}: {caches}; {isa or 'unknown'} code, "
        f"{wording.plural(int(about.get('threads', 1)), 'thread')}, step {int(about.get('step', 0)) + 1}; "
        "no second level, no prefetching, no write-backs"
    ]
    if native and isa and native != isa:
        said.append(
            f"natively this machine runs {native} code, which valgrind does not know: other instructions than these"
        )
    for name, real in (about.get("asked") or {}).items():
        wanted = f"{real.get('bytes')},{real.get('ways')},{real.get('line')}"
        if about.get(name) and wanted != about[name]:
            said.append(
                f"{name} is {_geometry(wanted)}, which callgrind cannot simulate: "
                f"{_geometry(about[name])} stands for it"
            )
    marker = about.get("marker_instructions")
    if marker is not None:
        phase = about.get("phase_marker_instructions", marker)
        said.append(
            f"{marker:,.0f} instructions of observing were taken off at each boundary, {phase:,.0f} at a phase's end"
        )
    known = about.get("penalties")
    if known:
        said.append(
            f"budget: from {known['width']} instructions a cycle ({known['core']}) to all stalls one after the other: "
            f"misprediction {known['mispredicted']:.0f}, last level {known['last_level']:.0f}, "
            f"memory {known['memory']:.0f} cycles (measured here, {known['hertz'] / 1e9:.2f} GHz); not Top-Down"
        )
        if threads and threads != about.get("threads", 1):
            said.append(f"native cycles are the time that {threads} threads took side by side, not the sum of theirs")
    return tuple(said)


def _curve(points: Any) -> tuple[MissPoint, ...]:
    found = [
        MissPoint(
            bytes=int(one["bytes"]),
            geometry=_geometry(str(one["LL"])),
            phases=dict(sorted(one["phases"].items(), key=lambda item: phase_order(item[0]))),
            layers=dict(one["layers"]),
            instructions=float(one["instructions"]),
        )
        for one in points or []
    ]
    return tuple(sorted(found, key=lambda point: point.bytes))


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
