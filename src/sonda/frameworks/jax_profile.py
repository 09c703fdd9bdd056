"""What a compiled function of JAX spends its time on, from JAX's own profile: operations of XLA, layer by layer.

XLA keeps with every instruction the `jax.named_scope`s that it came from: `jit(train)/transpose(jvp(forward))/stem.0`
is the backward of the layer `stem.0`. An instruction that several layers were fused into counts for the layer of its
convolution or product; where it holds those of several layers, for the layer around them; where it holds none, for the
layer of its last operation. One that XLA added (a copy into another layout) counts for the instruction that uses it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (.*)$")
PRODUCT = re.compile(r" (?:convolution|dot)\(")
CALLED = re.compile(r"calls=%?([\w.\-]+)")
SCOPES = re.compile(r'metadata=\{[^}]*?op_name="([^"]*)"')
OPERAND = re.compile(r"%([\w.\-]+)")
INNERMOST = re.compile(r"([^()]*)\)*$")
LOSS = "loss"
"""The phase; also the path of its backward, which is in no layer of the network."""
SCOPED = ("forward", LOSS, "optimizer")
MOST_USERS = 8
"""Steps from an instruction without scopes to one that uses its result."""


@dataclass(frozen=True)
class Place:
    """Where an instruction belongs: phase, and path of its layer ('' where it is in none)."""

    phase: str
    path: str


@dataclass(frozen=True)
class Operation:
    """One execution of an instruction: of which run of which compiled function, from when to when, ns."""

    module: str
    run: int
    name: str
    start: int
    end: int


@contextmanager
def profiled(jax: Any, folder: Path) -> Iterator[None]:
    """Have JAX write a profile of what runs in this block to a folder."""
    options = jax.profiler.ProfileOptions()
    # Frames of Python would fill the profile and say nothing of operations.
    options.python_tracer_level = 0
    jax.profiler.start_trace(str(folder), profiler_options=options)
    try:
        yield
    finally:
        jax.profiler.stop_trace()


def places(text: str, paths: Collection[str]) -> dict[str, Place]:
    """Where each instruction of a compiled function belongs, from its text (`compiled.as_text()`), by name.

    `paths` are those of the network's layers. Instructions of no phase are left out.
    """
    scopes: dict[str, str] = {}
    users: dict[str, list[str]] = {}
    called: dict[str, str] = {}
    products: dict[str, set[Place]] = {}
    computation = ""
    for line in text.splitlines():
        if (match := COMPUTATION.match(line)) is not None:
            computation = match[1]
            continue
        match = INSTRUCTION.match(line)
        if match is None:
            continue
        name, rest = match.groups()
        found = SCOPES.search(rest)
        scopes[name] = found[1] if found else ""
        if PRODUCT.search(rest) and (place := place_of(scopes[name], paths)) is not None:
            products.setdefault(computation, set()).add(place)
        inside = CALLED.search(rest)
        if inside is not None:
            called[name] = inside[1]
        for operand in OPERAND.findall(rest.partition(", metadata=")[0]):
            users.setdefault(operand, []).append(name)
    result = {}
    for name in scopes:
        heavy = products.get(called.get(name, ""), set())
        place = _around(heavy) if heavy else place_of(_scopes(name, scopes, users), paths)
        if place is not None:
            result[name] = place
    return result


def _around(found: set[Place]) -> Place:
    """The place of one, or of the layer around several; in the phase of most of them."""
    phases = sorted(place.phase for place in found)
    side_by_side = zip(*(place.path.split(".") for place in found), strict=False)
    shared = [names[0] for names in takewhile(lambda names: len(set(names)) == 1, side_by_side)]
    return Place(max(phases, key=phases.count), ".".join(shared))


def _scopes(name: str, scopes: Mapping[str, str], users: Mapping[str, list[str]]) -> str:
    """Of an instruction, or of the nearest that uses its result."""
    asked = [name]
    for _ in range(MOST_USERS):
        known = next((scopes[one] for one in asked if scopes.get(one)), "")
        if known:
            return known
        asked = [user for one in asked for user in users.get(one, ())]
    return ""


def place_of(scopes: str, paths: Collection[str]) -> Place | None:
    """`jit(train)/transpose(jvp(loss))/mul` is backward, outside of any layer; None for what is in no phase."""
    pieces = scopes.split("/")
    # Transformations are written around the outermost scope that they apply to.
    names = [match[1] if (match := INNERMOST.search(piece)) else piece for piece in pieces]
    phase = next((name for name in names if name in SCOPED), "")
    if not phase:
        return None
    path = next((name for name in reversed(names) if name in paths), "")
    if any(piece.startswith("transpose(") for piece in pieces):
        return Place("backward", LOSS if phase == LOSS else path)
    return Place(phase, path)


def exclusive(operations: Iterable[Operation]) -> dict[str, int]:
    """ns of each instruction in one run, every moment counted once: for the operation that began last."""
    edges: list[tuple[int, int, int]] = []
    known = list(operations)
    for number, one in enumerate(known):
        edges += ((one.start, 1, number), (one.end, 0, number))
    spent: dict[str, int] = {}
    active: dict[int, None] = {}
    before = 0
    # At the same moment an end comes first.
    for time, begins, number in sorted(edges):
        if active:
            name = known[next(reversed(active))].name
            spent[name] = spent.get(name, 0) + time - before
        before = time
        if begins:
            active[number] = None
        else:
            active.pop(number, None)
    return spent


def runs(operations: Iterable[Operation]) -> list[tuple[str, list[Operation]]]:
    """Operations by run, in order of time, each with the function's name (`jit_train`)."""
    found: dict[tuple[str, int], list[Operation]] = {}
    for one in operations:
        found.setdefault((one.module, one.run), []).append(one)
    ordered = sorted(found.items(), key=lambda item: min(one.start for one in item[1]))
    return [(module, inside) for (module, _), inside in ordered]
