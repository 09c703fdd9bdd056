"""Phases, layers and costs inside the jitted functions of a JAX program, from JAX's own profile of a few calls of each.

The calls of the pass `pieces` ran under JAX's profiler, which says how long every instruction of XLA took. The text of
what XLA made of the function says which scopes and lines of the program an instruction came from, and what it costs.
Durations of layers are measured, their places within the call are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sonda.frameworks.assembly import Assembly
from sonda.frameworks.call_pieces import LOSS, ORDER, Place, holding, pieces_of
from sonda.frameworks.hlo import Module, read_module
from sonda.frameworks.hlo_cost import executed_costs
from sonda.frameworks.jax_places import Places, program_places
from sonda.frameworks.jax_profile import by_place, exclusive, runs
from sonda.record.errors import SondaError
from sonda.record.span import Spans
from sonda.targets.call_layers import CallLayers, Operation
from sonda.targets.jax_worker import xla_operations

TEXT = "compiled.txt"
LOSS_CLASS = "Loss"
"""The class of what is in a scope `loss`."""
MOST_ROWS = 64
"""Of an instruction that a loop runs; more runs share these rows."""
MISSING = "layers inside jitted functions are missing"


@dataclass
class _Function:
    """A jitted function that was profiled."""

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
        known = []
        told = lasted = 0
        for about in process["jitted"]:
            try:
                function, more = _laid_out(layers, about, directory, begin)
            except (SondaError, ValueError, OSError) as error:
                notes.append(f"{MISSING}: {about.get('function', '')}: {error}")
                continue
            known.append(function)
            told += more
            lasted += sum(int(spans.number("duration")[row]) for row in function.calls)
        if known:
            notes += _said(known, told / max(lasted, 1), float(process["jitted_s"]))
            notes += _counted(assembly, layers, known, process["callers"])
    return layers.table(), notes


def _laid_out(layers: CallLayers, about: Mapping[str, Any], directory: Path, origin: int) -> tuple[_Function, int]:
    """Lay out the calls of one profile; ns that are told apart. Raises ValueError where it does not fit them."""
    if "failed" in about:
        raise ValueError(about["failed"])
    folder = directory / about["profile"]
    module = read_module((folder / TEXT).read_text(encoding="utf-8"))
    function = _Function(about["function"], about["phase"], module, program_places(module, about["phase"]))
    spans = layers.spans
    start = spans.number("start")
    during = (start >= about["begin"] - origin) & (start < about["end"] - origin)
    during &= spans.number("thread") == about["thread"]
    phases = np.flatnonzero(spans.where(kind="phase", name=function.phase, pass_="pieces") & during)
    phases = phases[np.argsort(start[phases], kind="stable")]
    found = [inside for name, inside in runs(xla_operations(folder)) if name == module.name]
    if not len(phases) or len(found) != len(phases):
        raise ValueError(f"JAX's profile holds {len(found)} of {len(phases)} calls")
    places = function.places
    phases_of = ORDER if function.phase == "fused" else (function.phase, "communicate")
    told = 0
    for call, operations in zip(phases.tolist(), found, strict=True):
        if operations[0].program != found[0][0].program:
            continue  # compiled for other shapes: the text is not of this one
        times = by_place(exclusive(operations, places.waiting), places.of)
        pieces = [one for one in pieces_of(times, LOSS_CLASS, {"": "", **places.layers}, phases_of) if one.lasted]
        if pieces:
            told += layers.lay_out(call, pieces, holding(places.layers))
            function.calls.append(call)
    return function, told


def _said(known: Sequence[_Function], share: float, spent: float) -> list[str]:
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
    assembly: Assembly, layers: CallLayers, known: Sequence[_Function], callers: Mapping[str, int]
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
    spans: Spans, steps: np.ndarray, known: Sequence[_Function], callers: Mapping[str, int]
) -> list[tuple[_Function, int]]:
    """The functions that each of these steps calls, and how often. Raises ValueError where that is not known."""
    timed = steps[spans.words("pass").equal("timed")[steps]]
    phase, parent = np.flatnonzero(spans.where(kind="phase")), spans.number("parent")
    names = spans.words("name").decoded()[phase]
    found = []
    for name in ("forward", "fused", "optimizer"):
        counts = np.bincount(parent[phase[names == name]], minlength=len(spans))[timed]
        functions = [one for one in known if one.phase == name]
        if not counts.any() or not functions:
            continue
        often = callers.get(name, 0)
        if counts.min() != counts.max() or len(functions) != often or (often > 1 and counts[0] != often):
            raise ValueError(f"its steps do not all call the same functions ({name})")
        found += [(one, int(counts[0]) if often == 1 else 1) for one in functions]
    return found


def _operations(assembly: Assembly, function: _Function, times: int) -> list[Operation]:
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
