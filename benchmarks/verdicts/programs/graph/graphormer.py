"""A small transformer over the nodes of graphs of various sizes, compiled."""

import torch
import torch.nn.functional as F
from torch import nn

torch._dynamo.config.recompile_limit = 64


class Layer(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.join = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x, bias):
        b, n, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        x = x + self.join(mixed.transpose(1, 2).reshape(b, n, c))
        return x + self.mlp(self.norm2(x))


class Graphormer(nn.Module):
    def __init__(self, width=64, depth=2):
        super().__init__()
        self.atoms = nn.Embedding(32, width)
        self.hops = nn.Embedding(6, 4)
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))
        self.head = nn.Linear(width, 1)

    def forward(self, kinds, hops):
        x = self.atoms(kinds)
        bias = self.hops(hops).permute(0, 3, 1, 2)
        for layer in self.layers:
            x = layer(x, bias)
        return self.head(x.mean(dim=1)).squeeze(-1)


def batches(count, size=32):
    for _ in range(count):
        nodes = int(torch.randint(14, 40, ()))
        kinds = torch.randint(32, (size, nodes))
        hops = torch.randint(6, (size, nodes, nodes))
        yield kinds, hops, kinds.float().mean(dim=1) / 16 - 1


def main():
    torch.manual_seed(0)
    model = Graphormer()
    compiled = torch.compile(model, backend="aot_eager", dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, (kinds, hops, wanted) in enumerate(batches(50)):
        loss = F.mse_loss(compiled(kinds, hops), wanted)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
