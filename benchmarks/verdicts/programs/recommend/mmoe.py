"""Multi-gate mixture of experts for several feedback signals (GPU)."""

import argparse

import torch
from torch import nn


class Experts(nn.Module):
    def __init__(self, experts, inputs, hidden, outputs):
        super().__init__()
        self.up = nn.Parameter(torch.randn(experts, inputs, hidden) / inputs**0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, outputs) / hidden**0.5)

    def forward(self, x):
        made = []
        for up, down in zip(self.up, self.down, strict=True):
            made.append(torch.relu(torch.relu(x @ up) @ down))
        return torch.stack(made)


class MMoE(nn.Module):
    def __init__(self, inputs=64, experts=96, tasks=4):
        super().__init__()
        self.experts = Experts(experts, inputs, 32, 32)
        self.gates = nn.Linear(inputs, tasks * experts)
        self.heads = nn.Parameter(torch.randn(tasks, 32) * 0.1)
        self.shape = (tasks, experts)

    def forward(self, x):
        weights = torch.softmax(self.gates(x).unflatten(1, self.shape), dim=-1)
        mixed = torch.einsum("nte,enh->nth", weights, self.experts(x))
        return (mixed * self.heads).sum(-1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=512)
    options = parser.parse_args()
    device = torch.device("cuda")
    torch.manual_seed(51)
    model = MMoE().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    x = torch.randn(options.batch * 20, 64, device=device)
    y = (x[:, :4] + x[:, 4:8] > 0).float()
    for step in range(options.steps):
        at = step % 20 * options.batch
        rows = slice(at, at + options.batch)
        loss = nn.functional.binary_cross_entropy_with_logits(model(x[rows]), y[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step + 1}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
