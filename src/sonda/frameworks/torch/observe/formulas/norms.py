"""FLOPs of normalisations, softmax and losses, forward and backward, each derived beside its formula.

n is the number of input elements and r the number of groups with their own statistics (channels, rows, groups of an
image). A sum of k elements is k additions, as in the 2·k of an inner product. Statistics are counted as two passes:
mean n + r (÷), variance n (−) + 2n (multiply-add) + r (÷), 1 / sqrt(variance + eps) 3r: together 4n + 5r.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .call import OperationCall, numel

_MEAN = 1
_NONE = 0


def _is_present(value: Any) -> int:
    return 0 if value is None else 1


def _batch_norm(image: Any, weight: Any, running: Any, training: bool) -> int:
    """y = x a + b (2n) with a = invstd × weight (1 if there is one), b = bias − mean × a (2) per channel.

    Inference adds invstd (3). Training adds the statistics, which include invstd, and for running statistics 3
    operations each for mean and variance, and 1 for the unbiased variance, per channel.
    """
    n, channels = numel(image), image.shape[1]
    folded = 2 * n + (_is_present(weight) + 2) * channels
    if not training:
        return folded + 3 * channels
    return folded + 4 * n + 5 * channels + 7 * channels * _is_present(running)


def _batch_norm_forward(call: OperationCall) -> int:
    weight, running = call.arg(1, "weight"), call.arg(3, "running_mean")
    return _batch_norm(call.args[0], weight, running, bool(call.arg(5, "training")))


def _batch_norm_legit(call: OperationCall) -> int:
    """Running statistics are arguments 3 and 4; the overload without them has `training` at 3."""
    if isinstance(call.args[3], bool):
        return _batch_norm(call.args[0], call.args[1], None, call.args[3])
    return _batch_norm_forward(call)


def _batch_norm_inference(call: OperationCall) -> int:
    return _batch_norm(call.args[0], call.arg(1, "weight"), call.arg(3, "running_mean"), False)


def _batch_norm_update(call: OperationCall) -> int:
    return _batch_norm(call.args[0], call.arg(1, "weight"), call.arg(3, "running_mean"), True)


def _batch_norm_statistics(call: OperationCall) -> int:
    """Mean n + r and biased variance 3n + r, without 1 / sqrt; running statistics as in `_batch_norm`."""
    n, channels = numel(call.args[0]), call.args[0].shape[1]
    return 4 * n + 2 * channels + 7 * channels * _is_present(call.arg(1, "running_mean"))


def _batch_norm_gradient(image: Any, weight: Any, training: bool, mask: Any) -> int:
    """Sums per channel: Σg (n) and Σg (x − mean) (3n); gradient of the weight: that × invstd (1 per channel).

    Training: dx = (g − Σg / m − (x − mean) k) × invstd weight: 5n, with k = Σg(x − mean) × invstd² / m (3), Σg / m (1)
    and invstd × weight (1) per channel. Inference: dx = g × (invstd weight): n, and invstd itself 3 per channel.
    """
    n, channels = numel(image), image.shape[1]
    into_input, into_weight, into_bias = (bool(flag) for flag in mask)
    through_statistics = into_input and training
    flops = n * (through_statistics or into_bias) + 3 * n * (through_statistics or into_weight)
    flops += channels * into_weight
    if into_input:
        flops += (5 * n + 4 * channels) if training else n
        flops += _is_present(weight) * channels
    return flops + (0 if training else 3 * channels)


def _batch_norm_backward(call: OperationCall) -> int:
    training, mask = bool(call.arg(7, "train")), call.arg(9, "output_mask")
    return _batch_norm_gradient(call.args[1], call.arg(2, "weight"), training, mask)


def _cudnn_batch_norm_backward(call: OperationCall) -> int:
    return _batch_norm_gradient(call.args[0], call.arg(2, "weight"), True, (True, True, True))


def _layer_norm(call: OperationCall) -> int:
    """Statistics 4n + 5r, (x − mean) rstd: 2n, weight n, bias n."""
    n, rows = numel(call.args[0]), numel(call.out[2])
    return (6 + _is_present(call.arg(2, "weight")) + _is_present(call.arg(3, "bias"))) * n + 5 * rows


def _layer_norm_backward(call: OperationCall) -> int:
    """x̂ = (x − mean) rstd: 2n; weight Σg x̂: 2n; bias Σg: n.

    Input: h = g weight (n if there is one), Σh x̂ and Σh: 3n, both ÷ row length: 2r, rstd (h − a − x̂ b): 4n.
    """
    n, rows, weight = numel(call.args[1]), numel(call.args[3]), call.arg(5, "weight")
    into_input, into_weight, into_bias = (bool(flag) for flag in call.arg(7, "output_mask"))
    flops = 2 * n * (into_input or into_weight) + 2 * n * into_weight + n * into_bias
    return flops + into_input * ((7 + _is_present(weight)) * n + 2 * rows)


def _group_norm(call: OperationCall) -> int:
    """Statistics 4n + 5r, then as batch norm with a and b per image and channel: 2n + (2 or 3) N C."""
    images, channels, groups = call.arg(3, "N"), call.arg(4, "C"), call.arg(6, "group")
    folded = (2 + _is_present(call.arg(1, "weight"))) * images * channels
    return 6 * numel(call.args[0]) + 5 * images * groups + folded


def _group_norm_backward(call: OperationCall) -> int:
    """Per image and channel Σg x (2n) and Σg (n). Input: their weighted sums over the group (2 N C, 4 with weight).

    c2 = (Σg mean − Σg x) rstd³ s: 6 and c3 = −c2 mean − Σg rstd s: 5 per group, c1 = rstd weight: N C,
    dx = c1 g + c2 x + c3: 4n. Weight: Σ(Σg x − Σg mean) rstd: 4 N C. Bias: N C.
    """
    n, weight = numel(call.args[1]), _is_present(call.arg(4, "weight"))
    images, channels, groups = call.arg(5, "N"), call.arg(6, "C"), call.arg(8, "group")
    into_input, into_weight, into_bias = (bool(flag) for flag in call.arg(9, "output_mask"))
    flops = 2 * n * (into_input or into_weight) + n * (into_input or into_weight or into_bias)
    flops += into_input * (4 * n + (2 + 3 * weight) * images * channels + 11 * images * groups)
    return flops + (4 * into_weight + into_bias) * images * channels


def _rms_norm(call: OperationCall) -> int:
    """Σx²: 2n, ÷, + eps, sqrt, 1/: 4r, x rstd: n, weight: n."""
    return (3 + _is_present(call.arg(2, "weight"))) * numel(call.args[0]) + 4 * numel(call.out[1])


def _rms_norm_backward(call: OperationCall) -> int:
    """x̂: n; weight Σg x̂: 2n; input: h = g weight (n), Σh x̂: 2n, ÷: r, rstd (h − x̂ c): 3n."""
    n, rows, weight = numel(call.args[1]), numel(call.args[3]), _is_present(call.arg(4, "weight"))
    into_input, into_weight = (bool(flag) for flag in call.arg(5, "output_mask"))
    return n + 2 * n * into_weight + into_input * ((5 + weight) * n + rows)


def _softmax(call: OperationCall) -> int:
    """x − max, exp, Σ, ÷."""
    return 4 * numel(call.args[0])


def _log_softmax(call: OperationCall) -> int:
    """x − max, exp, Σ, and − log Σ: 4n, and one log per row."""
    scores = call.args[0]
    n = numel(scores)
    return 4 * n + (n // scores.shape[call.arg(1, "dim")] if n and scores.dim() else 0)


def _softmax_backward(call: OperationCall) -> int:
    """(g − Σg y) y: 4n; for the logarithm g − exp(y) Σg: 4n as well."""
    return 4 * numel(call.args[0])


def _loss_flops(per_element: int, call: OperationCall, position: int) -> int:
    """A loss of `per_element` operations, summed (n) and divided (1) as its reduction asks."""
    n = max(numel(call.args[0]), numel(call.args[1]))
    reduction = call.arg(position, "reduction", _MEAN)
    return per_element * n + (0 if reduction == _NONE else n) + (reduction == _MEAN)


def _mse(call: OperationCall) -> int:
    """(x − t)²."""
    return _loss_flops(2, call, 2)


def _smooth_l1(call: OperationCall) -> int:
    """0.5 d² / beta, with d = x − t (the longer branch)."""
    return _loss_flops(4, call, 2)


def _huber(call: OperationCall) -> int:
    """0.5 d² or delta (|d| − 0.5 delta), with d = x − t."""
    return _loss_flops(3, call, 2)


def _soft_margin(call: OperationCall) -> int:
    """log1p(exp(−t x))."""
    return _loss_flops(4, call, 2)


def _binary_cross_entropy(call: OperationCall) -> int:
    """(t − 1) log1p(−x) − t log(x): 7, and 1 for a weight."""
    return _loss_flops(7 + _is_present(call.arg(2, "weight")), call, 3)


def _binary_cross_entropy_backward(call: OperationCall) -> int:
    """g (x − t) / ((1 − x) x): 5, 1 for a weight, 1 for the mean."""
    per_element = 5 + _is_present(call.arg(3, "weight")) + (call.arg(4, "reduction", _MEAN) == _MEAN)
    return per_element * numel(call.first)


def _binary_cross_entropy_with_logits(call: OperationCall) -> int:
    """(1 − t) x − w logsigmoid(x): 7 with logsigmoid 4; w = 1 + (pos_weight − 1) t: 4 with its product; weight 1."""
    weight, pos_weight = _is_present(call.arg(2, "weight")), _is_present(call.arg(3, "pos_weight"))
    return _loss_flops(7 + weight + 4 * pos_weight, call, 4)


def _nll(call: OperationCall) -> int:
    """−x[t] per target, × its weight (1), Σ weights (1), and the mean's division; ignored targets count too."""
    targets, weighted = numel(call.args[1]), _is_present(call.arg(2, "weight"))
    reduction = call.arg(3, "reduction", _MEAN)
    return targets * (1 + weighted + weighted * (reduction != _NONE)) + (reduction == _MEAN)


def _nll_backward(call: OperationCall) -> int:
    """−g × weight per target, and one division of g by the total weight for the mean."""
    targets, weighted = numel(call.args[2]), _is_present(call.arg(3, "weight"))
    return targets * (1 + weighted) + (call.arg(4, "reduction", _MEAN) == _MEAN)


def _weight_norm(call: OperationCall) -> int:
    """v × (g / ‖v‖): Σv² 2n, sqrt and ÷ per row, × n."""
    return 3 * numel(call.args[0]) + 2 * numel(call.args[1])


def _weight_norm_backward(call: OperationCall) -> int:
    """Σ grad v: 2n, / ‖v‖: r; (g / ‖v‖) (grad − v Σ / ‖v‖²): 3n + 3r."""
    return 5 * numel(call.args[0]) + 4 * numel(call.args[2])


NORMS: dict[str, Callable[[OperationCall], int]] = {
    "native_batch_norm": _batch_norm_forward,
    "_native_batch_norm_legit": _batch_norm_legit,
    "_native_batch_norm_legit_no_training": _batch_norm_inference,
    "_batch_norm_no_update": _batch_norm_inference,
    "_batch_norm_with_update": _batch_norm_update,
    "batch_norm_update_stats": _batch_norm_statistics,
    "cudnn_batch_norm": _batch_norm_forward,
    "native_batch_norm_backward": _batch_norm_backward,
    "batch_norm_backward": _batch_norm_backward,
    "cudnn_batch_norm_backward": _cudnn_batch_norm_backward,
    "native_layer_norm": _layer_norm,
    "native_layer_norm_backward": _layer_norm_backward,
    "native_group_norm": _group_norm,
    "native_group_norm_backward": _group_norm_backward,
    "_fused_rms_norm": _rms_norm,
    "_fused_rms_norm_backward": _rms_norm_backward,
    "_softmax": _softmax,
    "_safe_softmax": _softmax,
    "_masked_softmax": _softmax,
    "_log_softmax": _log_softmax,
    "_softmax_backward_data": _softmax_backward,
    "_masked_softmax_backward": _softmax_backward,
    "_log_softmax_backward_data": _softmax_backward,
    "mse_loss": _mse,
    "smooth_l1_loss": _smooth_l1,
    "huber_loss": _huber,
    "soft_margin_loss": _soft_margin,
    "binary_cross_entropy": _binary_cross_entropy,
    "binary_cross_entropy_backward": _binary_cross_entropy_backward,
    "binary_cross_entropy_with_logits": _binary_cross_entropy_with_logits,
    "nll_loss_forward": _nll,
    "nll_loss2d_forward": _nll,
    "nll_loss_backward": _nll_backward,
    "nll_loss2d_backward": _nll_backward,
    "_weight_norm_interface": _weight_norm,
    "_weight_norm_interface_backward": _weight_norm_backward,
}
