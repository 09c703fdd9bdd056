"""Bytes that an operation moves: every distinct input read once, every output written once.

Distinct means distinct memory. A tensor passed twice, or together with its transpose, is read once. A broadcast input
counts only the elements that it stores. In-place operations read and write their first argument, unless they only
overwrite it (fill, copy, random numbers). Lookups read what they select, not the whole table; every index selects its
own row. Arguments of which only the shape is used are not read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .call import OperationCall, is_tensor, nbytes, numel, tensors_in
from .reductions import indexed_elements

_OVERWRITING = """
zero fill copy uniform normal random bernoulli exponential geometric cauchy log_normal zeros_like ones_like full_like
rand_like randn_like randint_like new_zeros new_ones new_full
"""

_UNREAD: dict[str, tuple[int, ...]] = dict.fromkeys(_OVERWRITING.split(), (0,)) | {
    "nll_loss_backward": (1,),
    "nll_loss2d_backward": (1,),
    "avg_pool2d_backward": (1,),
    "avg_pool3d_backward": (1,),
    "_adaptive_avg_pool2d_backward": (1,),
    "_adaptive_avg_pool3d_backward": (1,),
    "max_pool2d_with_indices_backward": (1,),
    "max_pool3d_with_indices_backward": (1,),
    "adaptive_max_pool2d_backward": (1,),
    "adaptive_max_pool3d_backward": (1,),
    "reflection_pad2d_backward": (1,),
    "replication_pad2d_backward": (1,),
    "native_layer_norm_backward": (6,),
    "native_batch_norm_backward": (3, 4),
    "_cudnn_rnn": (3,),
    "_cudnn_rnn_backward": (3,),
}
"""Positions of arguments that are overwritten, or of which only the shape is used. cuDNN's weight buffer repeats the
weights."""


def moved_bytes(call: OperationCall, op: str, inplace: bool) -> int:
    """Bytes that `call` reads and writes; `op` is its name without the in-place underscore."""
    special = _SPECIAL.get(op)
    if special is not None:
        return special(call, inplace)
    if op.startswith("_fused_") and inplace:
        return _optimizer(call)
    return _reads(call, _UNREAD.get(op.removeprefix("_foreach_"), ()), inplace) + _writes(call, inplace)


def _reads(call: OperationCall, unread: tuple[int, ...], inplace: bool) -> int:
    # An `out=` argument is a result, not an input.
    results = set() if inplace else {id(tensor) for tensor in call.outputs()}
    inputs = [value for at, value in enumerate(call.args) if at not in unread]
    inputs += [tensor for tensor in tensors_in(call.kwargs) if id(tensor) not in results]
    return nbytes(inputs)


def _writes(call: OperationCall, inplace: bool) -> int:
    return nbytes(call.args[0]) if inplace else nbytes(call.out)


def _row_bytes(tensor: Any, elements: int) -> int:
    return elements * int(tensor.element_size())


def _lookup(indices_at: int) -> Callable[[OperationCall, bool], int]:
    """Reads the indices and as many elements as come out, writes those."""
    return lambda call, inplace: nbytes(call.args[indices_at], call.out) + _row_bytes(call.first, numel(call.first))


def _embedding_bag(call: OperationCall, inplace: bool) -> int:
    table, indices, offsets = call.args[:3]
    rows = _row_bytes(table, numel(indices) * table.shape[1])
    return rows + nbytes(indices, offsets, call.arg(6, "per_sample_weights")) + nbytes(call.out)


def _sample_weights_backward(call: OperationCall, inplace: bool) -> int:
    grad, table, indices, offsets, bags = call.args[:5]
    rows = _row_bytes(table, numel(indices) * table.shape[1])
    return rows + nbytes(grad, indices, offsets, bags) + nbytes(call.out)


def _nll(call: OperationCall, inplace: bool) -> int:
    """Reads of every row only the target's element, and its weight."""
    scores, targets, weight = call.args[0], call.args[1], call.arg(2, "weight")
    picked = _row_bytes(scores, numel(targets)) + (0 if weight is None else _row_bytes(weight, numel(targets)))
    return picked + nbytes(targets) + nbytes(call.out)


def _scatter_elements(call: OperationCall, inplace: bool, elements: int, accumulate: bool, sources: Any) -> int:
    """In place, only the selected elements are touched; otherwise the whole target is copied first."""
    target = call.args[0]
    touched = _row_bytes(target, elements)
    if inplace:
        return nbytes(sources) + touched * (2 if accumulate else 1)
    return nbytes(sources, target) + nbytes(call.out)


def _index_put(call: OperationCall, inplace: bool) -> int:
    target, indices, values = call.args[:3]
    accumulate = bool(call.arg(3, "accumulate", False))
    elements = indexed_elements(target, indices)
    return _scatter_elements(call, inplace, elements, accumulate, (indices, values))


def _scatter(call: OperationCall, inplace: bool) -> int:
    index, source = call.args[2], call.arg(3, "src")
    accumulate = call.op.startswith(("scatter_add", "scatter_reduce")) or "reduce" in call.kwargs
    # The source may be larger than the index: only what the index covers is read.
    read = _row_bytes(source, numel(index)) if is_tensor(source) else 0
    return read + _scatter_elements(call, inplace, numel(index), accumulate, (index,))


def _index_add(call: OperationCall, inplace: bool) -> int:
    index, source = call.args[2], call.args[3]
    return _scatter_elements(call, inplace, numel(source), True, (index, source))


def _index_copy(call: OperationCall, inplace: bool) -> int:
    index, source = call.args[2], call.args[3]
    return _scatter_elements(call, inplace, numel(source), False, (index, source))


def _convolution_backward(call: OperationCall, inplace: bool) -> int:
    """The image is read for the weight's gradient, the weight for the image's."""
    grad, image, weight = call.args[:3]
    mask = call.arg(10, "output_mask")
    return nbytes(grad, image if mask[1] else None, weight if mask[0] else None) + nbytes(call.out)


def _batch_norm(call: OperationCall, inplace: bool) -> int:
    """Training reads and writes the running statistics, inference reads them."""
    training = call.arg(5, "training") if call.op != "_batch_norm_with_update" else True
    updated = nbytes(call.arg(3, "running_mean"), call.arg(4, "running_var")) if training is True else 0
    return nbytes(call.args[:5]) + updated + nbytes(call.out)


def _batch_norm_statistics(call: OperationCall, inplace: bool) -> int:
    """Running statistics are read and written."""
    running = nbytes(call.arg(1, "running_mean"), call.arg(2, "running_var"))
    return nbytes(call.args[0]) + 2 * running + nbytes(call.out)


def _add(call: OperationCall, inplace: bool) -> int:
    """Adding a sparse tensor in place touches only its stored elements."""
    addend = call.arg(1, "other")
    if inplace and getattr(addend, "is_sparse", False) and not getattr(call.args[0], "is_sparse", False):
        return nbytes(addend) + 2 * _row_bytes(call.args[0], numel(addend))
    return _reads(call, (), inplace) + _writes(call, inplace)


def _add_product(call: OperationCall, inplace: bool) -> int:
    """With beta = 0 the added matrix is not read."""
    unread = (0,) if call.kwargs.get("beta", 1) == 0 else ()
    return _reads(call, unread, inplace) + _writes(call, inplace)


def _optimizer(call: OperationCall) -> int:
    """Parameters, gradients and states are read; parameters and states written, steps and gradients not."""
    if call.op == "_fused_sgd_":
        written, fresh = [0, 2], bool(call.kwargs["is_first_step"])
        read = [0, 1] if fresh else [0, 1, 2]
    else:
        written, read = ([0, 2], [0, 1, 2, 3]) if call.op == "_fused_adagrad_" else ([0, 2, 3, 4], [0, 1, 2, 3, 4, 5])
    return nbytes([call.args[at] for at in read], call.kwargs) + nbytes([call.args[at] for at in written])


_SPECIAL: dict[str, Callable[[OperationCall, bool], int]] = {
    "embedding": _lookup(1),
    "index": _lookup(1),
    "_unsafe_index": _lookup(1),
    "index_select": _lookup(2),
    "gather": _lookup(2),
    "take": _lookup(1),
    "masked_select": lambda call, inplace: nbytes(call.args[1], call.out) + _row_bytes(call.first, numel(call.first)),
    "_embedding_bag": _embedding_bag,
    "_embedding_bag_forward_only": _embedding_bag,
    "_embedding_bag_per_sample_weights_backward": _sample_weights_backward,
    "nll_loss_forward": _nll,
    "nll_loss2d_forward": _nll,
    **dict.fromkeys(("index_put", "_index_put_impl", "_unsafe_index_put"), _index_put),
    **dict.fromkeys(("scatter", "scatter_add", "scatter_reduce"), _scatter),
    "index_add": _index_add,
    "index_copy": _index_copy,
    "convolution_backward": _convolution_backward,
    **dict.fromkeys(
        ("native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm", "_batch_norm_with_update"), _batch_norm
    ),
    "batch_norm_update_stats": _batch_norm_statistics,
    **dict.fromkeys(("add", "sub"), _add),
    **dict.fromkeys(("addmm", "baddbmm", "addmv", "addbmm"), _add_product),
}
