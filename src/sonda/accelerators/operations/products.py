"""Products of matrices among PyTorch's operations: what each is for an engine, read from its operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sonda.accelerators.operations.program import Bags, ConvolutionShape, MatrixProduct

MAX_MODE = 2
"""The mode of an embedding bag that takes the largest instead of the sum, which is no product."""


@dataclass(frozen=True)
class EngineProduct:
    """One operation for an engine."""

    shape: MatrixProduct | ConvolutionShape | Bags
    kind: str = ""
    """'' where it depends on who calls and whether an operand is a weight."""
    tensors: tuple[Any, ...] = ()
    operands: Callable[[], tuple[Any, Any]] | None = None
    """Inputs and weights in the shapes of `Operation`; made only where their zeros are wanted."""


Handler = Callable[[Any, Any, Any, Any, Any], "list[EngineProduct] | None"]
"""(recorder, function, args, kwargs, output) -> what was found; None where no engine takes it."""


def product(left: Any, right: Any, kind: str = "") -> list[EngineProduct] | None:
    """`left` (m x k, or count x m x k) by `right` (k x n, or count x k x n); nothing where a side is 0."""
    if left.dim() == 2:
        shape = MatrixProduct(int(left.shape[0]), int(right.shape[1]), int(left.shape[1]))
    else:
        count, m, k = (int(size) for size in left.shape)
        shape = MatrixProduct(m, int(right.shape[2]), k, count)
    if not shape.multiplications:
        return None

    def operands() -> tuple[Any, Any]:
        matrices = [matrix if matrix.dim() == 3 else matrix.unsqueeze(0) for matrix in (left, right.transpose(-1, -2))]
        return matrices[0], matrices[1]

    return [EngineProduct(shape, kind, (left, right), operands)]


def _matrix_pair(first: int) -> Handler:
    """The two matrices stand at `first` and after it."""

    def handler(recorder: Any, function: Any, args: Any, kwargs: Any, output: Any) -> list[EngineProduct] | None:
        left, right = (argument(function, args, kwargs, first + at) for at in (0, 1))
        if left.dim() != right.dim():
            right = right.unsqueeze(-1)  # a matrix by a vector
        if left.dim() == 1:
            left, right = left.unsqueeze(0), right.unsqueeze(-1)
        return product(left, right)

    return handler


def argument(function: Any, args: Any, kwargs: Any, position: int) -> Any:
    """An argument by its place in the schema, however it was given."""
    if position < len(args):
        return args[position]
    argument = function._schema.arguments[position]
    return kwargs.get(argument.name, argument.default_value)


def _convolution(recorder: Any, function: Any, args: Any, kwargs: Any, output: Any) -> list[EngineProduct] | None:
    inputs, weight, _, stride, padding, dilation, transposed, _, groups = (
        argument(function, args, kwargs, position) for position in range(9)
    )
    if not inputs.numel() or not weight.numel() or not output.numel():
        return None
    sides = weight.dim() - 2
    if inputs.dim() == weight.dim() - 1:
        inputs = inputs.unsqueeze(0)
    taps = int(np.prod(weight.shape[2:], dtype=np.int64))
    batch = int(inputs.shape[0])
    tensors = (inputs, weight)
    if transposed:
        # Every input pixel times all taps of all filters; adding up what overlaps is no product.
        pixels = int(np.prod(inputs.shape[2:], dtype=np.int64))
        per_group = int(weight.shape[0]) // groups
        shape = MatrixProduct(batch * pixels, int(weight.shape[1]) * taps, per_group, groups)

        def spread() -> tuple[Any, Any]:
            left = inputs.reshape(batch, groups, per_group, pixels).permute(1, 0, 3, 2)
            right = weight.reshape(groups, per_group, -1).transpose(1, 2)
            return left.reshape(groups, batch * pixels, per_group), right

        return [EngineProduct(shape, "convolution", tensors, spread)]
    if sides > 2:
        outputs = batch * int(np.prod(output.shape[-sides:], dtype=np.int64))
        shape = MatrixProduct(outputs, int(weight.shape[0]) // groups, int(weight.shape[1]) * taps, groups)

        def unfolded() -> tuple[Any, Any]:
            return _windows(inputs, weight, stride, padding, dilation, groups), weight.reshape(groups, shape.n, shape.k)

        return [EngineProduct(shape, "convolution", tensors, unfolded)]
    flat = sides == 1

    def pair(values: Any, missing: int) -> tuple[int, int]:
        return (missing, int(values[0])) if flat else (int(values[0]), int(values[-1]))

    image, filters = inputs.shape[2:], weight.shape[2:]
    shape_of_windows = ConvolutionShape(
        *pair(filters, 1),
        C=int(inputs.shape[1]),
        K=int(weight.shape[0]),
        G=int(groups),
        N=batch,
        X=pair(image, 1)[0],
        Y=pair(image, 1)[1],
        stride=pair(stride, 1),
        padding=pair(padding, 0),
        dilation=pair(dilation, 1),
    )

    def operands() -> tuple[Any, Any]:
        return (inputs.unsqueeze(2), weight.unsqueeze(2)) if flat else (inputs, weight)

    return [EngineProduct(shape_of_windows, "convolution", tensors, operands)]


def _windows(inputs: Any, weight: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """Groups x windows x taps of a convolution over any number of sides."""
    import torch

    sides = weight.dim() - 2
    around = [pad for side in reversed(range(sides)) for pad in (int(padding[side]),) * 2]
    windows = torch.nn.functional.pad(inputs, around)
    for side in range(sides):
        reach = int(dilation[side]) * (int(weight.shape[2 + side]) - 1) + 1
        windows = windows.unfold(2 + side, reach, int(stride[side]))[..., :: int(dilation[side])]
    batch, channels = inputs.shape[:2]
    places = tuple(range(2, 2 + sides))
    taps = tuple(range(2 + sides, 2 + 2 * sides))
    grouped = windows.reshape(batch, groups, channels // groups, *windows.shape[2:])
    order = (1, 0, *(place + 1 for place in places), 2, *(tap + 1 for tap in taps))
    size = channels // groups * int(np.prod(weight.shape[2:], dtype=np.int64))
    return grouped.permute(order).reshape(groups, -1, size)


def _bags(recorder: Any, function: Any, args: Any, kwargs: Any, output: Any) -> list[EngineProduct] | None:
    table, indices, offsets, _, mode, _, _, last_is_end, padding = (
        argument(function, args, kwargs, position) for position in range(9)
    )
    if mode == MAX_MODE or not indices.numel():
        return None
    rows = indices.detach().cpu().numpy().astype(np.int64)
    starts = offsets.detach().cpu().numpy().astype(np.int64)
    ends = starts[1:] if last_is_end else np.append(starts[1:], len(rows))
    starts = starts[: len(ends)]
    sizes = ends - starts
    # Where the last offset is an end, what stands behind it is in no bag.
    rows = rows[: sizes.sum()]
    if padding is not None and padding >= 0:
        kept = rows != padding
        before = np.concatenate(([0], np.cumsum(kept)))
        rows, sizes = rows[kept], before[ends] - before[starts]
    if not len(rows):
        return None
    return [EngineProduct(Bags(sizes, rows.copy(), int(table.shape[0]), int(table.shape[1])), "embedding_bag")]


PRODUCTS: dict[str, Handler] = {
    "mm": _matrix_pair(0),
    "bmm": _matrix_pair(0),
    "mv": _matrix_pair(0),
    "dot": _matrix_pair(0),
    "addmm": _matrix_pair(1),
    "addmv": _matrix_pair(1),
    "addbmm": _matrix_pair(1),
    "baddbmm": _matrix_pair(1),
    "_addmm_activation": _matrix_pair(1),
    "convolution": _convolution,
    "_convolution": _convolution,
    "convolution_overrideable": _convolution,
    "_embedding_bag": _bags,
    "_embedding_bag_forward_only": _bags,
}
"""Handlers by PyTorch's name of the operation."""


# ---- Products inside operations that PyTorch fuses: an attention in one, a recurrent layer in one -------------------


def _attention(recorder: Any, function: Any, args: Any, kwargs: Any, output: Any) -> list[EngineProduct] | None:
    """Queries by keys, then what softmax makes of it by values: a product for every sample and head."""
    import torch

    query, key, value = args[:3]
    mask, causal, scale = (
        _named(function, args, kwargs, *names) for names in (("attn_mask", "attn_bias"), ("is_causal",), ("scale",))
    )
    count = int(query.shape[0] * query.shape[1])
    rows, width, length = int(query.shape[2]), int(query.shape[3]), int(key.shape[2])
    if not count or not rows or not length:
        return None
    scores = MatrixProduct(rows, length, width, count)
    values = MatrixProduct(rows, int(value.shape[3]), length, count)

    def first() -> tuple[Any, Any]:
        return query.reshape(count, rows, width), _heads(key, query).reshape(count, length, width)

    def second() -> tuple[Any, Any]:
        # The fused kernel never has the whole matrix of weights; its zeros (a causal mask) are those of the plain one.
        _, weights = torch.ops.aten._scaled_dot_product_attention_math(
            query, _heads(key, query), _heads(value, query), mask, 0.0, bool(causal), scale=scale
        )
        transposed = _heads(value, query).transpose(-1, -2)
        return weights.reshape(count, rows, length), transposed.reshape(count, values.n, length)

    return [
        EngineProduct(scores, "attention", (query, key), first),
        EngineProduct(values, "attention", (query, value), second),
    ]


def _named(function: Any, args: Any, kwargs: Any, *names: str) -> Any:
    """The argument of one of these names, however it was given; None for an operation that has none of them."""
    for position, parameter in enumerate(function._schema.arguments):
        if parameter.name in names:
            return argument(function, args, kwargs, position)
    return None


def _heads(tensor: Any, query: Any) -> Any:
    """Keys or values with a head for each of the queries', where several share one."""
    shared = int(query.shape[1]) // int(tensor.shape[1])
    return tensor.repeat_interleave(shared, dim=1) if shared > 1 else tensor


def _recurrent(recorder: Any, function: Any, args: Any, kwargs: Any, output: Any) -> list[EngineProduct] | None:
    """One layer in one direction: the inputs of all elements at once, then the state, element by element."""
    import torch

    sequence, from_input, from_state = args[:3]
    state, reverse = args[5], args[7]
    # The layer is handed its sequence and gives its states with the elements first, whatever the module was told.
    length, batch, features = (int(size) for size in sequence.shape)
    if not length or not batch:
        return None
    states = output[0].detach()
    products = product(sequence.reshape(length * batch, features), from_input.t(), "linear") or []
    order = range(length - 1, -1, -1) if reverse else range(length)
    before = state.reshape(batch, -1)
    for element in order:
        products += product(before, from_state.t(), "linear") or []
        before = torch.narrow(states, 0, element, 1).reshape(batch, -1)
    return products


FUSED: dict[str, Handler] = {
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention": _attention,
    "_scaled_dot_product_efficient_attention": _attention,
    "mkldnn_rnn_layer": _recurrent,
}
"""Handlers by PyTorch's name of the operation."""
