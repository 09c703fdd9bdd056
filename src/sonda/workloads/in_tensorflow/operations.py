"""The six operations in TensorFlow, each a `tf.function` by itself, with the shapes and values of PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from sonda.frameworks.harness.settings import weights_type
from sonda.workloads.operations.cost import OperationCost, operation_cost
from sonda.workloads.operations.operands import draw_values, new_generator
from sonda.workloads.operations.ops import SCALAR

if TYPE_CHECKING:
    from sonda.workloads.operations.ops import Operations


class OperationsInTensorflow:
    """Operations by name, with their operands on the device and their costs."""

    samples = 1
    tokens = 0

    def __init__(self, description: Operations, seed: int, precision: str, compiled: bool) -> None:
        """`compiled`: whether XLA compiles them. Call it inside `tf.device` of the device that it is to run on."""
        description.require_studied("TensorFlow")
        self.phase_tokens: dict[str, int] = {}
        self.names = description.op
        self.dtype = weights_type(precision)
        kind = getattr(tf, self.dtype)
        generator = new_generator(seed)
        self.operands = {
            op: tuple(tf.cast(tf.constant(draw_values(shape, generator)), kind) for shape in description.operands(op))
            for op in self.names
        }
        self.functions = {op: tf.function(_function(op, precision), jit_compile=compiled) for op in self.names}
        self.costs: dict[str, OperationCost] = {
            op: operation_cost(op, description.operands(op), kind.size) for op in self.names
        }


def _function(op: str, precision: str) -> Callable[..., Any]:
    narrow = getattr(tf, precision.removeprefix("mixed_")) if precision.startswith("mixed_") else None

    def dot(a: Any, b: Any) -> Any:
        if narrow is not None:
            return tf.matmul(tf.cast(a, narrow), tf.cast(b, narrow))
        return tf.matmul(a, b)

    def add(a: Any, b: Any) -> Any:
        return a + b

    def mul(a: Any, b: Any) -> Any:
        return a * b

    def scalar(a: Any) -> Any:
        return SCALAR * a

    def sigmoid(a: Any) -> Any:
        return tf.sigmoid(a)

    def tanh(a: Any) -> Any:
        return tf.tanh(a)

    known: tuple[Callable[..., Any], ...] = (add, dot, mul, scalar, sigmoid, tanh)
    return {function.__name__: function for function in known}[op]


def build(description: Operations, seed: int, precision: str, compiled: bool) -> OperationsInTensorflow:
    """Make it ready. Raises SondaError for an operation that is not implemented."""
    return OperationsInTensorflow(description, seed, precision, compiled)
