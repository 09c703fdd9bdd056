"""More small networks, as `architectures.py` has them: of kinds that are written today. Arguments as there."""

import sys
import warnings

import torch
from architectures import ARCHITECTURES, architecture, labels, mean_square, train
from torch import nn
from torch.func import functional_call, grad, jvp, stack_module_state, vmap
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

ARCHITECTURES.clear()
warnings.filterwarnings("ignore", "Complex modules are a new feature")


def rotate(rows):
    """Rotary positions, for rows of shape (batch, heads, length, width)."""
    length, width = rows.shape[-2:]
    speed = 100.0 ** (-torch.arange(0, width, 2) / width)
    angle = torch.outer(torch.arange(length), speed)
    turned = torch.view_as_complex(rows.unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angle), angle)
    return torch.view_as_real(turned).flatten(-2)


class Rotary(nn.Module):
    """Attention of grouped queries with rotary positions, and a gated layer."""

    def __init__(self, gate):
        super().__init__()
        self.query, self.key, self.value = nn.Linear(16, 16), nn.Linear(16, 8), nn.Linear(16, 8)
        self.first, self.second = nn.RMSNorm(16), nn.RMSNorm(16)
        self.up, self.down, self.gate = nn.Linear(16, 48), nn.Linear(24, 16), gate

    def forward(self, rows):
        seen = self.first(rows)
        query = rotate(self.query(seen).unflatten(-1, (4, 4)).transpose(1, 2))
        key, value = (part(seen).unflatten(-1, (2, 4)).transpose(1, 2) for part in (self.key, self.value))
        out = functional.scaled_dot_product_attention(query, rotate(key), value, is_causal=True, enable_gqa=True)
        rows = rows + out.transpose(1, 2).flatten(-2)
        left, right = self.up(self.second(rows)).chunk(2, -1)
        return rows + self.down(self.gate(left) * right)


@architecture(torch.optim.AdamW, lr=0.01, foreach=True)
def rotary_attention():
    gates = (functional.silu, functional.gelu, functional.relu, torch.sigmoid)  # SwiGLU, GEGLU, ReGLU, GLU
    model = nn.Sequential(*(Rotary(gate) for gate in gates))
    return model, mean_square(model, 2, 6, 16)


@architecture(torch.optim.SGD, lr=0.05)
def averaged_weights():
    model = nn.Sequential(nn.Conv2d(2, 6, 3), nn.GroupNorm(3, 6), nn.SiLU(), nn.Flatten(), nn.Linear(96, 3))
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)

    def loss(step):
        average.update_parameters(model)
        image = torch.randn(4, 2, 6, 6)
        with torch.no_grad():
            wanted = average(image).softmax(-1)
        return functional.cross_entropy(model(image), wanted)

    return nn.ModuleList([model, average]), loss


@architecture(torch.optim.SGD, lr=0.05)
def parametrized():
    part = nn.utils.parametrizations
    model = nn.Sequential(part.weight_norm(nn.Linear(8, 12)), nn.Mish(), part.spectral_norm(nn.Linear(12, 12)),
                          nn.Mish(), part.orthogonal(nn.Linear(12, 4)))  # fmt: skip
    return model, mean_square(model, 8, 8)


@architecture(torch.optim.Adam, lr=0.01)
def gradients_of_every_sample():
    model = nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Linear(8, 3))

    def of_one(weights, row, label):
        return functional.cross_entropy(functional_call(model, weights, (row,)), label)

    def loss(step):
        weights = dict(model.named_parameters())
        rows, wanted = torch.randn(5, 6), torch.randint(3, (5,))
        found = vmap(grad(of_one), in_dims=(None, 0, 0))(weights, rows, wanted)
        lengths = sum(one.flatten(1).square().sum(1) for one in found.values())
        return functional.cross_entropy(model(rows), wanted) + 0.01 * lengths.sqrt().mean()

    return model, loss


@architecture(torch.optim.SGD, lr=0.05)
def ensemble():
    models = nn.ModuleList(nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 2)) for _ in range(3))

    def loss(step):
        weights, buffers = stack_module_state(list(models))
        rows = torch.randn(5, 6)
        out = vmap(lambda *state: functional_call(models[0], state, (rows,)))(weights, buffers)
        stacked = torch.autograd.grad(out.square().mean(), list(weights.values()))
        own = [dict(model.named_parameters()) for model in models]
        # The stacked weights are copies: the gradients are handed back to those that they were made of.
        return sum(
            (own[at][name] * gradient[at]).sum()
            for name, gradient in zip(weights, stacked, strict=True)
            for at in range(3)
        )

    return models, loss


@architecture(torch.optim.Adam, lr=0.01)
def slopes_forward():
    """A network whose derivative along its input is taught too, by forward mode."""
    model = nn.Sequential(nn.Linear(2, 12), nn.LayerNorm(12), nn.Tanh(), nn.Linear(12, 12), nn.SiLU(), nn.Linear(12, 1))

    def loss(step):
        places, direction = torch.randn(6, 2), torch.randn(6, 2)
        height, slope = jvp(model, (places,), (direction,))
        return functional.mse_loss(height[:, 0], places.prod(-1)) + slope.square().mean()

    return model, loss


class Clipped(torch.autograd.Function):
    """Rounds, and hands gradients on where they are not too far out."""

    @staticmethod
    def forward(context, rows, limit):
        context.save_for_backward(rows)
        context.limit = limit
        return rows.clamp(-limit, limit).mul(8).round().div(8)

    @staticmethod
    def backward(context, gradient):
        (rows,) = context.saved_tensors
        return functional.silu(gradient) * (rows.abs() <= context.limit), None


@architecture(torch.optim.SGD, lr=0.05)
def own_function():
    class Quantized(nn.Linear):
        def forward(self, rows):
            return functional.linear(rows, Clipped.apply(self.weight, 1.0), self.bias)

    model = nn.Sequential(Quantized(6, 8), nn.Mish(), Quantized(8, 4))
    return model, mean_square(model, 8, 6)


@architecture(torch.optim.SGD, lr=0.05)
def complex_numbers():
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).to(torch.complex64)
    return model, lambda step: torch.view_as_real(model(torch.randn(5, 4, dtype=torch.complex64)).conj() * 1j).norm()


@architecture(torch.optim.SparseAdam, lr=0.01)
def sparse_embeddings():
    model = nn.ModuleList([nn.EmbeddingBag(30, 6, mode="sum", sparse=True), nn.Embedding(30, 6, sparse=True)])

    def loss(step):
        tokens = torch.randint(30, (4, 5))
        scores = (model[0](tokens)[:, None] * model[1](tokens)).sum(-1)
        return functional.binary_cross_entropy_with_logits(scores, torch.rand(4, 5))

    return model, loss


@architecture(torch.optim.Adam, lr=0.01)
def nested_rows():
    model = nn.Sequential(nn.Linear(6, 12), nn.SiLU(), nn.Linear(12, 6), nn.LayerNorm(6))

    def loss(step):
        rows = torch.nested.nested_tensor([torch.randn(2 + step % 3, 6), torch.randn(4, 6)], layout=torch.jagged)
        return torch.nested.to_padded_tensor(model(rows), 0.0).square().mean()

    return model, loss


@architecture(torch.optim.AdamW, lr=0.01)
def autocast_transformer():
    layer = nn.TransformerEncoderLayer(12, 3, 24, 0.1, functional.gelu, batch_first=True, norm_first=True)
    model = nn.Sequential(nn.Linear(5, 12), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))

    def loss(step):
        with torch.autocast("cpu", torch.bfloat16):
            return model(torch.randn(2, 6, 5)).float().square().mean()

    return model, loss


@architecture(torch.optim.LBFGS, lr=0.3, max_iter=4, line_search_fn="strong_wolfe")
def channels_last_in_double():
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.GroupNorm(2, 6), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(6, 4)).double()  # fmt: skip
    image, wanted = torch.randn(4, 3, 7, 7, dtype=torch.float64), torch.randint(4, (4,))
    image = image.to(memory_format=torch.channels_last)
    return model, lambda step: functional.cross_entropy(model(image), wanted)


@architecture(torch.optim.SGD, lr=0.05)
def dynamic_routing():
    """Rows take other ways by what they are: the graph of operations changes from step to step."""
    ways = nn.ModuleList([nn.Linear(6, 6), nn.Bilinear(6, 6, 6), nn.Sequential(nn.Linear(6, 6), nn.SiLU())])

    class Routed(nn.Module):
        def __init__(self):
            super().__init__()
            self.ways, self.head = ways, nn.Linear(6, 3)

        def forward(self, rows):
            for _ in range(int(rows.sum().item() * 10) % 3 + 1):
                rows = self.ways[0](rows) + self.ways[2](self.ways[1](rows, rows.tanh()))
            return self.head(rows)

    model = Routed()
    return model, labels(model, 3, 6, 6)


if __name__ == "__main__":
    part, _, parts = sys.argv[1].partition("/")
    for chosen in list(ARCHITECTURES)[int(part) :: int(parts)] if parts else sys.argv[2:]:
        print(train(chosen) if parts else train(chosen, int(part)), flush=True)
