"""Phase and layer of the instructions of a user's compiled function, from what JAX keeps with each instruction.

Phase: instructions that a gradient transposed are backward, those that it differentiated are forward. Others of a
function that learns belong to the optimizer if they depend on gradients, or if neither forward nor backward uses them.

Layer: the `jax.named_scope`s around an instruction, among them those of Flax modules and Keras layers. Without a scope
the layer is named by the calls that led to the instruction, each as `function:line`. A loop (`jax.lax.scan`) runs the
same instructions every time, so that all its rounds are one layer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from sonda.frameworks.harness.attribution import COMMUNICATE, LOSS, Place
from sonda.frameworks.jax.profile.hlo import Frame, Instruction, Module
from sonda.frameworks.jax.profile.operations import locate_instructions
from sonda.frameworks.jax.profile.twins import PRODUCTS

TRANSFORMATION = re.compile(r"^(jvp|transpose|vmap|pmap|remat|checkpoint|custom_jvp|custom_vjp|linearize)\((.*)\)$")
JITTED = re.compile(r"^\w*jit\(")
"""A function that was jitted inside another, as most functions of `jax.numpy` are."""
CONTROL_FLOW = re.compile(
    r"^(while|body|cond|scan|closed_call|core_call|shard_map|xla_pmap|checkpoint|remat\d*|rematted_computation|"
    r"custom_jvp_call|custom_vjp_call\w*|branch_\d+_fun|cond_branch\w*)$"
)
"""Scopes that JAX adds for its own ways to run a function."""
EQUATION = "->"
"""Part of the scopes that `jnp.einsum` adds."""
COLLECTIVE = re.compile(r"^(all-reduce|all-gather|all-to-all|reduce-scatter|collective-\w+|send|recv)")
LOSSES = (LOSS, "compile_loss")
"""Scopes of a loss: a program's own, and that of Keras."""
LAYER_METHOD = re.compile(r"(\w+)\.(?:__call__|call)$")
"""The method by which a layer of a library is called."""
LIBRARIES = ("site-packages", "dist-packages")
ROOT = ""


@dataclass
class InstructionPlaces:
    """Where the instructions of one compiled function belong."""

    by_name: dict[str, Place]
    """The place of each instruction by its name."""
    layers: dict[str, str] = field(default_factory=dict)
    """Layers by path, in the order in which a forward reaches them: the place of each in the source (`train.py:12`)."""
    by_source: bool = False
    """Whether some layers are named by their place in the source, because they have no scope."""
    waiting: frozenset[str] = frozenset()
    """Names of instructions that communicate with other devices."""
    looped: bool = False
    """Whether there are products inside a loop."""


def program_places(module: Module, phase: str) -> InstructionPlaces:
    """Where the instructions of a function belong whose calls are of this phase; `fused` where it learns."""
    return _PlaceFinder(module, phase).read()


class _PlaceFinder:
    def __init__(self, module: Module, phase: str) -> None:
        self.module = module
        self.phase = phase
        self.loops = self._find_loops()
        self.phases_by_use = self._find_phases_by_use() if phase == "fused" else {}
        self.by_source = False
        self.names: dict[str, str] = {}
        """By path: the place in the source that was seen first."""

    def read(self) -> InstructionPlaces:
        located = locate_instructions(self.module, self._own_place)
        waiting = {
            instruction.name for instruction in self.module.by_name.values() if COLLECTIVE.match(instruction.opcode)
        }
        located |= {name: Place(COMMUNICATE, ROOT) for name in waiting}
        located = _restore_lost_scopes(located)
        located, self.names = _strip_common_scope(located, self.names)
        executed = [instruction.name for instruction, _ in self.module.executed_instructions()]
        # Instructions that XLA added, such as copies of weights, run before the layer that they belong to.
        order = [located[name] for name in executed if name in located and self.module.by_name[name].scopes]
        forward_paths = [place.path for place in order if place.phase != "backward"]
        backward_paths = [place.path for place in reversed(order) if place.phase == "backward"]
        layers: dict[str, str] = {}
        for path in (*forward_paths, *backward_paths):
            parts = path.split(".")
            for count in range(1, len(parts) + 1):
                holder = ".".join(parts[:count])
                if holder and path != LOSS:
                    layers.setdefault(holder, self.names.get(holder) or self.names.get(path, ""))
        looped = any(
            instruction.opcode in PRODUCTS
            for instruction in self.module.by_name.values()
            if instruction.name in self.loops
        )
        return InstructionPlaces(located, layers, self.by_source, frozenset(waiting), looped)

    # ---- one instruction --------------------------------------------------------------------------------------

    def _own_place(self, instruction: Instruction) -> Place | None:
        if not instruction.scopes:
            return None
        names = scope_names(instruction.scopes)
        phase = self._phase(instruction, names)
        if phase == "optimizer":
            return Place(phase, ROOT)
        if self.phase == "fused" and any(name in LOSSES for name in names):
            return Place("backward", LOSS) if phase == "backward" else Place(LOSS, ROOT)
        frames = self.module.frames(instruction)
        path = ""
        for name in names:
            # The name of a scope may be a whole path.
            path = name if not path or name.startswith(f"{path}.") else f"{path}.{name}"
        if not path:
            calls = source_calls(frames, instruction.scopes)
            path = ".".join(
                f"{_short_name(frame.function) or PurePath(frame.file).stem}:{frame.line}" for frame in calls
            )
            self.by_source |= bool(path)
            for count, frame in enumerate(calls, start=1):
                self.names.setdefault(".".join(path.split(".")[:count]), _source_place(frame))
        elif frames:
            self.names.setdefault(path, _library_class(frames) or _source_place(own_frames(frames)[-1]))
        return Place(phase, path)

    def _phase(self, instruction: Instruction, names: Sequence[str]) -> str:
        if self.phase != "fused":
            return self.phase
        return _gradient_phase(instruction.scopes) or (
            "optimizer" if "optimizer" in names else self.phases_by_use.get(instruction.name, "forward")
        )

    # ---- phases that scopes do not tell -----------------------------------------------------------------------

    def _find_loops(self) -> dict[str, Instruction]:
        """The outermost loop of every instruction that runs in a loop, by the name of the instruction."""
        loops: dict[str, Instruction] = {}

        def walk(computation: str, loop: Instruction | None) -> None:
            for instruction in self.module.computations.get(computation, ()):
                if loop is not None:
                    if instruction.name in loops:
                        return
                    loops[instruction.name] = loop
                for inner in instruction.callees:
                    walk(inner, loop or (instruction if instruction.opcode == "while" else None))

        walk(self.module.entry, None)
        return loops

    def _find_phases_by_use(self) -> dict[str, str]:
        """Phases of instructions outside of any gradient, by their inputs and their users."""
        order = list(self.module.computations.get(self.module.entry, ()))
        after_gradients: set[str] = set()
        for instruction in order:
            if _gradient_phase(instruction.scopes) == "backward" or any(
                name in after_gradients for name in instruction.operands
            ):
                after_gradients.add(instruction.name)
        before_gradients: set[str] = set()
        for instruction in reversed(order):
            if _gradient_phase(instruction.scopes) or instruction.name in before_gradients:
                before_gradients.update(instruction.operands)
        phases = {
            instruction.name: "forward"
            if instruction.name in before_gradients and instruction.name not in after_gradients
            else "optimizer"
            for instruction in order
        }
        # Instructions of a fusion have the phase of the fusion, those of a loop the phase of the loop.
        for instruction in order:
            for inner in self._called_names(instruction):
                phases[inner] = _gradient_phase(instruction.scopes) or phases[instruction.name]
        for name, loop in self.loops.items():
            phases[name] = _gradient_phase(loop.scopes) or phases.get(loop.name, "forward")
        return phases

    def _called_names(self, instruction: Instruction) -> list[str]:
        return [inner.name for name in instruction.callees for inner in self.module.computations.get(name, ())]


def _gradient_phase(scopes: str) -> str:
    """The phase that transformations by gradients tell; '' where there are none."""
    if "transpose(" in scopes:
        return "backward"
    return "forward" if "jvp(" in scopes else ""


def scope_names(scopes: str) -> list[str]:
    """Names of the scopes around an instruction, outermost first, without functions, transformations and operation.

    >>> scope_names("jit(step)/transpose(jvp(block))/while/body/attention/bhqk,bkhd->bqhd/dot_general")
    ['block', 'attention']
    """
    parts = scopes.split("/")
    names = []
    for number, part in enumerate(parts):
        name = part
        while (match := TRANSFORMATION.match(name)) is not None:
            name = match[2]
        operation = number == len(parts) - 1 and name == part
        if name and not operation and not JITTED.match(name) and not CONTROL_FLOW.match(name) and EQUATION not in name:
            names.append(name)
    return names


# ---- places in the source -----------------------------------------------------------------------------------------


def _source_place(frame: Frame) -> str:
    return f"{PurePath(frame.file).name}:{frame.line}"


def _is_own(frame: Frame) -> bool:
    return not any(word in PurePath(frame.file).parts for word in LIBRARIES)


def _library_class(frames: Sequence[Frame]) -> str:
    """The class of the innermost layer of a library (Keras, Flax) among the calls; '' where there is none."""
    methods = [LAYER_METHOD.search(frame.function) for frame in frames if not _is_own(frame)]
    return next((match[1] for match in reversed(methods) if match is not None), "")


def own_frames(frames: Sequence[Frame]) -> list[Frame]:
    """The distinct frames (a loop repeats them), without those of libraries where there are others."""
    distinct = list(dict.fromkeys(frames))
    return [frame for frame in distinct if _is_own(frame)] or distinct


def source_calls(frames: Sequence[Frame], scopes: str) -> list[Frame]:
    """The calls inside a jitted function that led to an instruction, outermost first."""
    own = own_frames(frames)
    jitted = scopes.partition("/")[0].partition("(")[2].rstrip(")")
    position = next((number for number, frame in enumerate(own) if _short_name(frame.function) == jitted), -1)
    return [frame for frame in own[position + 1 :] if frame.function != "<module>"] or own[-1:]


def _short_name(function: str) -> str:
    """The name of a function for people: `Model.__call__` is Model, `step.<locals>.loss` is loss."""
    parts = [part for part in function.split(".") if part != "<locals>"]
    if len(parts) > 1 and parts[-1] == "__call__":
        return parts[-2]
    return parts[-1] if parts else ""


def _restore_lost_scopes(located: Mapping[str, Place]) -> dict[str, Place]:
    """Give back scopes that were lost: what needs no gradient, such as a mask, loses the scopes around a loop.

    Its layer is the one whose path ends with the same names.
    """
    paths = {place.path for place in located.values()}
    restored: dict[str, str] = {}
    for path in paths:
        longer = [longer_path for longer_path in paths if longer_path.endswith(f".{path}")]
        if path and ":" not in path and len(longer) == 1:
            restored[path] = longer[0]
    return {name: Place(place.phase, restored.get(place.path, place.path)) for name, place in located.items()}


def _strip_common_scope(
    located: Mapping[str, Place], names: Mapping[str, str]
) -> tuple[dict[str, Place], dict[str, str]]:
    """Paths without the part that is around all others, and the names of these paths.

    The part is the scope of the network, whose path becomes '', or the one call through which the differentiated
    function reaches all others.
    """
    paths = {place.path for place in located.values() if place.path and place.path != LOSS}
    scoped, sourced = ({path for path in paths if (":" in path) == by_source} for by_source in (False, True))
    short: dict[str, str] = {}
    for group, others in ((scoped, sourced), (sourced, set())):
        heads = {path.partition(".")[0] for path in group if group is scoped or "." in path}
        if len(heads) == 1 and not others and any("." in path for path in group):
            head = f"{next(iter(heads))}."
            short |= {path: path.removeprefix(head) for path in {*group, *names} if path.startswith(head)}
            if group is scoped:
                short[head[:-1]] = ROOT
    moved = {name: Place(place.phase, short.get(place.path, place.path)) for name, place in located.items()}
    return moved, {short.get(path, path): name for path, name in names.items()}
