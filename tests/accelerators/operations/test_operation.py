"""Operations: sizes counted by hand, convolutions against PyTorch-free definitions, zero patterns there and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from sonda.accelerators.operations.program import (
    Bags,
    Call,
    ConvolutionShape,
    MatrixProduct,
    ModelProgram,
    Operation,
    ZeroPattern,
)

RESNET_STEM = ConvolutionShape(R=7, S=7, C=3, K=64, G=1, N=1, X=224, Y=224, stride=(2, 2), padding=(3, 3))


def test_a_product_counts_every_multiplication() -> None:
    product = MatrixProduct(m=2, n=3, k=5, count=4)
    assert (product.multiplications, product.flops) == (120, 240)


def test_the_stem_of_resnet() -> None:
    # 112 x 112 outputs, 64 filters of 3 x 7 x 7 taps.
    assert RESNET_STEM.outputs == (112, 112)
    assert RESNET_STEM.multiplications == 112 * 112 * 64 * 147
    assert RESNET_STEM.product() == MatrixProduct(m=112 * 112, n=64, k=147, count=1)


def test_padding_is_part_of_a_direct_layers_input() -> None:
    layer = RESNET_STEM.layer()
    assert layer is not None
    assert (layer.X, layer.Y, layer.rows, layer.columns, layer.stride) == (230, 230, 112, 112, 2)


def test_groups_are_products_of_their_own() -> None:
    depthwise = ConvolutionShape(R=3, S=3, C=16, K=16, G=16, N=2, X=8, Y=8, padding=(1, 1))
    assert depthwise.product() == MatrixProduct(m=2 * 64, n=1, k=9, count=16)
    assert depthwise.multiplications == 2 * 64 * 16 * 9


@pytest.mark.parametrize(
    "convolution",
    [
        ConvolutionShape(R=3, S=3, C=2, K=2, G=1, N=1, X=9, Y=9, dilation=(2, 2)),
        ConvolutionShape(R=3, S=3, C=2, K=2, G=1, N=1, X=9, Y=9, stride=(1, 2)),
        # One output in a row: with the other side's stride there would be two.
        ConvolutionShape(R=2, S=2, C=1, K=1, G=1, N=1, X=5, Y=3, stride=(1, 2)),
    ],
)
def test_what_a_direct_engine_cannot_do_is_no_layer(convolution: ConvolutionShape) -> None:
    assert convolution.layer() is None


def test_one_dimension_is_an_image_of_one_row() -> None:
    layer = ConvolutionShape(R=1, S=3, C=4, K=6, G=2, N=1, X=1, Y=11, stride=(1, 2), padding=(0, 1)).layer()
    assert layer is not None
    assert (layer.rows, layer.columns) == (1, 6)


@given(
    side=some.integers(1, 12), size=some.integers(1, 5), stride=some.integers(1, 4), padding=some.integers(0, 3),
    dilation=some.integers(1, 3),
)  # fmt: skip
def test_outputs_are_the_windows_that_fit(side: int, size: int, stride: int, padding: int, dilation: int) -> None:
    reach = dilation * (size - 1) + 1
    windows = [first for first in range(0, side + 2 * padding, stride) if first + reach <= side + 2 * padding]
    if not windows:
        return
    convolution = ConvolutionShape(
        R=size, S=size, C=1, K=1, G=1, N=1, X=side, Y=side, stride=(stride,) * 2, padding=(padding,) * 2,
        dilation=(dilation,) * 2,
    )  # fmt: skip
    assert convolution.outputs == (len(windows), len(windows))
    layer = convolution.layer()
    if layer is not None:
        assert (layer.rows, layer.columns) == convolution.outputs


def test_a_bag_names_a_row_once() -> None:
    bags = Bags(np.array([3, 0, 2]), np.array([7, 1, 7, 4, 0]), rows=10, columns=8)
    assert bags.multiplications == 5 * 8
    assert bags.distinct.pointer.tolist() == [0, 2, 2, 4]
    assert bags.distinct.indices.tolist() == [1, 7, 0, 4]


@given(some.lists(some.lists(some.booleans(), min_size=3, max_size=3), min_size=1, max_size=9))
def test_zero_patterns_are_kept_exactly(rows: list[list[bool]]) -> None:
    bits = np.array(rows)
    pattern = ZeroPattern.from_array(bits)
    assert np.array_equal(pattern.bits(), bits)
    assert pattern.zeros == bits.size - bits.sum()
    assert pattern.sparsity == pytest.approx(1 - bits.mean())
    assert pattern.packed.nbytes == -(-bits.size // 8)


def test_an_operation_outside_every_module_belongs_to_the_model() -> None:
    inside = Operation("linear", "mm", 0, MatrixProduct(1, 1, 1))
    outside = Operation("gemm", "mm", -1, MatrixProduct(1, 1, 1))
    program = ModelProgram((Call("head", "Linear", 0, -1, 0),), (inside, outside), ("forward", "forward"))
    assert [program.path(one) for one in program.operations] == ["head", ""]
