"""Where the instructions of a user's compiled function belong: phase and layer, from what JAX keeps with each.

Phase: what a gradient transposed is backward, what it followed is forward. The rest of a function that learns is the
optimizer where it is made of gradients, or of nothing that forward and backward use. Layer: the `jax.named_scope`s
around it, among them those of modules of Flax and layers of Keras; without one the calls that led to it, each as
`function:line`. Instructions of a loop (`jax.lax.scan`) are the same ones for all that it runs over, so that these are
one layer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from sonda.frameworks.harness.attribution import COMMUNICATE, LOSS, Place
from sonda.frameworks.jax.profile.hlo import Frame, Instruction, Module
from sonda.frameworks.jax.profile.operations import places
from sonda.frameworks.jax.profile.twins import PRODUCTS

TRANSFORMATION = re.compile(r"^(jvp|transpose|vmap|pmap|remat|checkpoint|custom_jvp|custom_vjp|linearize)\((.*)\)$")
FUNCTION = re.compile(r"^\w*jit\(")
"""A function that was jitted inside another: of `jax.numpy` most are."""
STRUCTURE = re.compile(
    r"^(while|body|cond|scan|closed_call|core_call|shard_map|xla_pmap|checkpoint|remat\d*|rematted_computation|"
    r"custom_jvp_call|custom_vjp_call\w*|branch_\d+_fun|cond_branch\w*)$"
)
"""What JAX names after its own ways to run a function."""
EQUATION = "->"
"""In the name that `jnp.einsum` gives."""
COLLECTIVE = re.compile(r"^(all-reduce|all-gather|all-to-all|reduce-scatter|collective-\w+|send|recv)")
LOSSES = (LOSS, "compile_loss")
"""Scopes of a loss: a program's own, and that of Keras."""
METHOD = re.compile(r"(\w+)\.(?:__call__|call)$")
"""Of a layer that a library has."""
LIBRARIES = ("site-packages", "dist-packages")
ROOT = ""


@dataclass
class Places:
    """Of one compiled function."""

    of: dict[str, Place]
    """By the name of an instruction."""
    layers: dict[str, str] = field(default_factory=dict)
    """By path, in the order in which a forward reaches them: where it is in the source (`train.py:12`)."""
    by_source: bool = False
    """Whether some are named by their place in the source, because nothing else names them."""
    waiting: frozenset[str] = frozenset()
    """Names of instructions that wait for other devices."""
    looped: bool = False
    """Whether there are products inside a loop."""


def program_places(module: Module, phase: str) -> Places:
    """Where instructions belong in a function whose calls are `phase`: `fused` where it learns."""
    return _Reader(module, phase).read()


class _Reader:
    def __init__(self, module: Module, phase: str) -> None:
        self.module = module
        self.phase = phase
        self.loops = self._loops()
        self.unsaid = self._unsaid() if phase == "fused" else {}
        self.by_source = False
        self.names: dict[str, str] = {}
        """By path: its place in the source, as first seen."""

    def read(self) -> Places:
        found = places(self.module, self._where)
        waiting = {one.name for one in self.module.named.values() if COLLECTIVE.match(one.opcode)}
        found |= {name: Place(COMMUNICATE, ROOT) for name in waiting}
        found = _with_lost_scopes(found)
        found, self.names = _without_common(found, self.names)
        runs = [one.name for one, _ in self.module.executed()]
        # What XLA added, to copy weights perhaps, runs before the layer that it is for.
        order = [found[name] for name in runs if name in found and self.module.named[name].scopes]
        first = [place.path for place in order if place.phase != "backward"]
        last = [place.path for place in reversed(order) if place.phase == "backward"]
        layers: dict[str, str] = {}
        for path in (*first, *last):
            pieces = path.split(".")
            for count in range(1, len(pieces) + 1):
                above = ".".join(pieces[:count])
                if above and path != LOSS:
                    layers.setdefault(above, self.names.get(above) or self.names.get(path, ""))
        looped = any(one.opcode in PRODUCTS for one in self.module.named.values() if one.name in self.loops)
        return Places(found, layers, self.by_source, frozenset(waiting), looped)

    # ---- one instruction --------------------------------------------------------------------------------------

    def _where(self, one: Instruction) -> Place | None:
        if not one.scopes:
            return None
        names = scope_names(one.scopes)
        phase = self._phase(one, names)
        if phase == "optimizer":
            return Place(phase, ROOT)
        if self.phase == "fused" and any(name in LOSSES for name in names):
            return Place("backward", LOSS) if phase == "backward" else Place(LOSS, ROOT)
        frames = self.module.frames(one)
        path = ""
        for name in names:
            # A scope may be named by its whole path.
            path = name if not path or name.startswith(f"{path}.") else f"{path}.{name}"
        if not path:
            calls = source_calls(frames, one.scopes)
            path = ".".join(f"{_short(frame.function) or PurePath(frame.file).stem}:{frame.line}" for frame in calls)
            self.by_source |= bool(path)
            for count, frame in enumerate(calls, start=1):
                self.names.setdefault(".".join(path.split(".")[:count]), _place(frame))
        elif frames:
            self.names.setdefault(path, _library_class(frames) or _place(own_frames(frames)[-1]))
        return Place(phase, path)

    def _phase(self, one: Instruction, names: Sequence[str]) -> str:
        if self.phase != "fused":
            return self.phase
        return _said(one.scopes) or ("optimizer" if "optimizer" in names else self.unsaid.get(one.name, "forward"))

    # ---- phases that names do not tell ------------------------------------------------------------------------

    def _loops(self) -> dict[str, Instruction]:
        """By the name of an instruction inside a loop, or of what it calls: the outermost loop."""
        found: dict[str, Instruction] = {}

        def walk(computation: str, loop: Instruction | None) -> None:
            for one in self.module.computations.get(computation, ()):
                if loop is not None:
                    if one.name in found:
                        return
                    found[one.name] = loop
                for inner in one.called:
                    walk(inner, loop or (one if one.opcode == "while" else None))

        walk(self.module.entry, None)
        return found

    def _unsaid(self) -> dict[str, str]:
        """Phases of instructions outside of any gradient, by what they are made of and what they are used for."""
        order = list(self.module.computations.get(self.module.entry, ()))
        after: set[str] = set()
        for one in order:
            if _said(one.scopes) == "backward" or any(name in after for name in one.operands):
                after.add(one.name)
        before: set[str] = set()
        for one in reversed(order):
            if _said(one.scopes) or one.name in before:
                before.update(one.operands)
        found = {one.name: "forward" if one.name in before and one.name not in after else "optimizer" for one in order}
        # What is fused is in the phase of the whole; what a loop runs, in the loop's.
        for one in order:
            for inner in self._inside(one):
                found[inner] = _said(one.scopes) or found[one.name]
        for name, loop in self.loops.items():
            found[name] = _said(loop.scopes) or found.get(loop.name, "forward")
        return found

    def _inside(self, one: Instruction) -> list[str]:
        return [inner.name for name in one.called for inner in self.module.computations.get(name, ())]


def _said(scopes: str) -> str:
    """The phase that the transformations of a gradient tell; '' where there are none."""
    if "transpose(" in scopes:
        return "backward"
    return "forward" if "jvp(" in scopes else ""


def scope_names(scopes: str) -> list[str]:
    """Names of the scopes around an instruction, outermost first: without functions, transformations and the operation.

    >>> scope_names("jit(step)/transpose(jvp(block))/while/body/attention/bhqk,bkhd->bqhd/dot_general")
    ['block', 'attention']
    """
    pieces = scopes.split("/")
    found = []
    for number, piece in enumerate(pieces):
        name = piece
        while (match := TRANSFORMATION.match(name)) is not None:
            name = match[2]
        operation = number == len(pieces) - 1 and name == piece
        if name and not operation and not FUNCTION.match(name) and not STRUCTURE.match(name) and EQUATION not in name:
            found.append(name)
    return found


# ---- places in the source -----------------------------------------------------------------------------------------


def _place(frame: Frame) -> str:
    return f"{PurePath(frame.file).name}:{frame.line}"


def _own(frame: Frame) -> bool:
    return not any(word in PurePath(frame.file).parts for word in LIBRARIES)


def _library_class(frames: Sequence[Frame]) -> str:
    """The class of the innermost layer of a library (Keras, Flax) that is called; '' where there is none."""
    called = [METHOD.search(frame.function) for frame in frames if not _own(frame)]
    return next((match[1] for match in reversed(called) if match is not None), "")


def own_frames(frames: Sequence[Frame]) -> list[Frame]:
    """Each once (a loop repeats them), and without those of libraries where there are others."""
    known = list(dict.fromkeys(frames))
    return [frame for frame in known if _own(frame)] or known


def source_calls(frames: Sequence[Frame], scopes: str) -> list[Frame]:
    """The calls inside a jitted function that led to an instruction, outermost first."""
    known = own_frames(frames)
    jitted = scopes.partition("/")[0].partition("(")[2].rstrip(")")
    at = next((number for number, frame in enumerate(known) if _short(frame.function) == jitted), -1)
    return [frame for frame in known[at + 1 :] if frame.function != "<module>"] or known[-1:]


def _short(function: str) -> str:
    """`Model.__call__` is Model, `step.<locals>.loss` is loss."""
    pieces = [piece for piece in function.split(".") if piece != "<locals>"]
    if len(pieces) > 1 and pieces[-1] == "__call__":
        return pieces[-2]
    return pieces[-1] if pieces else ""


def _with_lost_scopes(found: Mapping[str, Place]) -> dict[str, Place]:
    """What needs no gradient (a mask, say) loses the scopes around a loop: its layer is that of the same last names."""
    paths = {place.path for place in found.values()}
    whole: dict[str, str] = {}
    for path in paths:
        longer = [other for other in paths if other.endswith(f".{path}")]
        if path and ":" not in path and len(longer) == 1:
            whole[path] = longer[0]
    return {name: Place(place.phase, whole.get(place.path, place.path)) for name, place in found.items()}


def _without_common(found: Mapping[str, Place], names: Mapping[str, str]) -> tuple[dict[str, Place], dict[str, str]]:
    """Paths without what is around all others: the scope of the network, whose path is '' then, or the one call by
    which the function that is differentiated comes to all others."""
    paths = {place.path for place in found.values() if place.path and place.path != LOSS}
    scoped, sourced = ({path for path in paths if (":" in path) == by_source} for by_source in (False, True))
    short: dict[str, str] = {}
    for mine, others in ((scoped, sourced), (sourced, set())):
        heads = {path.partition(".")[0] for path in mine if mine is scoped or "." in path}
        if len(heads) == 1 and not others and any("." in path for path in mine):
            head = f"{next(iter(heads))}."
            short |= {path: path.removeprefix(head) for path in {*mine, *names} if path.startswith(head)}
            if mine is scoped:
                short[head[:-1]] = ROOT
    moved = {name: Place(place.phase, short.get(place.path, place.path)) for name, place in found.items()}
    return moved, {short.get(path, path): name for path, name in names.items()}
