"""Langevin sampling of a learned energy, and its training by contrastive divergence."""

import torch
from torch import nn


class Energy(nn.Module):
    def __init__(self, dim=32, width=256):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dim, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1)
        )

    def forward(self, x):
        return self.net(x).squeeze(-1) + 0.05 * x.square().sum(dim=-1)


def sample(energy, x, steps, size=0.05):
    energy.requires_grad_(False)
    for _ in range(steps):
        x = x.detach().requires_grad_(True)
        (slope,) = torch.autograd.grad(energy(x).sum(), x)
        x = x - size * slope + (2 * size) ** 0.5 * 0.1 * torch.randn_like(x)
    energy.requires_grad_(True)
    return x.detach()


def main():
    torch.manual_seed(0)
    energy = Energy()
    optimizer = torch.optim.Adam(energy.parameters(), lr=3e-4)
    centres = 2 * torch.randn(5, 32)
    chains = torch.randn(512, 32)
    for step in range(50):
        real = centres[torch.randint(5, (512,))] + 0.3 * torch.randn(512, 32)
        chains = sample(energy, chains, steps=6)
        low, high = energy(real), energy(chains)
        difference = low.mean() - high.mean()
        loss = difference + 0.01 * (low.square().mean() + high.square().mean())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1}: {difference.item():.4f}")


if __name__ == "__main__":
    main()
