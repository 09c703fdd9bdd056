"""What a graph of a TensorFlow program costs, layer by layer: a counted step made of what the collector counted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sonda.frameworks.assembly import Assembly
from sonda.frameworks.call_pieces import ORDER, Place
from sonda.frameworks.tensorflow_profile import FUSED, Scope, scoped_place
from sonda.record.span import Spans
from sonda.targets.call_layers import CallLayers, Operation

ROOT = ""
"""The path of the outermost layer."""
PRODUCTS = ("Conv", "Dense", "EinsumDense", "Depthwise", "Separable")
"""How classes of Keras layers begin whose products swallow what is behind them."""


@dataclass(frozen=True)
class Cost:
    """Operations of one kind in one scope: where they belong, FLOPs and bytes."""

    place: Place
    kind: str
    dtype: str
    flops: float
    bytes: float


def costs_of(graph: Mapping[str, Any], scopes: Mapping[str, Scope]) -> list[Cost]:
    """What the collector counted, by place; what is in no layer, loss or optimizer is a forward's."""
    return [
        Cost(scoped_place(f"{scope}/{kind}:{kind}", scopes) or Place("forward", ROOT), kind, dtype, flops, size)
        for scope, kind, dtype, flops, size in graph.get("costs", ())
    ]


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
    assembly: Assembly, spans: Spans, graph: Mapping[str, Any], scopes: Mapping[str, Scope], costs: Sequence[Cost],
    notes: list[str],
) -> Spans:  # fmt: skip
    """The spans with a counted step behind the last training step that is one call. FLOPs go into the assembly too."""
    if "uncounted" in graph:
        notes.append(f"FLOPs are not counted: {graph['uncounted']}")
    calls = np.flatnonzero(spans.where(kind="phase", name="fused", pass_="timed"))
    if not costs or not len(calls):
        return spans
    last = int(spans.number("parent")[calls[np.argmax(spans.number("start")[calls])]])
    paths = paths_of(scopes, {one.place.path for one in costs})
    classes = {path: scopes[scope].class_name for scope, path in paths.items()}
    operations = []
    for one in costs:
        path = paths.get(one.place.path, ROOT)
        operations.append(Operation(one.place.phase, path, f"tensorflow.{one.kind}", one.flops, one.bytes))
        if one.flops:
            assembly.flops[one.dtype] = assembly.flops.get(one.dtype, 0.0) + one.flops
    for kind, often in graph.get("unknown", {}).items():
        assembly.unknown[kind] = assembly.unknown.get(kind, 0) + often
    layers = CallLayers(spans)
    layers.count(last, sorted(operations, key=lambda one: ORDER.index(one.phase)), classes)
    notes.append(
        "FLOPs are those of the graph as it was made, at the shapes of a call; what is fused moves fewer bytes"
    )
    return layers.table()


def paths_of(scopes: Mapping[str, Scope], used: Collection[str]) -> dict[str, str]:
    """The path of every layer that is used, by its scope: names of the layers around it, the outermost left out.

    A layer by itself, that neither holds others nor is held, has its own name. Twins are numbered. A graph that was
    only made, and never run, has scopes of the same layers too.
    """
    found: dict[str, str] = {}
    taken: dict[str, int] = {}
    holders = {scope.rpartition("/")[0] for scope, about in scopes.items() if about.kind == "layer"}
    holders |= {"/".join(holder.split("/")[:count]) for holder in holders for count in range(1, holder.count("/") + 1)}
    for scope, about in scopes.items():
        if about.kind != "layer" or scope not in used:
            continue
        pieces = scope.split("/")
        above = ["/".join(pieces[:count]) for count in range(1, len(pieces))]
        names = [scopes[one].name for one in above if one in scopes and scopes[one].kind == "layer"]
        path = ".".join([*names[1:], about.name]) if names else ROOT if scope in holders else about.name
        taken[path] = taken.get(path, 0) + 1
        found[scope] = path if taken[path] == 1 or not path else f"{path}#{taken[path]}"
    return found
