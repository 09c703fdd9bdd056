"""What the instructions of a compiled function cost: FLOPs and bytes, by the conventions of all other counts.

Multiply-add is 2; +, −, ×, ÷ and one call of exp, log, tanh, sqrt … are 1 each for every element of a floating type;
comparisons, selections, copies and integers are 0. An instruction reads each of its inputs once and writes its result;
of an array from which it takes a slice, or into which it puts one, the slice alone. XLA's own `cost_analysis` counts
a loop as if it ran once, and integers as FLOPs; tests hold both against each other where there are no loops.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sonda.frameworks.jax.profile.hlo import Array, Choose, Instruction, Module

_ONE = """
add subtract multiply divide negate exponential exponential-minus-one log log-plus-one tanh sqrt cbrt sine cosine tan
power atan2 erf
"""
PER_ELEMENT = dict.fromkeys(_ONE.split(), 1) | {
    "rsqrt": 2,  # 1 / sqrt(x)
    "logistic": 4,  # 1 / (1 + exp(-x))
    "remainder": 3,  # a - b trunc(a / b)
}
_FREE = """
parameter constant tuple get-tuple-element bitcast after-all partition-id replica-id opt-barrier add-dependency
async-update
"""
FREE = frozenset(_FREE.split())
"""Opcodes for which nothing runs, beside those that wait for what was started (`DONE`)."""
DONE = "-done"
UNKNOWN = ("custom-call", "fft", "cholesky", "triangular-solve", "ragged-dot")
"""Opcodes whose FLOPs their text does not tell."""
BYTES = {"pred": 1, "c64": 8, "c128": 16, "token": 0}
"""Of types whose name does not end with their bits."""
BITS = re.compile(r"(\d+)")
CONTRACTING = re.compile(r'lhs_contracting_dim(?:s=\{|ensions":\[)([\d,"]*)[}\]]')
LABELS = re.compile(r"dim_labels=(\w+)_(\w+)->(\w+)")
WINDOW = re.compile(r"window=\{size=([\dx]+)")
TARGET = re.compile(r'custom_call_target="([^"]*)"')
LIBRARIES = ("__cublas$", "__cudnn$")
"""What the targets of calls of libraries that XLA gives memory to work in begin with."""
SCRATCH = ("s8", "u8")
DTYPES = {
    "f8e4m3fn": "float8",
    "f8e5m2": "float8",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "c64": "float32",
    "c128": "float64",
}
"""The words that other counts have for types."""


@dataclass(frozen=True)
class InstructionCost:
    """Of one run of an instruction. `flops` is None where nobody knows."""

    operation: str
    """`dot`, `convolution`; `fusion` where it holds neither; the target of a custom call."""
    dtype: str
    flops: int | None
    bytes: int


def executed_costs(module: Module) -> Iterator[tuple[Instruction, int | None, InstructionCost]]:
    """Everything that a call runs, how often (None: XLA does not know), and what a run of it costs.

    Of the branches of a condition the one with the most FLOPs is counted.
    """

    def dearest(branches: Sequence[str]) -> Sequence[str]:
        return [max(branches, key=lambda name: _total(module, name, dearest))] if branches else []

    for one, times in module.executed(dearest):
        cost = cost_of(one, module)
        if cost is not None:
            yield one, times, cost


def _total(module: Module, computation: str, choose: Choose) -> int:
    """FLOPs of a computation as far as they are known."""
    found = 0
    for one, times in module.executed(choose, computation):
        cost = cost_of(one, module)
        found += (times or 1) * (cost.flops or 0) if cost is not None else 0
    return found


def cost_of(one: Instruction, module: Module) -> InstructionCost | None:
    """What one run of an executed instruction costs; None for one that runs nothing."""
    if runs_nothing(one):
        return None
    inside = module.computations.get(one.called[0], []) if one.opcode == "fusion" and one.called else [one]
    products = ["dot" if _given_away(inner) else inner.opcode for inner in inside if _product(inner)]
    operation = products[0] if products else one.opcode
    unknown = next((inner for inner in inside if inner.opcode in UNKNOWN and not _given_away(inner)), None)
    if unknown is not None:
        target = TARGET.search(unknown.attributes)
        operation = target[1] if target else unknown.opcode
    flops = None if unknown is not None else sum(_flops(inner, module) for inner in inside)
    floating = [DTYPES[array.kind] for array in _read(inside, module) if array.kind in DTYPES]
    dtype = max(floating, key=floating.count) if floating else ""
    return InstructionCost(operation, dtype, flops, _bytes(one, inside, module))


def runs_nothing(one: Instruction) -> bool:
    """Whether nothing runs for an executed instruction."""
    return one.opcode in FREE or one.opcode.endswith(DONE)


def _read(inside: Sequence[Instruction], module: Module) -> list[Array]:
    """What products read, or else what anything computes: arrays whose type says in which precision."""
    products = [one for one in inside if _product(one)]
    named = module.named
    operands = [array for one in products for name in one.operands if name in named for array in named[name].arrays]
    return operands or [array for one in inside for array in one.arrays]


def _product(one: Instruction) -> bool:
    return one.opcode in ("dot", "convolution") or _given_away(one)


def _given_away(one: Instruction) -> bool:
    """A product of matrices that XLA for a GPU gives to cuBLAS."""
    target = TARGET.search(one.attributes) if one.opcode == "custom-call" else None
    return bool(target and target[1].startswith("__cublas$") and CONTRACTING.search(one.attributes))


# ---- arithmetic ---------------------------------------------------------------------------------------------------


def _flops(one: Instruction, module: Module) -> int:
    result = one.arrays
    operands = [
        module.named[name].arrays[0] for name in one.operands if name in module.named and _has_array(name, module)
    ]
    if not result or not any(array.kind in DTYPES for array in result):
        return 0
    if one.opcode in PER_ELEMENT:
        return PER_ELEMENT[one.opcode] * result[0].size
    if one.opcode == "dot" or _given_away(one):
        return 2 * result[0].size * _contracted(one, operands)
    if one.opcode == "convolution":
        return _convolution(one, result[0], operands)
    each = _applied(one, module)
    if one.opcode == "reduce":
        return each * max(sum(array.size for array in operands[: len(result)]) - sum(array.size for array in result), 0)
    if one.opcode in ("all-reduce", "all-reduce-start"):
        return each * sum(array.size for array in result)
    if one.opcode == "reduce-window":
        return each * result[0].size * max(_multiplied(_window(one)) - 1, 0)
    if one.opcode == "scatter":
        return each * operands[-1].size if operands else 0
    if one.opcode == "select-and-scatter":
        return operands[1].size if len(operands) > 1 else 0
    return each * result[0].size if one.opcode == "map" else 0


def _has_array(name: str, module: Module) -> bool:
    return bool(module.named[name].arrays)


def _contracted(one: Instruction, operands: Sequence[Array]) -> int:
    found = CONTRACTING.search(one.attributes)
    axes = [int(axis) for axis in found[1].replace('"', "").split(",") if axis] if found else []
    return _multiplied([operands[0].sides[axis] for axis in axes]) if operands else 0


def _convolution(one: Instruction, result: Array, operands: Sequence[Array]) -> int:
    """Each value of the kernel meets as many places of the input, or of the result, as there are of either.

    Padding is computed with, as other frameworks' formulas have it. The gradient of a convolution has far more of it:
    zeros around its input, and between its values where there was a stride, which are no work.
    """
    labels = LABELS.search(one.attributes)
    if labels is None or len(operands) < 2:
        return 0
    inputs, kernel, outputs = labels.groups()
    weights = operands[1]
    count = 2 * result.size * weights.size // max(weights.sides[kernel.index("o")], 1)
    for axis in (letter for letter in outputs if letter.isdigit()):
        before, after = operands[0].sides[inputs.index(axis)], result.sides[outputs.index(axis)]
        count = count // max(after, 1) * min(before, after)
    return count


def _window(one: Instruction) -> list[int]:
    """The sides of a window."""
    found = WINDOW.search(one.attributes)
    return [int(side) for side in found[1].split("x")] if found else []


def _applied(one: Instruction, module: Module) -> int:
    """FLOPs of what a reduction applies to two elements."""
    inside = [inner for name in one.called for inner in module.computations.get(name, [])]
    floating = [one.opcode for one in inside if one.arrays and one.arrays[0].kind in DTYPES]
    return sum(PER_ELEMENT.get(opcode, 0) for opcode in floating)


def _multiplied(sides: Sequence[int]) -> int:
    count = 1
    for side in sides:
        count *= side
    return count


# ---- memory -------------------------------------------------------------------------------------------------------


def _bytes(one: Instruction, inside: Sequence[Instruction], module: Module) -> int:
    """Read and written by a run of an instruction, which is one by itself or a fusion of those `inside`."""
    named = {inner.name: inner for inner in inside}
    users: dict[str, list[Instruction]] = {}
    for inner in inside:
        for name in dict.fromkeys(inner.operands):
            users.setdefault(name, []).append(inner)
    if one in inside:
        read = [(name, module.named[name]) for name in dict.fromkeys(one.operands) if name in module.named]
        roots = [one]
    else:
        read = [(inner.name, inner) for inner in inside if inner.opcode == "parameter"]
        roots = _roots(inside, named)
    total = sum(_used(name, source, users, module) for name, source in read)
    for root in roots:
        written = _update(root, module) if root.opcode in ("dynamic-update-slice", "scatter") else None
        total += size_of(_results(root, module)) if written is None else written
    return total


def _results(one: Instruction, module: Module) -> Sequence[Array]:
    """What an instruction writes: not the memory that a library works in, nor what a start names a second time."""
    target = TARGET.search(one.attributes) if one.opcode == "custom-call" else None
    if target and target[1].startswith(LIBRARIES) and len(one.arrays) > 1 and one.arrays[-1].kind in SCRATCH:
        return one.arrays[:-1]
    if one.opcode == "copy-start":  # the copy, its source, a context
        return one.arrays[:1]
    if one.opcode in ("all-gather-start", "collective-permute-start"):  # sources, results, perhaps contexts
        given = sum(len(module.named[name].arrays) for name in one.operands if name in module.named)
        return one.arrays[given : 2 * given]
    return one.arrays


def _roots(inside: Sequence[Instruction], named: Mapping[str, Instruction]) -> list[Instruction]:
    """What a fusion gives: its root, or the parts of a tuple, without what only looks at them in another shape."""
    found = [one for one in inside if one.root] or list(inside[-1:])
    if found and found[0].opcode == "tuple":
        found = [named[name] for name in found[0].operands if name in named]
    return [_seen_through(one, named) for one in found]


def _seen_through(one: Instruction, named: Mapping[str, Instruction]) -> Instruction:
    while one.opcode == "bitcast" and one.operands and one.operands[0] in named:
        one = named[one.operands[0]]
    return one


def _used(name: str, source: Instruction, users: Mapping[str, list[Instruction]], module: Module) -> int:
    """Bytes that are read of an input: all, unless nothing but slices of it is taken or written."""
    total = 0
    for user in users.get(name, []):
        first = bool(user.operands) and user.operands[0] == name and user.operands.count(name) == 1
        if first and user.opcode in ("dynamic-slice", "slice", "gather"):
            total += size_of(user.arrays)
        elif first and user.opcode == "bitcast":
            total += _used(user.name, user, users, module)
        elif not (first and user.opcode in ("dynamic-update-slice", "scatter")):
            return size_of(source.arrays)
    return min(total, size_of(source.arrays))


def _update(one: Instruction, module: Module) -> int | None:
    """Bytes that are written into an array in its place."""
    name = one.operands[1 if one.opcode == "dynamic-update-slice" else -1] if len(one.operands) > 1 else ""
    return size_of(module.named[name].arrays) if name in module.named else None


def size_of(arrays: Sequence[Array]) -> int:
    """Bytes."""
    return sum(_element(array.kind, array.size) for array in arrays)


def _element(kind: str, count: int) -> int:
    if kind in BYTES:
        return BYTES[kind] * count
    bits = BITS.search(kind)
    return (int(bits[1]) * count + 7) // 8 if bits else 0
