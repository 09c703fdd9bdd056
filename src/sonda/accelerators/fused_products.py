"""Products inside operations that PyTorch fuses: an attention in one, a recurrent layer in one."""

from __future__ import annotations

from typing import Any

from sonda.accelerators.operation import MatrixProduct
from sonda.accelerators.products import Found, Handler, argument, product


def _attention(recorder: Any, function: Any, args: Any, kwargs: Any, output: Any) -> list[Found] | None:
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
        Found(scores, "attention", (query, key), first),
        Found(values, "attention", (query, value), second),
    ]


def _named(function: Any, args: Any, kwargs: Any, *names: str) -> Any:
    """The argument of one of these names, however it was given; None for an operation that has none of them."""
    for position, one in enumerate(function._schema.arguments):
        if one.name in names:
            return argument(function, args, kwargs, position)
    return None


def _heads(tensor: Any, query: Any) -> Any:
    """Keys or values with a head for each of the queries', where several share one."""
    shared = int(query.shape[1]) // int(tensor.shape[1])
    return tensor.repeat_interleave(shared, dim=1) if shared > 1 else tensor


def _recurrent(recorder: Any, function: Any, args: Any, kwargs: Any, output: Any) -> list[Found] | None:
    """One layer in one direction: the inputs of all elements at once, then the state, element by element."""
    import torch

    sequence, from_input, from_state = args[:3]
    state, reverse = args[5], args[7]
    # The layer is handed its sequence and gives its states with the elements first, whatever the module was told.
    length, batch, features = (int(size) for size in sequence.shape)
    if not length or not batch:
        return None
    states = output[0].detach()
    found = product(sequence.reshape(length * batch, features), from_input.t(), "linear") or []
    order = range(length - 1, -1, -1) if reverse else range(length)
    before = state.reshape(batch, -1)
    for element in order:
        found += product(before, from_state.t(), "linear") or []
        before = torch.narrow(states, 0, element, 1).reshape(batch, -1)
    return found


FUSED: dict[str, Handler] = {
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention": _attention,
    "_scaled_dot_product_efficient_attention": _attention,
    "mkldnn_rnn_layer": _recurrent,
}
"""By PyTorch's name."""
