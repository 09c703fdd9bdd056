"""Small GPT on random walks through a vocabulary (GPU)."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, words, width, layers, length):
        super().__init__()
        self.word = nn.Embedding(words, width)
        self.place = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, width // 64) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, words):
        x = self.word(words) + self.place.weight[: words.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--length", type=int, default=256)
    options = parser.parse_args()
    device = torch.device("cuda")
    torch.manual_seed(54)
    model = GPT(8000, options.width, 6, options.length).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    for step in range(options.steps):
        start = torch.randint(8000, (options.batch, 1), device=device)
        walk = (start + torch.arange(options.length + 1, device=device) * 7) % 8000
        loss = F.cross_entropy(model(walk[:, :-1]).flatten(0, 1), walk[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"step {step + 1}: {loss.item():.3f}")


if __name__ == "__main__":
    main()
