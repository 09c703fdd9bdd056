"""Shapes that engines take whose time depends on shapes only."""

from __future__ import annotations

from sonda.accelerators.operations.program import Bags, ConvolutionShape, MatrixProduct
from sonda.record.errors import SondaError


def dense_shape(kind: str, shape: MatrixProduct | ConvolutionShape | Bags) -> MatrixProduct | ConvolutionShape:
    """The shape; raises SondaError for embedding bags, of which an engine of this kind would read whole tables."""
    if isinstance(shape, Bags):
        raise SondaError(f"{kind} cannot sum the rows of a bag", "route embedding_bag to a sparse engine")
    return shape


def dense_product(kind: str, shape: MatrixProduct | ConvolutionShape | Bags) -> MatrixProduct:
    """The shape as a product of matrices; raises as `dense_shape` does."""
    shape = dense_shape(kind, shape)
    return shape.product() if isinstance(shape, ConvolutionShape) else shape
