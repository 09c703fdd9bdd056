"""What a graph of TensorFlow spends its time on, from TensorFlow's own profile: operations, layer by layer.

Every operation of a graph keeps the `tf.name_scope`s that it was made under, and the profile names it by them:
`gradient_tape/replica_1/forward/features.3/Conv2DBackpropInput` is the backward of the layer `features.3` on the second
replica. TensorFlow fuses a product with its bias and activation and names it after the last of them; such an operation
counts for the layer of its product. What moves values between devices counts as communication, whatever its scope.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sonda.frameworks.harness.attribution import COMMUNICATE, LOSS, Place, split_time

SCOPED = ("forward", LOSS, COMMUNICATE, "optimizer")
"""Scopes that are phases."""
GRADIENT = "gradient_tape"
MOVING = ("_Send", "_Recv", "_HostSend", "_HostRecv")
"""Operations between devices."""
UPDATING = ("ResourceApply", "ResourceSparseApply")
"""How the names of operations begin that are a whole update of an optimizer, whether or not Keras made it."""
FUSED = re.compile(r"Fused(?:Conv2D|MatMul)")
PRODUCTS = ("Conv2d", "Linear")
"""Layers whose product TensorFlow fuses with the bias and the activation behind it."""
CALL = re.compile(r"EagerLocalExecute: (?P<graph>__inference_(?P<function>.*)_\d+)$")


@dataclass(frozen=True)
class ProfileEvent:
    """One event of a profile: its name (`scopes/operation:Kind`), from when to when, ns by the profile's clock."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Scope:
    """A scope of a graph: what it is (layer, loss, optimizer), its name, its class, and the number of the layer."""

    kind: str
    name: str
    class_name: str
    number: int = 0


@contextmanager
def write_profile(tf: Any, folder: Path) -> Iterator[None]:
    """Have TensorFlow profile what runs in this block, and write the profile to a folder."""
    # Frames of Python would fill the profile and say nothing of operations.
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)
    tf.profiler.experimental.start(str(folder), options)
    try:
        yield
    finally:
        tf.profiler.experimental.stop()


def split_calls(events: Iterable[ProfileEvent], *functions: str) -> list[list[ProfileEvent]]:
    """The events of every call of some `tf.function`s, by call, in order of time.

    `functions` are names of functions, or of their graphs (`__inference_step_12`), which no other function has.
    """
    sequence = list(events)
    bounds = sorted(
        (event.start, event.end)
        for event in sequence
        if (match := CALL.match(event.name)) and not {match["graph"], match["function"]}.isdisjoint(functions)
    )
    by_call: list[list[ProfileEvent]] = [[] for _ in bounds]
    named = [event for event in sequence if ":" in event.name and not CALL.match(event.name)]
    number = 0
    for event in sorted(named, key=lambda event: event.start):
        while number < len(bounds) and bounds[number][1] <= event.start:
            number += 1
        if number < len(bounds) and bounds[number][0] <= event.start:
            by_call[number].append(replace(event, end=min(event.end, bounds[number][1])))
    return by_call


def place_of(name: str, classes: Mapping[str, str]) -> Place | None:
    """The place of an operation by its name in the profile; None where it is in no phase.

    `classes` are those of all layers by path, in the order of the network.
    """
    scopes, _, kind = name.rpartition(":")
    pieces = scopes.split("/")
    if kind in MOVING:
        return Place(COMMUNICATE, "")
    phase = next((piece for piece in pieces if piece in SCOPED), "")
    if not phase:
        return None
    if phase in (COMMUNICATE, "optimizer"):
        return Place(phase, "")
    backward = any(piece.startswith(GRADIENT) for piece in pieces)
    if phase == LOSS:
        return Place("backward" if backward else LOSS, LOSS if backward else "")
    path = next((piece for piece in pieces if piece in classes), "")
    if FUSED.search(kind):
        path = product_before(path, classes)
    return Place("backward" if backward else "forward", path)


def product_before(path: str, classes: Mapping[str, str]) -> str:
    """The path itself where its layer is a product, else that of the nearest product before it, if there is one."""
    paths = list(classes)
    before = paths[: paths.index(path) + 1] if path in classes else []
    return next((layer for layer in reversed(before) if classes[layer].startswith(PRODUCTS)), path)


def scoped_place(name: str, scopes: Mapping[str, Scope]) -> Place | None:
    """The place of an operation of a graph whose scopes are known; its path is the scope of the innermost layer.

    An operation in no known scope belongs to the backward where a gradient made it. Otherwise it has no place: None.
    """
    names, _, kind = name.rpartition(":")
    if kind in MOVING:
        return Place(COMMUNICATE, "")
    pieces = names.split("/")
    backward = any(piece.startswith(GRADIENT) for piece in pieces)
    longest = ""
    for first in range(len(pieces)):
        for last in range(len(pieces), first, -1):
            scope = "/".join(pieces[first:last])
            if scope in scopes and len(scope) > len(longest):
                longest = scope
    role = scopes[longest].kind if longest else ""
    if role == "optimizer" or (not role and kind.startswith(UPDATING)):
        return Place("optimizer", "")
    if role == LOSS:
        return Place("backward" if backward else LOSS, LOSS if backward else "")
    if role:
        return Place("backward" if backward else "forward", longest)
    return Place("backward", "") if backward else None


def time_by_place(events: Sequence[ProfileEvent], where: Callable[[str], Place | None]) -> dict[Place, int]:
    """The time (ns) of each place in one call. `where` gives the place of an operation by its name.

    Every moment counts once, for the operation that began last. It counts as communication only where nothing computes.
    """
    placed = [(event, place) for event in events if (place := where(event.name)) is not None]
    return split_time((event.start, event.end, place, place.phase == COMMUNICATE) for event, place in placed)
