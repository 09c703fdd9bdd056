"""FLOPs of operations that compute a whole layer: attention, recurrent networks, encoder layers, optimizers.

The full computation counts: causal and masked attention compute every score, and padded sequences every step. Row sums
that a kernel saves for its backward (logsumexp) do not count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .call import OperationCall, is_float, is_tensor, numel, tensors_in

_RELU, _TANH, _LSTM, _GRU = range(4)
"""Modes of a recurrent network, as cuDNN and oneDNN number them."""

_GATES = {_RELU: 1, _TANH: 1, _LSTM: 4, _GRU: 3}

_CELL = {_RELU: 0, _TANH: 1, _LSTM: 18, _GRU: 13}
"""Per element of the state, after the gates are summed. LSTM: three sigmoids 12, tanh 1, f c + i g 3, o tanh(c) 2.
GRU: two sigmoids 8, r × hidden part 1, tanh 1, n + z (h − n) 3."""

_CELL_BACKWARD = {_RELU: 0, _TANH: 3, _LSTM: 23, _GRU: 15}
"""Per element of the state. tanh: g (1 − h h) 3. LSTM: tanh(c) 1, into o 1, into c (g o (1 − t t) + gc) 5,
into i, f, g and the earlier c 4, through the four gates 3 each. GRU: through z 5, into h 1, through n 4,
into the hidden part 1, through r 4."""


def _sizes(query: Any, key: Any, value: Any, heads_at: int) -> tuple[int, int, int, int]:
    """(batch × query heads × queries, keys, width of a key, width of a value). In GQA query heads share key heads."""
    rows = numel(query) // query.shape[-1]
    return rows, key.shape[1 if heads_at == 2 else -2], query.shape[-1], value.shape[-1]


def _attention(call: OperationCall, mask_at: tuple[int, str], dropout_at: int, heads_at: int = 1) -> int | None:
    """Q Kᵀ and P V: 2 per score and width; × scale, + mask, softmax 4, dropout (mask × scale) 2 per score."""
    query, key, value = call.args[:3]
    if not is_float(query):
        return None
    rows, keys, width, value_width = _sizes(query, key, value, heads_at)
    return rows * keys * (2 * width + 2 * value_width + 4 + _per_score(call, mask_at, dropout_at, 2))


def _per_score(call: OperationCall, mask_at: tuple[int, str], dropout_at: int, dropout: int) -> int:
    scaled = call.kwargs.get("scale") != 1.0
    mask = call.arg(*mask_at)
    added = is_tensor(mask) and is_float(mask)
    return scaled + added + (dropout if call.arg(dropout_at, "dropout_p", 0.0) else 0)


def _attention_backward(
    call: OperationCall, mask_at: tuple[int, str], dropout_at: int, heads_at: int = 1
) -> int | None:
    """Scores again (2 E), dV and dP (2 Ev each), dQ and dK (2 E each).

    Per score: scale, mask, − logsumexp and exp 2, P (dP − D) 2, scale of the gradient 1, dropout on P and on dP 4.
    D = Σ dO × O: 2 per element of the output.
    """
    query, key, value = call.args[1:4]
    if not is_float(query):
        return None
    rows, keys, width, value_width = _sizes(query, key, value, heads_at)
    scaled_gradient = call.kwargs.get("scale") != 1.0
    per_score = 4 + scaled_gradient + _per_score(call, mask_at, dropout_at, 4)
    return rows * keys * (6 * width + 4 * value_width + per_score) + 2 * rows * value_width


def _flat_attention(call: OperationCall) -> int | None:
    """Layout (batch, sequence, head, width); packed sequences have no formula."""
    if call.arg(3, "cum_seq_q") is not None:
        return None
    return _attention(call, (99, ""), 7, heads_at=2)


def _flat_attention_backward(call: OperationCall) -> int | None:
    cumulative = call.args[6]
    if is_tensor(cumulative) and numel(cumulative):
        return None
    return _attention_backward(call, (99, ""), 10, heads_at=2)


def _recurrent(rows: int, inputs: int, hidden: int, mode: int, biases: bool, output: int | None = None) -> int:
    """One layer and direction over `rows` = steps × batch: 2·G·H·(I + H), sum G·H, two biases 2·G·H, cell."""
    gates, output = _GATES[mode] * hidden, hidden if output is None else output
    projection = 0 if output == hidden else 2 * hidden * output
    per_row = 2 * gates * (inputs + output) + gates * (3 if biases else 1) + _CELL[mode] * hidden + projection
    return rows * per_row


def _recurrent_backward(
    rows: int, inputs: int, hidden: int, mode: int, biases: bool, weights: bool = True, output: int | None = None
) -> int:
    """Gradients of input and state 2·G·H·(I + H), of the weights as much, of biases G·H (GRU: 2·G·H, they differ).

    The state's gradient is added to that of the output (H), and in a GRU to the part that bypasses the gates (H).
    """
    gates, output = _GATES[mode] * hidden, hidden if output is None else output
    products = 2 * gates * (inputs + output) + (0 if output == hidden else 2 * hidden * output)
    per_row = products * (2 if weights else 1) + _CELL_BACKWARD[mode] * hidden
    per_row += output * (2 if mode == _GRU else 1)
    if biases and weights:
        per_row += gates * (2 if mode == _GRU else 1)
    return rows * per_row


def _mkldnn_rnn(call: OperationCall) -> int:
    """One layer in one direction."""
    image = call.args[0]
    rows, inputs = numel(image) // image.shape[-1], image.shape[-1]
    return _recurrent(rows, inputs, call.arg(10, "hidden_size"), call.arg(9, "mode"), call.arg(12, "has_biases"))


def _mkldnn_rnn_backward(call: OperationCall) -> int:
    image = call.args[0]
    rows, inputs = numel(image) // image.shape[-1], image.shape[-1]
    mode, hidden, biases = call.arg(14, "mode"), call.arg(15, "hidden_size"), call.arg(17, "has_biases")
    return _recurrent_backward(rows, inputs, hidden, mode, biases)


def _cudnn_rnn_layers(call: OperationCall, mode_at: int) -> tuple[list[tuple[int, int, int, int, bool, int]], int, int]:
    """(rows, inputs, hidden, mode, biases, output) of every layer and direction; the width between layers; the number
    of layers."""
    mode, hidden, projected, layers = call.args[mode_at : mode_at + 4]
    directions = 2 if call.args[mode_at + 7] else 1
    image, output = call.args[0], projected or hidden
    rows = numel(image) // image.shape[-1]
    biases = call.args[2] in (4, 5)  # tensors per layer: two weights, two biases, and one projection
    between = directions * output
    sizes = [image.shape[-1]] + [between] * (layers - 1)
    return [(rows, size, hidden, mode, biases, output) for size in sizes for _ in range(directions)], between, layers


def _cudnn_rnn(call: OperationCall) -> int:
    """All layers and directions, and the dropout between layers (mask × scale) while training."""
    described, between, layers = _cudnn_rnn_layers(call, 6)
    dropout = 2 * described[0][0] * between * (layers - 1) if call.args[11] and call.args[12] else 0
    return sum(_recurrent(*layer) for layer in described) + dropout


def _cudnn_rnn_backward(call: OperationCall) -> int:
    described, between, layers = _cudnn_rnn_layers(call, 10)
    dropout = 2 * described[0][0] * between * (layers - 1) if call.args[15] and call.args[16] else 0
    weights = bool(call.arg(21, "output_mask")[3])
    flops = sum(_recurrent_backward(*layer[:5], weights=weights, output=layer[5]) for layer in described)
    return flops + dropout


def _cell(mode: int) -> Callable[[OperationCall], int]:
    """A single cell: the sum of the gates of input and state, biases, the cell's own arithmetic."""

    def count(call: OperationCall) -> int:
        gates, state = numel(call.args[0]), numel(call.args[2])
        biases = sum(call.arg(at, name) is not None for at, name in ((3, "input_bias"), (4, "hidden_bias")))
        return gates * (1 + biases) + _CELL[mode] * state

    return count


def _lstm_cell_backward(call: OperationCall) -> int:
    """The cell's own arithmetic, and the bias's sum of the gates' gradients over the batch."""
    state = numel(call.args[2])
    return (_CELL_BACKWARD[_LSTM] + (4 if call.arg(5, "has_bias") else 0)) * state


def _gru_cell_backward(call: OperationCall) -> int:
    state = numel(call.args[0])
    return (_CELL_BACKWARD[_GRU] + (6 if call.arg(2, "has_bias") else 0)) * state


def _lengths(batch: Any) -> list[int]:
    """Length of every sequence of a (batch, length, width) tensor, padded or nested."""
    if getattr(batch, "is_nested", False):
        return [int(size[0]) for size in batch._nested_tensor_size().tolist()]
    return [int(batch.shape[1])] * int(batch.shape[0])


def _self_attention(queries: list[int], keys: list[int], width: int, heads: int) -> int:
    """Projections with bias, query × 1/√d, scores, softmax 4, weighted values, output projection with bias."""
    query_rows, key_rows = sum(queries), sum(keys)
    scores = sum(q * k for q, k in zip(queries, keys, strict=True))
    projections = (query_rows + 2 * key_rows + query_rows) * (2 * width * width + width)
    return projections + query_rows * width + 4 * scores * width + 4 * scores * heads


def _multi_head_attention(call: OperationCall) -> int:
    query, key = call.args[0], call.args[1]
    width, heads = call.args[3], call.args[4]
    queries, keys = _lengths(query), _lengths(key)
    flops = _self_attention(queries, keys, width, heads)
    if call.arg(10, "need_weights", True) and call.arg(11, "average_attn_weights", True):
        scores = sum(q * k for q, k in zip(queries, keys, strict=True))
        flops += scores * heads + scores
    return flops


def _encoder_layer(call: OperationCall) -> int:
    """Self-attention, two residual sums, two layer norms (8n + 5r each), two linear layers, relu (0) or gelu (5)."""
    batch, width, heads = call.args[:3]
    lengths = _lengths(batch)
    rows = sum(lengths)
    inner = call.args[14].shape[0]
    feed_forward = rows * (4 * width * inner + inner + width + (5 * inner if call.args[7] else 0))
    norms = 2 * rows * (8 * width + 5)
    return _self_attention(lengths, lengths, width, heads) + 2 * rows * width + norms + feed_forward


def _elements(tensors: Any) -> int:
    return sum(numel(tensor) for tensor in tensors_in(tensors))


def _sgd(call: OperationCall) -> int:
    """p − lr g: 2; weight decay g + d p: 2; momentum m b + (1 − dampening) g: 2 or 3, first step 0; Nesterov 2."""
    option = call.kwargs
    per_element = 2 + (2 if option["weight_decay"] else 0) + bool(option["maximize"]) + _unscaled(call)
    if option["momentum"]:
        if not option["is_first_step"]:
            per_element += 2 + (1 if option["dampening"] else 0)
        per_element += 2 if option["nesterov"] else 0
    return per_element * _elements(call.args[0])


def _adam(decay: int) -> Callable[[OperationCall], int]:
    """m + (1 − β₁)(g − m): 3; β₂ v + (1 − β₂) g g: 4; √v / √c + ε: 3; p − step m / that: 3. Corrections are scalars."""

    def count(call: OperationCall) -> int:
        option = call.kwargs
        per_element = 13 + (decay if option["weight_decay"] else 0) + bool(option["maximize"]) + _unscaled(call)
        return per_element * _elements(call.args[0])

    return count


def _adagrad(call: OperationCall) -> int:
    """s + g g: 2; √s + ε: 2; p − lr g / that: 3; weight decay 2."""
    option = call.kwargs
    per_element = 7 + (2 if option["weight_decay"] else 0) + bool(option["maximize"]) + _unscaled(call)
    return per_element * _elements(call.args[0])


def _unscaled(call: OperationCall) -> int:
    """FLOPs of dividing a gradient by its loss scale, per element."""
    return 0 if call.kwargs.get("grad_scale") is None else 1


def _unscale_gradients(call: OperationCall) -> int:
    return _elements(call.args[0])


_NO_MASK = (99, "")

FUSED: dict[str, Callable[[OperationCall], int | None]] = {
    "_scaled_dot_product_flash_attention_for_cpu": lambda c: _attention(c, (99, "attn_mask"), 3),
    "_scaled_dot_product_flash_attention": lambda c: _attention(c, _NO_MASK, 3),
    "_scaled_dot_product_efficient_attention": lambda c: _attention(c, (3, "attn_bias"), 5),
    "_scaled_dot_product_cudnn_attention": lambda c: _attention(c, (3, "attn_bias"), 5),
    "_scaled_dot_product_fused_attention_overrideable": lambda c: _attention(c, (3, "attn_bias"), 4),
    "_scaled_dot_product_attention_math": lambda c: _attention(c, (3, "attn_mask"), 4),
    "_scaled_dot_product_attention_math_for_mps": lambda c: _attention(c, (3, "attn_mask"), 4),
    "scaled_dot_product_attention": lambda c: _attention(c, (3, "attn_mask"), 4),
    "_scaled_dot_product_flash_attention_for_cpu_backward": lambda c: _attention_backward(c, (99, "attn_mask"), 6),
    "_scaled_dot_product_flash_attention_backward": lambda c: _attention_backward(c, _NO_MASK, 10),
    "_scaled_dot_product_efficient_attention_backward": lambda c: _attention_backward(c, (4, "attn_bias"), 9),
    "_scaled_dot_product_cudnn_attention_backward": lambda c: _attention_backward(c, (8, "attn_bias"), 13),
    "_scaled_dot_product_fused_attention_overrideable_backward": lambda c: _attention_backward(c, (4, "attn_bias"), 12),
    "_flash_attention_forward": _flat_attention,
    "_flash_attention_backward": _flat_attention_backward,
    "mkldnn_rnn_layer": _mkldnn_rnn,
    "mkldnn_rnn_layer_backward": _mkldnn_rnn_backward,
    "_cudnn_rnn": _cudnn_rnn,
    "_cudnn_rnn_backward": _cudnn_rnn_backward,
    "_thnn_fused_lstm_cell": _cell(_LSTM),
    "_thnn_fused_gru_cell": _cell(_GRU),
    "_thnn_fused_lstm_cell_backward_impl": _lstm_cell_backward,
    "_thnn_fused_gru_cell_backward": _gru_cell_backward,
    "_native_multi_head_attention": _multi_head_attention,
    "_transformer_encoder_layer_fwd": _encoder_layer,
    "_fused_sgd_": _sgd,
    "_fused_adam_": _adam(2),
    "_fused_adamw_": _adam(1),
    "_fused_adagrad_": _adagrad,
    "_amp_foreach_non_finite_check_and_unscale_": _unscale_gradients,
}
