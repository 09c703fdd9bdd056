"""Phases, layers and costs inside the jitted functions of a JAX program, from JAX's own profile of a few calls of each.

The calls of the pass `pieces` ran under JAX's profiler, which says how long every instruction of XLA took. The text of
what XLA made of the function says which scopes and lines of the program an instruction came from, and what it costs.
Durations of layers are measured, their places within the call are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sonda.frameworks.assembly import Assembly
from sonda.frameworks.call_pieces import COMMUNICATE, LOSS, ORDER, Place, holding, pieces_of
from sonda.frameworks.hlo import Module, read_module
from sonda.frameworks.hlo_cost import executed_costs
from sonda.frameworks.jax_places import Places, program_places
from sonda.frameworks.jax_profile import Operation as JaxOperation
from sonda.frameworks.jax_profile import by_place, exclusive, runs
from sonda.record.errors import SondaError
from sonda.record.span import Spans
from sonda.targets.call_layers import CallLayers, Operation
from sonda.targets.jax_worker import xla_operations

LOSS_CLASS = "Loss"
"""The class of what is in a scope `loss`."""
MOST_ROWS = 64
"""Of an instruction that a loop runs; more runs share these rows."""
MISSING = "layers inside jitted functions are missing"


@dataclass
class _Compiled:
    """What XLA made of a jitted function for some shapes of its arguments."""

    number: int
    """Of the function."""
    name: str
    phase: str
    module: Module
    places: Places
    calls: list[int] = field(default_factory=list)
    """Rows of its profiled calls."""


def with_jitted_layers(assembly: Assembly, spans: Spans, directory: Path, begin: int) -> tuple[Spans, list[str]]:
    """The spans with what the profiles of jitted functions tell, and notes. FLOPs go into the assembly by their type.

    `begin` is the begin of the run on the collector's clock, ns.
    """
    notes: list[str] = []
    layers = CallLayers(spans)
    for process in assembly.jitted:
        known: list[_Compiled] = []
        told = 0
        for profile in process["jitted"]:
            try:
                found, more = _laid_out(layers, profile, directory, begin)
            except (SondaError, ValueError, OSError) as error:
                notes.append(f"{MISSING}: {error}")
                continue
            known += found
            told += more
        if known:
            lasted = sum(int(spans.number("duration")[row]) for one in known for row in one.calls)
            notes += _said(known, told / max(lasted, 1), float(process["jitted_s"]))
            notes += _counted(assembly, layers, known, process["callers"])
        elif "why" in process:
            notes.append(f"{MISSING}: {process['why']}")
    layers.begin_with_calls()
    return layers.table(), notes


def _laid_out(
    layers: CallLayers, profile: Mapping[str, Any], directory: Path, origin: int
) -> tuple[list[_Compiled], int]:
    """Lay out the calls of one profile; ns that are told apart. Raises ValueError where it does not fit them."""
    if "failed" in profile:
        raise ValueError(profile["failed"])
    folder = directory / profile["profile"]
    compiled = []
    for text, (number, name, phase) in enumerate(profile["texts"]):
        module = read_module((folder / f"{text}.txt").read_text(encoding="utf-8"))
        compiled.append(_Compiled(number, name, phase, module, program_places(module, phase)))
    told = 0
    for which, call, operations in _matched(layers.spans, profile["calls"], compiled, folder, origin):
        one = compiled[which]
        one.calls.append(call)
        times = by_place(exclusive(operations, one.places.waiting), one.places.of)
        if one.phase == "optimizer":  # has no layers
            layers.shorten(call, sum(times.values()))
            told += sum(times.values())
            continue
        phases = ORDER if one.phase == "fused" else (one.phase, COMMUNICATE)
        pieces = pieces_of(times, LOSS_CLASS, {"": "", **one.places.layers}, phases)
        pieces = [piece for piece in pieces if piece.lasted]
        if pieces:
            told += layers.lay_out(call, pieces, holding(one.places.layers))
    return compiled, told


def _matched(
    spans: Spans, calls: Sequence[Sequence[int]], compiled: Sequence[_Compiled], folder: Path, origin: int
) -> Iterator[tuple[int, int, list[JaxOperation]]]:
    """For each profiled call the number of its text, its row, and the operations of its run.

    Raises ValueError where the profile has another number of runs than there were calls.
    """
    found: dict[str, list[list[JaxOperation]]] = {}
    for name, operations in runs(xla_operations(folder)):
        found.setdefault(name, []).append(operations)
    by_name: dict[str, list[Sequence[int]]] = {}
    for one in sorted(calls, key=lambda call: call[2]):
        if one[0] >= 0:  # has a text
            by_name.setdefault(compiled[one[0]].module.name, []).append(one)
    rows = np.flatnonzero(spans.where(kind="phase", pass_="pieces"))
    start, threads = spans.number("start")[rows], spans.number("thread")[rows]
    for name, mine in by_name.items():
        ran = found.get(name, [])
        if len(ran) != len(mine):
            raise ValueError(f"JAX's profile holds {len(ran)} of {len(mine)} calls of {compiled[mine[0][0]].name}")
        for (which, thread, begin, end, compiling), operations in zip(mine, ran, strict=True):
            inside = rows[(threads == thread) & (start >= begin - origin) & (start < end - origin)]
            if len(inside) == 1 and not compiling:
                yield which, int(inside[0]), operations


def _said(known: Sequence[_Compiled], share: float, spent: float) -> list[str]:
    names = ", ".join(dict.fromkeys(one.name for one in known))
    notes = [
        f"layers are those of the same compiled functions ({names}) under JAX's profiler, which tells "
        f"{100 * share:.0f} % of their time apart: what XLA fused counts for the layer of its product, or for the "
        "layer around several"
    ]
    if any(one.places.by_source for one in known):
        notes.append("layers without a jax.named_scope are named by the calls in the source that lead to them")
    if any(one.places.looped for one in known):
        notes.append("what a loop (jax.lax.scan) runs through is one layer: its instructions are the same each time")
    notes.append(
        f"the program waited {spent:.2g} s for JAX's profiler to begin and to write, outside of its timed steps"
    )
    return notes


# ---- costs --------------------------------------------------------------------------------------------------------


def _counted(
    assembly: Assembly, layers: CallLayers, known: Sequence[_Compiled], callers: Mapping[str, Sequence[int]]
) -> list[str]:
    """Add a counted step to every part whose steps are calls of functions that are known; notes on what is missing."""
    spans = layers.spans
    notes: dict[str, None] = {}
    steps = np.flatnonzero(spans.where(kind="step"))
    start = spans.number("start")
    parts = _parts(spans, steps)
    for part in dict.fromkeys(parts.tolist()):
        mine = steps[parts == part]
        operations: list[Operation] = []
        classes: dict[str, str] = {LOSS_CLASS: LOSS_CLASS}
        try:
            for function, times in _called(spans, mine, known, callers):
                operations += _operations(assembly, function, times)
                classes |= function.places.layers
        except ValueError as error:
            notes[f"{part}: FLOPs are not counted: {error}"] = None
            continue
        if operations:
            order = sorted(operations, key=lambda one: ORDER.index(one.phase))
            layers.count(int(mine[np.argmax(start[mine])]), order, classes)
    return list(notes)


def _parts(spans: Spans, steps: np.ndarray) -> np.ndarray:
    """The names of the parts that these steps belong to."""
    parent, is_part = spans.number("parent"), spans.where(kind="part")
    row = parent[steps]
    while (outside := ~is_part[row] & (row > 0)).any():
        row = np.where(outside, parent[row], row)
    return spans.words("name").decoded()[row]


def _called(
    spans: Spans, steps: np.ndarray, known: Sequence[_Compiled], callers: Mapping[str, Sequence[int]]
) -> list[tuple[_Compiled, int]]:
    """The functions that each of these steps calls, and how often. Raises ValueError where that is not known."""
    timed = steps[spans.words("pass").equal("timed")[steps]]
    phase, parent = np.flatnonzero(spans.where(kind="phase")), spans.number("parent")
    names = spans.words("name").decoded()[phase]
    found = []
    for name in ("forward", "fused", "optimizer"):
        counts = np.bincount(parent[phase[names == name]], minlength=len(spans))[timed]
        functions: dict[int, _Compiled] = {}
        for one in sorted((one for one in known if one.phase == name), key=lambda one: len(one.calls)):
            functions[one.number] = one  # of several shapes the most frequent
        if not counts.any() or not functions:
            continue
        often = callers.get(name, ())
        many = len(often)
        if counts.min() != counts.max() or set(functions) != set(often) or (many > 1 and counts[0] != many):
            raise ValueError(f"its steps do not all call the same functions ({name})")
        found += [(one, int(counts[0]) if many == 1 else 1) for one in functions.values()]
    return found


def _operations(assembly: Assembly, function: _Compiled, times: int) -> list[Operation]:
    """What a step does that calls a function so often. Raises ValueError where nobody knows how often a loop runs."""
    found: list[Operation] = []
    for one, often, cost in executed_costs(function.module):
        if often is None:
            raise ValueError(f"how often a loop in {function.name} runs is known only when it runs")
        phase = function.phase if function.phase != "fused" else "optimizer"
        place = function.places.of.get(one.name, Place(phase, ""))
        path = LOSS_CLASS if LOSS in (place.phase, place.path) else place.path
        if cost.flops is None:
            assembly.unknown[cost.operation] = assembly.unknown.get(cost.operation, 0) + 1
        runs = often * times * function.module.copies
        rows = min(runs, MOST_ROWS)
        flops = np.nan if cost.flops is None else cost.flops * runs
        if cost.dtype and cost.flops:
            assembly.flops[cost.dtype] = assembly.flops.get(cost.dtype, 0.0) + flops
        each = Operation(place.phase, path, f"jax.{cost.operation}", flops / rows if rows else 0.0, 0.0)
        found += [each._replace(bytes=cost.bytes * runs / rows)] * rows
    return found
