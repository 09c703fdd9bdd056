"""FLOPs of element-wise operations, as a number per element of the result.

Multiply-add is 2; +, −, ×, ÷, and one call of exp, log, tanh, sqrt, erf, sin, pow … are 1 each; comparisons, selections
(max, relu, clamp, where, abs, sign, rounding), copies, casts, fills, random numbers and indexing are 0. A function
built from those is counted by its definition, which stands beside it; of two branches the longer one counts. Integer
and boolean results need no floating-point arithmetic: 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .call import OperationCall, is_float, is_tensor, numel

_ONE = """
neg exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sinc erf erfc
erfinv lgamma digamma reciprocal square deg2rad rad2deg frac special_i0 i0 special_i1 special_ndtri
mul div multiply divide true_divide floor_divide atan2 ldexp leaky_relu leaky_relu_backward _prelu_kernel
rrelu_with_noise rrelu_with_noise_backward hardsigmoid_backward
"""

PER_ELEMENT: dict[str, int] = dict.fromkeys(_ONE.split(), 1) | {
    "rsqrt": 2,  # 1 / sqrt(x)
    "sigmoid": 4,  # 1 / (1 + exp(-x))
    "sigmoid_backward": 3,  # g (1 - y) y
    "tanh_backward": 3,  # g (1 - y y)
    "silu": 4,  # x / (1 + exp(-x))
    "silu_backward": 9,  # s = sigmoid(x): 4; g s (1 + x (1 - s)): 5
    "softplus": 4,  # log1p(exp(b x)) / b
    "softplus_backward": 5,  # z = exp(b x): 2; g z / (z + 1): 3
    "mish": 4,  # x tanh(log1p(exp(x)))
    "mish_backward": 13,  # t = tanh(log1p(exp(x))): 3; s = sigmoid(x): 4; g (t + x s (1 - t t)): 6
    "log_sigmoid_forward": 4,  # min(x, 0) - log1p(exp(-|x|))
    "hardswish": 3,  # x clamp(x + 3) / 6
    "hardswish_backward": 3,  # g (x / 3 + 0.5)
    "hardsigmoid": 2,  # clamp(x + 3) / 6
    "elu": 3,  # a expm1(b x)
    "celu": 3,  # a expm1(x / a)
    "softshrink": 1,  # x ∓ λ
    "softshrink_backward": 0,
    "_prelu_kernel_backward": 2,  # g w and g x
    "glu": 5,  # a sigmoid(b)
    "logit": 3,  # log(x / (1 - x))
    "remainder": 3,  # a - b floor(a / b)
    "fmod": 3,  # a - b trunc(a / b)
    "hypot": 4,  # sqrt(a a + b b)
    "logaddexp": 5,  # max + log1p(exp(-|a - b|))
    "xlogy": 2,  # a log(b)
    "special_xlog1py": 2,
    "lerp": 3,  # a + w (b - a)
    "_amp_update_scale": 1,  # scale × factor
    "native_dropout_backward": 2,  # g × mask × scale
    "_fused_dropout": 2,  # x × mask × scale
    "smooth_l1_loss_backward": 4,  # quadratic branch: (x - t) g norm / beta
    "huber_loss_backward": 3,  # (x - t) g norm
    "soft_margin_loss_backward": 8,  # u = -t, z = exp(u x): 3; u g norm z / (z + 1): 5
    "mse_loss_backward": 3,  # norm (x - t) g
}

_POWERS = {0: 0, 1: 0, 3: 2, -2: 2, -0.5: 2}
"""x³ = x x x, x⁻² = 1 / (x x), x^-½ = 1 / sqrt(x); x⁰ and x¹ are a fill and a copy; every other power is one call."""


def _factor_flops(factor: Any) -> int:
    """FLOPs of a factor per element: 0 where it is the number 1, else 1."""
    return 1 if is_tensor(factor) or factor != 1 else 0


def _add(call: OperationCall) -> int:
    """a + alpha b: 1, and 1 more for alpha unless it is 1. A sparse b touches only its stored elements."""
    per_element = 1 + _factor_flops(call.arg(2, "alpha", 1))
    addend = call.arg(1, "other")
    if getattr(addend, "is_sparse", False):
        # Two sparse tensors are added by putting their values side by side: a copy.
        return 0 if getattr(call.args[0], "is_sparse", False) else per_element * numel(addend)
    return per_element * numel(call.first)


def _addc(call: OperationCall) -> int:
    """a + value b c (or b / c): 2, and 1 more for value unless it is 1."""
    return (2 + _factor_flops(call.arg(3, "value", 1))) * numel(call.first)


def _pow(call: OperationCall) -> int:
    exponent = call.arg(1, "exponent")
    return (1 if is_tensor(exponent) else _POWERS.get(exponent, 1)) * numel(call.first)


def _gelu(call: OperationCall) -> int:
    """0.5 x (1 + erf(x / √2)): 5; with tanh, 0.5 x (1 + tanh(k (x + c x³))): 9."""
    return (9 if call.kwargs.get("approximate") == "tanh" else 5) * numel(call.first)


def _gelu_backward(call: OperationCall) -> int:
    """Exact: distribution 4 + density 4 + g (Φ + x φ) 3; with tanh: the product rule on the 9 operations above, 18."""
    return (18 if call.kwargs.get("approximate") == "tanh" else 11) * numel(call.first)


def _elu_backward(call: OperationCall) -> int:
    """From the result g b (y + a): 3; from the input g b a exp(b x): 5."""
    return (3 if call.arg(4, "is_result", False) else 5) * numel(call.first)


def _log_sigmoid_backward(call: OperationCall) -> int:
    """g (1 - z / (1 + z)): 4, with z = exp(-|x|): 2 unless the forward's buffer holds it."""
    buffer = call.arg(2, "buffer")
    return (4 if numel(buffer) else 6) * numel(call.first)


def _glu_backward(call: OperationCall) -> int:
    """Per element of the half: s = sigmoid(b): 4; g s: 1; times (1 - s) a: 3."""
    return 8 * numel(call.args[0])


def _native_dropout(call: OperationCall) -> int:
    """x × mask × scale while training; a copy otherwise."""
    return 2 * numel(call.first) if call.arg(2, "train", True) in (True, None) else 0


def _addr(call: OperationCall) -> int:
    """beta a + alpha (u outer v): a product and a sum, and the factors that are not 1."""
    factors = _factor_flops(call.kwargs.get("beta", 1)) + _factor_flops(call.kwargs.get("alpha", 1))
    return (2 + factors) * numel(call.first)


SPECIAL: dict[str, Callable[[OperationCall], int]] = {
    "add": _add,
    "sub": _add,
    "rsub": _add,
    "subtract": _add,
    "addcmul": _addc,
    "addcdiv": _addc,
    "addr": _addr,
    "pow": _pow,
    "float_power": _pow,
    "gelu": _gelu,
    "gelu_backward": _gelu_backward,
    "elu_backward": _elu_backward,
    "log_sigmoid_backward": _log_sigmoid_backward,
    "glu_backward": _glu_backward,
    "native_dropout": _native_dropout,
}


def elementwise_formula(op: str) -> Callable[[OperationCall], int] | None:
    """The formula of an element-wise operation (name without namespace and in-place mark), or None."""
    special = SPECIAL.get(op)
    per_element = PER_ELEMENT.get(op)
    if special is None and per_element is None:
        return None

    def count(call: OperationCall) -> int:
        if not is_float(call.first):
            return 0
        return special(call) if special is not None else (per_element or 0) * numel(call.first)

    return count
