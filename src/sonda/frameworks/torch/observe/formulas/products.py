"""FLOPs of matrix products and convolutions, forward and backward: 2 per multiply-add, zeros of the padding included.

A bias is one addition per element of the result. In `beta·C + alpha·A·B` the sum is one addition per element (none for
beta = 0). A factor is one multiplication per element, unless it is 1 or beta is 0.
Integer products are not counted (None): they are not floating-point work.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

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


def _convolution(call: OperationCall) -> Flops:
    return _convolve(call, bias=call.arg(2, "bias") is not None, transposed=bool(call.arg(6, "transposed", False)))


def _forward_convolution(call: OperationCall) -> Flops:
    return _convolve(call, bias=call.arg(2, "bias") is not None, transposed=False)


def _transposed_convolution(call: OperationCall) -> Flops:
    return _convolve(call, bias=call.arg(2, "bias") is not None, transposed=True)


def _convolve(call: OperationCall, bias: bool, transposed: bool) -> Flops:
    image, weight, result = call.args[0], call.args[1], call.first
    if not is_float(result):
        return None
    # Images without a batch dimension have batch 1.
    spatial = weight.dim() - 2
    shape = image.shape if transposed else result.shape
    batch = shape[0] if len(shape) == spatial + 2 else 1
    products = convolution_products(batch, prod(shape[len(shape) - spatial :]), numel(weight))
    return 2 * products + (numel(result) if bias else 0)


def _convolution_backward(call: OperationCall) -> Flops:
    """Gradients of input and weight cost the forward's products each; of the bias one addition per element."""
    grad, image, weight = call.args[:3]
    transposed, mask = bool(call.arg(7, "transposed")), call.arg(10, "output_mask")
    if not is_float(grad):
        return None
    side = image if transposed else grad
    products = convolution_products(side.shape[0], prod(side.shape[2:]), numel(weight))
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
    "convolution": _convolution,
    "_convolution": _convolution,
    "convolution_overrideable": _convolution,
    "convolution_backward": _convolution_backward,
    "mkldnn_convolution": _forward_convolution,
    "cudnn_convolution": lambda call: _convolve(call, bias=False, transposed=False),
    "cudnn_convolution_transpose": lambda call: _convolve(call, bias=False, transposed=True),
    **{f"conv{d}d": _forward_convolution for d in (1, 2, 3)},
    **{f"conv_transpose{d}d": _transposed_convolution for d in (1, 2, 3)},
}
