"""A causal language model on one GPU."""

import argparse
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda")


@dataclass
class Shape:
    vocabulary: int = 8192
    context: int = 512
    width: int = 1024
    heads: int = 16
    depth: int = 12


class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.heads = s.heads
        self.norm1, self.norm2 = nn.LayerNorm(s.width), nn.LayerNorm(s.width)
        self.qkv = nn.Linear(s.width, 3 * s.width)
        self.join = nn.Linear(s.width, s.width)
        self.mlp = nn.Sequential(nn.Linear(s.width, 4 * s.width), nn.GELU(), nn.Linear(4 * s.width, s.width))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.join(mixed.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


class StoryLM(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.token = nn.Embedding(s.vocabulary, s.width)
        self.place = nn.Embedding(s.context, s.width)
        self.blocks = nn.Sequential(*[Block(s) for _ in range(s.depth)])
        self.norm = nn.LayerNorm(s.width)
        self.head = nn.Linear(s.width, s.vocabulary, bias=False)

    def forward(self, x):
        h = self.token(x) + self.place(torch.arange(x.shape[1], device=x.device))
        return self.head(self.norm(self.blocks(h)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--depth", type=int, default=12)
    args = parser.parse_args()
    torch.manual_seed(0)
    shape = Shape(width=args.width, depth=args.depth)
    model = StoryLM(shape).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    tokens = (torch.randint(0, 3, (400_000,)).cumsum(0) % shape.vocabulary).to(device)
    windows = tokens.unfold(0, shape.context + 1, 1)
    for step in range(args.steps):
        batch = windows[torch.randint(len(windows), (args.batch,), device=device)]
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
