"""The nominal cost of an operation: FLOPs and bytes by its algorithm, from the shapes of its call.

The conventions are those of `flops:nominal`: a multiply-add is 2; +, −, ×, ÷, and a call of exp, log, tanh, sqrt …
are 1 each; comparisons, selections, copies, casts, fills, random numbers and indexing are 0. Each formula's derivation
stands beside it, in `elementwise`, `products` (matrices, convolutions), `norms` (normalisation, softmax, losses),
`reductions` (also pooling, embedding) and `fused` (attention, recurrence, optimizers); bytes are in `traffic`. An
operation without a formula has unknown FLOPs (None, never 0), so that a run can name it. The same holds for complex and
quantised arithmetic. Only the standard library is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .call import OperationCall, is_complex_or_quantised, is_tensor, storage_key, tensors_in
from .elementwise import elementwise_formula
from .fused import FUSED
from .norms import NORMS
from .products import EXECUTED, PRODUCTS
from .reductions import REDUCTIONS, norm_flops
from .traffic import moved_bytes

Formula = Callable[[OperationCall], int | None]


class CallCost(NamedTuple):
    """FLOPs and bytes of one call. Where no formula describes it, `known` is False and `flops` is None."""

    flops: int | None
    bytes: int | None
    known: bool
    executed: int | None = None
    """FLOPs without those of products with padding, which libraries skip; None where these are all."""


def _name_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FREE = _name_set(
    """
    empty empty_like empty_strided empty_permuted new_empty new_empty_strided empty_quantized _efficientzerotensor
    detach_ requires_grad_ t_ transpose_ squeeze_ unsqueeze_ swapaxes_ swapdims_ as_strided_ resize_ resize_as_ set_
    _indices _values indices values crow_indices col_indices _nnz _coalesced_ is_coalesced sparse_dim dense_dim
    _sparse_coo_tensor_unsafe _sparse_coo_tensor_with_dims _sparse_coo_tensor_with_dims_and_tensors
    size stride numel dim is_contiguous is_strides_like_format is_non_overlapping_and_dense storage_offset
    sym_size sym_stride sym_numel sym_storage_offset sym_is_contiguous is_same_size _nested_tensor_size
    _nested_tensor_strides _nested_tensor_storage_offsets _version record_stream is_pinned
    """
)
"""Allocation and metadata: 0 FLOPs, 0 bytes. Views need no list: their result shares its argument's memory."""

_FREE_NAMESPACES = ("profiler", "prim", "debugprims")

AUTOGRAD = "autograd"
"""The namespace of autograd nodes counted from outside: what they saved in forward, and read, is not visible."""

_COPYING_COLLECTIVES = _name_set(
    "broadcast_ allgather_ _allgather_base_ allgather_coalesced_ scatter_ gather_ alltoall_ alltoall_base_ "
    "send recv_ barrier monitored_barrier_ broadcast all_gather_into_tensor all_to_all_single wait_tensor"
)

_NO_ARITHMETIC = _name_set(
    """
    clone copy _to_copy _copy_from _copy_from_and_resize contiguous lift_fresh_copy cat stack hstack vstack _chunk_cat
    repeat repeat_interleave roll flip rot90 tile tril triu constant_pad_nd reflection_pad1d reflection_pad2d
    reflection_pad3d replication_pad1d replication_pad2d replication_pad3d pixel_shuffle pixel_unshuffle channel_shuffle
    native_channel_shuffle value_selecting_reduction_backward im2col
    slice_backward select_backward diagonal_backward slice_scatter select_scatter diagonal_scatter
    as_strided_scatter _reshape_copy view_copy _pack_padded_sequence _pad_packed_sequence pin_memory _pin_memory
    unfold_copy split_copy split_with_sizes_copy unbind_copy expand_copy permute_copy narrow_copy to_padded_tensor
    _nested_from_padded _nested_tensor_from_mask _nested_tensor_from_mask_left_aligned nested_to_padded_tensor
    zero zeros zeros_like new_zeros ones ones_like new_ones full full_like new_full fill eye arange linspace logspace
    scalar_tensor range tril_indices triu_indices
    rand randn rand_like randn_like randint randint_like randperm uniform normal random bernoulli exponential geometric
    cauchy log_normal multinomial poisson
    relu relu6 hardtanh hardtanh_backward threshold threshold_backward clamp clamp_min clamp_max clip abs absolute sign
    sgn signbit floor ceil round trunc fix nan_to_num positive maximum minimum fmax fmin copysign heaviside nextafter
    where hardshrink hardshrink_backward masked_fill masked_scatter
    eq ne lt le gt ge equal isnan isinf isfinite isposinf isneginf isclose isin logical_and logical_or logical_not
    logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor bitwise_left_shift bitwise_right_shift is_nonzero
    __and__ __or__ __xor__ __lshift__ __rshift__ __iand__ __ior__ __ixor__ __ilshift__ __irshift__
    any all count_nonzero max min amax amin aminmax _aminmax argmax argmin median nanmedian mode kthvalue
    sort argsort topk msort searchsorted bucketize unique _unique _unique2 unique_dim unique_consecutive
    unique_dim_consecutive nonzero nonzero_static cummax cummin _cummax_helper _cummin_helper bincount
    _assert_async _assert_scalar index index_select gather take masked_select index_fill index_copy embedding
    _unsafe_index put
    max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d
    adaptive_max_pool3d mkldnn_max_pool2d max_unpool2d max_unpool3d upsample_nearest1d upsample_nearest2d
    upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
    t transpose _local_scalar_dense item view_as_complex_copy view_as_real_copy _to_dense to_dense
    """
)
"""Comparisons, selections, copies and fills: 0 FLOPs, but their bytes count."""


def cost(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> CallCost:
    """FLOPs and bytes of one call that returned `out`; never raises.

    `name` is `str(func._overloadpacket)`, e.g. "aten.add_": namespace and operation without overload.
    """
    namespace, _, op = name.partition(".")
    if namespace in _FREE_NAMESPACES or (namespace == "aten" and op in _FREE):
        return CallCost(0, 0, True)
    if namespace == AUTOGRAD:
        return CallCost(None, None, False)
    call = OperationCall(op, args, kwargs, out)
    inplace = op.endswith("_") and not op.endswith("__")
    try:
        if not inplace and _is_view(call):
            return CallCost(0, 0, True)
    except Exception:  # a tensor whose memory cannot be read: counted as an operation
        pass
    moved = _bytes(call, op, inplace)
    flops = _flops(namespace, call, op, inplace)
    return CallCost(flops, moved, flops is not None, _executed(namespace, call, flops))


def _bytes(call: OperationCall, op: str, inplace: bool) -> int | None:
    try:
        return moved_bytes(call, op[:-1] if inplace else op, inplace)
    except Exception:  # unknown; the observed program must go on, whatever its tensors are
        return None


def _flops(namespace: str, call: OperationCall, op: str, inplace: bool) -> int | None:
    try:
        if namespace in ("c10d", "_c10d_functional"):
            return 0 if op in _COPYING_COLLECTIVES else None
        if namespace != "aten":
            return None
        flops = _foreach_flops(call, op, inplace) if op.startswith("_foreach_") else _single_flops(call, op, inplace)
        if flops and any(is_complex_or_quantised(tensor) for tensor in tensors_in((call.args, call.out))):
            return None
    except Exception:  # as above
        return None
    return flops


def _executed(namespace: str, call: OperationCall, flops: int | None) -> int | None:
    formula = EXECUTED.get(call.op) if namespace == "aten" and flops else None
    if formula is None:
        return None
    try:
        executed = formula(call)
    except Exception:  # padding given by a word: what it pads is not known here
        return None
    return executed if executed != flops else None


def _single_flops(call: OperationCall, op: str, inplace: bool) -> int | None:
    plain = op[:-1] if inplace else op
    formula = FUSED.get(op) or _find_formula(plain)
    if formula is not None:
        return formula(call)
    return 0 if plain in _NO_ARITHMETIC else None


def _find_formula(op: str) -> Formula | None:
    return PRODUCTS.get(op) or NORMS.get(op) or REDUCTIONS.get(op) or FUSED.get(op) or elementwise_formula(op)


def _foreach_flops(call: OperationCall, op: str, inplace: bool) -> int | None:
    """FLOPs summed over a list of tensors. The i-th call takes the i-th element of every list, and every other
    argument as it is."""
    plain = op.removeprefix("_foreach_").removesuffix("_")
    if plain in _NO_ARITHMETIC:
        return 0
    if plain == "norm":
        order = call.arg(1, "ord", 2)
        return sum(norm_flops(order, tensor.numel(), 1) for tensor in call.args[0])
    formula = elementwise_formula(plain)
    if formula is None:
        return None
    results = call.args[0] if inplace else call.out
    total = 0
    for at, result in enumerate(results):
        args = tuple(value[at] if isinstance(value, list | tuple) else value for value in call.args)
        kwargs = {key: value[at] if isinstance(value, list | tuple) else value for key, value in call.kwargs.items()}
        total += formula(OperationCall(plain, args, kwargs, result)) or 0
    return total


def _is_view(call: OperationCall) -> bool:
    """True where every tensor of the result shares its memory with an argument other than `out=`."""
    results = call.outputs()
    if not results or any(is_tensor(value) for value in call.kwargs.values()):
        return False
    sources = {storage_key(tensor) for tensor in tensors_in(call.args)}
    return all(storage_key(tensor) in sources for tensor in results)
