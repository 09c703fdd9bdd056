"""What a compiled function of JAX spends its time on, from JAX's own profile: operations of XLA, layer by layer.

XLA keeps with every instruction the `jax.named_scope`s that it came from: `jit(train)/transpose(jvp(forward))/stem.0`
is the backward of the layer `stem.0`. An instruction into which several layers were fused counts for the layer of its
convolution or matrix product. With products of several layers it counts for the layer around them, with no product for
the layer of its last operation. An instruction that XLA added (a copy into another layout) counts for the instruction
that uses it. A product that XLA rewrote counts for the layer whose weights it reads or changes.
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
from sonda.frameworks.jax.profile.twins import PRODUCTS, ProductTwins

INNERMOST = re.compile(r"([^()]*)\)*$")
SCOPED = ("forward", LOSS, "optimizer")
MOST_USERS = 8
"""How far to look for a user with scopes, from an instruction without scopes."""


@dataclass(frozen=True)
class XlaOperation:
    """One execution of an instruction, from `start` to `end` (ns), in a run of a compiled function."""

    module: str
    run: int
    name: str
    start: int
    end: int
    program: int = 0
    """A number that identifies the compiled function, where the profile has one."""
    device: int = 0
    """The number of the GPU that ran it."""
    graph: bool = False
    """Whether it ran in a CUDA graph, and is named by its kernel."""


@contextmanager
def write_profile(jax: Any, folder: Path) -> Iterator[None]:
    """Have JAX profile what runs in this block, and write the profile to a folder."""
    start_trace(jax.profiler, str(folder))
    try:
        yield
    finally:
        jax.profiler.stop_trace()


def locate_instructions(module: Module, where: Callable[[Instruction], Place | None]) -> dict[str, Place]:
    """The place of each instruction of a compiled function by name; instructions of no phase are left out.

    `where` gives the place that an instruction's own scopes tell, None where they tell none.
    """
    users: dict[str, list[Instruction]] = {}
    products: dict[str, set[Place]] = {}
    for computation, instructions in module.computations.items():
        for instruction in instructions:
            if instruction.opcode in PRODUCTS and (place := where(instruction)) is not None:
                products.setdefault(computation, set()).add(place)
            for operand in instruction.operands:
                users.setdefault(operand, []).append(instruction)
    twins = ProductTwins(module, users)
    after_gradients: set[str] = set()
    """Names of instructions that come after gradients."""
    located = {}
    for name, instruction in module.by_name.items():
        called = instruction.callees if instruction.opcode in ("fusion", "call") else ()
        product_places = {place for inner in called for place in products.get(inner, ())}
        place = _common_place(product_places) if product_places else where(instruction) if instruction.scopes else None
        if place is None and not instruction.scopes:
            place = _product_place(instruction, twins, where, after_gradients) or _user_place(name, users, where)
        if place is not None:
            located[name] = place
        if (place is not None and place.phase == "backward") or not after_gradients.isdisjoint(instruction.operands):
            after_gradients.add(name)
    return located


def _product_place(
    instruction: Instruction,
    twins: ProductTwins,
    where: Callable[[Instruction], Place | None],
    after_gradients: Collection[str],
) -> Place | None:
    """The place of a product without scopes: the layer whose weights it shares, where it is a single layer."""
    for group in twins.twins_of(instruction) if twins.is_product(instruction) else ():
        places = {place for twin in group if (place := where(twin)) is not None}
        if len({place.path for place in places}) == 1:
            backward = any(name in after_gradients for name in instruction.operands)
            forward = next((place.phase for place in places if place.phase != "backward"), "forward")
            return Place("backward" if backward else forward, next(iter(places)).path)
    return None


def _common_place(places: set[Place]) -> Place:
    """A single place, or the layer around several places in the phase of most of them."""
    phases = sorted(place.phase for place in places)
    side_by_side = zip(*(place.path.split(".") for place in places), strict=False)
    shared = [names[0] for names in takewhile(lambda names: len(set(names)) == 1, side_by_side)]
    return Place(max(phases, key=phases.count), ".".join(shared))


def _user_place(
    name: str, users: Mapping[str, list[Instruction]], where: Callable[[Instruction], Place | None]
) -> Place | None:
    """The place of the nearest instruction with scopes that uses the result of one without scopes."""
    names = [name]
    for _ in range(MOST_USERS):
        readers = [instruction for name in names for instruction in users.get(name, ())]
        scoped = next((instruction for instruction in readers if instruction.scopes), None)
        if scoped is not None:
            return where(scoped)
        names = list(dict.fromkeys(instruction.name for instruction in readers))
    return None


def place_of(scopes: str, paths: Collection[str]) -> Place | None:
    """The place that scopes tell; None where they tell no phase.

    `jit(train)/transpose(jvp(loss))/mul` is in the backward, outside of any layer.
    """
    pieces = scopes.split("/")
    # JAX writes a transformation around the outermost scope that it applies to.
    names = [match[1] if (match := INNERMOST.search(piece)) else piece for piece in pieces]
    phase = next((name for name in names if name in SCOPED), "")
    if not phase:
        return None
    path = next((name for name in reversed(names) if name in paths), "")
    if any(piece.startswith("transpose(") for piece in pieces):
        return Place("backward", LOSS if phase == LOSS else path)
    return Place(phase, path)


def exclusive_times(operations: Iterable[XlaOperation], waiting: Collection[str] = ()) -> dict[str, int]:
    """The time (ns) of each instruction in one run. Every moment counts once, for the operation that began last.

    Operations whose names are among `waiting` count only while no other operation runs.
    """
    return split_time(
        (operation.start, operation.end, operation.name, operation.name in waiting) for operation in operations
    )


def time_by_place(times_by_name: Mapping[str, int], places: Mapping[str, Place], phase: str = "") -> dict[Place, int]:
    """The time (ns) of each place, from that of instructions by name; `phase`, where given, is the phase of all."""
    times: dict[Place, int] = {}
    for name, lasted in times_by_name.items():
        place = places.get(name)
        if place is not None:
            place = Place(phase, place.path) if phase else place
            times[place] = times.get(place, 0) + lasted
    return times


def split_runs(operations: Iterable[XlaOperation]) -> list[tuple[str, list[XlaOperation]]]:
    """Operations by run, in order of time, each with the function's name (`jit_train`)."""
    by_run: dict[tuple[str, int, int], list[XlaOperation]] = {}
    for operation in operations:
        by_run.setdefault((operation.module, operation.program, operation.run), []).append(operation)
    ordered = sorted(by_run.items(), key=lambda item: min(operation.start for operation in item[1]))
    return [(module, members) for (module, _, _), members in ordered]


# ---- Runs of compiled functions on GPUs, whose profile does not number them -----------------------------------------

BEGINS = re.compile(r"^\[(\d+)\] GpuExecutable::ExecuteThunks$")
"""The host's event that begins a run on the GPU of this number; its stat `module_name` names the function."""
GRAPH = re.compile(r"^command_buffer(_\d+)?$")


def number_runs(
    operations: Iterable[tuple[XlaOperation, int, int]], begins: Mapping[tuple[str, int], Sequence[int]]
) -> Iterator[XlaOperation]:
    """Operations of GPUs with the numbers of their runs, from 1, the same on all GPUs.

    Each operation comes with the number of its GPU and the time of its launch (ns). `begins` holds the times at which
    runs began, by function and GPU. Operations that were launched before the first run are left out.
    """
    begin_times = {key: sorted(times) for key, times in begins.items()}
    for operation, gpu, launched in operations:
        run = bisect_right(begin_times.get((operation.module, gpu), ()), launched)
        if run:
            yield replace(operation, run=run, device=gpu)
