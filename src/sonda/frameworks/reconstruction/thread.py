"""Reads the spans of one thread: phases that do not overlap, and the steps that they belong to."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from sonda.frameworks.reconstruction.events import ProcessEvents, RawSpans, match_spans
from sonda.frameworks.reconstruction.input_sizes import Sums, sum_differing_sizes
from sonda.frameworks.reconstruction.paths import LayerPlaces, ModulePlace
from sonda.frameworks.reconstruction.phases import (
    FORWARDS,
    Facts,
    Phase,
    PhaseReader,
    find_joined,
    name_generation,
    read_facts,
    read_metrics,
)
from sonda.frameworks.reconstruction.readings import Boundaries, add_counts
from sonda.frameworks.reconstruction.steps import Step, StepSection, derive_sections

DEVICE_TIME = "device_time:measured"
DEVICE_BEGIN, DEVICE_END = "device_begin:measured", "device_end:measured"
"""When a GPU reached the begin and the end of a phase, ns on the host's clock. They are not kept as metrics."""
DEVICE_START = "device_start:derived"
ADDITIVE = ("page_faults:counted", "context_switches:counted", DEVICE_TIME)
"""Values of a phase that include those of the phases inside it; so do values whose definition has `adds`."""
GENERATING = ("prefill", "decode")
TRIFLE = 0.1
"""Share of a call. A shorter wait changes the rates of the call by less than they differ from step to step."""
COMPUTING = ("forward", "prefill", "decode", "backward", "fused")
"""Phases that must all be counted in a counted step."""


@dataclass
class ThreadSpans:
    """The spans of one thread. `keep` marks the rows of phases, layers, operations and compilations."""

    raw: RawSpans
    definitions: list[dict[str, Any]]
    keep: np.ndarray
    parent: np.ndarray
    """Row of the kept span around each row, -1 for none."""
    metrics: dict[str, np.ndarray]
    phase_rows: np.ndarray
    """Rows of the phases in order of time."""
    sections: list[StepSection]
    """Their steps' `phases` are positions in `phase_rows`."""
    step_pass: dict[int, str]
    """Pass of a step by its identity (`id(step)`), where it is not `timed`."""
    shapes: dict[int, tuple[ModulePlace | None, str]]
    """The module and its input's shape by position in `phase_rows`."""
    sizes: dict[int, Sums]
    """Sums of the sizes in which the inputs of a step differ from those of others, by the identity of the step."""
    boundaries: list[Boundaries]
    """Readings of counters where spans began and ended."""
    waits: Facts = field(default_factory=dict)
    """By the row of a wait inside a graph's call, the row of that call, which has the readings of its begin."""
    on_device: tuple[np.ndarray, np.ndarray] | None = None
    """When a GPU reached the begin and the end of every row, ns on the host's clock, NaN where that is not known."""

    def inputs(self, step: Step) -> frozenset[object]:
        """The modules and input shapes of a step, each with the number of calls.

        That number is 0 where it does not matter: in a generated text, and where a driver announces one shape for all
        phases.
        """
        calls = Counter(self.shapes[at] for at in step.phases if at in self.shapes)
        generates = any(self._name(at) in GENERATING for at in step.phases)
        return frozenset((shape, 0 if generates or shape[0] is None else count) for shape, count in calls.items())

    def _name(self, phase: int) -> object:
        return self.definitions[self.raw.definition[self.phase_rows[phase]]].get("name")

    def device_window(self, phases: Sequence[int]) -> tuple[float, float]:
        """When a GPU began the first of these phases (positions in `phase_rows`), and ns until it ended the last.

        NaN where that is not known.
        """
        if self.on_device is None or not len(phases):
            return np.nan, np.nan
        rows = self.phase_rows[list(phases)]
        begin, end = (times[rows] for times in self.on_device)
        known = ~np.isnan(begin) & ~np.isnan(end)
        if not known.any():
            return np.nan, np.nan
        return float(begin[known].min()), float(end[known].max() - begin[known].min())


def read_thread(
    events: ProcessEvents,
    pairs: np.ndarray,
    readings: Sequence[bytes] = (),
    places: LayerPlaces | None = None,
) -> ThreadSpans:
    """Match the events of a thread with its readings of counters, and find its steps. `places`: of its modules."""
    definitions = events.definitions
    kinds = np.array([definition.get("kind", "") for definition in definitions], dtype=object)
    raw = match_spans(pairs, kinds == "value")
    facts = read_facts(raw, definitions)
    reader = PhaseReader(definitions, facts, places or LayerPlaces(definitions))
    reader.name_compiled(raw)
    raw, gaps = _add_gaps(raw, reader)
    raw, boundaries = add_counts(raw, definitions, readings, gaps)
    kind = kinds[raw.definition]
    metrics = read_metrics(raw, definitions)
    if events.marks:
        metrics.update(_device_times(raw.start, facts, events.marks, gaps))
    waits = _fetch_waits(facts["fetch"], events)
    raw, kind, metrics = _add_waits(raw, kind, metrics, waits, reader)
    raw, kind, metrics, moved = _cut_nested_phases(raw, kind, metrics, definitions)
    if events.marks:
        # A phase that was cut has no single window of its own.
        whole = metrics[DEVICE_END] - metrics[DEVICE_BEGIN] == metrics[DEVICE_TIME]
        metrics[DEVICE_START] = np.where(whole, metrics[DEVICE_BEGIN], np.nan)
    for name in ("optimizer", "made"):
        facts[name] = {moved.get(row, row): value for row, value in facts[name].items()}
    keep = np.isin(kind, ("phase", "layer", "op", "compile"))
    phase_rows = np.flatnonzero(kind == "phase")
    phase_rows = phase_rows[np.lexsort((raw.end[phase_rows], raw.start[phase_rows]))]
    phases = [replace(reader.phase(raw, row), continued=row in moved) for row in phase_rows.tolist()]
    sections = _find_sections(raw, kind, phase_rows, phases, reader)
    dims = {fact["shape"]: fact["dims"] for fact in events.facts if "dims" in fact}
    return ThreadSpans(
        raw=raw,
        definitions=definitions,
        keep=keep,
        parent=_around(raw, keep),
        metrics=metrics,
        phase_rows=phase_rows,
        sections=sections,
        step_pass={
            **_find_unknown_waits(sections, phase_rows, facts["fetch"], waits),
            **_find_passes(raw, kind, sections, phase_rows, events),
        },
        shapes=_input_shapes(facts["shape"], phase_rows, phases, dims),
        sizes=sum_differing_sizes(sections, phases, dims),
        boundaries=boundaries,
        waits=reader.waits,
        on_device=(metrics.pop(DEVICE_BEGIN), metrics.pop(DEVICE_END)) if events.marks else None,
    )


def _find_sections(
    raw: RawSpans, kind: np.ndarray, phase_rows: np.ndarray, phases: list[Phase], reader: PhaseReader
) -> list[StepSection]:
    """The sections that a program announced; those that follow from its phases where it announced none.

    In the second case forwards that generate a text get their names, in `raw` and in `phases`.
    """
    steps = np.flatnonzero(kind == "step")
    if len(steps) or (kind == "epoch").any():
        return _announced_sections(raw, kind, steps, phase_rows, reader.definitions)
    for at, name in name_generation(phases).items():
        raw.definition[phase_rows[at]] = reader.numbers[name]
        phases[at] = replace(phases[at], name=name)
    return derive_sections(phases)


def _input_shapes(
    shapes: Facts, phase_rows: np.ndarray, phases: Sequence[Phase], dims: Mapping[int, Any]
) -> dict[int, tuple[ModulePlace | None, str]]:
    """The module and its input's shape by position in `phase_rows`; `dims` are those of every numbered shape.

    Where a program counts a step of its own, the model that it counts may stand in for a compiled one: such shapes have
    no dims, and no module.
    """
    positions = {row: at for at, row in enumerate(phase_rows.tolist())}
    by_position: dict[int, tuple[ModulePlace | None, str]] = {}
    for row, shape in shapes.items():
        if row in positions:
            at = positions[row]
            by_position[at] = (phases[at].place, str(dims[shape])) if shape in dims else (None, str(shape))
    return by_position


def _device_times(
    start: np.ndarray, facts: dict[str, Facts], marks: dict[int, int], gaps: Sequence[tuple[int, int]]
) -> dict[str, np.ndarray]:
    """When a GPU reached the begin and the end of each row, on the host's clock, and the time between.

    `start` is when the host began each row. `gaps` are the rows before and after each loss that was computed outside
    any module; these stand at the end.

    The device's clock begins at a moment of its own. The host notes when the phase begins, then makes the mark, and the
    device reaches it later: some µs later where its queue was empty. So the largest distance between the two clocks is
    the true one.
    """
    length = len(start)
    begin, end = np.full(length, np.nan), np.full(length, np.nan)
    for times, name in ((begin, "device_begin"), (end, "device_end")):
        for row, number in facts[name].items():
            times[row] = marks.get(number, np.nan)
    for row, (before, after) in enumerate(gaps, start=length - len(gaps)):
        begin[row], end[row] = end[before], begin[after]
    marked = np.flatnonzero(~np.isnan(begin[: length - len(gaps)]))
    if len(marked):
        distance = float((start[marked] - begin[marked]).max())
        begin, end = begin + distance, end + distance
    return {DEVICE_BEGIN: begin, DEVICE_END: end, DEVICE_TIME: end - begin}


def _fetch_waits(fetches: Facts, events: ProcessEvents) -> dict[int, int]:
    """How long graphs waited for batches that they fetched themselves, ns, by the rows of their calls."""
    stated = {
        number: wait
        for fact in events.facts
        if "fetches" in fact
        for number, wait in zip(fact["fetches"], fact["fetch_ns"], strict=True)
    }
    return {row: stated[number] for row, number in fetches.items() if number in stated}


def _add_waits(
    raw: RawSpans,
    kind: np.ndarray,
    metrics: dict[str, np.ndarray],
    waits: dict[int, int],
    reader: PhaseReader,
) -> tuple[RawSpans, np.ndarray, dict[str, np.ndarray]]:
    """Make phases of the waits at the begin of graphs' calls, which begin behind them.

    Such rows stand at the end, and `reader.waits` has them.

    Counts of a call include its wait, and cannot be split. Where the wait is more than a trifle of the call, neither
    has counts; only the step has.
    """
    rows = np.array([row for row in waits if kind[row] == "phase"], dtype=np.int64)
    if not len(rows):
        return raw, kind, metrics
    start = raw.start.copy()
    begin = start[rows]
    lasted = np.array([waits[row] for row in rows.tolist()])
    start[rows] = np.minimum(begin + lasted, raw.end[rows])
    length = len(start)
    mixed = rows[start[rows] - begin > TRIFLE * (raw.end[rows] - begin)]
    for column in _additive_columns(reader.definitions) - {DEVICE_TIME}:
        if column in metrics:
            metrics[column][mixed] = np.nan
    raw = _append(
        replace(raw, start=start),
        definition=np.full(len(rows), reader.numbers["data"]),
        start=begin,
        end=start[rows],
        parent=raw.parent[rows],
        level=raw.level[rows],
    )
    missing = np.full(len(rows), np.nan)
    metrics = {column: np.concatenate((values, missing)) for column, values in metrics.items()}
    kind = np.concatenate((kind, np.full(len(rows), "phase", dtype=object)))
    reader.waits = {length + at: row for at, row in enumerate(rows.tolist())}
    return raw, kind, metrics


def _additive_columns(definitions: list[dict[str, Any]]) -> set[str]:
    """Metric columns whose values include those of the phases inside a phase."""
    adding = {f"{value['quantity']}:{value['source']}" for value in definitions if value.get("adds")}
    return adding.union(ADDITIVE)


def _ancestor(raw: RawSpans, wanted: np.ndarray) -> np.ndarray:
    """For every row the nearest row that is `wanted`, itself included; -1 for none."""
    nearest = np.where(wanted, np.arange(len(wanted)), -1)
    for level in range(2, int(raw.level.max(initial=0)) + 1):
        rows = np.flatnonzero((raw.level == level) & (nearest < 0))
        nearest[rows] = nearest[raw.parent[rows]]
    return nearest


def _add_gaps(raw: RawSpans, reader: PhaseReader) -> tuple[RawSpans, list[tuple[int, int]]]:
    """Make phases of the time between two others that must be a forward or a loss.

    Where a program computes its loss outside any module, the time between forward and backward is the loss. The time
    between parts of a model that are called one by one is forward, and so is the time before the backward of a network
    that is no module. Such rows stand at the end, and `reader.gaps` has them. The second result are the rows of
    the phases before and after each.
    """
    is_phase = np.array([bool(name) for name in reader.names], dtype=bool)[raw.definition]
    rows = np.flatnonzero(is_phase & (_around(raw, is_phase) < 0)).tolist()
    sequence = [reader.names[definition] for definition in raw.definition[rows]]
    phases = [reader.phase(raw, row) if name == "forward" else None for row, name in zip(rows, sequence, strict=True)]
    joined = find_joined(phases)
    without_modules = not any(name in (*FORWARDS, "fused") for name in sequence)
    gaps: list[tuple[int, int, str]] = []
    for at, (before, after) in enumerate(pairwise(rows)):
        name = ""
        if at + 1 in joined:
            name = "forward"
        elif sequence[at] == "forward":
            # Gradients are often cleared between the loss and its backward.
            follows = at + 1 + (sequence[at + 1] == "optimizer" and at + 2 < len(sequence))
            name = "loss" if sequence[follows] == "backward" else ""
            name = name if raw.parent[before] == raw.parent[rows[follows]] else ""
        elif without_modules and sequence[at + 1] == "backward":
            name = "forward"
        if name in reader.numbers and raw.parent[before] == raw.parent[after] and raw.start[after] > raw.end[before]:
            gaps.append((before, after, name))
    if not gaps:
        return raw, []
    reader.gaps = {len(raw.start) + at: before for at, (before, _, _) in enumerate(gaps)}
    first, second = (np.array([gap[side] for gap in gaps]) for side in (0, 1))
    appended = _append(
        raw,
        definition=np.array([reader.numbers[name] for _, _, name in gaps]),
        start=raw.end[first],
        end=raw.start[second],
        parent=raw.parent[first],
        level=raw.level[first],
    )
    return appended, [(before, after) for before, after, _ in gaps]


def _append(raw: RawSpans, **columns: np.ndarray) -> RawSpans:
    """Append rows with these columns."""
    joined: dict[str, Any] = {name: np.concatenate((getattr(raw, name), values)) for name, values in columns.items()}
    return replace(raw, **joined)


def _cut_nested_phases(
    raw: RawSpans, kind: np.ndarray, metrics: dict[str, np.ndarray], definitions: list[dict[str, Any]]
) -> tuple[RawSpans, np.ndarray, dict[str, np.ndarray], dict[int, int]]:
    """Cut phases that hold other phases, so that every moment belongs to one phase at most.

    A phase inside a layer (a gradient computed in a module's forward) stays a part of that layer. The last result maps
    the rows of a cut phase's other pieces to the row of its last piece.
    """
    is_phase = kind == "phase"
    around = _around(raw, is_phase)
    nested = np.flatnonzero(is_phase & (around >= 0))
    if not len(nested):
        return raw, kind, metrics, {}
    in_layer = _around(raw, is_phase | (kind == "layer")) != around
    kind = kind.copy()
    metrics = {column: values.copy() for column, values in metrics.items()}
    additive = _additive_columns(definitions)
    cuts: dict[int, list[int]] = {}
    for row in nested.tolist():
        holder = int(around[row])
        if in_layer[row] or definitions[raw.definition[row]]["name"] == definitions[raw.definition[holder]]["name"]:
            kind[row] = ""
            continue
        cuts.setdefault(holder, []).append(row)
        for column in additive:
            if column in metrics:
                metrics[column][holder] -= metrics[column][row]
    raw, moved, holders = _cut(raw, cuts)
    kind = np.concatenate((kind, np.full(len(holders), "phase", dtype=object)))
    missing = np.full(len(holders), np.nan)
    return raw, kind, {column: np.concatenate((values, missing)) for column, values in metrics.items()}, moved


def _around(raw: RawSpans, wanted: np.ndarray) -> np.ndarray:
    """For every row the nearest `wanted` row around it; -1 for none."""
    nearest = _ancestor(raw, wanted)
    around = np.full(len(wanted), -1, dtype=np.int64)
    inside = raw.parent >= 0
    around[inside] = nearest[raw.parent[inside]]
    return around


def _cut(raw: RawSpans, cuts: dict[int, list[int]]) -> tuple[RawSpans, dict[int, int], np.ndarray]:
    """Cut rows out of their holders: a holder ends at the first of them, and its other pieces are appended.

    Also returns the row of the last piece for each piece before it, and the holder of each piece.
    """
    end, parent = raw.end.copy(), raw.parent.copy()
    pieces: list[tuple[int, int, int]] = []
    first_row = len(end)
    own_pieces: dict[int, range] = {}
    for holder, rows in cuts.items():
        end[holder] = raw.start[rows[0]]
        parent[rows] = raw.parent[holder]
        begin = first_row + len(pieces)
        stops = [*raw.start[rows[1:]].tolist(), int(raw.end[holder])]
        pieces.extend((holder, start, stop) for start, stop in zip(raw.end[rows].tolist(), stops, strict=True))
        own_pieces[holder] = range(begin, first_row + len(pieces))
    for child in np.flatnonzero(np.isin(parent, list(cuts))).tolist():
        own = own_pieces[int(parent[child])]
        starts = [pieces[row - first_row][1] for row in own]
        later = bisect_right(starts, int(raw.start[child]))
        if later:
            parent[child] = own[later - 1]
    holders = np.array([holder for holder, _, _ in pieces], dtype=np.int64)
    appended = _append(
        replace(raw, end=end, parent=parent),
        definition=raw.definition[holders],
        start=np.array([start for _, start, _ in pieces], dtype=np.int64),
        end=np.array([stop for _, _, stop in pieces], dtype=np.int64),
        parent=raw.parent[holders],
        level=raw.level[holders],
    )
    last = {row: own[-1] for holder, own in own_pieces.items() for row in (holder, *own[:-1])}
    return appended, last, holders


def _announced_sections(
    raw: RawSpans, kind: np.ndarray, steps: np.ndarray, phase_rows: np.ndarray, definitions: list[dict[str, Any]]
) -> list[StepSection]:
    """Sections of a program that announces its steps itself; the name of a step is its part.

    Each announced epoch is a section, even if none of its steps was recorded.
    """
    sections: list[StepSection] = []
    starts = raw.start[phase_rows]
    around = _around(raw, kind == "epoch")
    epochs = _epochs(raw, kind, definitions)
    for row in steps.tolist():
        part = definitions[raw.definition[row]]["name"]
        first, last = np.searchsorted(starts, (raw.start[row], raw.end[row]))
        step = Step(part, list(range(first, last)), int(raw.start[row]), int(raw.end[row]))
        epoch = epochs.get(int(around[row]))
        if epoch is not None:
            epoch.steps.append(step)
            continue
        if not sections or sections[-1].part != part:
            sections.append(StepSection(part))
        sections[-1].steps.append(step)
    return sorted([*sections, *epochs.values()], key=lambda section: section.start)


def _epochs(raw: RawSpans, kind: np.ndarray, definitions: list[dict[str, Any]]) -> dict[int, StepSection]:
    """The sections of announced epochs by their rows. They are numbered within their part."""
    epochs: dict[int, StepSection] = {}
    numbers: dict[str, int] = {}
    for row in np.flatnonzero(kind == "epoch").tolist():
        part = definitions[raw.definition[row]]["name"]
        epochs[row] = StepSection(part, [], numbers.get(part, 0), (int(raw.start[row]), int(raw.end[row])))
        numbers[part] = numbers.get(part, 0) + 1
    return epochs


def _find_unknown_waits(
    sections: list[StepSection], phase_rows: np.ndarray, fetches: Facts, waits: dict[int, int]
) -> dict[int, str]:
    """Mark steps of graphs that fetch their input as warm-up, where their wait is not known and that of other steps of
    the part is: their phases have other times."""
    parts = {section.part for section in sections for step in section.steps for at in step.phases
            if int(phase_rows[at]) in waits}  # fmt: skip
    return {
        id(step): "warmup"
        for section in sections
        if section.part in parts
        for step in section.steps
        if any(row in fetches and row not in waits for row in phase_rows[step.phases].tolist())
    }


def _find_passes(
    raw: RawSpans, kind: np.ndarray, sections: list[StepSection], phase_rows: np.ndarray, events: ProcessEvents
) -> dict[int, str]:
    """The passes of steps by their identities. A step belongs to a pass if one of its phases does.

    A step that was counted only in part has no count, and its times are disturbed: it is marked as warm-up.
    """
    passes: dict[int, str] = {}
    starts, ends = raw.start[phase_rows], raw.end[phase_rows]
    # A program that compiles in every step has as many passes as steps.
    step_of = {at: id(step) for section in sections for step in section.steps for at in step.phases}
    cut = min((fact["uncounted_from"] for fact in events.facts if "uncounted_from" in fact), default=None)
    counted: set[int] = set()
    for row in np.flatnonzero(kind == "pass").tolist():
        name = events.definitions[raw.definition[row]]["name"]
        inside = np.flatnonzero((starts < raw.end[row]) & (ends > raw.start[row]))
        passes.update((step_of[at], name) for at in inside.tolist() if at in step_of)
        if name == "count":
            counted.update(at for at in inside.tolist() if cut is None or ends[at] <= cut)
    whole = [name in COMPUTING for name in (events.definitions[raw.definition[row]]["name"] for row in phase_rows)]
    for section in sections:
        for step in section.steps:
            if passes.get(id(step)) == "count" and any(whole[at] and at not in counted for at in step.phases):
                passes[id(step)] = "warmup"
    return passes
