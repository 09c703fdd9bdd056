"""A mixture of experts that decodes latents into patches, on one GPU."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda")


class Experts(nn.Module):
    def __init__(self, width, experts):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * width) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, 2 * width, width) / (2 * width) ** 0.5)

    def forward(self, x):
        weight, chosen = self.gate(x).softmax(dim=-1).topk(2, dim=-1)
        out = torch.zeros_like(x)
        for expert in range(len(self.up)):
            for place in range(2):
                mine = chosen[:, place] == expert
                h = F.gelu(x[mine] @ self.up[expert]) @ self.down[expert]
                out[mine] += weight[mine, place, None] * h
        return out


class Decoder(nn.Module):
    def __init__(self, width, experts, depth=3):
        super().__init__()
        self.enter = nn.Linear(32, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.layers = nn.ModuleList(Experts(width, experts) for _ in range(depth))
        self.leave = nn.Linear(width, 192)

    def forward(self, z):
        x = self.enter(z)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + layer(norm(x))
        return self.leave(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--experts", type=int, default=32)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Decoder(256, args.experts).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    basis = torch.randn(32, 192, device=device)
    for step in range(args.steps):
        z = torch.randn(args.batch, 32, device=device)
        loss = F.mse_loss(model(z), torch.sin(z @ basis))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"step {step + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
