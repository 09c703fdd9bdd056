"""Energy of small clusters of argon from a learned pair potential."""

import torch
from torch import nn


class PairPotential(nn.Module):
    """A sum over pairs of radial functions with learned weights."""

    def __init__(self, functions=24, reach=4.0):
        super().__init__()
        self.register_buffer("centres", torch.linspace(0.5, reach, functions))
        self.spread = nn.Parameter(torch.tensor(3.0))
        self.weights = nn.Parameter(torch.zeros(functions))
        self.shift = nn.Parameter(torch.zeros(()))

    def features(self, distance):
        return torch.exp(-self.spread * (distance.unsqueeze(-1) - self.centres) ** 2)

    def forward(self, places):
        atoms = places.shape[1]
        energy = self.shift * atoms
        for one in range(atoms):
            for two in range(one):
                distance = (places[:, one] - places[:, two]).norm(dim=-1)
                energy = energy + self.features(distance) @ self.weights
        return energy


def lennard_jones(places):
    one, two = torch.tril_indices(places.shape[1], places.shape[1], -1)
    sixth = (places[:, one] - places[:, two]).square().sum(-1).clamp(min=0.9) ** -3
    return (sixth * sixth - sixth).sum(1)


def clusters(batch, atoms, generator):
    grid = torch.cartesian_prod(*[torch.arange(3.0)] * 3)[:atoms] * 1.2
    return grid + 0.1 * torch.randn(batch, atoms, 3, generator=generator)


def fit(potential, steps, batch=64, atoms=15):
    generator = torch.Generator().manual_seed(12)
    optimizer = torch.optim.Adam(potential.parameters(), lr=0.02)
    history = []
    for step in range(steps):
        places = clusters(batch, atoms, generator)
        loss = nn.functional.mse_loss(potential(places), lennard_jones(places))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        if step % 40 == 39:
            print(f"step {step + 1}: {sum(history[-40:]) / 40:.4f}")
    return history


if __name__ == "__main__":
    torch.manual_seed(0)
    fit(PairPotential(), steps=280)
