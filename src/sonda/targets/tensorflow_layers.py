"""Phases and layers inside the compiled steps of a TensorFlow program, from TensorFlow's own profile of a few of them.

The steps of the pass `pieces` ran under TensorFlow's profiler. Its operations have the names of the scopes that they
were made under, and the collector said which scopes are layers of Keras. Operations of a layer are added up; layers are
laid out one after the other inside the call: their durations are measured, their places within it are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sonda.frameworks.assembly import Assembly
from sonda.frameworks.call_pieces import LOSS, ORDER, Place
from sonda.frameworks.tensorflow_profile import Scope, calls, scoped_place, spent
from sonda.record.errors import SondaError
from sonda.record.span import NUMBER_COLUMNS, TEXT_COLUMNS, Spans, Words, joined
from sonda.targets.tensorflow_costs import Cost, costs_of, of_product, paths_of, with_costs
from sonda.targets.tensorflow_events import profile_events_of


class _Row(NamedTuple):
    """A new span; `parent` is a row of the whole, `of` the row whose thread and rank it has."""

    of: int
    parent: int
    start: int
    duration: int
    kind: str
    name: str
    path: str = ""
    direction: str = ""


def with_graph_layers(assembly: Assembly, spans: Spans, directory: Path) -> tuple[Spans, list[str]]:
    """The spans with what the profiles of graphs tell of their steps behind them, and notes."""
    notes: list[str] = []
    for graph in assembly.graphs:
        scopes = {scope: Scope(*about) for scope, about in graph["scopes"].items()}
        costs = costs_of(graph, scopes)
        try:
            if "profile" in graph:
                spans = _added(spans, graph, scopes, costs, directory, notes)
        except (SondaError, ValueError, OSError) as error:
            notes.append(f"layers inside the graph are missing: {error}")
        spans = with_costs(assembly, spans, graph, scopes, costs, notes)
    return spans, notes


def _added(
    spans: Spans, graph: Mapping[str, Any], scopes: Mapping[str, Scope], costs: Sequence[Cost], directory: Path,
    notes: list[str],
) -> Spans:  # fmt: skip
    phases = np.flatnonzero(spans.where(kind="phase", name="fused", pass_="pieces"))
    phases = phases[np.argsort(spans.number("start")[phases], kind="stable")]
    found = calls(profile_events_of(directory / graph["profile"]), *map(str, graph["functions"]))
    if not len(phases) or len(found) != len(phases):
        notes.append(f"layers inside the graph are missing: its profile holds {len(found)} of {len(phases)} calls")
        return spans
    known: dict[str, Place | None] = {}

    def where(name: str) -> Place | None:
        if name not in known:
            known[name] = of_product(name, scoped_place(name, scopes), scopes)
        return known[name]

    times = [spent(events, where) for events in found]
    paths = paths_of(scopes, {place.path for one in times for place in one} | {one.place.path for one in costs})
    rows: list[_Row] = []
    firsts: dict[int, tuple[str, int]] = {}
    told = lasted = 0
    for phase, one in zip(phases.tolist(), times, strict=True):
        told += _lay_out(rows, firsts, spans, phase, one, scopes, paths)
        lasted += int(spans.number("duration")[phase])
    notes.append(
        f"layers inside the graph are those of {len(phases)} steps under TensorFlow's profiler, which tells "
        f"{100 * told / lasted:.0f} % of their time apart: what is fused counts for the layer of its product, "
        "and a moment in which operations run side by side counts once"
    )
    notes.append(
        f"the program waited {graph['spent_s']:.2g} s for TensorFlow's profiler to begin and to write, outside of its "
        "timed steps"
    )
    return _joined(_with_firsts(spans, firsts), rows)


def _lay_out(
    rows: list[_Row], firsts: dict[int, tuple[str, int]], spans: Spans, call: int, times: Mapping[Place, int],
    scopes: Mapping[str, Scope], paths: Mapping[str, str],
) -> int:  # fmt: skip
    """Phases and layers of one call, whose row is given, one after the other; ns that they take together.

    Phases do not lie in one another: the call's own row becomes the first of them, by name and ns in `firsts`.
    """
    step = int(spans.number("parent")[call])
    first = at = int(spans.number("start")[call])
    for phase in ORDER:
        mine = {place: ns for place, ns in times.items() if place.phase == phase}
        if not mine:
            continue
        if call not in firsts:
            holder, firsts[call] = call, (phase, sum(mine.values()))
        else:
            holder = len(spans) + len(rows)
            rows.append(_Row(call, step, at, sum(mine.values()), "phase", phase))
        direction = "backward" if phase == "backward" else "forward"
        order = list(scopes) if phase != "backward" else list(scopes)[::-1]
        for scope in order:
            lasted = mine.get(Place(phase, scope), 0)
            if lasted and scope in paths:
                named = scopes[scope].class_name
                rows.append(_Row(call, holder, at, lasted, "layer", named, paths[scope], direction))
                at += lasted
        at += sum(ns for place, ns in mine.items() if place.path not in paths or place.path in ("", LOSS))
    return at - first


def _with_firsts(spans: Spans, firsts: Mapping[int, tuple[str, int]]) -> Spans:
    """The spans with other names and durations of some; what was counted in these was counted in the whole call."""
    names, lasted = spans.words("name").decoded().astype(object), spans.number("duration").copy()
    for row, (name, duration) in firsts.items():
        names[row], lasted[row] = name, duration
    rows = list(firsts)
    metrics = {column: values.copy() for column, values in spans.metrics.items()}
    for values in metrics.values():
        values[rows] = np.nan
    numbers = {name: spans.number(name) for name in NUMBER_COLUMNS} | {"duration": lasted}
    words = {name: spans.words(name) for name in TEXT_COLUMNS} | {"name": Words.of(names.tolist())}
    return Spans(numbers, words, metrics)


def _joined(spans: Spans, rows: list[_Row]) -> Spans:
    of = np.array([row.of for row in rows], dtype=np.int64)
    more = Spans(
        {
            "start": np.array([row.start for row in rows]),
            "duration": np.array([row.duration for row in rows]),
            **{name: spans.number(name)[of] for name in ("rank", "thread")},
        },
        {
            **{name: Words.of(getattr(row, name) for row in rows) for name in ("kind", "name", "path", "direction")},
            "pass": Words.constant("pieces", len(rows)),
        },
    )
    return joined(spans, more, np.array([row.parent for row in rows], dtype=np.int64))
