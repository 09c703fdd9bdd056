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
"""How operations begin that are an optimizer's whole update, also of one that is none of Keras'."""
FUSED = re.compile(r"Fused(?:Conv2D|MatMul)")
PRODUCTS = ("Conv2d", "Linear")
"""Layers whose products swallow the bias and the activation behind them."""
CALL = re.compile(r"EagerLocalExecute: (?P<graph>__inference_(?P<function>.*)_\d+)$")


@dataclass(frozen=True)
class Event:
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
def profiled(tf: Any, folder: Path) -> Iterator[None]:
    """Have TensorFlow write a profile of what runs in this block to a folder."""
    # Frames of Python would fill the profile and say nothing of operations.
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)
    tf.profiler.experimental.start(str(folder), options)
    try:
        yield
    finally:
        tf.profiler.experimental.stop()


def calls(events: Iterable[Event], *functions: str) -> list[list[Event]]:
    """The events of every call of a `tf.function`, by call, in order of time.

    Functions have their name, or those of their graphs (`__inference_step_12`), which no other function has.
    """
    known = list(events)
    bounds = sorted(
        (one.start, one.end)
        for one in known
        if (match := CALL.match(one.name)) and not {match["graph"], match["function"]}.isdisjoint(functions)
    )
    found: list[list[Event]] = [[] for _ in bounds]
    named = [one for one in known if ":" in one.name and not CALL.match(one.name)]
    at = 0
    for one in sorted(named, key=lambda one: one.start):
        while at < len(bounds) and bounds[at][1] <= one.start:
            at += 1
        if at < len(bounds) and bounds[at][0] <= one.start:
            found[at].append(replace(one, end=min(one.end, bounds[at][1])))
    return found


def place_of(name: str, classes: Mapping[str, str]) -> Place | None:
    """The place of an operation by its name in the profile; None for what is in no phase.

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
    """The layer itself where it is a product, else the nearest product before it; itself where there is none."""
    paths = list(classes)
    before = paths[: paths.index(path) + 1] if path in classes else []
    return next((one for one in reversed(before) if classes[one].startswith(PRODUCTS)), path)


def scoped_place(name: str, scopes: Mapping[str, Scope]) -> Place | None:
    """The place of an operation of a graph whose scopes are known; its path is the scope of the innermost layer.

    What is in no known scope is backward where a gradient made it, and nowhere otherwise.
    """
    words, _, kind = name.rpartition(":")
    if kind in MOVING:
        return Place(COMMUNICATE, "")
    pieces = words.split("/")
    backward = any(piece.startswith(GRADIENT) for piece in pieces)
    found = ""
    for first in range(len(pieces)):
        for last in range(len(pieces), first, -1):
            scope = "/".join(pieces[first:last])
            if scope in scopes and len(scope) > len(found):
                found = scope
    of = scopes[found].kind if found else ""
    if of == "optimizer" or (not of and kind.startswith(UPDATING)):
        return Place("optimizer", "")
    if of == LOSS:
        return Place("backward" if backward else LOSS, LOSS if backward else "")
    if of:
        return Place("backward" if backward else "forward", found)
    return Place("backward", "") if backward else None


def spent(events: Sequence[Event], where: Callable[[str], Place | None]) -> dict[Place, int]:
    """ns of each place in one call. Every moment counts once: for the operation that began last, and for communication
    only where nothing is computed. `where` is the place of an operation by its name."""
    placed = [(one, place) for one in events if (place := where(one.name)) is not None]
    return split_time((one.start, one.end, place, place.phase == COMMUNICATE) for one, place in placed)
