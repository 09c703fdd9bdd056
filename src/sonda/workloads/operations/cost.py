"""What the six operations of the study cost by formula, whatever framework runs them.

+, −, ×, ÷ and a call of exp or tanh are 1 FLOP each, a multiply-add is 2. Bytes: every operand read once, the result
written once. Tests hold these against what the operations count to in PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

PER_ELEMENT = {"add": 1, "mul": 1, "scalar": 1, "sigmoid": 4, "tanh": 1}
"""FLOPs for every element of the result; sigmoid is 1 / (1 + exp(-x))."""


@dataclass(frozen=True)
class OperationCost:
    """FLOPs and bytes of one call."""

    flops: int
    bytes: int


def operation_cost(op: str, operands: Sequence[tuple[int, ...]], width: int = 4) -> OperationCost:
    """The cost of one of the six on operands of these shapes, whose elements have `width` bytes."""
    if op == "dot":
        (rows, inner), (_, columns) = operands
        result, flops = rows * columns, 2 * rows * inner * columns
    else:
        result = prod(operands[0])
        flops = PER_ELEMENT[op] * result
    return OperationCost(flops, width * (result + sum(prod(shape) for shape in operands)))
