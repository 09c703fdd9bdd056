"""What a graph of a TensorFlow program costs, layer by layer: a counted step made of what the collector counted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sonda.frameworks.harness.attribution import ORDER, Piece, Place, find_containers
from sonda.frameworks.reconstruction.assembly import Assembly
from sonda.frameworks.tensorflow.profile import FUSED, Scope, scoped_place, split_calls, time_by_place
from sonda.record.errors import SondaError
from sonda.record.spans import Spans
from sonda.targets.profiles.calls import CallLayers, Operation
from sonda.targets.profiles.tensorflow_events import profile_events_of

ROOT = ""
"""The path of the outermost layer."""
PRODUCTS = ("Conv", "Dense", "EinsumDense", "Depthwise", "Separable")
"""How classes of Keras layers begin whose products swallow what is behind them."""


@dataclass(frozen=True)
class Cost:
    """Operations of one kind in one scope: where they belong, FLOPs and bytes (NaN: nobody knows)."""

    place: Place
    kind: str
    dtype: str
    flops: float
    bytes: float


def costs_of(graph: Mapping[str, Any], scopes: Mapping[str, Scope]) -> list[list[Cost]]:
    """What the collector counted of each function that learns, by place; what is in no layer, loss or optimizer is a
    forward's."""

    def cost(scope: str, kind: str, dtype: str, flops: float | None, size: float | None) -> Cost:
        place = scoped_place(f"{scope}/{kind}:{kind}", scopes) or Place("forward", ROOT)
        return Cost(place, kind, dtype, np.nan if flops is None else flops, np.nan if size is None else size)

    return [[cost(*row) for row in function] for function in graph.get("costs", ())]


def of_product(name: str, place: Place | None, scopes: Mapping[str, Scope]) -> Place | None:
    """The place of an operation in which a product and what is behind it are fused: TensorFlow names it after the last
    of them, and it counts for the nearest product before."""
    if place is None or place.path not in scopes or not FUSED.search(name.rpartition(":")[2]):
        return place
    names = list(scopes)
    before = names[: names.index(place.path) + 1]
    product = next((one for one in reversed(before) if scopes[one].class_name.startswith(PRODUCTS)), place.path)
    return Place(place.phase, product)


def with_costs(
    assembly: Assembly, spans: Spans, graph: Mapping[str, Any], scopes: Mapping[str, Scope],
    functions: Sequence[Sequence[Cost]], notes: list[str],
) -> Spans:  # fmt: skip
    """The spans with a counted step behind the last training step. FLOPs go into the assembly too."""
    if "uncounted" in graph:
        notes.append(f"FLOPs are not counted: {graph['uncounted']}")
    calls = np.flatnonzero(spans.where(kind="phase", name="fused", pass_="timed"))
    if not any(functions) or not len(calls):
        return spans
    costs = _of_a_step(spans, calls, functions)
    if costs is None:
        notes.append("FLOPs are not counted: its steps do not all call the same functions")
        return spans
    last = int(spans.number("parent")[calls[np.argmax(spans.number("start")[calls])]])
    paths = paths_of(scopes, {one.place.path for one in costs})
    classes = {path: scopes[scope].class_name for scope, path in paths.items()}
    operations = []
    for one in costs:
        path = paths.get(one.place.path, ROOT)
        operations.append(Operation(one.place.phase, path, f"tensorflow.{one.kind}", one.flops, one.bytes))
        if np.isnan(one.flops):
            assembly.unknown[one.kind] = assembly.unknown.get(one.kind, 0) + 1
        elif one.flops:
            assembly.flops[one.dtype] = assembly.flops.get(one.dtype, 0.0) + one.flops
    layers = CallLayers(spans)
    layers.count(last, sorted(operations, key=lambda one: ORDER.index(one.phase)), classes)
    notes.append(
        "FLOPs are those of the graph as it was made, at the shapes of a call; what is fused moves fewer bytes"
    )
    return layers.table()


def _of_a_step(spans: Spans, calls: np.ndarray, functions: Sequence[Sequence[Cost]]) -> list[Cost] | None:
    """What each step does whose calls these are; None where steps differ, or do something outside of functions.

    A function that comes again begins another step. So each of as many calls as there are functions is another one's;
    where calls are fewer, nobody knows whose they are, which is all the same for functions that cost the same.
    """
    parent = spans.number("parent")
    steps, often = np.unique(parent[calls], return_counts=True)
    outside = np.isin(parent, steps) & (
        spans.where(kind="phase", name="forward") | spans.where(kind="phase", name="backward")
    )
    if len(set(often.tolist())) > 1 or outside.any():
        return None
    if often[0] == len(functions):
        return [one for function in functions for one in function]
    if any(_sums(one) != _sums(functions[0]) for one in functions[1:]):
        return None
    return [one for _ in range(int(often[0])) for one in functions[0]]


def _sums(costs: Sequence[Cost]) -> dict[tuple[str, str], tuple[float, ...]]:
    """By kind and type: operations of which all is known, their FLOPs and bytes, and other operations."""
    found: dict[tuple[str, str], tuple[float, ...]] = {}
    for one in costs:
        known = not np.isnan(one.flops + one.bytes)
        new = (1.0, one.flops, one.bytes, 0.0) if known else (0.0, 0.0, 0.0, 1.0)
        had = found.get((one.kind, one.dtype), (0.0,) * 4)
        found[one.kind, one.dtype] = tuple(a + b for a, b in zip(had, new, strict=True))
    return found


def paths_of(scopes: Mapping[str, Scope], used: Collection[str]) -> dict[str, str]:
    """The path of every layer that is used, or around one that is, by its scope: names from the outermost inwards.

    The one model that holds all others is left out, and has the path ''; of several each begins with its name. A layer
    that is called again has its path again; other layers of one name are numbered where they are called. A graph that
    was only made, and never run, has scopes of the same layers too.
    """
    layers = {scope: about for scope, about in scopes.items() if about.kind == "layer"}
    around = {scope: _around(scope, layers) for scope in layers}
    kept = {one for scope in used if scope in layers for one in (scope, *around[scope])}
    outermost = {around[scope][0] for scope in kept if around[scope]}
    """Models: they hold others."""
    models = {(layers[scope].name, layers[scope].number) for scope in outermost}
    found: dict[str, str] = {}
    taken: dict[tuple[str, str], list[int | str]] = {}
    # A layer may be met before the one around it, whose scope was a plain one in the graph before.
    for scope in dict.fromkeys(one for inner in layers if inner in kept for one in (*around[inner], inner)):
        about = layers[scope]
        if scope in outermost and len(models) == 1:
            found[scope] = ROOT
            continue
        holder = found[around[scope][-1]] if around[scope] else ROOT
        # A layer without a number is known by its scope alone.
        twins = taken.setdefault((holder, about.name), [])
        if (about.number or scope) not in twins:
            twins.append(about.number or scope)
        place = twins.index(about.number or scope)
        own = f"{about.name}#{place + 1}" if place else about.name
        found[scope] = f"{holder}.{own}" if holder else own
    return found


def _around(scope: str, layers: Mapping[str, Scope]) -> list[str]:
    """Scopes of the layers around that of a layer, outermost first."""
    pieces = scope.split("/")
    above = ("/".join(pieces[:count]) for count in range(1, len(pieces)))
    return [one for one in above if one in layers]


# ---- Phases and layers inside the compiled steps of a TensorFlow program, from TensorFlow's own profile of a --------


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
    found = split_calls(profile_events_of(directory / graph["profile"]), *map(str, graph["functions"]))
    if len(found) != len(made):
        notes.append(f"layers inside the graph are missing: its profile holds {len(found)} of {len(made)} calls")
        return spans
    rows = _rows(spans, made, origin)
    known: dict[str, Place | None] = {}

    def where(name: str) -> Place | None:
        if name not in known:
            known[name] = of_product(name, scoped_place(name, scopes), scopes)
        return known[name]

    times = {row: time_by_place(events, where) for row, events in zip(rows, found, strict=True) if row is not None}
    if not times:
        notes.append("layers inside the graph are missing: something was traced in every step that was profiled")
        return spans
    paths = paths_of(
        scopes,
        {place.path for one in times.values() for place in one} | {one.place.path for each in costs for one in each},
    )
    holders = find_containers({path: scopes[scope].class_name for scope, path in paths.items()})
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
    for thread, begin, until, traced in made:
        # The phase begins behind the graph's wait for its input.
        inside = phases[(threads == thread) & (start < until - origin) & (begin - origin < end)]
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
