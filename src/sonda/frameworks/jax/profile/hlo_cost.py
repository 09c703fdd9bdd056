"""What the instructions of a compiled function cost: FLOPs and bytes, by the conventions of all other counts.

Multiply-add is 2; +, −, ×, ÷ and one call of exp, log, tanh, sqrt … are 1 each for every element of a floating type;
comparisons, selections, copies and integers are 0. An instruction reads each of its inputs once and writes its result.
Where it takes a slice of an array, or writes one into it, only the slice counts. XLA's own `cost_analysis` counts a
loop as if it ran once, and integers as FLOPs; tests compare both where there are no loops.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from sonda.frameworks.jax.profile.hlo import Array, Choose, Instruction, Module

_SINGLE_FLOP = """
add subtract multiply divide negate exponential exponential-minus-one log log-plus-one tanh sqrt cbrt sine cosine tan
power atan2 erf
"""
PER_ELEMENT = dict.fromkeys(_SINGLE_FLOP.split(), 1) | {
    "rsqrt": 2,  # 1 / sqrt(x)
    "logistic": 4,  # 1 / (1 + exp(-x))
    "remainder": 3,  # a - b trunc(a / b)
}
_RUNS_NOTHING = """
parameter constant tuple get-tuple-element bitcast after-all partition-id replica-id opt-barrier add-dependency
async-update
"""
RUNS_NOTHING = frozenset(_RUNS_NOTHING.split())
"""Opcodes for which nothing runs, beside those that wait for an asynchronous instruction (`DONE`)."""
DONE = "-done"
UNKNOWN = ("custom-call", "fft", "cholesky", "triangular-solve", "ragged-dot")
"""Opcodes whose FLOPs the text does not tell."""
BYTES = {"pred": 1, "c64": 8, "c128": 16, "token": 0}
"""Bytes of types whose names do not contain their bits."""
BITS = re.compile(r"(\d+)")
CONTRACTING = re.compile(r'lhs_contracting_dim(?:s=\{|ensions":\[)([\d,"]*)[}\]]')
LABELS = re.compile(r"dim_labels=(\w+)_(\w+)->(\w+)")
WINDOW = re.compile(r"window=\{size=([\dx]+)")
TARGET = re.compile(r'custom_call_target="([^"]*)"')
LIBRARIES = ("__cublas$", "__cudnn$")
"""How the targets of library calls begin that get scratch memory from XLA."""
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
"""XLA's names of types, and those of all other counts."""


@dataclass(frozen=True)
class InstructionCost:
    """The cost of one run of an instruction. `flops` is None where it is unknown."""

    operation: str
    """`dot`, `convolution`; `fusion` where it holds neither; the target of a custom call."""
    dtype: str
    flops: int | None
    bytes: int


def executed_costs(module: Module) -> Iterator[tuple[Instruction, int | None, InstructionCost]]:
    """Every instruction that a call runs, how often (None: XLA does not know), and the cost of one run.

    Of the branches of a condition the one with the most FLOPs is counted.
    """

    def dearest(branches: Sequence[str]) -> Sequence[str]:
        return [max(branches, key=lambda name: _total_flops(module, name, dearest))] if branches else []

    for instruction, times in module.executed_instructions(dearest):
        cost = instruction_cost(instruction, module)
        if cost is not None:
            yield instruction, times, cost


def _total_flops(module: Module, computation: str, choose: Choose) -> int:
    """FLOPs of a computation, as far as they are known."""
    total = 0
    for instruction, times in module.executed_instructions(choose, computation):
        cost = instruction_cost(instruction, module)
        total += (times or 1) * (cost.flops or 0) if cost is not None else 0
    return total


def instruction_cost(instruction: Instruction, module: Module) -> InstructionCost | None:
    """The cost of one run of an executed instruction; None where nothing runs."""
    if runs_nothing(instruction):
        return None
    inside = (
        module.computations.get(instruction.callees[0], [])
        if instruction.opcode == "fusion" and instruction.callees
        else [instruction]
    )
    products = ["dot" if _is_cublas_product(inner) else inner.opcode for inner in inside if _is_product(inner)]
    operation = products[0] if products else instruction.opcode
    unknown = next((inner for inner in inside if inner.opcode in UNKNOWN and not _is_cublas_product(inner)), None)
    if unknown is not None:
        target = TARGET.search(unknown.attributes)
        operation = target[1] if target else unknown.opcode
    flops = None if unknown is not None else sum(_flops(inner, module) for inner in inside)
    floating = [DTYPES[array.kind] for array in _typed_arrays(inside, module) if array.kind in DTYPES]
    dtype = max(floating, key=floating.count) if floating else ""
    return InstructionCost(operation, dtype, flops, _bytes(instruction, inside, module))


def runs_nothing(instruction: Instruction) -> bool:
    """Whether nothing runs for an executed instruction."""
    return instruction.opcode in RUNS_NOTHING or instruction.opcode.endswith(DONE)


def _typed_arrays(inside: Sequence[Instruction], module: Module) -> list[Array]:
    """The arrays whose types tell the precision: inputs of products, or without products all results."""
    products = [instruction for instruction in inside if _is_product(instruction)]
    named = module.by_name
    operands = [
        array
        for instruction in products
        for name in instruction.operands
        if name in named
        for array in named[name].arrays
    ]
    return operands or [array for instruction in inside for array in instruction.arrays]


def _is_product(instruction: Instruction) -> bool:
    return instruction.opcode in ("dot", "convolution") or _is_cublas_product(instruction)


def _is_cublas_product(instruction: Instruction) -> bool:
    """Whether it is a product of matrices that XLA leaves to cuBLAS, on a GPU."""
    target = TARGET.search(instruction.attributes) if instruction.opcode == "custom-call" else None
    return bool(target and target[1].startswith("__cublas$") and CONTRACTING.search(instruction.attributes))


# ---- arithmetic ---------------------------------------------------------------------------------------------------


def _flops(instruction: Instruction, module: Module) -> int:
    result = instruction.arrays
    operands = [
        module.by_name[name].arrays[0]
        for name in instruction.operands
        if name in module.by_name and _has_array(name, module)
    ]
    if not result or not any(array.kind in DTYPES for array in result):
        return 0
    if instruction.opcode in PER_ELEMENT:
        return PER_ELEMENT[instruction.opcode] * result[0].size
    if instruction.opcode == "dot" or _is_cublas_product(instruction):
        return 2 * result[0].size * _contracted_elements(instruction, operands)
    if instruction.opcode == "convolution":
        return _convolution_flops(instruction, result[0], operands)
    applied = _applied_flops(instruction, module)
    if instruction.opcode == "reduce":
        return applied * max(
            sum(array.size for array in operands[: len(result)]) - sum(array.size for array in result), 0
        )
    if instruction.opcode in ("all-reduce", "all-reduce-start"):
        return applied * sum(array.size for array in result)
    if instruction.opcode == "reduce-window":
        return applied * result[0].size * max(prod(_window_sides(instruction)) - 1, 0)
    if instruction.opcode == "scatter":
        return applied * operands[-1].size if operands else 0
    if instruction.opcode == "select-and-scatter":
        return operands[1].size if len(operands) > 1 else 0
    return applied * result[0].size if instruction.opcode == "map" else 0


def _has_array(name: str, module: Module) -> bool:
    return bool(module.by_name[name].arrays)


def _contracted_elements(instruction: Instruction, operands: Sequence[Array]) -> int:
    match = CONTRACTING.search(instruction.attributes)
    axes = [int(axis) for axis in match[1].replace('"', "").split(",") if axis] if match else []
    return prod([operands[0].sides[axis] for axis in axes]) if operands else 0


def _convolution_flops(instruction: Instruction, result: Array, operands: Sequence[Array]) -> int:
    """FLOPs of a convolution: along each axis a value of the kernel meets min(input, result) positions.

    Padding counts, as in other frameworks' formulas. The gradient of a convolution has far more padding, which is no
    work: zeros around its input, and between its values where there was a stride. The minimum leaves them out.
    """
    labels = LABELS.search(instruction.attributes)
    if labels is None or len(operands) < 2:
        return 0
    inputs, kernel, outputs = labels.groups()
    weights = operands[1]
    count = 2 * result.size * weights.size // max(weights.sides[kernel.index("o")], 1)
    for axis in (letter for letter in outputs if letter.isdigit()):
        before, after = operands[0].sides[inputs.index(axis)], result.sides[outputs.index(axis)]
        count = count // max(after, 1) * min(before, after)
    return count


def _window_sides(instruction: Instruction) -> list[int]:
    """The sides of the window of an instruction."""
    match = WINDOW.search(instruction.attributes)
    return [int(side) for side in match[1].split("x")] if match else []


def _applied_flops(instruction: Instruction, module: Module) -> int:
    """FLOPs of the computation that a reduction applies to two elements."""
    inside = [inner for name in instruction.callees for inner in module.computations.get(name, [])]
    floating = [inner.opcode for inner in inside if inner.arrays and inner.arrays[0].kind in DTYPES]
    return sum(PER_ELEMENT.get(opcode, 0) for opcode in floating)


# ---- memory -------------------------------------------------------------------------------------------------------


def _bytes(instruction: Instruction, inside: Sequence[Instruction], module: Module) -> int:
    """Bytes that a run of an instruction reads and writes; it runs alone, or is a fusion of those `inside`."""
    inner_by_name = {inner.name: inner for inner in inside}
    users: dict[str, list[Instruction]] = {}
    for inner in inside:
        for name in dict.fromkeys(inner.operands):
            users.setdefault(name, []).append(inner)
    if instruction in inside:
        read = [(name, module.by_name[name]) for name in dict.fromkeys(instruction.operands) if name in module.by_name]
        roots = [instruction]
    else:
        read = [(inner.name, inner) for inner in inside if inner.opcode == "parameter"]
        roots = _roots(inside, inner_by_name)
    total = sum(_bytes_read(name, source, users, module) for name, source in read)
    for root in roots:
        written = _bytes_updated(root, module) if root.opcode in ("dynamic-update-slice", "scatter") else None
        total += bytes_of(_written_arrays(root, module)) if written is None else written
    return total


def _written_arrays(instruction: Instruction, module: Module) -> Sequence[Array]:
    """The arrays that an instruction writes, without scratch memory and the sources that a `-start` names again."""
    target = TARGET.search(instruction.attributes) if instruction.opcode == "custom-call" else None
    if (
        target
        and target[1].startswith(LIBRARIES)
        and len(instruction.arrays) > 1
        and instruction.arrays[-1].kind in SCRATCH
    ):
        return instruction.arrays[:-1]
    if instruction.opcode == "copy-start":  # the copy, its source, a context
        return instruction.arrays[:1]
    if instruction.opcode in ("all-gather-start", "collective-permute-start"):  # sources, results, perhaps contexts
        sources = sum(len(module.by_name[name].arrays) for name in instruction.operands if name in module.by_name)
        return instruction.arrays[sources : 2 * sources]
    return instruction.arrays


def _roots(inside: Sequence[Instruction], inner_by_name: Mapping[str, Instruction]) -> list[Instruction]:
    """The instructions that make the results of a fusion: its root, or the parts of a tuple, behind bitcasts."""
    roots = [instruction for instruction in inside if instruction.root] or list(inside[-1:])
    if roots and roots[0].opcode == "tuple":
        roots = [inner_by_name[name] for name in roots[0].operands if name in inner_by_name]
    return [_skip_bitcasts(instruction, inner_by_name) for instruction in roots]


def _skip_bitcasts(instruction: Instruction, inner_by_name: Mapping[str, Instruction]) -> Instruction:
    while instruction.opcode == "bitcast" and instruction.operands and instruction.operands[0] in inner_by_name:
        instruction = inner_by_name[instruction.operands[0]]
    return instruction


def _bytes_read(name: str, source: Instruction, users: Mapping[str, list[Instruction]], module: Module) -> int:
    """Bytes that are read of an input: all of it, or only slices where all its users read or write slices."""
    total = 0
    for user in users.get(name, []):
        first = bool(user.operands) and user.operands[0] == name and user.operands.count(name) == 1
        if first and user.opcode in ("dynamic-slice", "slice", "gather"):
            total += bytes_of(user.arrays)
        elif first and user.opcode == "bitcast":
            total += _bytes_read(user.name, user, users, module)
        elif not (first and user.opcode in ("dynamic-update-slice", "scatter")):
            return bytes_of(source.arrays)
    return min(total, bytes_of(source.arrays))


def _bytes_updated(instruction: Instruction, module: Module) -> int | None:
    """Bytes that an update in place writes into an array."""
    name = (
        instruction.operands[1 if instruction.opcode == "dynamic-update-slice" else -1]
        if len(instruction.operands) > 1
        else ""
    )
    return bytes_of(module.by_name[name].arrays) if name in module.by_name else None


def bytes_of(arrays: Sequence[Array]) -> int:
    """Bytes of arrays."""
    return sum(_array_bytes(array.kind, array.size) for array in arrays)


def _array_bytes(kind: str, count: int) -> int:
    if kind in BYTES:
        return BYTES[kind] * count
    bits = BITS.search(kind)
    return (int(bits[1]) * count + 7) // 8 if bits else 0
