"""FLOPs of reductions, pooling, interpolation, embeddings and scattered sums, forward and backward.

A sum of k elements is k additions, as in the 2·k of an inner product. Every value accumulated into a table or an image
(backward of embedding, pooling and interpolation) is one addition. Pooling windows count as full at the border, as the
padding of convolutions does; adaptive windows count their actual elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import zip_longest
from math import prod
from typing import Any

from .call import OperationCall, is_float, numel

_SUM, _MEAN, _MAX = 0, 1, 2
"""Modes of an embedding bag."""


def _sum(call: OperationCall) -> int:
    """One addition (multiplication for prod, addition for cumsum) per element of the input."""
    return numel(call.args[0]) if is_float(call.first) else 0


def _mean(call: OperationCall) -> int:
    return numel(call.args[0]) + numel(call.first)


def _variance(call: OperationCall) -> int:
    """Two passes: mean n + r, squared deviations 3n, division r."""
    return 4 * numel(call.args[0]) + 2 * numel(call.first)


def _deviation(call: OperationCall) -> int:
    """The variance and a square root per result."""
    return _variance(call) + numel(call.first)


def norm_flops(order: Any, elements: int, results: int) -> int:
    """2: squares and sums 2n, a root each; 1: sums n; 0 and ±inf: comparisons; else powers and sums 2n, a root each."""
    order = 2 if order is None else order
    if isinstance(order, str):
        order = 2 if order == "fro" else float(order)
    if order in (0, float("inf"), float("-inf")):
        return 0
    return elements if order == 1 else 2 * elements + results


def _norm(call: OperationCall) -> int:
    return norm_flops(call.arg(1, "ord", call.kwargs.get("p", 2)), numel(call.args[0]), numel(call.first))


def _logsumexp(call: OperationCall) -> int:
    """x − max, exp, Σ: 3n; log and + max per result."""
    return 3 * numel(call.args[0]) + 2 * numel(call.first)


def _window(size: Any, dimensions: int) -> int:
    """Elements of a pooling window given as one number, or as one per dimension."""
    sizes = [size] if isinstance(size, int) else list(size)
    return prod(sizes) if len(sizes) == dimensions else sizes[0] ** dimensions


def _average_pool(dimensions: int) -> Callable[[OperationCall], int]:
    """Per result: the window's additions and a division."""
    return lambda call: numel(call.first) * (_window(call.arg(1, "kernel_size"), dimensions) + 1)


def _average_pool_backward(dimensions: int) -> Callable[[OperationCall], int]:
    """Per gradient: a division, and an addition into every element of the window."""
    return lambda call: numel(call.args[0]) * (_window(call.arg(2, "kernel_size"), dimensions) + 1)


def _adaptive_additions(large: Iterable[int], small: Iterable[int]) -> int:
    """Elements under all the windows of an adaptive pooling: window i covers floor(i·in/out) to ceil((i+1)·in/out)."""
    return prod(
        sum(-((-(i + 1) * size) // count) - i * size // count for i in range(count))
        for size, count in zip(large, small, strict=True)
    )


def _adaptive_average(dimensions: int, image_at: int) -> Callable[[OperationCall], int]:
    """The additions of every window and one division per window; `image_at` is the argument with the large image."""

    def count(call: OperationCall) -> int:
        image, pooled = call.args[image_at], call.first if image_at == 0 else call.args[0]
        planes = numel(image) // max(1, prod(image.shape[-dimensions:]))
        additions = _adaptive_additions(image.shape[-dimensions:], pooled.shape[-dimensions:])
        return planes * additions + numel(pooled)

    return count


def _accumulated_gradient(call: OperationCall) -> int:
    """One addition per element of the gradient."""
    return numel(call.args[0]) if is_float(call.args[0]) else 0


def _per_result(flops: int) -> Callable[[OperationCall], int]:
    return lambda call: flops * numel(call.first)


def _per_gradient(flops: int) -> Callable[[OperationCall], int]:
    return lambda call: flops * numel(call.args[0])


def _embedding_backward(call: OperationCall) -> int:
    """Every row's gradient is added into the table (and divided by the row's frequency where asked); sparse: a copy."""
    by_frequency, sparse = bool(call.arg(4, "scale_grad_by_freq", False)), bool(call.arg(5, "sparse", False))
    return numel(call.args[0]) * ((0 if sparse else 1) + by_frequency)


def _embedding_bag(call: OperationCall) -> int:
    """Sum: one addition per element looked up, 2 with weights of the samples; mean: a division per result; max: 0."""
    table, indices = call.args[0], call.args[1]
    mode = call.arg(4, "mode", _SUM)
    if mode == _MAX:
        return 0
    looked_up = numel(indices) * table.shape[1]
    weighted = call.arg(6, "per_sample_weights") is not None
    return looked_up * (1 + weighted) + (numel(call.first) if mode == _MEAN else 0)


def _bag_gradient(call: OperationCall, mode: int, weights: Any, lookups: int, dense: bool) -> int:
    """Per element looked up: the mean's or the weights' multiplication, and (dense) the addition into the table."""
    grad = call.args[0]
    if mode == _MAX:
        return numel(grad)
    return lookups * grad.shape[1] * ((mode == _MEAN) + (weights is not None) + dense)


def _embedding_bag_backward(call: OperationCall) -> int:
    dense = not call.arg(9, "sparse")
    weights = call.arg(10, "per_sample_weights")
    return _bag_gradient(call, call.arg(8, "mode"), weights, numel(call.args[1]), dense)


def _embedding_bag_dense_backward(call: OperationCall) -> int:
    return _bag_gradient(call, call.arg(7, "mode"), call.arg(8, "per_sample_weights"), numel(call.args[1]), True)


def _embedding_bag_sparse_backward(call: OperationCall) -> int:
    return _bag_gradient(call, call.arg(7, "mode"), call.arg(8, "per_sample_weights"), numel(call.args[1]), False)


def _sample_weights_backward(call: OperationCall) -> int:
    """An inner product of gradient and row per index looked up."""
    return 2 * numel(call.args[2]) * call.args[1].shape[1]


def _scatter_add(call: OperationCall) -> int:
    """One addition per index."""
    return numel(call.args[2]) if is_float(call.first) else 0


def _index_add(call: OperationCall) -> int:
    """One addition per element of the source, and a multiplication unless alpha is 1."""
    alpha = call.kwargs.get("alpha", 1)
    return numel(call.args[3]) * (1 + (alpha != 1)) if is_float(call.first) else 0


def _index_put(call: OperationCall) -> int:
    """One addition per value where values accumulate; else a copy."""
    if not call.arg(3, "accumulate", False) or not is_float(call.first):
        return 0
    return indexed_elements(call.args[0], call.args[1])


def _scatter_reduce(call: OperationCall) -> int | None:
    """sum and prod: one operation per index; amax and amin: 0; mean: one per index and a division per result."""
    reduce = call.arg(4, "reduce")
    if reduce not in ("sum", "prod", "mean", "amax", "amin", "add", "multiply") or not is_float(call.first):
        return None if is_float(call.first) else 0
    values = 0 if reduce in ("amax", "amin") else numel(call.args[2])
    return values + (numel(call.first) if reduce == "mean" else 0)


def _scatter(call: OperationCall) -> int:
    """A copy, unless the old overload with `reduce` adds or multiplies."""
    return numel(call.args[2]) if call.kwargs.get("reduce") and is_float(call.first) else 0


def indexed_elements(table: Any, indices: Any) -> int:
    """Elements that `table[indices]` selects: the indices' broadcast shape times the dimensions not indexed."""
    selected: list[int] = []  # broadcast shape, last dimension first
    rest, dimension = 1, 0
    for index in indices:
        if index is None:
            rest *= table.shape[dimension]
            dimension += 1
            continue
        # A mask covers as many dimensions as it has, and the number of its True values says how many it selects.
        mask = str(index.dtype) in ("torch.bool", "torch.uint8")
        dimension += index.dim() if mask else 1
        sizes = [int(index.sum())] if mask else list(reversed(index.shape))
        selected = [b if a == 1 else a for a, b in zip_longest(selected, sizes, fillvalue=1)]
    return prod(selected) * rest * prod(table.shape[dimension:])


REDUCTIONS: dict[str, Callable[[OperationCall], int | None]] = {
    **dict.fromkeys(("sum", "nansum", "prod", "cumsum", "cumprod", "trace"), _sum),
    **dict.fromkeys(("mean", "nanmean"), _mean),
    **dict.fromkeys(("var", "var_mean"), _variance),
    **dict.fromkeys(("std", "std_mean"), _deviation),
    **dict.fromkeys(("norm", "linalg_vector_norm"), _norm),
    "logsumexp": _logsumexp,
    **{f"avg_pool{d}d": _average_pool(d) for d in (1, 2, 3)},
    **{f"avg_pool{d}d_backward": _average_pool_backward(d) for d in (2, 3)},
    **{f"_adaptive_avg_pool{d}d": _adaptive_average(d, 0) for d in (2, 3)},
    "adaptive_avg_pool1d": _adaptive_average(1, 0),
    **{f"_adaptive_avg_pool{d}d_backward": _adaptive_average(d, 1) for d in (2, 3)},
    **{f"max_pool{d}d_with_indices_backward": _accumulated_gradient for d in (2, 3)},
    **{f"adaptive_max_pool{d}d_backward": _accumulated_gradient for d in (2, 3)},
    **{f"upsample_nearest{d}d_backward": _accumulated_gradient for d in (1, 2, 3)},
    **{f"_upsample_nearest_exact{d}d_backward": _accumulated_gradient for d in (1, 2, 3)},
    **{f"reflection_pad{d}d_backward": _accumulated_gradient for d in (1, 2, 3)},
    **{f"replication_pad{d}d_backward": _accumulated_gradient for d in (1, 2, 3)},
    "unfold_backward": _accumulated_gradient,
    "col2im": _accumulated_gradient,
    # Interpolation between two values is 2 multiplications and an addition; 2-d does it three times, 3-d seven times.
    "upsample_linear1d": _per_result(3),
    "upsample_bilinear2d": _per_result(9),
    "upsample_trilinear3d": _per_result(21),
    "upsample_bicubic2d": _per_result(35),  # five cubics of 4 × and 3 +
    # A gradient is split over the corners axis by axis (2, 4, 8 multiplications; 4, 16 for cubics), then added there.
    "upsample_linear1d_backward": _per_gradient(4),
    "upsample_bilinear2d_backward": _per_gradient(10),
    "upsample_trilinear3d_backward": _per_gradient(22),
    "upsample_bicubic2d_backward": _per_gradient(36),
    "embedding_dense_backward": _embedding_backward,
    "embedding_backward": _embedding_backward,
    "_embedding_bag": _embedding_bag,
    "_embedding_bag_forward_only": _embedding_bag,
    "_embedding_bag_backward": _embedding_bag_backward,
    "_embedding_bag_dense_backward": _embedding_bag_dense_backward,
    "_embedding_bag_sparse_backward": _embedding_bag_sparse_backward,
    "_embedding_bag_per_sample_weights_backward": _sample_weights_backward,
    "scatter": _scatter,
    "scatter_add": _scatter_add,
    "scatter_reduce": _scatter_reduce,
    "index_add": _index_add,
    **dict.fromkeys(("index_put", "_index_put_impl", "_unsafe_index_put"), _index_put),
}
