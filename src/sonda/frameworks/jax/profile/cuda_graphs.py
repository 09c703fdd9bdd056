"""Which instruction of XLA a kernel is that ran in a CUDA graph, where the profile names the graph in its place.

What a call runs, and in which order, stands in the text of the compiled function; kernels ran in that order too. So
both are laid side by side, in order, such that most fits: a kernel that XLA wrote has the name of its instruction or of
an equal one (XLA compiles equal fusions once), and a copy is a copy. Between them lie kernels of libraries and the
instructions that call libraries: of one call all are its, of as many calls as kernels each has one, and otherwise
nothing tells whose they are. Clearing memory belongs to what follows.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sonda.frameworks.jax.profile.hlo import Instruction, Module
from sonda.frameworks.jax.profile.hlo_cost import runs_nothing
from sonda.frameworks.jax.profile.operations import Operation

MOST = 20_000
"""Instructions that a call runs; of one with more, kernels are told by their names alone."""
MOST_CELLS = 40_000_000
"""Pairs of an instruction and a kernel that are looked at."""
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")
"""In the name of a kernel XLA writes `_` for these."""
NUMBER = re.compile(r"_\d+$")
COPIES = re.compile(r"memcpy", re.IGNORECASE)
CLEARS = re.compile(r"memset", re.IGNORECASE)
SAME, EQUAL, COPIED, WRITTEN = 4, 3, 2, 1
"""How well a kernel fits an instruction: by its name, by its name without the number, as a copy, as any kernel that XLA
wrote."""
NO_KERNEL, PAIR, NO_INSTRUCTION = 0, 1, 2
"""What makes the best sum: an instruction without a kernel, one with the last kernel, the last kernel without one."""


class _Kernel(NamedTuple):
    """What the name of a kernel tells."""

    name: str
    stem: str
    by_xla: bool
    copies: bool
    clears: bool

    @property
    def of_library(self) -> bool:
        return not (self.by_xla or self.copies or self.clears)


def by_instruction(operations: Iterable[Operation], module: Module) -> list[Operation]:
    """The same operations of one run; a kernel of a CUDA graph has the name of its instruction, where that is known."""
    found = list(operations)
    if not any(one.graph for one in found):
        return found
    told = {one.name for one in found if not one.graph}
    sequence = [one for one in module.sequence(MOST) or () if not runs_nothing(one) and one.name not in told]
    for device in {one.device for one in found}:
        mine = [k for k, one in enumerate(found) if one.graph and one.device == device]
        mine.sort(key=lambda k: found[k].start)
        kernels = [found[k].name for k in mine]
        if 0 < len(sequence) * len(kernels) <= MOST_CELLS:
            names = _in_order(sequence, kernels, module)
        else:
            names = _by_name(kernels, module)
        for k, name in zip(mine, names, strict=True):
            if name:
                found[k] = replace(found[k], name=name)
    return found


def _by_name(kernels: Sequence[str], module: Module) -> list[str]:
    """The instruction of each kernel that is named like one and no other; '' for the others."""
    known: dict[str, list[str]] = {}
    for name in module.named:
        known.setdefault(_written(name), []).append(name)
    found = []
    for kernel in kernels:
        names = [kernel] if kernel in module.named else known.get(_written(kernel), [])
        found.append(names[0] if len(names) == 1 else "")
    return found


def _in_order(sequence: Sequence[Instruction], kernels: Sequence[str], module: Module) -> list[str]:
    """The instruction of each kernel; '' where nothing tells."""
    stems = {NUMBER.sub("", _written(name)) for name in module.named}
    known = [_kernel(name, stems) for name in kernels]
    places = _aligned(sequence, known)
    calls = [place for place, one in enumerate(sequence) if one.opcode == "custom-call"]
    borders = [at for at, place in enumerate(places) if place >= 0]
    for first, last in zip([-1, *borders], [*borders, len(known)], strict=True):
        libraries = [at for at in range(first + 1, last) if known[at].of_library]
        begin = places[first] if first >= 0 else -1
        end = places[last] if last < len(known) else len(sequence)
        between = calls[bisect_right(calls, begin) : bisect_left(calls, end)]
        if len(between) == 1:
            between = between * len(libraries)
        if len(between) == len(libraries):
            for at, place in zip(libraries, between, strict=True):
                places[at] = place
    for at in reversed(range(len(known) - 1)):
        if known[at].clears:
            places[at] = places[at + 1]
    return [sequence[place].name if place >= 0 else "" for place in places]


def _written(name: str) -> str:
    return NOT_IN_NAMES.sub("_", name)


def _kernel(name: str, stems: set[str]) -> _Kernel:
    written = _written(name)
    stem = NUMBER.sub("", written)
    return _Kernel(written, stem, stem in stems, bool(COPIES.search(name)), bool(CLEARS.search(name)))


def _aligned(sequence: Sequence[Instruction], kernels: Sequence[_Kernel]) -> list[int]:
    """For each kernel the place of its instruction, -1 for none: the pairs in order that fit best in sum."""
    names = np.array([one.name for one in kernels])
    stems = np.array([one.stem for one in kernels])
    by_xla, copies = np.array([(one.by_xla, one.copies) for one in kernels]).T
    best = np.zeros(len(kernels) + 1, np.int32)
    """The best sum of the instructions so far with so many of the kernels."""
    chosen = np.empty((len(sequence), len(kernels) + 1), np.int8)
    fits: dict[str, np.ndarray] = {}
    for number, one in enumerate(sequence):
        if one.name not in fits:  # a loop runs it again
            name = _written(one.name)
            moves = one.opcode in ("fusion", "copy")
            kinds = [names == name, stems == NUMBER.sub("", name), copies & moves, by_xla & (one.opcode == "fusion")]
            fits[one.name] = np.select(kinds, [SAME, EQUAL, COPIED, WRITTEN], 0)
        fit = fits[one.name]
        paired = np.concatenate(([-1], np.where(fit > 0, best[:-1] + fit, -1)))
        now = np.maximum.accumulate(np.maximum(best, paired))
        chosen[number] = np.where(now == best, NO_KERNEL, np.where(now == paired, PAIR, NO_INSTRUCTION))
        best = now
    places = [-1] * len(kernels)
    number, at = len(sequence) - 1, len(kernels)
    while number >= 0 and at > 0:
        choice = chosen[number, at]
        if choice == PAIR:
            places[at - 1] = number
        at -= choice != NO_KERNEL
        number -= choice != NO_INSTRUCTION
    return places
