"""FLOPs without products with padding, against a count of every single product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from formulas_cases import cost_of
from sonda.frameworks.torch.observe.formulas.cost import cost
from sonda.frameworks.torch.observe.formulas.products import count_meetings

CONVOLVE: dict[int, Callable[..., Any]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED: dict[int, Callable[..., Any]] = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def count_by_values(image: torch.Tensor, weight: torch.Tensor, convolve: Callable[..., Any], **how: Any) -> int:
    """Products of ones that are not with padding: the sum of a convolution of ones is their number."""
    return int(convolve(torch.ones_like(image), torch.ones_like(weight), **how).sum().item())


@settings(max_examples=300, deadline=None)
@given(
    *(st.integers(1, 9) for _ in range(2)), *(st.integers(1, 5) for _ in range(2)), st.integers(0, 6), st.integers(1, 4)
)
def test_meetings_are_those_that_a_loop_counts(
    large: int, small: int, kernel: int, stride: int, padding: int, dilation: int
) -> None:
    pairs = product(range(small), range(kernel))
    expected = sum(0 <= position * stride + place * dilation - padding < large for position, place in pairs)
    assert count_meetings(large, small, kernel, stride, padding, dilation) == expected


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from((1, 2, 3)), st.booleans(), st.integers(1, 3), st.integers(1, 3), st.integers(0, 3),
    st.integers(1, 2), st.sampled_from((1, 2)), st.data(),
)  # fmt: skip
def test_executed_products_are_the_sum_of_a_convolution_of_ones(
    dimensions: int, transposed: bool, kernel: int, stride: int, padding: int, dilation: int, groups: int, data: Any
) -> None:
    sizes = [data.draw(st.integers(2, 6)) for _ in range(dimensions)]
    spanned = dilation * (kernel - 1) + 1
    if transposed:
        assume(all((size - 1) * stride - 2 * padding + spanned > 0 for size in sizes))
    else:
        assume(all(size + 2 * padding >= spanned for size in sizes))
    image = torch.randn(2, 4, *sizes)
    weight = torch.randn(4, (2 if transposed else 4) // groups, *[kernel] * dimensions)
    convolve = (TRANSPOSED if transposed else CONVOLVE)[dimensions]
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    call = cost_of(lambda: convolve(image, weight, **how), "aten.convolution")
    assert call.flops is not None
    expected = 2 * count_by_values(image, weight, convolve, **how)
    assert (call.flops if call.executed is None else call.executed) == expected <= call.flops


def test_gradients_skip_what_the_forward_skips() -> None:
    image, weight = torch.randn(2, 3, 5, 4, requires_grad=True), torch.randn(6, 3, 3, 3, requires_grad=True)
    result = F.conv2d(image, weight, padding=1)
    call = cost_of(lambda: result.sum().backward(), "aten.convolution_backward")
    # Along 5 values a kernel of 3 meets 4 + 5 + 4 of them, along 4 values 3 + 4 + 3.
    assert call.flops == 2 * 2 * (2 * 3 * 6) * (3 * 5) * (3 * 4)
    assert call.executed == 2 * 2 * (2 * 3 * 6) * 13 * 10


@pytest.mark.parametrize(("name", "settings"), [
    ("aten.mkldnn_convolution", ([1, 1], [2, 2], [1, 1], 1)),
    ("aten.cudnn_convolution", ([1, 1], [2, 2], [1, 1], 1, False, False, True)),
])  # fmt: skip
def test_a_library_s_own_operation_has_its_settings_in_another_order(name: str, settings: Sequence[Any]) -> None:
    image, weight = torch.randn(1, 2, 5, 4), torch.randn(3, 2, 3, 3)
    expected = cost_of(lambda: F.conv2d(image, weight, padding=1, stride=2), "aten.convolution")
    bias = () if "cudnn" in name else (None,)
    call = cost(name, (image, weight, *bias, *settings), {}, torch.randn(1, 3, 3, 2))
    assert (call.flops, call.executed) == (expected.flops, expected.executed)
    # With stride 2 the kernel meets 2 + 3 + 2 of 5 values, and 2 + 3 of 4.
    assert expected.executed == 2 * (2 * 3) * 7 * 5


def test_without_padding_nothing_is_skipped() -> None:
    image, weight = torch.randn(2, 3, 8, 8), torch.randn(6, 3, 3, 3)
    assert cost_of(lambda: F.conv2d(image, weight), "aten.convolution").executed is None


def test_padding_given_by_a_word_leaves_the_nominal_count() -> None:
    call = cost("aten.conv2d", (torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3), None, [1, 1], "same"), {},
                torch.randn(1, 3, 5, 5))  # fmt: skip
    assert (call.flops, call.executed) == (2 * 3 * 2 * 9 * 25, None)
