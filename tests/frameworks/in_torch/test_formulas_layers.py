"""Fused layers against the same arithmetic written out in single operations: equal results, equal FLOPs.

Writing a layer out is the hand count: the single operations count one per element, and the results must agree with the
fused operation's, so what is counted is an algorithm that computes the layer.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from formulas_cases import cost_of, run_counted
from formulas_layers_cases import same_work
from sonda.frameworks.torch.observe.formulas.cost import CallCost

torch.manual_seed(7)
EPS = 1e-5
X = torch.randn(3, 4) * 0.4 + 0.5
T = torch.rand(3, 4)
G = torch.randn(3, 4)


def backward(function: Callable[..., Tensor], *inputs: Tensor, grad: Tensor) -> Callable[[], tuple[Tensor, ...]]:
    """The backward of `function` alone: the forward runs here, uncounted."""
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    result = function(*leaves)
    return lambda: torch.autograd.grad(result, leaves, grad)


CUBED = torch.tensor(3.0)  # as a tensor: one power, not two products

UNARY: list[tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = [
    (torch.sigmoid, lambda x: torch.reciprocal(torch.exp(-x) + 1)),
    (torch.rsqrt, lambda x: torch.reciprocal(torch.sqrt(x))),
    (F.silu, lambda x: x / (torch.exp(-x) + 1)),
    (F.gelu, lambda x: (torch.erf(x * 0.5**0.5) + 1) * x * 0.5),
    (
        lambda x: F.gelu(x, approximate="tanh"),
        lambda x: (torch.tanh((x * x * x * 0.044715 + x) * (2 / torch.pi) ** 0.5) + 1) * x * 0.5,
    ),
    (F.softplus, lambda x: torch.log1p(torch.exp(x * 1.0)) / 1.0),
    (F.mish, lambda x: x * torch.tanh(torch.log1p(torch.exp(x)))),
    (F.logsigmoid, lambda x: x.clamp(max=0) - torch.log1p(torch.exp(-x.abs()))),
    (F.hardswish, lambda x: x * (x + 3).clamp(0, 6) / 6),
    (F.hardsigmoid, lambda x: (x + 3).clamp(0, 6) / 6),
    (F.elu, lambda x: torch.where(x > 0, x, torch.expm1(x * 1.0) * 1.0)),
    (F.leaky_relu, lambda x: torch.where(x > 0, x, x * 0.01)),
    (F.glu, lambda x: x[:, :2] * torch.reciprocal(torch.exp(-x[:, 2:]) + 1)),
    (lambda x: x**3, lambda x: x * x * x),
    (lambda x: x**-2, lambda x: torch.reciprocal(x * x)),
    (lambda x: x**2, lambda x: x * x),
    (lambda x: x**0.5, torch.sqrt),
    (lambda x: x % 0.3, lambda x: x - torch.floor(x / 0.3) * 0.3),
    (lambda x: torch.softmax(x, 1), lambda x: _softmax(x)),
    (lambda x: torch.log_softmax(x, 1), lambda x: _log_softmax(x)),
    (lambda x: x.mean(1), lambda x: x.sum(1) / 4),
    (lambda x: x.var(1, unbiased=False), lambda x: _variance(x)),
    (lambda x: x.std(1, unbiased=False), lambda x: torch.sqrt(_variance(x))),
    (lambda x: x.norm(), lambda x: torch.sqrt((x * x).sum())),
    (lambda x: x.norm(p=1, dim=1), lambda x: x.abs().sum(1)),
    (lambda x: x.norm(p=3, dim=1), lambda x: torch.pow(torch.pow(x.abs(), CUBED).sum(1), 1 / 3)),
    (lambda x: x.logsumexp(1), lambda x: torch.log(torch.exp(x - x.amax(1, True)).sum(1)) + x.amax(1)),
]


def _softmax(x: Tensor) -> Tensor:
    powers = torch.exp(x - x.amax(1, keepdim=True))
    return powers / powers.sum(1, keepdim=True)


def _log_softmax(x: Tensor) -> Tensor:
    shifted = x - x.amax(1, keepdim=True)
    return shifted - torch.log(torch.exp(shifted).sum(1, keepdim=True))


def _variance(x: Tensor) -> Tensor:
    deviation = x - x.sum(1, keepdim=True) / 4
    return (deviation * deviation).sum(1) / 4


@pytest.mark.parametrize(("fused", "written_out"), UNARY)
def test_functions_of_one_tensor(fused: Callable[..., Tensor], written_out: Callable[..., Tensor]) -> None:
    positive = X.abs() + 0.1
    same_work(lambda: fused(positive), lambda: written_out(positive))


@pytest.mark.parametrize(
    ("function", "gradient"),
    [
        (torch.tanh, lambda x, y, g: g * (1 - y * y)),
        (torch.sigmoid, lambda x, y, g: g * (1 - y) * y),
        (F.silu, lambda x, y, g: _silu_gradient(x, g)),
        (F.gelu, lambda x, y, g: _gelu_gradient(x, g)),
        (lambda x: F.gelu(x, approximate="tanh"), lambda x, y, g: _gelu_tanh_gradient(x, g)),
        (F.softplus, lambda x, y, g: (lambda z: g * z / (z + 1))(torch.exp(x * 1.0))),
        (F.hardswish, lambda x, y, g: g * (x / 3 + 0.5)),
        (lambda x: torch.softmax(x, 1), lambda x, y, g: (g - (g * y).sum(1, keepdim=True)) * y),
        (lambda x: torch.log_softmax(x, 1), lambda x, y, g: g - torch.exp(y) * g.sum(1, keepdim=True)),
    ],
)
def test_gradients_of_functions(function: Callable[..., Tensor], gradient: Callable[..., Tensor]) -> None:
    fused = backward(function, X, grad=G)
    result = function(X)
    same_work(lambda: fused()[0], lambda: gradient(X, result, G))


def _silu_gradient(x: Tensor, g: Tensor) -> Tensor:
    s = torch.reciprocal(torch.exp(-x) + 1)
    return g * s * (x * (1 - s) + 1)


def _gelu_gradient(x: Tensor, g: Tensor) -> Tensor:
    distribution = (torch.erf(x * 0.5**0.5) + 1) * 0.5
    density = torch.exp(x * x * -0.5) * (2 * torch.pi) ** -0.5
    return g * (distribution + x * density)


def _gelu_tanh_gradient(x: Tensor, g: Tensor) -> Tensor:
    k, c = (2 / torch.pi) ** 0.5, 0.044715
    square = x * x
    t = torch.tanh((square * x * c + x) * k)
    left, right = x * 0.5, t + 1
    slope = (square * (3 * c) + 1) * k
    return g * (right * 0.5 + left * (1 - t * t) * slope)


def test_element_wise_by_hand() -> None:
    n = X.numel()
    for work, flops in [
        (lambda: X + T, n),
        (lambda: torch.add(X, T, alpha=2), 2 * n),
        (lambda: X * 3, n),
        (lambda: X / T, n),
        (lambda: torch.addcmul(X, T, G), 2 * n),
        (lambda: torch.addcmul(X, T, G, value=0.5), 3 * n),
        (lambda: torch.addcdiv(X, T, G, value=0.5), 3 * n),
        (lambda: torch.lerp(X, T, 0.3), 3 * n),
        (lambda: X + torch.randn(2, 1, 4), 24),
        (lambda: torch._foreach_add([X, X[0]], [T, T[0]], alpha=2), 2 * (n + 4)),
        (lambda: torch._foreach_mul([X, X[0]], [2.0, 1.0]), n + 4),
        (lambda: torch._foreach_norm([X, X[0]]), 2 * (n + 4) + 2),
    ]:
        assert run_counted(work)[1].flops == flops
    for free in (torch.relu, torch.abs, torch.clone, torch.tril, lambda x: x.clamp(0, 1), lambda x: x > 0, torch.sort):
        assert run_counted(lambda f=free: f(X))[1].flops == 0


def test_sums_and_cumulative_sums() -> None:
    assert cost_of(lambda: X.sum(0), "aten.sum") == CallCost(12, 4 * (12 + 4), True)
    assert cost_of(lambda: X.cumsum(1), "aten.cumsum") == CallCost(12, 4 * 24, True)


def test_dropout_is_a_mask_and_a_scale() -> None:
    drop = cost_of(lambda: torch.native_dropout(X, 0.5, True), "aten.native_dropout")
    assert drop == CallCost(24, 12 * 4 + 12 * 4 + 12, True)
    _, mode = run_counted(lambda: F.dropout(X, 0.5, True))
    assert mode.flops == 24


def _batch_norm(x: Tensor, w: Tensor, b: Tensor, running: tuple[Tensor, Tensor] | None = None) -> Tensor:
    m = x.numel() // x.shape[1]
    mean = x.sum((0, 2)) / m
    deviation = x - mean[:, None]
    squares = (deviation * deviation).sum((0, 2))
    invstd = torch.reciprocal(torch.sqrt(squares / m + EPS))
    if running is not None:
        running[0] * 0.9 + mean * 0.1
        running[1] * 0.9 + squares / (m - 1) * 0.1
    scale = invstd * w
    return x * scale[:, None] + (b - mean * scale)[:, None]


IMAGE = torch.randn(5, 4, 6)
WEIGHT, BIAS = torch.randn(4), torch.randn(4)


def test_batch_norm_training() -> None:
    same_work(
        lambda: F.batch_norm(IMAGE, None, None, WEIGHT, BIAS, True, 0.1, EPS), lambda: _batch_norm(IMAGE, WEIGHT, BIAS)
    )
    running = torch.zeros(4), torch.ones(4)
    same_work(
        lambda: F.batch_norm(IMAGE, running[0].clone(), running[1].clone(), WEIGHT, BIAS, True, 0.1, EPS),
        lambda: _batch_norm(IMAGE, WEIGHT, BIAS, running),
    )


def test_batch_norm_inference() -> None:
    mean, variance = torch.randn(4), torch.rand(4) + 0.5

    def written_out() -> Tensor:
        scale = torch.reciprocal(torch.sqrt(variance + EPS)) * WEIGHT
        return IMAGE * scale[:, None] + (BIAS - mean * scale)[:, None]

    same_work(lambda: F.batch_norm(IMAGE, mean, variance, WEIGHT, BIAS, False, 0.1, EPS), written_out)


def test_batch_norm_bytes_include_the_running_statistics() -> None:
    layer = nn.BatchNorm1d(4)
    entry = cost_of(lambda: layer(IMAGE), "aten.native_batch_norm")
    # image read and written; weight, bias read; running statistics read and written; mean and invstd written
    assert entry.bytes == 4 * (120 + 120 + 4 + 4 + 2 * 8 + 8)


def test_batch_norm_backward() -> None:
    grad, m = torch.randn_like(IMAGE), 30
    fused = backward(lambda x, w, b: F.batch_norm(x, None, None, w, b, True, 0.1, EPS), IMAGE, WEIGHT, BIAS, grad=grad)
    mean = IMAGE.mean((0, 2))
    invstd = (IMAGE.var((0, 2), unbiased=False) + EPS).rsqrt()

    def written_out() -> tuple[Tensor, ...]:
        total = grad.sum((0, 2))
        dot = (grad * (IMAGE - mean[:, None])).sum((0, 2))
        k = dot * invstd * invstd / m
        spread = (IMAGE - mean[:, None]) * k[:, None]
        into = (grad - spread - (total / m)[:, None]) * (invstd * WEIGHT)[:, None]
        return into, dot * invstd, total

    same_work(fused, written_out)


def test_instance_norm_is_batch_norm_over_images() -> None:
    _, mode = run_counted(lambda: F.instance_norm(IMAGE))
    n, rows = 120, 20
    assert mode.flops == 6 * n + 7 * rows


ROWS = torch.randn(5, 3, 4)


def test_layer_norm() -> None:
    def written_out() -> Tensor:
        mean = ROWS.sum(-1, keepdim=True) / 4
        deviation = ROWS - mean
        rstd = torch.reciprocal(torch.sqrt((deviation * deviation).sum(-1, keepdim=True) / 4 + EPS))
        return (ROWS - mean) * rstd * WEIGHT + BIAS

    same_work(lambda: F.layer_norm(ROWS, (4,), WEIGHT, BIAS, EPS), written_out)
    assert run_counted(lambda: F.layer_norm(ROWS, (4,)))[1].flops == 6 * 60 + 5 * 15


def test_layer_norm_backward() -> None:
    grad = torch.randn_like(ROWS)
    fused = backward(lambda x, w, b: F.layer_norm(x, (4,), w, b, EPS), ROWS, WEIGHT, BIAS, grad=grad)
    mean = ROWS.mean(-1, keepdim=True)
    rstd = (ROWS.var(-1, unbiased=False, keepdim=True) + EPS).rsqrt()

    def written_out() -> tuple[Tensor, ...]:
        normal = (ROWS - mean) * rstd
        h = grad * WEIGHT
        along, total = (h * normal).sum(-1, keepdim=True) / 4, h.sum(-1, keepdim=True) / 4
        into = rstd * (h - total - normal * along)
        return into, (grad * normal).sum((0, 1)), grad.sum((0, 1))

    same_work(fused, written_out)


def test_group_norm() -> None:
    def written_out() -> Tensor:
        x = IMAGE.view(5, 2, 12)
        mean = x.sum(-1, keepdim=True) / 12
        deviation = x - mean
        rstd = torch.reciprocal(torch.sqrt((deviation * deviation).sum(-1, keepdim=True) / 12 + EPS))
        scale = (rstd * WEIGHT.view(2, 2)).view(5, 4, 1)
        offset = BIAS[:, None] - mean.expand(5, 2, 2).reshape(5, 4, 1) * scale
        return IMAGE * scale + offset

    same_work(lambda: F.group_norm(IMAGE, 2, WEIGHT, BIAS, EPS), written_out)


def test_group_norm_backward() -> None:
    grad = torch.randn_like(IMAGE)
    fused = backward(lambda x, w, b: F.group_norm(x, 2, w, b, EPS), IMAGE, WEIGHT, BIAS, grad=grad)
    groups = IMAGE.view(5, 2, 12)
    mean, rstd = groups.mean(-1), (groups.var(-1, unbiased=False) + EPS).rsqrt()
    share = 1 / 12

    def per_channel(value: Tensor) -> Tensor:
        return value[:, :, None].expand(5, 2, 2).reshape(5, 4)

    def written_out() -> tuple[Tensor, ...]:
        along, total = (grad * IMAGE).sum(-1), grad.sum(-1)
        group_along = (along * WEIGHT).view(5, 2, 2).sum(-1)
        group_total = (total * WEIGHT).view(5, 2, 2).sum(-1)
        c1 = per_channel(rstd) * WEIGHT
        c2 = (group_total * mean - group_along) * (rstd * rstd * rstd) * share
        c3 = -c2 * mean - group_total * rstd * share
        into = c1[:, :, None] * grad + per_channel(c2)[:, :, None] * IMAGE + per_channel(c3)[:, :, None]
        into_weight = ((along - total * per_channel(mean)) * per_channel(rstd)).sum(0)
        return into, into_weight, total.sum(0)

    same_work(fused, written_out)


@pytest.mark.parametrize(
    ("fused", "written_out"),
    [
        (F.mse_loss, lambda x, t: (lambda d: (d * d).sum() / 12)(x - t)),
        (lambda x, t: F.mse_loss(x, t, reduction="none"), lambda x, t: (lambda d: d * d)(x - t)),
        (lambda x, t: F.smooth_l1_loss(x, t, beta=9.0), lambda x, t: (lambda d: (d * d * 0.5 / 9).sum() / 12)(x - t)),
        (lambda x, t: F.huber_loss(x, t, delta=9.0), lambda x, t: (lambda d: (d * d * 0.5).sum() / 12)(x - t)),
        (
            F.binary_cross_entropy,
            lambda x, t: ((t - 1) * torch.log1p(-x) - t * torch.log(x)).sum() / 12,
        ),
        (
            F.binary_cross_entropy_with_logits,
            lambda x, t: ((1 - t) * x - (x.clamp(max=0) - torch.log1p(torch.exp(-x.abs())))).sum() / 12,
        ),
    ],
)
def test_losses(fused: Callable[..., Tensor], written_out: Callable[..., Tensor]) -> None:
    guess = T.roll(1, 0) * 0.8 + 0.1
    same_work(lambda: fused(guess, T), lambda: written_out(guess, T))


def test_loss_gradients_by_hand() -> None:
    n = 12
    for loss, name, flops in [
        (F.mse_loss, "aten.mse_loss_backward", 3 * n),
        (F.binary_cross_entropy, "aten.binary_cross_entropy_backward", 6 * n),
        (lambda x, t: F.huber_loss(x, t, delta=9.0), "aten.huber_loss_backward", 3 * n),
    ]:
        guess = (T * 0.8 + 0.1).requires_grad_()
        assert cost_of(lambda f=loss, g=guess: f(g, T).backward(), name).flops == flops


def test_cross_entropy_by_hand() -> None:
    scores, targets = torch.randn(6, 10, requires_grad=True), torch.randint(0, 10, (6,))
    _, mode = run_counted(lambda: F.cross_entropy(scores, targets).backward())
    # log-softmax 4n + a logarithm per row, its gradient 4n; the loss: 6 negated sums and a division, and back
    assert mode.flops == (4 * 60 + 6) + 4 * 60 + 7 + 7
    (forward,), (back,) = mode.costs_of("aten.nll_loss_forward"), mode.costs_of("aten.nll_loss_backward")
    assert forward.bytes == 6 * 4 + 6 * 8 + 2 * 4
    assert back.bytes == 4 + 6 * 8 + 4 + 60 * 4


def test_pooling_by_hand() -> None:
    image = torch.randn(2, 3, 8, 8, requires_grad=True)
    _, mode = run_counted(lambda: F.avg_pool2d(image, 2).sum().backward())
    assert mode.costs_of("aten.avg_pool2d") == [CallCost(2 * 3 * 16 * 5, 4 * (384 + 96), True)]
    assert mode.costs_of("aten.avg_pool2d_backward") == [CallCost(96 * 5, 4 * (1 + 384), True)]
    _, mode = run_counted(lambda: F.max_pool2d(image, 2).sum().backward())
    assert mode.costs_of("aten.max_pool2d_with_indices") == [CallCost(0, 4 * (384 + 96) + 8 * 96, True)]
    assert mode.costs_of("aten.max_pool2d_with_indices_backward") == [CallCost(96, 4 * (1 + 384) + 8 * 96, True)]


def test_adaptive_pooling_counts_what_its_windows_hold() -> None:
    image = torch.randn(2, 3, 5, 7, requires_grad=True)
    _, mode = run_counted(lambda: F.adaptive_avg_pool2d(image, (2, 3)).sum().backward())
    # 5 in 2: rows 0-2 and 2-4; 7 in 3: columns 0-2, 2-4 and 4-6: windows of 3 x 3, six of them
    assert mode.costs_of("aten._adaptive_avg_pool2d")[0].flops == 6 * (6 * 9) + 36
    assert mode.costs_of("aten._adaptive_avg_pool2d_backward")[0].flops == 6 * (6 * 9) + 36


def test_interpolation_by_hand() -> None:
    image = torch.randn(1, 2, 4, 4, requires_grad=True)
    _, mode = run_counted(lambda: F.interpolate(image, scale_factor=2, mode="bilinear").sum().backward())
    assert mode.costs_of("aten.upsample_bilinear2d")[0].flops == 2 * 64 * 9
    assert mode.costs_of("aten.upsample_bilinear2d_backward")[0].flops == 2 * 64 * 10
    _, mode = run_counted(lambda: F.interpolate(image, scale_factor=2).sum().backward())
    assert mode.costs_of("aten.upsample_nearest2d")[0].flops == 0
    assert mode.costs_of("aten.upsample_nearest2d_backward")[0].flops == 2 * 64


def test_embedding_by_hand() -> None:
    layer, rows = nn.Embedding(20, 4), torch.randint(0, 20, (3, 5))
    _, mode = run_counted(lambda: layer(rows).sum().backward())
    assert mode.costs_of("aten.embedding") == [CallCost(0, 15 * 8 + 2 * 60 * 4, True)]
    assert mode.costs_of("aten.embedding_dense_backward") == [CallCost(60, 4 + 15 * 8 + 80 * 4, True)]


@pytest.mark.parametrize(
    ("mode", "weighted", "sparse", "forward", "back"),
    [
        ("sum", False, False, 60, 60),
        ("mean", False, False, 60 + 12, 120),
        ("max", False, False, 0, 12),
        ("sum", True, False, 120, 120),
        ("sum", False, True, 60, 0),
    ],
)
def test_embedding_bag_by_hand(mode: str, weighted: bool, sparse: bool, forward: int, back: int) -> None:
    # 3 bags of 5 lookups of 4 columns: 60 elements looked up, 12 results
    layer, rows = nn.EmbeddingBag(20, 4, mode=mode, sparse=sparse), torch.randint(0, 20, (3, 5))
    weights = torch.rand(3, 5) if weighted else None
    _, seen = run_counted(lambda: layer(rows, per_sample_weights=weights).sum().backward())
    (entry,) = seen.costs_of("aten._embedding_bag")
    assert entry.flops == forward
    assert seen.costs_of("aten._embedding_bag_backward")[0].flops == back
    if mode == "sum" and not weighted:
        # 15 indices, 3 offsets, 60 elements read; 12 written, and the bags' own records (15 + 3 + 3 indices)
        outputs = sum(t.numel() * t.element_size() for t in torch._embedding_bag(layer.weight, rows.view(-1), OFFSETS))
        assert entry.bytes == 15 * 8 + 3 * 8 + 60 * 4 + outputs


OFFSETS = torch.tensor([0, 5, 10])


def test_sparse_gradients_touch_only_their_rows() -> None:
    layer, rows = nn.EmbeddingBag(1000, 4, mode="sum", sparse=True), torch.tensor([[1, 5, 7]])
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(rows).sum().backward()
    _, mode = run_counted(optimizer.step)
    # p - lr g on 3 rows of 4: indices (3 x 8) and values read, rows read and written
    assert mode.costs_of("aten.add_") == [CallCost(2 * 12, 3 * 8 + 12 * 4 + 2 * 12 * 4, True)]
