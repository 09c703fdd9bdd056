"""`ops`: single operations, each as one layer, of any size.

The six of the study of basic operations on GPUs (add, dot, mul, scalar, sigmoid, tanh on float32 matrices) and the
primitives of networks. The study's sizes are "the amount of data processed by the operations": all matrices together,
three for add, dot and mul, two for scalar, sigmoid and tanh. `size` means the same here, and matrices are square.
The study's sizes of dot, 5, 9, 17, 33 and 65 MB, are those of A (m x 512), B (512 x 512, 1 MB) and C (m x 512) with
A and C of 2 to 32 MB, the matrices of its add; `inner=512` and sizes in MiB make those shapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING, Any

from sonda.record.errors import SondaError
from sonda.workloads.description import SIZE, Description, choices, number, option, whole

if TYPE_CHECKING:
    from sonda.record.protocols import Task
    from sonda.workloads.in_jax.operations import OperationsInJax

STUDIED = ("add", "dot", "mul", "scalar", "sigmoid", "tanh")
PRIMITIVES = (
    "convolution", "pooling", "batch_norm", "layer_norm", "softmax", "attention", "embedding_bag",
)  # fmt: skip
OPERATIONS = (*STUDIED, *PRIMITIVES)
SCALAR = 0.5
"""What `scalar` multiplies by."""
FLOAT = 4
"""Bytes of a float32."""


@dataclass(frozen=True)
class Operations(Description):
    """Operands live in the model, as an operation in the middle of a network has them; training moves them by SGD.

    `size` holds operands and result of one operation: matrices for the six, softmax and layer_norm; feature maps
    (batch x channels x side x side) for convolution, pooling (2 x 2) and batch_norm; query, key, value and result for
    attention; the table for embedding_bag. Kernels of convolutions, scales and indices come on top.
    """

    op: tuple[str, ...] = option(OPERATIONS, choices(*OPERATIONS), "operations to run, in this order")
    size: int = option(6 * 2**20, SIZE, "data that each operation processes")
    inner: int = option(0, whole(0), "dot: columns of A; B is inner x inner; 0 makes all three square")
    batch: int = option(1, whole(), "samples of feature maps and of attention")
    channels: int = option(64, whole(), "channels of feature maps")
    kernel: int = option(3, whole(), "side of the convolution's kernel, odd")
    heads: int = option(8, whole(), "heads of attention")
    columns: int = option(64, whole(), "features of one head of attention, columns of the embedding table")
    bags: int = option(1024, whole(), "bags that embedding_bag sums")
    indices: int = option(32, whole(), "rows in each bag")
    learning_rate: float = option(0.01, number(), "of SGD")

    @property
    def name(self) -> str:
        return "ops"

    def check(self) -> None:
        if self.kernel % 2 == 0:
            raise SondaError(f"ops: kernel={self.kernel} is even", "use an odd kernel, so that the size stays")
        for op in self.op:
            if min(min(shape) for shape in self.operands(op)) < 1:
                raise SondaError(f"ops: {self.size} bytes are too few for {op}", "use a larger size")

    def require_studied(self, framework: str) -> None:
        """Raise SondaError unless all operations are among the six, the only ones in frameworks other than PyTorch."""
        for op in self.op:
            if op not in STUDIED:
                raise SondaError(
                    f"ops: {op} is not there in {framework}", f"use --op with some of {', '.join(STUDIED)}"
                )

    def operands(self, op: str) -> tuple[tuple[int, ...], ...]:
        """Shapes of the float32 operands of an operation, parameters included; they and the result fill `size`."""
        floats = self.size // FLOAT
        if op == "dot" and self.inner:
            return (((floats - self.inner**2) // (2 * self.inner), self.inner), (self.inner, self.inner))
        if op in ("add", "dot", "mul"):
            side = isqrt(floats // 3)
            return ((side, side), (side, side))
        if op in ("scalar", "sigmoid", "tanh", "softmax"):
            return ((isqrt(floats // 2),) * 2,)
        if op == "layer_norm":
            side = isqrt(floats // 2)
            return ((side, side), (side,), (side,))
        if op == "attention":
            tokens = floats // (4 * self.batch * self.heads * self.columns)
            return ((self.batch, self.heads, tokens, self.columns),) * 3
        if op == "embedding_bag":
            return ((floats // self.columns, self.columns),)
        return self._feature_maps(op, floats // (self.batch * self.channels))

    def _feature_maps(self, op: str, floats: int) -> tuple[tuple[int, ...], ...]:
        if op == "pooling":
            # The result has a quarter of the input's values; an odd side would leave a row and a column unread.
            side = isqrt(floats * 4 // 5) // 2 * 2
            return ((self.batch, self.channels, side, side),)
        side = isqrt(floats // 2)
        maps = (self.batch, self.channels, side, side)
        if op == "batch_norm":
            return (maps, (self.channels,), (self.channels,))
        return (maps, (self.channels, self.channels, self.kernel, self.kernel))

    def in_torch(self, train: bool, seed: int) -> Task:
        from sonda.workloads.in_torch.operations import build

        return build(self, train, seed)

    def in_jax(self, seed: int, precision: str, device: Any) -> OperationsInJax:
        """Make it ready on one of JAX's devices. Raises SondaError for an operation that is not implemented."""
        from sonda.workloads.in_jax.operations import build

        return build(self, seed, precision, device)
