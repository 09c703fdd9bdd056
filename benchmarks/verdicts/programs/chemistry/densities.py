"""Electron density at points around molecules, from distances to their atoms."""

import torch
from cells.layers import Mix
from torch import nn

ATOMS = 12


class Density(nn.Module):
    def __init__(self, width=64, depth=3):
        super().__init__()
        self.enter = nn.Linear(ATOMS, width)
        self.body = nn.Sequential(*[Mix(width) for _ in range(depth)])
        self.leave = nn.Linear(width, 1)

    def forward(self, distances):
        return nn.functional.softplus(self.leave(self.body(self.enter(distances)))).squeeze(-1)


class Molecules:
    def __init__(self, charges, seed=44):
        self.charges = charges
        self.generator = torch.Generator().manual_seed(seed)

    def sample(self, points):
        atoms = torch.randn(1, ATOMS, 3, generator=self.generator) * 1.5
        places = torch.randn(points, 1, 3, generator=self.generator) * 2
        distances = (places - atoms).norm(dim=-1)
        return distances, (self.charges * torch.exp(-1.5 * distances)).sum(-1)


if __name__ == "__main__":
    torch.manual_seed(44)
    molecules = Molecules(torch.randint(1, 9, (ATOMS,)).float())
    density = Density()
    optimizer = torch.optim.Adam(density.parameters(), lr=3e-3)
    for step in range(35):
        distances, wanted = molecules.sample(32_768)
        loss = nn.functional.l1_loss(density(distances), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 7 == 6:
            print(f"step {step + 1}: {loss.item():.4f}")
