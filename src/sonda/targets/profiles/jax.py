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

from sonda.frameworks.harness.attribution import COMMUNICATE, LOSS, ORDER, Place, find_containers, order_pieces
from sonda.frameworks.jax.profile.cuda_graphs import name_by_instruction
from sonda.frameworks.jax.profile.hlo import Module, read_module
from sonda.frameworks.jax.profile.hlo_cost import executed_costs
from sonda.frameworks.jax.profile.operations import XlaOperation, exclusive_times, split_runs, time_by_place
from sonda.frameworks.jax.profile.places import InstructionPlaces, program_places
from sonda.frameworks.reconstruction.assembly import Assembly
from sonda.record.errors import SondaError
from sonda.record.spans import Spans
from sonda.targets.adapters.jax import xla_operations
from sonda.targets.profiles.calls import CallLayers, Operation

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
    shapes: int
    """Their number."""
    module: Module
    places: InstructionPlaces
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
        callers = _Callers(process, spans, begin)
        told = 0
        for profile in process["jitted"]:
            try:
                found, more = _laid_out(layers, profile, directory, callers, notes)
            except (SondaError, ValueError, OSError) as error:
                notes.append(f"{MISSING}: {error}")
                continue
            known += found
            told += more
        if any(one.calls for one in known):
            lasted = sum(int(spans.number("duration")[row]) for one in known for row in one.calls)
            notes += _said(known, told / max(lasted, 1), float(process["jitted_s"]))
        if known:
            notes += _counted(assembly, layers, known, callers)
        elif "why" in process:
            notes.append(f"{MISSING}: {process['why']}")
    layers.begin_with_calls()
    return layers.table(), notes


def _laid_out(
    layers: CallLayers, profile: Mapping[str, Any], directory: Path, callers: _Callers, notes: list[str]
) -> tuple[list[_Compiled], int]:
    """Lay out the calls of one profile, with notes on functions that it does not fit; ns that are told apart.

    Layers are those of the shapes that most calls of a part have: steps with others are left out.
    """
    if "failed" in profile:
        raise ValueError(profile["failed"])
    folder = directory / profile["profile"]
    compiled = []
    for text, (number, name, phase, shapes) in enumerate(profile["texts"]):
        module = read_module((folder / f"{text}.txt").read_text(encoding="utf-8"))
        compiled.append(_Compiled(number, name, phase, shapes, module, program_places(module, phase)))
    told = 0
    for which, call, operations in _matched(layers.spans, profile["calls"], compiled, folder, callers.origin, notes):
        one = compiled[which]
        if not callers.usual(one, call):
            layers.leave_out(call)
            continue
        one.calls.append(call)
        spent = exclusive_times(name_by_instruction(operations, one.module), one.places.waiting)
        times = time_by_place(spent, one.places.by_name)
        if one.phase == "optimizer":  # has no layers
            layers.shorten(call, sum(times.values()))
            told += sum(times.values())
            continue
        phases = ORDER if one.phase == "fused" else (one.phase, COMMUNICATE)
        pieces = order_pieces(times, LOSS_CLASS, {"": "", **one.places.layers}, phases)
        pieces = [piece for piece in pieces if piece.lasted]
        if pieces:
            told += layers.lay_out(call, pieces, find_containers(one.places.layers))
    return compiled, told


def _matched(
    spans: Spans, calls: Sequence[Sequence[int]], compiled: Sequence[_Compiled], folder: Path, origin: int,
    notes: list[str],
) -> Iterator[tuple[int, int, list[XlaOperation]]]:  # fmt: skip
    """For each profiled call the number of its text, its row, and the operations of its run.

    Notes say where the profile has another number of runs of a function than there were calls.
    """
    found: dict[str, list[list[XlaOperation]]] = {}
    for name, operations in split_runs(xla_operations(folder)):
        found.setdefault(name, []).append(operations)
    by_name: dict[str, list[Sequence[int]]] = {}
    for one in sorted(calls, key=lambda call: call[2]):
        if one[0] >= 0:  # has a text
            by_name.setdefault(compiled[one[0]].module.name, []).append(one)
    rows = np.flatnonzero(spans.where(kind="phase", pass_="pieces"))
    start, threads = spans.number("start")[rows], spans.number("thread")[rows]
    for name, mine in by_name.items():
        try:
            pairs = _paired(mine, found.get(name, []), compiled)
        except ValueError as error:
            notes.append(f"{MISSING}: {error}")
            continue
        for (which, thread, begin, end, compiling), operations in pairs:
            inside = rows[(threads == thread) & (start >= begin - origin) & (start < end - origin)]
            if len(inside) == 1 and not compiling:
                yield which, int(inside[0]), operations


def _paired(
    calls: Sequence[Sequence[int]], ran: Sequence[list[XlaOperation]], compiled: Sequence[_Compiled]
) -> list[tuple[Sequence[int], list[XlaOperation]]]:
    """Calls of functions of one name with their runs. Raises ValueError where it cannot be told which are whose.

    A function that is no phase (a helper) may have the same name: then a text has the runs of that program which ran as
    often as the text was called, has no instructions but those of the text, and more of them than any other.
    """
    if len(ran) == len(calls):
        return list(zip(calls, ran, strict=True))
    programs: dict[int, list[list[XlaOperation]]] = {}
    for operations in ran:
        programs.setdefault(operations[0].program, []).append(operations)
    pairs: list[tuple[Sequence[int], list[XlaOperation]]] = []
    for which in dict.fromkeys(call[0] for call in calls):
        mine = [call for call in calls if call[0] == which]
        module = compiled[which].module
        fitting: dict[int, list[list[list[XlaOperation]]]] = {}
        for inside in programs.values():
            names = {one.name for operations in inside for one in name_by_instruction(operations, module)}
            if len(inside) == len(mine) and names <= module.by_name.keys():
                fitting.setdefault(len(names), []).append(inside)
        best = fitting[max(fitting)] if fitting else []
        if len(best) != 1:
            raise ValueError(f"JAX's profile holds {len(ran)} of {len(calls)} calls of {compiled[which].name}")
        pairs += zip(mine, best[0], strict=True)
    return pairs


def _said(known: Sequence[_Compiled], share: float, spent: float) -> list[str]:
    known = [one for one in known if one.calls]
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


class _Callers:
    """Which functions a process called often, and with which shapes. `origin`: the begin of the run, ns."""

    def __init__(self, process: Mapping[str, Any], spans: Spans, origin: int) -> None:
        self.by_phase: Mapping[str, Sequence[int]] = process.get("callers", {})
        self._changes = {int(number): changes for number, changes in process.get("shapes", {}).items()}
        self.origin = origin
        self._parent = spans.number("parent")
        self._ends = spans.number("start") + spans.number("duration")
        steps = np.flatnonzero(spans.where(kind="step"))
        self._part = dict(zip(steps.tolist(), parts_of(spans, steps).tolist(), strict=True))
        self._timed: dict[tuple[str, str], list[int]] = {}
        """Rows of timed calls by part and phase."""
        names = spans.words("name").decoded()
        for row in np.flatnonzero(spans.where(kind="phase", pass_="timed")).tolist() if self._changes else ():
            self._timed.setdefault((self._part.get(int(self._parent[row]), ""), names[row]), []).append(row)

    def shapes(self, function: _Compiled, ends: np.ndarray) -> np.ndarray:
        """The numbers of the shapes of calls that ended at these times of the run, ns."""
        if function.number not in self._changes:
            return np.zeros(len(ends), np.int64)
        changes = self._changes[function.number]
        if not changes:
            raise ValueError(f"the shapes of what {function.name} is given change all the time")
        times, numbers = np.array(changes).T
        return numbers[np.maximum(np.searchsorted(times - self.origin, ends) - 1, 0)]

    def usual(self, function: _Compiled, call: int) -> bool:
        """Whether most timed calls of the part that a call is in have its shapes, or no shapes are those of most."""
        timed = self._timed.get((self._part.get(int(self._parent[call]), ""), function.phase), [])
        if not timed or not self._changes.get(function.number):
            return True
        numbers, counts = np.unique(self.shapes(function, self._ends[timed]), return_counts=True)
        return bool(2 * counts.max() <= len(timed) or numbers[np.argmax(counts)] == function.shapes)


def _counted(assembly: Assembly, layers: CallLayers, known: Sequence[_Compiled], callers: _Callers) -> list[str]:
    """Add a counted step to every part whose steps are calls of functions that are known; notes on what is missing."""
    spans = layers.spans
    notes: dict[str, None] = {}
    steps = np.flatnonzero(spans.where(kind="step"))
    start = spans.number("start")
    parts = parts_of(spans, steps)
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
            if assembly.devices and (copies := max(one.module.copies for one in known)) > 1:
                notes[f"FLOPs and bytes are those of one of {copies} GPUs"] = None
    return list(notes)


def parts_of(spans: Spans, steps: np.ndarray) -> np.ndarray:
    """The names of the parts that these steps belong to."""
    parent, is_part = spans.number("parent"), spans.where(kind="part")
    row = parent[steps]
    while (outside := ~is_part[row] & (row > 0)).any():
        row = np.where(outside, parent[row], row)
    return spans.words("name").decoded()[row]


def _called(
    spans: Spans, steps: np.ndarray, known: Sequence[_Compiled], callers: _Callers
) -> list[tuple[_Compiled, int]]:
    """The functions that each of these steps calls, for the shapes that most have, and how often. Raises ValueError
    where that is not known."""
    timed = steps[spans.words("pass").equal("timed")[steps]]
    phase, parent = np.flatnonzero(spans.where(kind="phase")), spans.number("parent")
    phase = phase[np.isin(parent[phase], timed)]
    names = spans.words("name").decoded()[phase]
    found = []
    for name in ("forward", "fused", "optimizer"):
        calls = phase[names == name]
        counts = np.bincount(parent[calls], minlength=len(spans))[timed]
        if not len(calls):
            continue
        functions = {one.number: one for one in known if one.phase == name}
        if not functions:
            raise ValueError(f"none of the functions that it calls was profiled ({name})")
        often = callers.by_phase.get(name, ())
        many = len(often)
        if counts.min() != counts.max() or set(functions) != set(often) or (many > 1 and counts[0] != many):
            raise ValueError(f"its steps do not all call the same functions ({name})")
        for one in functions.values():
            # Of several functions a step calls each once: whichever of its phases that is, it is over with the step.
            rows = calls if many == 1 else timed
            shapes = _most(callers, one, spans.number("start")[rows] + spans.number("duration")[rows], int(counts[0]))
            texts = [text for text in known if (text.number, text.shapes) == (one.number, shapes)]
            if not texts:
                raise ValueError(f"{one.name} was profiled with other shapes than most of its calls have here")
            found.append((texts[0], int(counts[0]) if many == 1 else 1))
    return found


def _most(callers: _Callers, function: _Compiled, ends: np.ndarray, each: int) -> int:
    """The shapes that most of these calls have, `each` in a step; ValueError where no shapes stand for a step."""
    numbers, counts = np.unique(callers.shapes(function, ends), return_counts=True)
    if 2 * counts.max() <= len(ends) or (each > 1 and len(numbers) > 1):
        raise ValueError(f"the shapes of what {function.name} is given change from call to call")
    return int(numbers[np.argmax(counts)])


def _operations(assembly: Assembly, function: _Compiled, times: int) -> list[Operation]:
    """What a step does that calls a function so often. Raises ValueError where nobody knows how often a loop runs."""
    found: list[Operation] = []
    for one, often, cost in executed_costs(function.module):
        if often is None:
            raise ValueError(f"how often a loop in {function.name} runs is known only when it runs")
        phase = function.phase if function.phase != "fused" else "optimizer"
        place = function.places.by_name.get(one.name, Place(phase, ""))
        path = LOSS_CLASS if LOSS in (place.phase, place.path) else place.path
        if cost.flops is None:
            assembly.unknown[cost.operation] = assembly.unknown.get(cost.operation, 0) + 1
        # On GPUs a step is held against the ceilings of one.
        runs = often * times * (1 if assembly.devices else function.module.copies)
        rows = min(runs, MOST_ROWS)
        flops = np.nan if cost.flops is None else cost.flops * runs
        if cost.dtype and cost.flops:
            assembly.flops[cost.dtype] = assembly.flops.get(cost.dtype, 0.0) + flops
        each = Operation(place.phase, path, f"jax.{cost.operation}", flops / rows if rows else 0.0, 0.0)
        found += [each._replace(bytes=cost.bytes * runs / rows)] * rows
    return found
