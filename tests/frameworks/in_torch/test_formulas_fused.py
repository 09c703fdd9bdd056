"""Attention, recurrent layers, encoder layers and optimizers: by hand, and fused against unfused paths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from formulas_cases import CountingMode, cost_of, run_counted
from sonda.frameworks.torch.observe.formulas.cost import CallCost, cost

torch.manual_seed(3)
FLASH = "aten._scaled_dot_product_flash_attention_for_cpu"


@contextmanager
def without_onednn() -> Iterator[None]:
    with torch.backends.mkldnn.flags(enabled=False):
        yield


@contextmanager
def without_encoder_fast_path() -> Iterator[None]:
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def heads(count: int, length: int, width: int, grad: bool = False) -> Tensor:
    return torch.randn(2, count, length, width, requires_grad=grad)


def test_attention_by_hand() -> None:
    q, k, v = heads(3, 5, 8), heads(3, 7, 8), heads(3, 7, 8)
    scores = 2 * 3 * 5 * 7
    plain = cost_of(lambda: F.scaled_dot_product_attention(q, k, v), FLASH)
    assert plain.flops == scores * (2 * 8 + 2 * 8 + 1 + 4)
    # q, k, v read; the output and one logsumexp per row written
    assert plain.bytes == 4 * (240 + 336 + 336 + 240 + 30)
    square = heads(3, 5, 8)
    causal = cost_of(lambda: F.scaled_dot_product_attention(square, square, square, is_causal=True), FLASH)
    assert causal.flops == 2 * 3 * 25 * 37
    mask = torch.randn(5, 7)
    assert cost_of(lambda: F.scaled_dot_product_attention(q, k, v, mask), FLASH).flops == scores * 38
    assert cost_of(lambda: F.scaled_dot_product_attention(q, k, v, scale=1.0), FLASH).flops == scores * 36


def test_attention_backward_by_hand() -> None:
    q, k, v = heads(3, 5, 8, True), heads(3, 7, 8, True), heads(3, 7, 8, True)
    _, mode = run_counted(lambda: F.scaled_dot_product_attention(q, k, v).sum().backward())
    (entry,) = mode.costs_of(FLASH + "_backward")
    # five products; scale, - logsumexp, exp, P (dP - D), scale; D = sum of dO x O
    assert entry.flops == 2 * 3 * 5 * 7 * (5 * 2 * 8 + 6) + 2 * (2 * 3 * 5 * 8)


def test_fused_attention_differs_from_the_written_out_one_by_the_place_of_the_scale() -> None:
    q, k, v = heads(3, 5, 8), heads(3, 7, 8), heads(3, 7, 8)
    fused = cost_of(lambda: F.scaled_dot_product_attention(q, k, v), FLASH).flops
    with sdpa_kernel(SDPBackend.MATH):
        _, mode = run_counted(lambda: F.scaled_dot_product_attention(q, k, v))
    scores = 2 * 3 * 5 * 7
    # written out, both q and k are multiplied by the scale's root; fused, the scores by the scale
    assert mode.flops - (q.numel() + k.numel()) == fused - scores


def test_attention_with_shared_key_heads_counts_the_query_heads() -> None:
    q, k = heads(6, 5, 8), heads(2, 7, 8)
    scores = 2 * 6 * 5 * 7
    assert cost_of(lambda: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), FLASH).flops == scores * 37
    with sdpa_kernel(SDPBackend.MATH):
        _, mode = run_counted(lambda: F.scaled_dot_product_attention(q, k, k, enable_gqa=True))
    # written out, the keys are repeated to six heads and scaled, as are the queries
    assert mode.flops == scores * 36 + q.numel() + 2 * 6 * 7 * 8
    described = cost("aten._scaled_dot_product_attention_math", (q, k, k), {"enable_gqa": True}, (q + 0, None))
    assert described.flops == scores * 37


@pytest.mark.parametrize(
    ("name", "rest", "extra"),
    [
        ("_scaled_dot_product_flash_attention", (0.0, True), 0),
        ("_scaled_dot_product_flash_attention", (0.1, True), 2),
        ("_scaled_dot_product_efficient_attention", (None, True), 0),
        ("_scaled_dot_product_efficient_attention", (torch.zeros(5, 7), True, 0.1), 3),
        ("_scaled_dot_product_cudnn_attention", (None, True, 0.1), 2),
        ("_scaled_dot_product_fused_attention_overrideable", (None, 0.1), 2),
    ],
)
def test_attention_of_other_devices(name: str, rest: tuple[Any, ...], extra: int) -> None:
    q, k, v = heads(3, 5, 8), heads(3, 7, 8), heads(3, 7, 4)
    out = (torch.empty(2, 3, 5, 4), torch.empty(2, 3, 5))
    assert cost(f"aten.{name}", (q, k, v, *rest), {}, out).flops == 2 * 3 * 5 * 7 * (2 * 8 + 2 * 4 + 5 + extra)


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("_scaled_dot_product_flash_attention_backward", (None, None, None, None, 5, 7, 0.0, False)),
        ("_scaled_dot_product_efficient_attention_backward", (None, None, None, None, None, 0.0, [True] * 4)),
        ("_scaled_dot_product_cudnn_attention_backward", (None, None, None, None, None, None, None, 5, 7, 0.0, False)),
        ("_flash_attention_backward", (None, None, None, None, 5, 7, 0.0, False)),
    ],
)
def test_attention_backward_of_other_devices(name: str, rest: tuple[Any, ...]) -> None:
    q, k, v = heads(3, 5, 8), heads(3, 7, 8), heads(3, 7, 8)
    if name == "_flash_attention_backward":
        q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    entry = cost(f"aten.{name}", (q, q, k, v, *rest), {}, (q + 0, k + 0, v + 0))
    assert entry.flops == 2 * 3 * 5 * 7 * (5 * 2 * 8 + 6) + 2 * (2 * 3 * 5 * 8)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("directions", [1, 2])
def test_lstm_by_hand_and_against_the_unfused_path(bias: bool, directions: int) -> None:
    steps, batch, inputs, hidden = 5, 2, 4, 8
    layer = nn.LSTM(inputs, hidden, num_layers=2, bias=bias, bidirectional=directions == 2)
    x = torch.randn(steps, batch, inputs)
    _, fused = run_counted(lambda: layer(x))
    gates = 4 * hidden
    per_row = [
        2 * gates * (size + hidden) + gates * (3 if bias else 1) + 18 * hidden for size in (inputs, directions * hidden)
    ]
    assert "aten.mkldnn_rnn_layer" in dict(fused.operations)
    assert fused.flops == steps * batch * directions * sum(per_row)
    with without_onednn():
        _, unfused = run_counted(lambda: layer(x))
    assert "aten.mkldnn_rnn_layer" not in dict(unfused.operations)
    assert unfused.flops == fused.flops


def test_lstm_backward_by_hand() -> None:
    steps, batch, inputs, hidden = 5, 2, 4, 8
    layer, x = nn.LSTM(inputs, hidden), torch.randn(5, 2, 4, requires_grad=True)
    _, mode = run_counted(lambda: layer(x)[0].sum().backward())
    (entry,) = mode.costs_of("aten.mkldnn_rnn_layer_backward")
    gates = 4 * hidden
    # products for input and state and for both weights; the cell 23; state's gradient added 1; biases' sum
    assert entry.flops == steps * batch * (4 * gates * (inputs + hidden) + 24 * hidden + gates)


def test_lstm_cell_backward_count_is_an_algorithm() -> None:
    i, f, g, o, cx, gh, gc = (torch.rand(3, 4, dtype=torch.double) for _ in range(7))
    leaves = [gate.logit().requires_grad_() for gate in (i, f, o)] + [g.atanh().requires_grad_(), cx.requires_grad_()]
    cy = torch.sigmoid(leaves[1]) * leaves[4] + torch.sigmoid(leaves[0]) * torch.tanh(leaves[3])
    hy = torch.sigmoid(leaves[2]) * torch.tanh(cy)
    expected = torch.autograd.grad((hy, cy), leaves, (gh, gc))
    cell, earlier = cy.detach(), cx.detach()

    def written_out() -> tuple[Tensor, ...]:
        t = torch.tanh(cell)
        through_o = gh * t
        into = gh * o * (1 - t * t) + gc
        through_i, through_f, through_g = into * g, into * earlier, into * i
        return (
            through_i * (1 - i) * i,
            through_f * (1 - f) * f,
            through_o * (1 - o) * o,
            through_g * (1 - g * g),
            into * f,
        )

    result, mode = run_counted(written_out)
    torch.testing.assert_close(result, expected)
    assert mode.flops == 23 * 12
    empty = torch.empty(3, 4)
    arguments = (empty, empty, empty, empty, torch.empty(3, 16), False)
    assert cost("aten._thnn_fused_lstm_cell_backward_impl", arguments, {}, (torch.empty(3, 16),)).flops == 23 * 12


def test_gru_cell_counts_are_an_algorithm() -> None:
    layer = nn.GRUCell(5, 4)
    x, h = torch.randn(3, 5), torch.randn(3, 4)
    with torch.no_grad():
        _, mode = run_counted(lambda: layer(x, h))
    products = 2 * 3 * 12 * (5 + 4) + 2 * 3 * 12  # both with bias
    fused = cost("aten._thnn_fused_gru_cell", (torch.empty(3, 12), torch.empty(3, 12), h), {}, (h + 0,))
    assert mode.flops == products + (fused.flops or 0)
    assert fused.flops == 3 * 12 + 13 * 12


def test_cudnn_lstm_by_hand() -> None:
    steps, batch, inputs, hidden = 5, 2, 4, 8
    x, h = torch.empty(steps, batch, inputs), torch.empty(4, batch, hidden)
    weights = [torch.empty(32, 4), torch.empty(32, 8), torch.empty(32), torch.empty(32)]
    args = (x, weights, 4, None, h, h, 2, hidden, 0, 2, False, 0.5, True, True, [], None)
    out = (torch.empty(steps, batch, 16), h + 0, h + 0)
    entry = cost("aten._cudnn_rnn", args, {}, out)
    layers = sum(2 * 32 * (size + 8) + 3 * 32 + 18 * 8 for size in (4, 16))
    assert entry.flops == 2 * 10 * layers + 2 * 10 * 16


def _encoder() -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True).eval()


def test_encoder_layer_fast_path_by_hand_and_against_the_slow_path() -> None:
    layer, x = _encoder(), torch.randn(3, 5, 8)
    with torch.no_grad():
        fast = cost_of(lambda: layer(x), "aten._transformer_encoder_layer_fwd")
        with without_encoder_fast_path():
            _, slow = run_counted(lambda: layer(x))
    rows, width, inner, scores = 15, 8, 16, 3 * 25
    attention = 4 * rows * (2 * 64 + 8) + rows * width + 4 * scores * width + 2 * 4 * scores
    norms = 2 * (8 * rows * width + 5 * rows)
    feed_forward = rows * (2 * 2 * width * inner + inner + width + 5 * inner)
    assert fast.flops == attention + norms + feed_forward + 2 * rows * width
    # The fast path scales the queries, the slow one the scores.
    assert slow.flops - 2 * scores == (fast.flops or 0) - rows * width


def test_encoder_layer_on_nested_sequences_counts_their_real_lengths() -> None:
    model = nn.TransformerEncoder(_encoder(), 1)
    padding = torch.tensor([[0, 0, 0, 0, 1], [0, 0, 0, 1, 1]]).bool()
    with torch.no_grad(), pytest.warns(UserWarning, match="nested"):
        entry = cost_of(
            lambda: model(torch.randn(2, 5, 8), src_key_padding_mask=padding), "aten._transformer_encoder_layer_fwd"
        )
    rows, scores = 4 + 3, 16 + 9
    attention = 4 * rows * 136 + rows * 8 + 4 * scores * 8 + 8 * scores
    assert entry.flops == attention + 2 * (64 * rows + 5 * rows) + rows * (512 + 16 + 8 + 80) + 16 * rows


def test_multi_head_attention_fast_path_by_hand() -> None:
    layer, x = nn.MultiheadAttention(8, 2, batch_first=True).eval(), torch.randn(3, 5, 8)
    with torch.no_grad():
        entry = cost_of(lambda: layer(x, x, x), "aten._native_multi_head_attention")
    rows, scores = 15, 75
    # as in the encoder layer, and the weights averaged over 2 heads: 2 additions and a division per score
    assert entry.flops == 4 * rows * 136 + rows * 8 + 4 * scores * 8 + 8 * scores + 3 * scores


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p, **k: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, **k),
    "nesterov": lambda p, **k: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, **k),
    "adam": lambda p, **k: torch.optim.Adam(p, lr=0.1, **k),
    "adam-decay": lambda p, **k: torch.optim.Adam(p, lr=0.1, weight_decay=0.1, **k),
    "adamw": lambda p, **k: torch.optim.AdamW(p, lr=0.1, weight_decay=0.1, **k),
    "adagrad": lambda p, **k: torch.optim.Adagrad(p, lr=0.1, **k),
}
PER_ELEMENT = {"sgd": 6, "nesterov": 6, "adam": 13, "adam-decay": 15, "adamw": 14, "adagrad": 7}


@pytest.mark.parametrize("kind", list(OPTIMIZERS))
@pytest.mark.parametrize("path", ["foreach", "fused", "single"])
def test_optimizers_count_the_same_on_every_path(kind: str, path: str) -> None:
    parameters = [nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.randn(7))]
    options = {"foreach": path == "foreach"} if path != "fused" else {"fused": True}
    optimizer = OPTIMIZERS[kind](parameters, **options)
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    _, mode = run_counted(optimizer.step)
    steps = 0 if kind in ("sgd", "nesterov") else 2  # the step number of each parameter goes up by one
    assert mode.flops == PER_ELEMENT[kind] * 19 + steps


def test_fused_adam_bytes() -> None:
    parameter = nn.Parameter(torch.randn(10))
    parameter.grad = torch.randn(10)
    optimizer = torch.optim.Adam([parameter], fused=True)
    optimizer.step()
    entry = cost_of(optimizer.step, "aten._fused_adam_")
    # parameter, gradient, two states and the step read; parameter and states written
    assert entry.bytes == 4 * (40 + 1) + 4 * 30


class Attention(nn.Module):
    """A block as in a GPT: causal attention and a feed-forward part with residual sums, on token embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, 8), nn.Embedding(6, 8)
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.feed = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8), nn.Dropout(0.1))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        q, k, v = (part.view(*ids.shape, 2, 4).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, dim=-1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(*ids.shape, 8))
        return self.feed(x) + x


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layer, self.head = kind(4, 8, 2, batch_first=True, dropout=0.1), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)[0])


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.GroupNorm(2, 8),
        nn.SiLU(),
        nn.AvgPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(8, 5),
    )


def encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False)


IDS = torch.randint(0, 20, (3, 6))
NETWORKS: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 5)), torch.randn(4, 6)),
    "cnn": (convolutional, torch.randn(2, 3, 12, 12)),
    "lstm": (lambda: Recurrent(nn.LSTM), torch.randn(2, 5, 4)),
    "gru": (lambda: Recurrent(nn.GRU), torch.randn(2, 5, 4)),
    "encoder": (encoder, torch.randn(2, 5, 8)),
    "bag": (lambda: nn.EmbeddingBag(20, 5, mode="sum"), IDS),
    "attention": (Attention, IDS),
}


@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize("network", list(NETWORKS))
def test_every_operation_of_a_training_step_is_known(network: str, onednn: bool) -> None:
    make, batch = NETWORKS[network]
    model = make()
    mode = CountingMode()
    with torch.backends.mkldnn.flags(enabled=onednn), mode:
        for kind in ("sgd", "adam", "adamw"):
            for foreach in (True, False):
                optimizer = OPTIMIZERS[kind](model.parameters(), foreach=foreach)
                for _ in range(2):
                    scores = model(batch).flatten(0, -2)
                    loss = F.cross_entropy(scores, torch.zeros(scores.shape[0], dtype=torch.long))
                    loss.backward()
                    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
    assert mode.unknown == []
    assert mode.flops > 0
    assert ("aten.mkldnn_rnn_layer" in dict(mode.operations)) == (network == "lstm" and onednn)


@pytest.mark.parametrize("network", list(NETWORKS))
def test_every_operation_of_inference_is_known(network: str) -> None:
    make, batch = NETWORKS[network]
    model = make().eval()
    for without_gradients in (torch.no_grad, torch.inference_mode):
        with without_gradients():
            _, mode = run_counted(lambda: model(batch))
        assert mode.unknown == []
        assert ("aten._transformer_encoder_layer_fwd" in dict(mode.operations)) == (network == "encoder")


def test_a_profilers_marks_cost_nothing() -> None:
    def work() -> None:
        with torch.profiler.record_function("mark"):
            pass

    _, mode = run_counted(work)
    assert mode.operations
    assert all(entry == CallCost(0, 0, True) for _, entry in mode.operations)
