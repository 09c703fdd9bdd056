"""Phases and layers inside the compiled steps of a TensorFlow program, from TensorFlow's own profile of a few of them.

The steps of the pass `pieces` ran under TensorFlow's profiler. Its operations have the names of the scopes that they
were made under, and the collector said which scopes are layers of Keras. Operations of a layer are added up; layers are
laid out one after the other inside the call: their durations are measured, their places within it are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sonda.frameworks.assembly import Assembly
from sonda.frameworks.call_pieces import ORDER, Piece, Place, holding
from sonda.frameworks.tensorflow_profile import Scope, calls, scoped_place, spent
from sonda.record.errors import SondaError
from sonda.record.span import Spans
from sonda.targets.call_layers import CallLayers
from sonda.targets.tensorflow_costs import Cost, costs_of, of_product, paths_of, with_costs
from sonda.targets.tensorflow_events import profile_events_of


def with_graph_layers(assembly: Assembly, spans: Spans, directory: Path, begin: int) -> tuple[Spans, list[str]]:
    """The spans with what the profiles of graphs tell of their steps behind them, and notes.

    `begin` is the begin of the run on the collector's clock, ns.
    """
    notes: list[str] = []
    for graph in assembly.graphs:
        scopes = {scope: Scope(*about) for scope, about in graph["scopes"].items()}
        costs = costs_of(graph, scopes)
        try:
            if "profile" in graph:
                spans = _added(spans, graph, scopes, costs, directory, begin, notes)
            elif "why" in graph:
                notes.append(f"layers inside the graph are missing: {graph['why']}")
        except (SondaError, ValueError, OSError) as error:
            notes.append(f"layers inside the graph are missing: {error}")
        spans = with_costs(assembly, spans, graph, scopes, costs, notes)
    return spans, notes


def _added(
    spans: Spans, graph: Mapping[str, Any], scopes: Mapping[str, Scope], costs: Sequence[Sequence[Cost]],
    directory: Path, origin: int, notes: list[str],
) -> Spans:  # fmt: skip
    made = graph["calls"]
    found = calls(profile_events_of(directory / graph["profile"]), *map(str, graph["functions"]))
    if len(found) != len(made):
        notes.append(f"layers inside the graph are missing: its profile holds {len(found)} of {len(made)} calls")
        return spans
    rows = _rows(spans, made, origin)
    known: dict[str, Place | None] = {}

    def where(name: str) -> Place | None:
        if name not in known:
            known[name] = of_product(name, scoped_place(name, scopes), scopes)
        return known[name]

    times = {row: spent(events, where) for row, events in zip(rows, found, strict=True) if row is not None}
    if not times:
        notes.append("layers inside the graph are missing: something was traced in every step that was profiled")
        return spans
    paths = paths_of(
        scopes,
        {place.path for one in times.values() for place in one} | {one.place.path for each in costs for one in each},
    )
    holders = holding({path: scopes[scope].class_name for scope, path in paths.items()})
    layers = CallLayers(spans)
    told = lasted = 0
    for row, one in times.items():
        told += layers.lay_out(row, _pieces(one, scopes, paths), holders)
        lasted += int(spans.number("duration")[row])
    notes.append(
        f"layers inside the graph are those of {len(times)} calls under TensorFlow's profiler, which tells "
        f"{100 * told / lasted:.0f} % of their time apart: what is fused counts for the layer of its product, "
        "and a moment in which operations run side by side counts once"
    )
    notes.append(
        f"the program waited {graph['spent_s']:.2g} s for TensorFlow's profiler to begin and to write, outside of its "
        "timed steps"
    )
    if graph["others"]:
        every = graph["others"] + graph["profiled"]
        notes.append(f"{every} functions of the program learn; layers are those of {graph['profiled']} of them")
    layers.begin_with_calls()
    return layers.table()


def _rows(spans: Spans, made: Sequence[Sequence[int]], origin: int) -> list[int | None]:
    """The row of each profiled call; None where something was traced in its step, or it failed."""
    phases = np.flatnonzero(spans.where(kind="phase", name="fused", pass_="pieces"))
    start, threads = spans.number("start")[phases], spans.number("thread")[phases]
    end = start + spans.number("duration")[phases]
    rows: list[int | None] = []
    for thread, begin, _, traced in made:
        inside = phases[(threads == thread) & (start <= begin - origin) & (begin - origin < end)]
        rows.append(int(inside[0]) if len(inside) == 1 and not traced else None)
    return rows


def _pieces(times: Mapping[Place, int], scopes: Mapping[str, Scope], paths: Mapping[str, str]) -> list[Piece]:
    """What a call spent by phase and layer, in the order of time; what is in no layer comes last in its phase."""
    found = []
    for phase in ORDER:
        mine = {place.path: ns for place, ns in times.items() if place.phase == phase}
        order = list(scopes) if phase != "backward" else list(scopes)[::-1]
        layers = [scope for scope in order if mine.get(scope) and scope in paths]
        found += [Piece(phase, paths[scope], scopes[scope].class_name, mine.pop(scope)) for scope in layers]
        if mine:
            found.append(Piece(phase, "", "", sum(mine.values())))
    return found
