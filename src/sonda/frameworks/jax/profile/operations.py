"""What a compiled function of JAX spends its time on, from JAX's own profile: operations of XLA, layer by layer.

XLA keeps with every instruction the `jax.named_scope`s that it came from: `jit(train)/transpose(jvp(forward))/stem.0`
is the backward of the layer `stem.0`. An instruction that several layers were fused into counts for the layer of its
convolution or product; where it holds those of several layers, for the layer around them; where it holds none, for the
layer of its last operation. One that XLA added (a copy into another layout) counts for the instruction that uses it, a
product that it wrote anew for the layer whose weights it reads or changes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from sonda.frameworks.harness.attribution import LOSS, Place, split_time
from sonda.frameworks.jax.observe.profiler import start_trace
from sonda.frameworks.jax.profile.hlo import Instruction, Module
from sonda.frameworks.jax.profile.twins import PRODUCTS, Twins

INNERMOST = re.compile(r"([^()]*)\)*$")
SCOPED = ("forward", LOSS, "optimizer")
MOST_USERS = 8
"""Steps from an instruction without scopes to one that uses its result."""


@dataclass(frozen=True)
class Operation:
    """One execution of an instruction: of which run of which compiled function, from when to when, ns."""

    module: str
    run: int
    name: str
    start: int
    end: int
    program: int = 0
    """A number that no other compiled function has, where the profile tells it."""
    device: int = 0
    """The number of the GPU that ran it."""
    graph: bool = False
    """Whether it ran in a CUDA graph, and is named by its kernel."""


@contextmanager
def profiled(jax: Any, folder: Path) -> Iterator[None]:
    """Have JAX write a profile of what runs in this block to a folder."""
    start_trace(jax.profiler, str(folder))
    try:
        yield
    finally:
        jax.profiler.stop_trace()


def places(module: Module, where: Callable[[Instruction], Place | None]) -> dict[str, Place]:
    """Where each instruction of a compiled function belongs, by name; `where`: by what the instruction itself says.

    Instructions of no phase are left out.
    """
    users: dict[str, list[Instruction]] = {}
    products: dict[str, set[Place]] = {}
    for computation, inside in module.computations.items():
        for one in inside:
            if one.opcode in PRODUCTS and (place := where(one)) is not None:
                products.setdefault(computation, set()).add(place)
            for operand in one.operands:
                users.setdefault(operand, []).append(one)
    twins = Twins(module, users)
    after: set[str] = set()
    """What is made of gradients."""
    result = {}
    for name, one in module.named.items():
        held = one.called if one.opcode in ("fusion", "call") else ()
        heavy = {place for inner in held for place in products.get(inner, ())}
        place = _around(heavy) if heavy else where(one) if one.scopes else None
        if place is None and not one.scopes:
            place = _product(one, twins, where, after) or _used(name, users, where)
        if place is not None:
            result[name] = place
        if (place is not None and place.phase == "backward") or not after.isdisjoint(one.operands):
            after.add(name)
    return result


def _product(
    one: Instruction, twins: Twins, where: Callable[[Instruction], Place | None], after: Collection[str]
) -> Place | None:
    """Of a product without scopes: the layer whose weights it shares, where that is one."""
    for found in twins.of(one) if twins.product(one) else ():
        places = {place for twin in found if (place := where(twin)) is not None}
        if len({place.path for place in places}) == 1:
            backward = any(name in after for name in one.operands)
            forward = next((place.phase for place in places if place.phase != "backward"), "forward")
            return Place("backward" if backward else forward, next(iter(places)).path)
    return None


def _around(found: set[Place]) -> Place:
    """The place of one, or of the layer around several; in the phase of most of them."""
    phases = sorted(place.phase for place in found)
    side_by_side = zip(*(place.path.split(".") for place in found), strict=False)
    shared = [names[0] for names in takewhile(lambda names: len(set(names)) == 1, side_by_side)]
    return Place(max(phases, key=phases.count), ".".join(shared))


def _used(
    name: str, users: Mapping[str, list[Instruction]], where: Callable[[Instruction], Place | None]
) -> Place | None:
    """The place of the nearest instruction with scopes that uses the result of one without."""
    asked = [name]
    for _ in range(MOST_USERS):
        using = [one for name in asked for one in users.get(name, ())]
        known = next((one for one in using if one.scopes), None)
        if known is not None:
            return where(known)
        asked = list(dict.fromkeys(one.name for one in using))
    return None


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


def exclusive(operations: Iterable[Operation], waiting: Collection[str] = ()) -> dict[str, int]:
    """ns of each instruction in one run, every moment counted once: for the operation that began last, and for those
    of names `waiting` only where no other runs."""
    return split_time((one.start, one.end, one.name, one.name in waiting) for one in operations)


def by_place(spent: Mapping[str, int], known: Mapping[str, Place], phase: str = "") -> dict[Place, int]:
    """ns by place of what instructions spent; `phase`, where given, is that of all of them."""
    times: dict[Place, int] = {}
    for name, lasted in spent.items():
        place = known.get(name)
        if place is not None:
            place = Place(phase, place.path) if phase else place
            times[place] = times.get(place, 0) + lasted
    return times


def runs(operations: Iterable[Operation]) -> list[tuple[str, list[Operation]]]:
    """Operations by run, in order of time, each with the function's name (`jit_train`)."""
    found: dict[tuple[str, int, int], list[Operation]] = {}
    for one in operations:
        found.setdefault((one.module, one.program, one.run), []).append(one)
    ordered = sorted(found.items(), key=lambda item: min(one.start for one in item[1]))
    return [(module, inside) for (module, _, _), inside in ordered]


# ---- Which run of a compiled function an operation of JAX's profile belongs to, where the profile of a GPU ----------

BEGINS = re.compile(r"^\[(\d+)\] GpuExecutable::ExecuteThunks$")
"""What the host does to begin a run on the GPU of this number; its stat `module_name` says of which function."""
GRAPH = re.compile(r"^command_buffer(_\d+)?$")


def numbered(
    operations: Iterable[tuple[Operation, int, int]], begins: Mapping[tuple[str, int], Sequence[int]]
) -> Iterator[Operation]:
    """Operations of GPUs with the numbers of their runs, from 1, the same on all GPUs.

    Each comes with the number of its GPU and when it was launched, ns; `begins` holds when the runs of a function began
    on a GPU. What was launched before the first is left out.
    """
    ordered = {key: sorted(times) for key, times in begins.items()}
    for one, gpu, launched in operations:
        run = bisect_right(ordered.get((one.module, gpu), ()), launched)
        if run:
            yield replace(one, run=run, device=gpu)
