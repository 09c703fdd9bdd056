"""Phases, layers and costs inside the jitted functions of a JAX program, from JAX's own profile of a few calls of each.

The calls of the pass `pieces` ran under JAX's profiler, which measures the duration of every instruction of XLA. The
text that XLA made of the function tells the scopes and lines of the program that an instruction came from, and its
cost. Durations of layers are measured; their places within the call are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec
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
from sonda.targets.profiles.call_layers import CallLayers, CountedOperation

LOSS_CLASS = "Loss"
"""The class of what is in a scope `loss`."""
MOST_ROWS = 64
"""Rows of an instruction that a loop runs; more runs share these rows."""
MISSING = "layers inside jitted functions are missing"


class JittedCall(NamedTuple):
    """A call of a jitted function under JAX's profiler, by the collector's clock."""

    text: int
    """Number of its text in the profile; -1 where there is none."""
    thread: int
    begin: int
    end: int
    """ns, as is `begin`."""
    compiling: bool


class JittedText(NamedTuple):
    """A text that XLA made of a jitted function for some shapes of its arguments."""

    number: int
    """Of the function."""
    name: str
    phase: str
    shapes: int
    """Their number."""


class JittedProfile(msgspec.Struct, kw_only=True):
    """One profile of JAX's, and the calls that ran under it."""

    profile: str = ""
    """Its folder."""
    texts: list[JittedText] = []
    calls: list[JittedCall] = []
    failed: str | None = None
    """Why its texts are missing."""


class JittedProcess(msgspec.Struct, kw_only=True):
    """What the collector of a process states of its jitted functions (`frameworks/jax/observe/jit_pass.py`)."""

    jitted: list[JittedProfile] = []
    jitted_s: float = 0.0
    """s that the program waited for the profiler."""
    why: str | None = None
    """Why there is no profile."""
    callers: dict[str, list[int]] = {}
    """By phase the numbers of functions that were called often."""
    shapes: dict[str, list[tuple[int, int]]] = {}
    """By the number of a function: ns from which on it was called with shapes of a number. Empty: they change often."""


@dataclass
class _Compiled:
    """A compiled jitted function for some shapes of its arguments: its text, read."""

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
    """The spans with layers from the profiles of jitted functions, and notes. FLOPs go into the assembly by type.

    `begin` is when the run began on the collector's clock, ns.
    """
    notes: list[str] = []
    layers = CallLayers(spans)
    for facts in assembly.jitted:
        process = msgspec.convert(facts, JittedProcess, strict=False)
        functions: list[_Compiled] = []
        callers = _Callers(process, spans, begin)
        attributed = 0
        for profile in process.jitted:
            try:
                compiled, attributed_ns = _lay_out_profile(layers, profile, directory, callers, notes)
            except (SondaError, ValueError, OSError) as error:
                notes.append(f"{MISSING}: {error}")
                continue
            functions += compiled
            attributed += attributed_ns
        if any(function.calls for function in functions):
            lasted = sum(int(spans.number("duration")[row]) for function in functions for row in function.calls)
            notes += _layer_notes(functions, attributed / max(lasted, 1), process.jitted_s)
        if functions:
            notes += _count_steps(assembly, layers, functions, callers)
        elif process.why is not None:
            notes.append(f"{MISSING}: {process.why}")
    layers.begin_with_calls()
    return layers.table(), notes


def _lay_out_profile(
    layers: CallLayers, profile: JittedProfile, directory: Path, callers: _Callers, notes: list[str]
) -> tuple[list[_Compiled], int]:
    """Lay out the calls of one profile; returns its functions and the ns that were attributed to layers.

    Layers are those of the shapes that most calls of a part have; steps with other shapes are left out. `notes` get a
    line for functions that the profile does not fit. Raises ValueError where the profile failed.
    """
    if profile.failed is not None:
        raise ValueError(profile.failed)
    folder = directory / profile.profile
    compiled = []
    for text, (number, name, phase, shapes) in enumerate(profile.texts):
        module = read_module((folder / f"{text}.txt").read_text(encoding="utf-8"))
        compiled.append(_Compiled(number, name, phase, shapes, module, program_places(module, phase)))
    attributed = 0
    for text_number, call, operations in _match_calls(
        layers.spans, profile.calls, compiled, folder, callers.origin, notes
    ):
        function = compiled[text_number]
        if not callers.has_usual_shapes(function, call):
            layers.leave_out(call)
            continue
        function.calls.append(call)
        spent = exclusive_times(name_by_instruction(operations, function.module), function.places.waiting)
        times = time_by_place(spent, function.places.by_name)
        if function.phase == "optimizer":  # has no layers
            layers.shorten(call, sum(times.values()))
            attributed += sum(times.values())
            continue
        phases = ORDER if function.phase == "fused" else (function.phase, COMMUNICATE)
        pieces = order_pieces(times, LOSS_CLASS, {"": "", **function.places.layers}, phases)
        pieces = [piece for piece in pieces if piece.lasted]
        if pieces:
            attributed += layers.lay_out(call, pieces, find_containers(function.places.layers))
    return compiled, attributed


def _match_calls(
    spans: Spans, calls: Sequence[JittedCall], compiled: Sequence[_Compiled], folder: Path, origin: int,
    notes: list[str],
) -> Iterator[tuple[int, int, list[XlaOperation]]]:  # fmt: skip
    """For each profiled call the number of its text, its row, and the operations of its run.

    Notes say where the profile has another number of runs of a function than there were calls.
    """
    runs_by_name: dict[str, list[list[XlaOperation]]] = {}
    for name, operations in split_runs(xla_operations(folder)):
        runs_by_name.setdefault(name, []).append(operations)
    by_name: dict[str, list[JittedCall]] = {}
    for call in sorted(calls, key=lambda call: call.begin):
        if call.text >= 0:
            by_name.setdefault(compiled[call.text].module.name, []).append(call)
    rows = np.flatnonzero(spans.where(kind="phase", pass_="pieces"))
    start, threads = spans.number("start")[rows], spans.number("thread")[rows]
    for name, calls_of_name in by_name.items():
        try:
            pairs = _pair_runs(calls_of_name, runs_by_name.get(name, []), compiled)
        except ValueError as error:
            notes.append(f"{MISSING}: {error}")
            continue
        for call, operations in pairs:
            inside = rows[(threads == call.thread) & (start >= call.begin - origin) & (start < call.end - origin)]
            if len(inside) == 1 and not call.compiling:
                yield call.text, int(inside[0]), operations


def _pair_runs(
    calls: Sequence[JittedCall], ran: Sequence[list[XlaOperation]], compiled: Sequence[_Compiled]
) -> list[tuple[JittedCall, list[XlaOperation]]]:
    """Pair calls of functions of one name with their runs. Raises ValueError where the pairing is ambiguous.

    A function that is no phase (a helper) may have the same name. Then a text gets the runs of the program that ran as
    often as the text was called, has only instructions of the text, and has more of them than any other program.
    """
    if len(ran) == len(calls):
        return list(zip(calls, ran, strict=True))
    programs: dict[int, list[list[XlaOperation]]] = {}
    for operations in ran:
        programs.setdefault(operations[0].program, []).append(operations)
    pairs: list[tuple[JittedCall, list[XlaOperation]]] = []
    for text in dict.fromkeys(call.text for call in calls):
        calls_of_text = [call for call in calls if call.text == text]
        module = compiled[text].module
        fitting: dict[int, list[list[list[XlaOperation]]]] = {}
        for program_runs in programs.values():
            names = {
                operation.name for operations in program_runs for operation in name_by_instruction(operations, module)
            }
            if len(program_runs) == len(calls_of_text) and names <= module.by_name.keys():
                fitting.setdefault(len(names), []).append(program_runs)
        best = fitting[max(fitting)] if fitting else []
        if len(best) != 1:
            raise ValueError(f"JAX's profile holds {len(ran)} of {len(calls)} calls of {compiled[text].name}")
        pairs += zip(calls_of_text, best[0], strict=True)
    return pairs


def _layer_notes(functions: Sequence[_Compiled], share: float, spent: float) -> list[str]:
    functions = [function for function in functions if function.calls]
    names = ", ".join(dict.fromkeys(function.name for function in functions))
    notes = [
        f"layers are those of the same compiled functions ({names}) under JAX's profiler, which tells "
        f"{100 * share:.0f} % of their time apart: what XLA fused counts for the layer of its product, or for the "
        "layer around several"
    ]
    if any(function.places.by_source for function in functions):
        notes.append("layers without a jax.named_scope are named by the calls in the source that lead to them")
    if any(function.places.looped for function in functions):
        notes.append("what a loop (jax.lax.scan) runs through is one layer: its instructions are the same each time")
    notes.append(
        f"the program waited {spent:.2g} s for JAX's profiler to begin and to write, outside of its timed steps"
    )
    return notes


# ---- costs --------------------------------------------------------------------------------------------------------


class _Callers:
    """The functions that a process called often, and with which shapes. `origin` is when the run began, ns."""

    def __init__(self, process: JittedProcess, spans: Spans, origin: int) -> None:
        self.by_phase: Mapping[str, Sequence[int]] = process.callers
        self._changes = {int(number): changes for number, changes in process.shapes.items()}
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

    def call_shapes(self, function: _Compiled, ends: np.ndarray) -> np.ndarray:
        """The numbers of the shapes of calls that ended at these times of the run, ns."""
        if function.number not in self._changes:
            return np.zeros(len(ends), np.int64)
        changes = self._changes[function.number]
        if not changes:
            raise ValueError(f"the shapes of what {function.name} is given change all the time")
        times, numbers = np.array(changes).T
        return numbers[np.maximum(np.searchsorted(times - self.origin, ends) - 1, 0)]

    def has_usual_shapes(self, function: _Compiled, call: int) -> bool:
        """Whether most timed calls in the part of a call have its shapes; True where no shapes have a majority."""
        timed = self._timed.get((self._part.get(int(self._parent[call]), ""), function.phase), [])
        if not timed or not self._changes.get(function.number):
            return True
        numbers, counts = np.unique(self.call_shapes(function, self._ends[timed]), return_counts=True)
        return bool(2 * counts.max() <= len(timed) or numbers[np.argmax(counts)] == function.shapes)


def _count_steps(
    assembly: Assembly, layers: CallLayers, functions: Sequence[_Compiled], callers: _Callers
) -> list[str]:
    """Add a counted step to every part whose steps call these functions; returns notes on what is missing."""
    spans = layers.spans
    notes: dict[str, None] = {}
    steps = np.flatnonzero(spans.where(kind="step"))
    start = spans.number("start")
    parts = parts_of(spans, steps)
    for part in dict.fromkeys(parts.tolist()):
        part_steps = steps[parts == part]
        operations: list[CountedOperation] = []
        classes: dict[str, str] = {LOSS_CLASS: LOSS_CLASS}
        try:
            for function, times in _called_functions(spans, part_steps, functions, callers):
                operations += _step_operations(assembly, function, times)
                classes |= function.places.layers
        except ValueError as error:
            notes[f"{part}: FLOPs are not counted: {error}"] = None
            continue
        if operations:
            order = sorted(operations, key=lambda operation: ORDER.index(operation.phase))
            layers.count(int(part_steps[np.argmax(start[part_steps])]), order, classes)
            if assembly.devices and (copies := max(compiled.module.copies for compiled in functions)) > 1:
                notes[f"FLOPs and bytes are those of one of {copies} GPUs"] = None
    return list(notes)


def parts_of(spans: Spans, steps: np.ndarray) -> np.ndarray:
    """The names of the parts that these steps belong to."""
    parent, is_part = spans.number("parent"), spans.where(kind="part")
    row = parent[steps]
    while (outside := ~is_part[row] & (row > 0)).any():
        row = np.where(outside, parent[row], row)
    return spans.words("name").decoded()[row]


def _called_functions(
    spans: Spans, steps: np.ndarray, compiled: Sequence[_Compiled], callers: _Callers
) -> list[tuple[_Compiled, int]]:
    """The functions that each of these steps calls, compiled for the usual shapes, and how often a step calls each.

    Raises ValueError where that is not known.
    """
    timed = steps[spans.words("pass").equal("timed")[steps]]
    phase, parent = np.flatnonzero(spans.where(kind="phase")), spans.number("parent")
    phase = phase[np.isin(parent[phase], timed)]
    names = spans.words("name").decoded()[phase]
    called = []
    for name in ("forward", "fused", "optimizer"):
        calls = phase[names == name]
        counts = np.bincount(parent[calls], minlength=len(spans))[timed]
        if not len(calls):
            continue
        functions = {function.number: function for function in compiled if function.phase == name}
        if not functions:
            raise ValueError(f"none of the functions that it calls was profiled ({name})")
        caller_numbers = callers.by_phase.get(name, ())
        caller_count = len(caller_numbers)
        if (
            counts.min() != counts.max()
            or set(functions) != set(caller_numbers)
            or (caller_count > 1 and counts[0] != caller_count)
        ):
            raise ValueError(f"its steps do not all call the same functions ({name})")
        for function in functions.values():
            # Of several functions a step calls each once: whichever of its phases that is, it is over with the step.
            rows = calls if caller_count == 1 else timed
            shapes = _usual_shapes(
                callers, function, spans.number("start")[rows] + spans.number("duration")[rows], int(counts[0])
            )
            texts = [text for text in compiled if (text.number, text.shapes) == (function.number, shapes)]
            if not texts:
                raise ValueError(f"{function.name} was profiled with other shapes than most of its calls have here")
            called.append((texts[0], int(counts[0]) if caller_count == 1 else 1))
    return called


def _usual_shapes(callers: _Callers, function: _Compiled, ends: np.ndarray, calls_per_step: int) -> int:
    """The shapes that most of these calls have, `each` in a step; ValueError where no shapes stand for a step."""
    numbers, counts = np.unique(callers.call_shapes(function, ends), return_counts=True)
    if 2 * counts.max() <= len(ends) or (calls_per_step > 1 and len(numbers) > 1):
        raise ValueError(f"the shapes of what {function.name} is given change from call to call")
    return int(numbers[np.argmax(counts)])


def _step_operations(assembly: Assembly, function: _Compiled, times: int) -> list[CountedOperation]:
    """The operations of a step that calls a function `times` times. Raises ValueError for a loop of unknown length."""
    operations: list[CountedOperation] = []
    for instruction, repetitions, cost in executed_costs(function.module):
        if repetitions is None:
            raise ValueError(f"how often a loop in {function.name} runs is known only when it runs")
        phase = function.phase if function.phase != "fused" else "optimizer"
        place = function.places.by_name.get(instruction.name, Place(phase, ""))
        path = LOSS_CLASS if LOSS in (place.phase, place.path) else place.path
        if cost.flops is None:
            assembly.unknown[cost.operation] = assembly.unknown.get(cost.operation, 0) + 1
        # On GPUs a step is compared with the ceilings of one.
        runs = repetitions * times * (1 if assembly.devices else function.module.copies)
        rows = min(runs, MOST_ROWS)
        flops = np.nan if cost.flops is None else cost.flops * runs
        if cost.dtype and cost.flops:
            assembly.flops[cost.dtype] = assembly.flops.get(cost.dtype, 0.0) + flops
        operation = CountedOperation(place.phase, path, f"jax.{cost.operation}", flops / rows if rows else 0.0, 0.0)
        operations += [operation._replace(bytes=cost.bytes * runs / rows)] * rows
    return operations
