"""Layers inside the graphs of a TensorFlow program: their costs, as a counted step, and their times."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from sonda.frameworks.harness.attribution import ORDER, Piece, Place, find_containers
from sonda.frameworks.reconstruction.assembly import Assembly
from sonda.frameworks.tensorflow.profile.operations import FUSED, Scope, scoped_place, split_calls, time_by_place
from sonda.record.errors import SondaError
from sonda.record.spans import Spans
from sonda.targets.profiles.call_layers import CallLayers, CountedOperation
from sonda.targets.profiles.tensorflow_events import read_profile_events

ROOT = ""
"""The path of the outermost layer."""
PRODUCTS = ("Conv", "Dense", "EinsumDense", "Depthwise", "Separable")
"""Beginnings of the names of Keras layers whose products TensorFlow fuses with the operations behind them."""


class ProfiledCall(NamedTuple):
    """A call of a graph under TensorFlow's profiler, by the collector's clock."""

    thread: int
    begin: int
    end: int
    """ns, as is `begin`."""
    traced: bool
    """Whether something was traced in its step."""


class GraphProfile(msgspec.Struct, kw_only=True):
    """What the collector states of the graphs of a program (`frameworks/tensorflow/observe/graph_pass.py`)."""

    scopes: dict[str, Scope] = {}
    """By the name that a scope has in the graph."""
    costs: list[list[tuple[str, str, str, float | None, float | None]]] = []
    """Of every function that learns: scope, kind and type of operations, their FLOPs and bytes where known."""
    uncounted: str | None = None
    """Why there are no costs."""
    profile: str | None = None
    """The folder with TensorFlow's profile."""
    why: str | None = None
    """Why there is no profile."""
    functions: list[str] = []
    """Names that the profile has for the functions that were profiled."""
    calls: list[ProfiledCall] = []
    spent_s: float = 0.0
    """s that the program waited for the profiler."""
    profiled: int = 0
    others: int = 0
    """Functions that learn and were not profiled."""


@dataclass(frozen=True)
class GraphCost:
    """Operations of one kind in one scope: their place, FLOPs and bytes (NaN: not known)."""

    place: Place
    kind: str
    dtype: str
    flops: float
    bytes: float


def read_graph_profile(facts: Mapping[str, Any]) -> GraphProfile:
    """The facts that a collector's file states of graphs, where a scope is the list of its fields."""
    scopes = {scope: Scope(*fields) for scope, fields in facts["scopes"].items()}
    return msgspec.convert({**facts, "scopes": scopes}, GraphProfile, strict=False)


def costs_of(graph: GraphProfile) -> list[list[GraphCost]]:
    """What the collector counted of each function that learns, by place.

    An operation that is in no layer, loss or optimizer belongs to the forward.
    """

    def cost(scope: str, kind: str, dtype: str, flops: float | None, size: float | None) -> GraphCost:
        place = scoped_place(f"{scope}/{kind}:{kind}", graph.scopes) or Place("forward", ROOT)
        return GraphCost(place, kind, dtype, np.nan if flops is None else flops, np.nan if size is None else size)

    return [[cost(*row) for row in function] for function in graph.costs]


def product_place(name: str, place: Place | None, scopes: Mapping[str, Scope]) -> Place | None:
    """The place of an operation; of a fused one, that of its product.

    TensorFlow names a fused operation after the last of its parts. It counts for the nearest product before that.
    """
    if place is None or place.path not in scopes or not FUSED.search(name.rpartition(":")[2]):
        return place
    names = list(scopes)
    scopes_so_far = names[: names.index(place.path) + 1]
    product = next(
        (scope for scope in reversed(scopes_so_far) if scopes[scope].class_name.startswith(PRODUCTS)), place.path
    )
    return Place(place.phase, product)


def with_costs(
    assembly: Assembly, spans: Spans, graph: GraphProfile, functions: Sequence[Sequence[GraphCost]], notes: list[str]
) -> Spans:
    """The spans with a counted step behind the last training step. FLOPs go into the assembly too."""
    scopes = graph.scopes
    if graph.uncounted is not None:
        notes.append(f"FLOPs are not counted: {graph.uncounted}")
    calls = np.flatnonzero(spans.where(kind="phase", name="fused", pass_="timed"))
    if not any(functions) or not len(calls):
        return spans
    costs = _step_costs(spans, calls, functions)
    if costs is None:
        notes.append("FLOPs are not counted: its steps do not all call the same functions")
        return spans
    last = int(spans.number("parent")[calls[np.argmax(spans.number("start")[calls])]])
    paths = paths_of(scopes, {cost.place.path for cost in costs})
    classes = {path: scopes[scope].class_name for scope, path in paths.items()}
    operations = []
    for cost in costs:
        path = paths.get(cost.place.path, ROOT)
        operations.append(CountedOperation(cost.place.phase, path, f"tensorflow.{cost.kind}", cost.flops, cost.bytes))
        if np.isnan(cost.flops):
            assembly.unknown[cost.kind] = assembly.unknown.get(cost.kind, 0) + 1
        elif cost.flops:
            assembly.flops[cost.dtype] = assembly.flops.get(cost.dtype, 0.0) + cost.flops
    layers = CallLayers(spans)
    layers.count(last, sorted(operations, key=lambda operation: ORDER.index(operation.phase)), classes)
    notes.append(
        "FLOPs are those of the graph as it was made, at the shapes of a call; what is fused moves fewer bytes"
    )
    return layers.table()


def _step_costs(spans: Spans, calls: np.ndarray, functions: Sequence[Sequence[GraphCost]]) -> list[GraphCost] | None:
    """The costs of each step with these calls; None where steps differ, or compute outside of functions.

    A function that is called again begins another step. So where a step has as many calls as there are functions, each
    is of another function. Where it has fewer, it is not known which are called; that does not matter for functions
    that cost the same.
    """
    parent = spans.number("parent")
    steps, calls_per_step = np.unique(parent[calls], return_counts=True)
    outside = np.isin(parent, steps) & (
        spans.where(kind="phase", name="forward") | spans.where(kind="phase", name="backward")
    )
    if len(set(calls_per_step.tolist())) > 1 or outside.any():
        return None
    if calls_per_step[0] == len(functions):
        return [cost for function in functions for cost in function]
    if any(_sums(function) != _sums(functions[0]) for function in functions[1:]):
        return None
    return [cost for _ in range(int(calls_per_step[0])) for cost in functions[0]]


def _sums(costs: Sequence[GraphCost]) -> dict[tuple[str, str], tuple[float, ...]]:
    """By kind and type: the number of operations with known costs, their FLOPs and bytes, and the number of others."""
    sums: dict[tuple[str, str], tuple[float, ...]] = {}
    for cost in costs:
        is_known = not np.isnan(cost.flops + cost.bytes)
        new = (1.0, cost.flops, cost.bytes, 0.0) if is_known else (0.0, 0.0, 0.0, 1.0)
        before = sums.get((cost.kind, cost.dtype), (0.0,) * 4)
        sums[cost.kind, cost.dtype] = tuple(a + b for a, b in zip(before, new, strict=True))
    return sums


def paths_of(scopes: Mapping[str, Scope], used: Collection[str]) -> dict[str, str]:
    """The path of every layer that is used, or that contains a used one, by scope: names from the outermost inwards.

    A single outermost model has the path '' and is not in other paths; of several, paths begin with their names. Calls
    of one layer share a path. Different layers of one name are numbered in the order of their calls. A graph that was
    made and never run has scopes of the same layers too.
    """
    layers = {scope: scope_facts for scope, scope_facts in scopes.items() if scope_facts.kind == "layer"}
    around = {scope: _enclosing_scopes(scope, layers) for scope in layers}
    used_scopes = {layer for scope in used if scope in layers for layer in (scope, *around[scope])}
    outermost = {around[scope][0] for scope in used_scopes if around[scope]}
    """Models: they contain other layers."""
    models = {(layers[scope].name, layers[scope].number) for scope in outermost}
    paths: dict[str, str] = {}
    numbers_of_name: dict[tuple[str, str], list[int | str]] = {}
    # A layer may come before the one around it, which had no scope of its own in an earlier graph.
    for scope in dict.fromkeys(layer for inner in layers if inner in used_scopes for layer in (*around[inner], inner)):
        layer_scope = layers[scope]
        if scope in outermost and len(models) == 1:
            paths[scope] = ROOT
            continue
        holder = paths[around[scope][-1]] if around[scope] else ROOT
        # A layer without a number is known by its scope alone.
        twins = numbers_of_name.setdefault((holder, layer_scope.name), [])
        if (layer_scope.number or scope) not in twins:
            twins.append(layer_scope.number or scope)
        place = twins.index(layer_scope.number or scope)
        own_name = f"{layer_scope.name}#{place + 1}" if place else layer_scope.name
        paths[scope] = f"{holder}.{own_name}" if holder else own_name
    return paths


def _enclosing_scopes(scope: str, layers: Mapping[str, Scope]) -> list[str]:
    """Scopes of the layers around that of a layer, outermost first."""
    pieces = scope.split("/")
    above = ("/".join(pieces[:count]) for count in range(1, len(pieces)))
    return [enclosing for enclosing in above if enclosing in layers]


# ---- Phases and layers inside the compiled steps of a program, from TensorFlow's own profile of a few calls ---------


def with_graph_layers(assembly: Assembly, spans: Spans, directory: Path, begin: int) -> tuple[Spans, list[str]]:
    """The spans with layers and costs from the profiles of graphs behind them, and notes.

    `begin` is when the run began on the collector's clock, ns.
    """
    notes: list[str] = []
    for facts in assembly.graphs:
        graph = read_graph_profile(facts)
        costs = costs_of(graph)
        try:
            if graph.profile is not None:
                spans = _add_layers(spans, graph, directory / graph.profile, costs, begin, notes)
            elif graph.why is not None:
                notes.append(f"layers inside the graph are missing: {graph.why}")
        except (SondaError, ValueError, OSError) as error:
            notes.append(f"layers inside the graph are missing: {error}")
        spans = with_costs(assembly, spans, graph, costs, notes)
    return spans, notes


def _add_layers(
    spans: Spans, graph: GraphProfile, folder: Path, costs: Sequence[Sequence[GraphCost]], origin: int, notes: list[str]
) -> Spans:
    """The spans with the phases and layers of the calls that the profile in a folder holds; says in `notes` why not."""
    scopes = graph.scopes
    call_events = split_calls(read_profile_events(folder), *graph.functions)
    if len(call_events) != len(graph.calls):
        holds = f"its profile holds {len(call_events)} of {len(graph.calls)} calls"
        notes.append(f"layers inside the graph are missing: {holds}")
        return spans
    rows = _profiled_rows(spans, graph.calls, origin)
    places: dict[str, Place | None] = {}

    def where(name: str) -> Place | None:
        if name not in places:
            places[name] = product_place(name, scoped_place(name, scopes), scopes)
        return places[name]

    times = {
        row: time_by_place(events, where) for row, events in zip(rows, call_events, strict=True) if row is not None
    }
    if not times:
        notes.append("layers inside the graph are missing: something was traced in every step that was profiled")
        return spans
    paths = paths_of(
        scopes,
        {place.path for call_times in times.values() for place in call_times}
        | {cost.place.path for function in costs for cost in function},
    )
    holders = find_containers({path: scopes[scope].class_name for scope, path in paths.items()})
    layers = CallLayers(spans)
    attributed = lasted = 0
    for row, call_times in times.items():
        attributed += layers.lay_out(row, _call_pieces(call_times, scopes, paths), holders)
        lasted += int(spans.number("duration")[row])
    notes.append(
        f"layers inside the graph are those of {len(times)} calls under TensorFlow's profiler, which tells "
        f"{100 * attributed / lasted:.0f} % of their time apart: what is fused counts for the layer of its product, "
        "and a moment in which operations run side by side counts once"
    )
    notes.append(
        f"the program waited {graph.spent_s:.2g} s for TensorFlow's profiler to begin and to write, outside of its "
        "timed steps"
    )
    if graph.others:
        learning = graph.others + graph.profiled
        notes.append(f"{learning} functions of the program learn; layers are those of {graph.profiled} of them")
    layers.begin_with_calls()
    return layers.table()


def _profiled_rows(spans: Spans, profiled_calls: Sequence[ProfiledCall], origin: int) -> list[int | None]:
    """The row of each profiled call; None where something was traced in its step, or it failed."""
    phases = np.flatnonzero(spans.where(kind="phase", name="fused", pass_="pieces"))
    start, threads = spans.number("start")[phases], spans.number("thread")[phases]
    end = start + spans.number("duration")[phases]
    rows: list[int | None] = []
    for call in profiled_calls:
        # The phase begins behind the graph's wait for its input.
        inside = phases[(threads == call.thread) & (start < call.end - origin) & (call.begin - origin < end)]
        rows.append(int(inside[0]) if len(inside) == 1 and not call.traced else None)
    return rows


def _call_pieces(times: Mapping[Place, int], scopes: Mapping[str, Scope], paths: Mapping[str, str]) -> list[Piece]:
    """The time of a call by phase and layer, in order; time outside of layers comes last in its phase."""
    pieces = []
    for phase in ORDER:
        phase_times = {place.path: ns for place, ns in times.items() if place.phase == phase}
        order = list(scopes) if phase != "backward" else list(scopes)[::-1]
        layers = [scope for scope in order if phase_times.get(scope) and scope in paths]
        pieces += [Piece(phase, paths[scope], scopes[scope].class_name, phase_times.pop(scope)) for scope in layers]
        if phase_times:
            pieces.append(Piece(phase, "", "", sum(phase_times.values())))
    return pieces
