"""One thread's spans, with phases made exclusive and steps found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sonda.frameworks.events import ProcessEvents, RawSpans, match
from sonda.frameworks.steps import Phase, Section, Step, derive_sections

ADDITIVE = ("page_faults:counted", "context_switches:counted", "cpu_time:counted")
"""Values of a phase that hold those of the phases inside it."""


@dataclass
class ThreadSpans:
    """Rows of one thread that are kept: phases, layers, operations. `keep` leaves out what only carried information."""

    raw: RawSpans
    definitions: list[dict[str, Any]]
    keep: np.ndarray
    parent: np.ndarray
    """Row of the kept span around each row, -1 for none."""
    metrics: dict[str, np.ndarray]
    phase_rows: np.ndarray
    """Rows of the phases in order of time."""
    sections: list[Section]
    """Their steps' `phases` are positions in `phase_rows`."""
    step_pass: dict[int, str]
    """Pass of a step by its identity (`id(step)`), where it is not `timed`."""
    shapes: dict[int, int]
    """Number of the input's shape by position in `phase_rows`."""


def read_thread(events: ProcessEvents, pairs: np.ndarray) -> ThreadSpans:
    """Match one thread's events and find its steps."""
    definitions = events.definitions
    kinds = np.array([definition.get("kind", "") for definition in definitions], dtype=object)
    raw = _with_loss(match(pairs, kinds == "value"), definitions)
    kind = kinds[raw.definition]
    metrics, shapes, learning = _values(raw, definitions)
    raw, kind, metrics = _exclusive(raw, kind, metrics, definitions)
    keep = np.isin(kind, ("phase", "layer", "op"))
    parent = _kept_parent(raw, keep)
    phase_rows = np.flatnonzero(kind == "phase")
    phase_rows = phase_rows[np.argsort(raw.start[phase_rows], kind="stable")]
    phases = [_phase(raw, row, definitions, learning) for row in phase_rows.tolist()]
    announced = np.flatnonzero(kind == "step")
    sections = _announced(raw, kind, announced, phase_rows, definitions) if len(announced) else derive_sections(phases)
    position = {row: at for at, row in enumerate(phase_rows.tolist())}
    return ThreadSpans(
        raw=raw,
        definitions=definitions,
        keep=keep,
        parent=parent,
        metrics=metrics,
        phase_rows=phase_rows,
        sections=sections,
        step_pass=_passes(raw, kind, sections, phase_rows, definitions),
        shapes={position[row]: shape for row, shape in shapes.items() if row in position},
    )


def _values(raw: RawSpans, definitions: list[dict[str, Any]]) -> tuple[dict, dict[int, int], dict[int, bool]]:
    """Values by metric column; the shape and the mode of each forward apart, by row."""
    metrics: dict[str, np.ndarray] = {}
    shapes: dict[int, int] = {}
    learning: dict[int, bool] = {}
    for which in np.unique(raw.value_definition):
        chosen = (raw.value_definition == which) & (raw.value_row >= 0)
        rows, values = raw.value_row[chosen], raw.value[chosen]
        definition = definitions[which]
        if definition["quantity"] == "shape":
            shapes = dict(zip(rows.tolist(), values.tolist(), strict=True))
        elif definition["quantity"] == "training":
            learning = dict(zip(rows.tolist(), (values > 0).tolist(), strict=True))
        else:
            column = np.full(len(raw.start), np.nan)
            column[rows] = values
            metrics[f"{definition['quantity']}:{definition['source']}"] = column
    return metrics, shapes, learning


def _phase(raw: RawSpans, row: int, definitions: list[dict[str, Any]], learning: dict[int, bool]) -> Phase:
    definition = definitions[raw.definition[row]]
    return Phase(
        definition["name"],
        int(raw.start[row]),
        int(raw.end[row]),
        definition.get("optimizer"),
        definition.get("loader"),
        definition.get("iterator"),
        learning.get(row, False),
    )


def _ancestor(raw: RawSpans, wanted: np.ndarray) -> np.ndarray:
    """For every row the nearest row that is `wanted`, itself included; -1 for none."""
    found = np.where(wanted, np.arange(len(wanted)), -1)
    for level in range(2, int(raw.level.max(initial=0)) + 1):
        rows = np.flatnonzero((raw.level == level) & (found < 0))
        found[rows] = found[raw.parent[rows]]
    return found


def _kept_parent(raw: RawSpans, keep: np.ndarray) -> np.ndarray:
    nearest = _ancestor(raw, keep)
    parent = np.full(len(keep), -1, dtype=np.int64)
    inside = raw.parent >= 0
    parent[inside] = nearest[raw.parent[inside]]
    return parent


def _with_loss(raw: RawSpans, definitions: list[dict[str, Any]]) -> RawSpans:
    """Where a program computed its loss outside any module, the time between forward and backward is the loss."""
    names = [d["name"] if d.get("kind") == "phase" else "" for d in definitions]
    loss = names.index("loss") if "loss" in names else -1
    is_phase = np.array([bool(name) for name in names], dtype=bool)[raw.definition]
    outer = _ancestor(raw, is_phase)
    top = is_phase & ((raw.parent < 0) | (outer[raw.parent] < 0))
    rows = np.flatnonzero(top)
    found = [
        (before, after)
        for before, after in zip(rows[:-1].tolist(), rows[1:].tolist(), strict=True)
        if names[raw.definition[before]] == "forward"
        and names[raw.definition[after]] == "backward"
        and raw.parent[before] == raw.parent[after]
        and raw.start[after] > raw.end[before]
    ]
    if loss < 0 or not found:
        return raw
    before, after = np.array(found).T
    return _append(
        raw,
        definition=np.full(len(found), loss),
        start=raw.end[before],
        end=raw.start[after],
        parent=raw.parent[before],
        level=raw.level[before],
    )


def _append(raw: RawSpans, **columns: np.ndarray) -> RawSpans:
    joined = {name: np.concatenate((getattr(raw, name), values)) for name, values in columns.items()}
    return RawSpans(
        **joined, value_definition=raw.value_definition, value=raw.value, value_row=raw.value_row
    )  # fmt: skip


def _exclusive(
    raw: RawSpans, kind: np.ndarray, metrics: dict[str, np.ndarray], definitions: list[dict[str, Any]]
) -> tuple[RawSpans, np.ndarray, dict[str, np.ndarray]]:
    """Cut phases that hold other phases, so that every moment belongs to one phase at most."""
    is_phase = kind == "phase"
    outer = _ancestor(raw, is_phase)
    around = np.full(len(kind), -1, dtype=np.int64)
    inside = raw.parent >= 0
    around[inside] = outer[raw.parent[inside]]
    nested = np.flatnonzero(is_phase & (around >= 0))
    if not len(nested):
        return raw, kind, metrics
    kind = kind.copy()
    metrics = {column: values.copy() for column, values in metrics.items()}
    end, parent = raw.end.copy(), raw.parent.copy()
    cuts: dict[int, list[int]] = {}
    for row in nested.tolist():
        holder = int(around[row])
        if definitions[raw.definition[row]]["name"] == definitions[raw.definition[holder]]["name"]:
            kind[row] = ""
            continue
        cuts.setdefault(holder, []).append(row)
        for column in ADDITIVE:
            if column in metrics:
                metrics[column][holder] -= metrics[column][row]
    pieces: list[tuple[int, int, int]] = []
    for holder, rows in cuts.items():
        finish = int(raw.end[holder])
        end[holder] = raw.start[rows[0]]
        starts = [int(raw.end[row]) for row in rows]
        ends = [*(int(raw.start[row]) for row in rows[1:]), finish]
        pieces.extend((holder, start, stop) for start, stop in zip(starts, ends, strict=True) if stop > start)
        for row in rows:
            parent[row] = raw.parent[holder]
    holders = np.array([holder for holder, _, _ in pieces], dtype=np.int64)
    first = len(kind)
    children = np.flatnonzero(np.isin(parent, list(cuts)))
    for child in children.tolist():
        for offset, (holder, start, stop) in enumerate(pieces):
            if parent[child] == holder and start <= raw.start[child] < stop:
                parent[child] = first + offset
                break
    raw = RawSpans(
        definition=np.concatenate((raw.definition, raw.definition[holders])),
        start=np.concatenate((raw.start, np.array([start for _, start, _ in pieces], dtype=np.int64))),
        end=np.concatenate((end, np.array([stop for _, _, stop in pieces], dtype=np.int64))),
        parent=np.concatenate((parent, raw.parent[holders])),
        level=np.concatenate((raw.level, raw.level[holders])),
        value_definition=raw.value_definition,
        value=raw.value,
        value_row=raw.value_row,
    )
    kind = np.concatenate((kind, np.full(len(pieces), "phase", dtype=object)))
    missing = np.full(len(pieces), np.nan)
    return raw, kind, {column: np.concatenate((values, missing)) for column, values in metrics.items()}


def _announced(
    raw: RawSpans, kind: np.ndarray, steps: np.ndarray, phase_rows: np.ndarray, definitions: list[dict[str, Any]]
) -> list[Section]:
    """Sections of a program that announces its steps itself; a step's name is the part it belongs to."""
    sections: list[Section] = []
    starts = raw.start[phase_rows]
    for row in steps.tolist():
        part = definitions[raw.definition[row]]["name"]
        first, last = np.searchsorted(starts, (raw.start[row], raw.end[row]))
        if not sections or sections[-1].part != part:
            sections.append(Section(part))
        sections[-1].steps.append(Step(part, list(range(first, last)), int(raw.start[row]), int(raw.end[row])))
    return sections


def _passes(
    raw: RawSpans, kind: np.ndarray, sections: list[Section], phase_rows: np.ndarray, definitions: list[dict[str, Any]]
) -> dict[int, str]:
    """A step is of a pass when one of its phases is."""
    found: dict[int, str] = {}
    starts, ends = raw.start[phase_rows], raw.end[phase_rows]
    for row in np.flatnonzero(kind == "pass").tolist():
        name = definitions[raw.definition[row]]["name"]
        inside = (starts < raw.end[row]) & (ends > raw.start[row])
        if inside.any():
            for section in sections:
                for step in section.steps:
                    if step.phases and inside[step.phases].any():
                        found[id(step)] = name
    return found
