"""The instructions of XLA that kernels of a CUDA graph belong to, where the profile names the graph only.

The text of the compiled function tells what a call runs and in which order, and kernels ran in that order too. Both
sequences are aligned so that as many pairs as possible fit: a kernel that XLA wrote has the name of its instruction or
of an equal one (XLA compiles equal fusions once), and a copy is a copy. Between aligned pairs lie kernels of libraries
and the instructions that call libraries. If there is one call, all these kernels are its; if there are as many calls as
kernels, each call has one; otherwise their instruction is unknown. Clearing memory belongs to the kernel that follows.
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
from sonda.frameworks.jax.profile.operations import XlaOperation

MOST_INSTRUCTIONS = 20_000
"""Instructions of a call that are aligned; in a longer call kernels are found by their names alone."""
MOST_CELLS = 40_000_000
"""Pairs of an instruction and a kernel that are compared."""
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")
"""Characters for which XLA writes `_` in the name of a kernel."""
NUMBER = re.compile(r"_\d+$")
COPIES = re.compile(r"memcpy", re.IGNORECASE)
CLEARS = re.compile(r"memset", re.IGNORECASE)
SAME, EQUAL, COPIED, WRITTEN = 4, 3, 2, 1
"""How well a kernel fits an instruction: by name, by name without the number, as a copy, as any kernel of XLA."""
NO_KERNEL, PAIR, NO_INSTRUCTION = 0, 1, 2
"""The last step to the best sum: an instruction without a kernel, a pair, a kernel without an instruction."""


class _KernelName(NamedTuple):
    """The name of a kernel, and what it tells."""

    name: str
    stem: str
    by_xla: bool
    copies: bool
    clears: bool

    @property
    def of_library(self) -> bool:
        return not (self.by_xla or self.copies or self.clears)


def name_by_instruction(operations: Iterable[XlaOperation], module: Module) -> list[XlaOperation]:
    """The operations of one run; kernels of CUDA graphs get the names of their instructions, where these are known."""
    renamed = list(operations)
    if not any(operation.graph for operation in renamed):
        return renamed
    known = {operation.name for operation in renamed if not operation.graph}
    sequence = [
        instruction
        for instruction in module.run_sequence(MOST_INSTRUCTIONS) or ()
        if not runs_nothing(instruction) and instruction.name not in known
    ]
    for device in {operation.device for operation in renamed}:
        indices = [index for index, operation in enumerate(renamed) if operation.graph and operation.device == device]
        indices.sort(key=lambda index: renamed[index].start)
        kernels = [renamed[index].name for index in indices]
        if 0 < len(sequence) * len(kernels) <= MOST_CELLS:
            names = _in_order(sequence, kernels, module)
        else:
            names = _by_name(kernels, module)
        for index, name in zip(indices, names, strict=True):
            if name:
                renamed[index] = replace(renamed[index], name=name)
    return renamed


def _by_name(kernels: Sequence[str], module: Module) -> list[str]:
    """The instruction of each kernel whose name fits exactly one instruction; '' for the others."""
    by_written: dict[str, list[str]] = {}
    for name in module.by_name:
        by_written.setdefault(_kernel_name(name), []).append(name)
    instructions = []
    for kernel in kernels:
        names = [kernel] if kernel in module.by_name else by_written.get(_kernel_name(kernel), [])
        instructions.append(names[0] if len(names) == 1 else "")
    return instructions


def _in_order(sequence: Sequence[Instruction], kernels: Sequence[str], module: Module) -> list[str]:
    """The instruction of each kernel by alignment; '' where it is unknown."""
    stems = {NUMBER.sub("", _kernel_name(name)) for name in module.by_name}
    described = [_describe_kernel(name, stems) for name in kernels]
    rows = _align(sequence, described)
    calls = [row for row, instruction in enumerate(sequence) if instruction.opcode == "custom-call"]
    borders = [position for position, row in enumerate(rows) if row >= 0]
    for first, last in zip([-1, *borders], [*borders, len(described)], strict=True):
        libraries = [position for position in range(first + 1, last) if described[position].of_library]
        begin = rows[first] if first >= 0 else -1
        end = rows[last] if last < len(described) else len(sequence)
        calls_between = calls[bisect_right(calls, begin) : bisect_left(calls, end)]
        if len(calls_between) == 1:
            calls_between = calls_between * len(libraries)
        if len(calls_between) == len(libraries):
            for position, row in zip(libraries, calls_between, strict=True):
                rows[position] = row
    for position in reversed(range(len(described) - 1)):
        if described[position].clears:
            rows[position] = rows[position + 1]
    return [sequence[row].name if row >= 0 else "" for row in rows]


def _kernel_name(name: str) -> str:
    return NOT_IN_NAMES.sub("_", name)


def _describe_kernel(name: str, stems: set[str]) -> _KernelName:
    written_name = _kernel_name(name)
    stem = NUMBER.sub("", written_name)
    return _KernelName(written_name, stem, stem in stems, bool(COPIES.search(name)), bool(CLEARS.search(name)))


def _align(sequence: Sequence[Instruction], kernels: Sequence[_KernelName]) -> list[int]:
    """For each kernel the position of its instruction, -1 for none: the alignment with the best sum."""
    names = np.array([kernel.name for kernel in kernels])
    stems = np.array([kernel.stem for kernel in kernels])
    by_xla, copies = np.array([(kernel.by_xla, kernel.copies) for kernel in kernels]).T
    best = np.zeros(len(kernels) + 1, np.int32)
    """By number of kernels: the best sum of the instructions so far with the first kernels."""
    chosen = np.empty((len(sequence), len(kernels) + 1), np.int8)
    fits: dict[str, np.ndarray] = {}
    for row, instruction in enumerate(sequence):
        if instruction.name not in fits:  # a loop runs it again
            name = _kernel_name(instruction.name)
            moves = instruction.opcode in ("fusion", "copy")
            kinds = [
                names == name,
                stems == NUMBER.sub("", name),
                copies & moves,
                by_xla & (instruction.opcode == "fusion"),
            ]
            fits[instruction.name] = np.select(kinds, [SAME, EQUAL, COPIED, WRITTEN], 0)
        fit = fits[instruction.name]
        paired = np.concatenate(([-1], np.where(fit > 0, best[:-1] + fit, -1)))
        sums = np.maximum.accumulate(np.maximum(best, paired))
        chosen[row] = np.where(sums == best, NO_KERNEL, np.where(sums == paired, PAIR, NO_INSTRUCTION))
        best = sums
    rows = [-1] * len(kernels)
    row, column = len(sequence) - 1, len(kernels)
    while row >= 0 and column > 0:
        choice = chosen[row, column]
        if choice == PAIR:
            rows[column - 1] = row
        column -= choice != NO_KERNEL
        row -= choice != NO_INSTRUCTION
    return rows
