"""The six operations in PyTensor, each a function of its own, with the shapes and values of PyTorch's.

Operands are shared variables, as in programs for Theano: a call neither checks nor copies them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from sonda.workloads.operations.cost import OperationCost, operation_cost
from sonda.workloads.operations.operands import draw_values, new_generator
from sonda.workloads.operations.ops import SCALAR

if TYPE_CHECKING:
    from sonda.workloads.operations.ops import Operations

EXPRESSIONS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "dot": lambda a, b: pt.dot(a, b),
    "mul": lambda a, b: a * b,
    # Of the operand's type: a plain 0.5 would be a float64 where PyTensor's floatX is one.
    "scalar": lambda a: np.asarray(SCALAR, dtype=a.dtype) * a,
    "sigmoid": lambda a: pt.sigmoid(a),
    "tanh": lambda a: pt.tanh(a),
}


class OperationsInPyTensor:
    """Operations by name, with their operands and costs."""

    samples = 1
    tokens = 0

    def __init__(self, description: Operations, seed: int, precision: str) -> None:
        description.require_studied("PyTensor")
        self.phase_tokens: dict[str, int] = {}
        self.names = description.op
        self.dtype = precision
        generator = new_generator(seed)
        self.operands = {
            op: tuple(
                pytensor.shared(draw_values(shape, generator).astype(precision, copy=False), borrow=True)
                for shape in description.operands(op)
            )
            for op in self.names
        }
        width = np.dtype(precision).itemsize
        self.costs: dict[str, OperationCost] = {
            op: operation_cost(op, description.operands(op), width) for op in self.names
        }

    def function(self, op: str) -> Any:
        """The operation as a PyTensor function; its linker may compile the rest at the first call."""
        return pytensor.function([], EXPRESSIONS[op](*self.operands[op]), name=op)


def build(description: Operations, seed: int, precision: str) -> OperationsInPyTensor:
    """Make it ready, in float32 or float64. Raises SondaError for an operation that is not implemented."""
    return OperationsInPyTensor(description, seed, precision)
