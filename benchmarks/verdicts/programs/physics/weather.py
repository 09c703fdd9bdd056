"""A vision-transformer forecast of weather fields on one GPU."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda")


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.join = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.join(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


class Forecast(nn.Module):
    def __init__(self, channels=12, size=128, patch=4, width=768, depth=8):
        super().__init__()
        self.patch = patch
        self.enter = nn.Conv2d(channels, width, patch, patch)
        self.place = nn.Parameter(torch.zeros(1, (size // patch) ** 2, width))
        self.blocks = nn.Sequential(*[Block(width, width // 64) for _ in range(depth)])
        self.leave = nn.Linear(width, channels * patch**2)

    def forward(self, x):
        h = self.enter(x).flatten(2).transpose(1, 2) + self.place
        h = self.leave(self.blocks(h)).transpose(1, 2)
        return x + F.fold(h, x.shape[-2:], self.patch, stride=self.patch)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--width", type=int, default=768)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = Forecast(size=args.size, width=args.width).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=True)
    states = torch.randn(64, 12, args.size // 8, args.size // 8, device=device)
    states = F.interpolate(states, scale_factor=8, mode="bilinear")
    following = states.roll(2, dims=3) * 0.98
    for step in range(args.steps):
        index = torch.randint(len(states), (args.batch,), device=device)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = F.mse_loss(model(states[index]).float(), following[index])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"step {step + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
