"""The six operations in JAX, each jitted by itself, with the shapes and values of PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from sonda.frameworks.harness.settings import weights_type
from sonda.workloads.in_jax.layers import PRODUCT_PRECISION
from sonda.workloads.operations.cost import OperationCost, operation_cost
from sonda.workloads.operations.operands import draw_values, new_generator
from sonda.workloads.operations.ops import SCALAR

if TYPE_CHECKING:
    from sonda.workloads.operations.ops import Operations

NARROW = {"mixed_bfloat16": jnp.bfloat16, "mixed_float16": jnp.float16}
"""The type of operands and results of products, as under PyTorch's autocast; everything else stays float32."""


class OperationsInJax:
    """Operations by name, with their operands on the device and their costs."""

    samples = 1
    tokens = 0

    def __init__(self, description: Operations, seed: int, precision: str, device: Any) -> None:
        description.require_studied("JAX")
        self.phase_tokens: dict[str, int] = {}
        self.names = description.op
        self.dtype = weights_type(precision)
        generator = new_generator(seed)
        self.operands = {
            op: tuple(
                jax.device_put(jnp.asarray(draw_values(shape, generator), self.dtype), device)
                for shape in description.operands(op)
            )
            for op in self.names
        }
        self.functions = {op: jax.jit(_function(op, precision)) for op in self.names}
        width = jnp.dtype(self.dtype).itemsize
        self.costs: dict[str, OperationCost] = {
            op: operation_cost(op, description.operands(op), width) for op in self.names
        }


def _function(op: str, precision: str) -> Callable[..., Any]:
    def dot(a: Any, b: Any) -> Any:
        if precision in NARROW:
            return jnp.matmul(a.astype(NARROW[precision]), b.astype(NARROW[precision]))
        return jnp.matmul(a, b, precision=PRODUCT_PRECISION.get(precision))

    def add(a: Any, b: Any) -> Any:
        return a + b

    def mul(a: Any, b: Any) -> Any:
        return a * b

    def scalar(a: Any) -> Any:
        return SCALAR * a

    def sigmoid(a: Any) -> Any:
        return jax.nn.sigmoid(a)

    def tanh(a: Any) -> Any:
        return jnp.tanh(a)

    known: tuple[Callable[..., Any], ...] = (add, dot, mul, scalar, sigmoid, tanh)
    return {function.__name__: function for function in known}[op]


def build(description: Operations, seed: int, precision: str, device: Any) -> OperationsInJax:
    return OperationsInJax(description, seed, precision, device)
