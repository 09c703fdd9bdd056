"""FLOPs of matrix products and convolutions, forward and backward: 2 per multiply-add, zeros of the padding included.

Libraries skip products with these zeros, so convolutions have a second count beside the nominal one: what is left of
it without them (`EXECUTED`).

A bias is one addition per element of the result. In `beta·C + alpha·A·B` the sum is one addition per element (none for
beta = 0). A factor is one multiplication per element, unless it is 1 or beta is 0.
Integer products are not counted (None): they are not floating-point work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

from .call import OperationCall, is_float, is_sparse, numel

Flops = int | None


def _product(call: OperationCall, inner: int, left: int = 0) -> Flops:
    """Every element of the result is a sum of `inner` products; with a sparse operand only stored values count.

    `left` is the position of the first operand among the arguments.
    """
    if not is_float(call.first):
        return None
    sparse = [at for at in (left, left + 1) if is_sparse(call.args[at])]
    if not sparse:
        return 2 * inner * numel(call.first)
    if len(sparse) == 2 or call.args[sparse[0]].dim() != 2:
        return None  # the number of products depends on the positions of the values
    # Every stored value is multiplied with each column, or each row, of the dense operand.
    rows, columns = call.args[left].shape[0], call.args[left + 1].shape[1] if call.args[left + 1].dim() == 2 else 1
    return 2 * int(call.args[sparse[0]]._nnz()) * int(columns if sparse[0] == left else rows)


def _matmul(call: OperationCall) -> Flops:
    """mm, bmm, matmul, mv, dot: the last dimension of the first operand is summed over."""
    return _product(call, call.args[0].shape[-1])


def _accumulate(call: OperationCall, inner: int) -> Flops:
    products = _product(call, inner, left=1)
    beta, alpha = call.kwargs.get("beta", 1), call.kwargs.get("alpha", 1)
    per_element = (0 if beta == 0 else 1) + (beta not in (0, 1)) + (alpha != 1)
    return None if products is None else products + per_element * numel(call.first)


def _addmm(call: OperationCall) -> Flops:
    """addmm, baddbmm, addmv: beta C + alpha A B."""
    return _accumulate(call, call.args[1].shape[-1])


def _addbmm(call: OperationCall) -> Flops:
    """The products of a batch summed into one matrix."""
    batch, _, inner = call.args[1].shape
    return _accumulate(call, batch * inner)


def _addmm_activation(call: OperationCall) -> Flops:
    """addmm and relu (0) or gelu (5 per element)."""
    flops = _addmm(call)
    return None if flops is None else flops + (5 * numel(call.first) if call.kwargs.get("use_gelu") else 0)


def _linear(call: OperationCall) -> Flops:
    products = _product(call, call.args[0].shape[-1])
    bias = call.arg(2, "bias")
    return products if products is None or bias is None else products + numel(call.first)


def _linear_backward(call: OperationCall) -> Flops:
    """Gradients of input and weight are one product each, of the bias a sum over the rows."""
    _, grad, weight = call.args[:3]
    mask = call.arg(3, "output_mask")
    if not is_float(grad):
        return None
    return 2 * numel(grad) * weight.shape[-1] * (bool(mask[0]) + bool(mask[1])) + numel(grad) * bool(mask[2])


def convolution_products(batch: int, positions: int, weight_elements: int) -> int:
    """Multiply-adds of a convolution: every weight is used once per image and output position.

    The weight is (out, in / groups, kernel), so groups, stride and dilation are already in its size and in the number
    of output positions. A transposed convolution uses every weight once per *input* position.
    """
    return batch * positions * weight_elements


class ConvolutionCall(NamedTuple):
    """What the multiply-adds of a convolution follow from. `large` and `small` are spatial sizes: of the image and the
    result, of a transposed convolution of the result and the image. Settings are one value, or one by dimension."""

    batch: int
    large: Sequence[int]
    small: Sequence[int]
    weight: Any
    stride: Any
    padding: Any
    dilation: Any

    @property
    def products(self) -> int:
        """All multiply-adds."""
        return convolution_products(self.batch, prod(self.small), numel(self.weight))

    @property
    def executed(self) -> int:
        """Multiply-adds without those that meet the padding."""
        kernel = self.weight.shape[2:]
        meetings = prod(
            count_meetings(*along)
            for along in zip(self.large, self.small, kernel, *map(self._spread, self[4:]), strict=True)
        )
        return self.batch * meetings * (numel(self.weight) // prod(kernel))

    def _spread(self, setting: Any) -> Sequence[int]:
        values = [setting] if isinstance(setting, int) else list(setting)
        return values * len(self.small) if len(values) == 1 else values


def count_meetings(large: int, small: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Pairs of a place of the kernel and one of `small` positions that meet one of `large` values along a dimension.

    Place k at position p meets value p stride + k dilation - padding; outside of 0 to `large` - 1 that is padding.
    """
    meetings = 0
    for place in range(kernel):
        shift = padding - place * dilation
        first, last = -(-shift // stride), (large - 1 + shift) // stride
        meetings += max(0, min(last, small - 1) - max(first, 0) + 1)
    return meetings


def _read_convolution(call: OperationCall, settings: Sequence[Any], transposed: bool) -> ConvolutionCall:
    """`settings` are stride, padding and dilation. Images without a batch dimension have batch 1."""
    image, weight, result = call.args[0], call.args[1], call.first
    spatial = weight.dim() - 2
    large, small = (result, image) if transposed else (image, result)
    batch = image.shape[0] if image.dim() == spatial + 2 else 1
    return ConvolutionCall(batch, large.shape[-spatial:], small.shape[-spatial:], weight, *settings)


def _named_settings(call: OperationCall, *places: int) -> list[Any]:
    """Stride, padding and dilation, which are at these places among the arguments."""
    names = {"stride": 1, "padding": 0, "dilation": 1}
    return [call.arg(at, name, default) for at, (name, default) in zip(places, names.items(), strict=True)]


def _convolution(call: OperationCall) -> ConvolutionCall:
    return _read_convolution(call, _named_settings(call, 3, 4, 5), bool(call.arg(6, "transposed", False)))


def _forward_convolution(call: OperationCall) -> ConvolutionCall:
    return _read_convolution(call, _named_settings(call, 3, 4, 5), transposed=False)


def _transposed_convolution(call: OperationCall) -> ConvolutionCall:
    return _read_convolution(call, _named_settings(call, 3, 4, 7), transposed=True)


def _mkldnn_convolution(call: OperationCall) -> ConvolutionCall:
    return _read_convolution(call, _named_settings(call, 4, 3, 5), transposed=False)


def _cudnn_convolution(call: OperationCall) -> ConvolutionCall:
    return _read_convolution(call, _named_settings(call, 3, 2, 4), transposed=False)


def _cudnn_transposed_convolution(call: OperationCall) -> ConvolutionCall:
    return _read_convolution(call, _named_settings(call, 4, 2, 5), transposed=True)


FORWARD: dict[str, Callable[[OperationCall], ConvolutionCall]] = {
    "convolution": _convolution,
    "_convolution": _convolution,
    "convolution_overrideable": _convolution,
    "mkldnn_convolution": _mkldnn_convolution,
    "cudnn_convolution": _cudnn_convolution,
    "cudnn_convolution_transpose": _cudnn_transposed_convolution,
    **{f"conv{d}d": _forward_convolution for d in (1, 2, 3)},
    **{f"conv_transpose{d}d": _transposed_convolution for d in (1, 2, 3)},
}
WITHOUT_BIAS = ("cudnn_convolution", "cudnn_convolution_transpose")


def _convolve(call: OperationCall, executed: bool) -> Flops:
    """Two for each multiply-add, and one for each element of the result that a bias is added to."""
    if not is_float(call.first):
        return None
    convolution = FORWARD[call.op](call)
    bias = call.op not in WITHOUT_BIAS and call.arg(2, "bias") is not None
    products = convolution.executed if executed else convolution.products
    return 2 * products + (numel(call.first) if bias else 0)


def _convolution_backward(call: OperationCall, executed: bool) -> Flops:
    """Gradients of input and weight cost the forward's products each; of the bias one addition per element."""
    grad, image, weight = call.args[:3]
    transposed, mask = bool(call.arg(7, "transposed")), call.arg(10, "output_mask")
    if not is_float(grad):
        return None
    large, small = (grad, image) if transposed else (image, grad)
    settings = _named_settings(call, 4, 5, 6)
    convolution = ConvolutionCall(small.shape[0], large.shape[2:], small.shape[2:], weight, *settings)
    products = convolution.executed if executed else convolution.products
    return 2 * products * (bool(mask[0]) + bool(mask[1])) + numel(grad) * bool(mask[2])


PRODUCTS: dict[str, Callable[[OperationCall], Flops]] = {
    "mm": _matmul,
    "bmm": _matmul,
    "mv": _matmul,
    "dot": _matmul,
    "vdot": _matmul,
    "matmul": _matmul,
    "addmm": _addmm,
    "_sparse_addmm": _addmm,
    "baddbmm": _addmm,
    "addmv": _addmm,
    "addbmm": _addbmm,
    "_addmm_activation": _addmm_activation,
    "linear": _linear,
    "mkldnn_linear": _linear,
    "linear_backward": _linear_backward,
    "convolution_backward": partial(_convolution_backward, executed=False),
    **{name: partial(_convolve, executed=False) for name in FORWARD},
}
EXECUTED: dict[str, Callable[[OperationCall], Flops]] = {
    "convolution_backward": partial(_convolution_backward, executed=True),
    **{name: partial(_convolve, executed=True) for name in FORWARD},
}
"""FLOPs without those of products with padding: what libraries execute at least."""
