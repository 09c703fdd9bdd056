"""Molecular dynamics of argon with a learned correction of the pair force."""

import math

import torch
from torch import nn

BOX, CUTOFF, DT = 14.0, 2.2, 0.002


def neighbour_pairs(positions):
    """Pairs of atoms in the same or adjacent cells."""
    side = int(BOX // CUTOFF)
    cells = {}
    points = positions.tolist()
    for i, point in enumerate(points):
        key = tuple(int(c / BOX * side) % side for c in point)
        cells.setdefault(key, []).append(i)
    pairs = []
    for (a, b, c), members in cells.items():
        for shift in range(27):
            da, db, dc = shift // 9 - 1, shift // 3 % 3 - 1, shift % 3 - 1
            for j in cells.get(((a + da) % side, (b + db) % side, (c + dc) % side), ()):
                for i in members:
                    if i < j:
                        pairs.append((i, j))
    return torch.tensor(pairs).t()


class PairForce(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1)
        )

    def forward(self, positions):
        i, j = neighbour_pairs(positions)
        delta = positions[i] - positions[j]
        delta = delta - BOX * torch.round(delta / BOX)
        squared = delta.square().sum(dim=1)
        near = squared < CUTOFF**2
        i, j, delta, squared = i[near], j[near], delta[near], squared[near].clamp(min=0.7)
        inverse = 1 / squared
        strength = 24 * (2 * inverse**7 - inverse**4) + 0.01 * self.net(torch.stack([squared, inverse], dim=1)).squeeze(
            1
        )
        force = strength[:, None] * delta
        return torch.zeros_like(positions).index_add(0, i, force).index_add(0, j, -force)


@torch.inference_mode()
def simulate(steps=60, side=11):
    torch.manual_seed(7)
    model = PairForce()
    grid = torch.arange(side) * (BOX / side)
    positions = torch.cartesian_prod(grid, grid, grid) + 0.05 * torch.randn(side**3, 3)
    positions %= BOX
    velocities = 0.5 * torch.randn_like(positions)
    force = model(positions)
    for step in range(steps):
        velocities += 0.5 * DT * force
        positions = (positions + DT * velocities) % BOX
        force = model(positions)
        velocities += 0.5 * DT * force
        if step % 20 == 19:
            print(f"step {step + 1}: temperature {velocities.square().mean().item():.4f}")
    assert math.isfinite(positions.sum().item())


if __name__ == "__main__":
    simulate()
