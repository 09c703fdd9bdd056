"""Particle-mesh gravity: masses are laid on a fine grid, and a small network learns the mean pull from it."""

import torch
import torch.nn.functional as F
from torch import nn

CELLS, STARS = 288, 20_000


def density(cells, mass):
    """Mass in every cell of the grid."""
    grid = torch.zeros(CELLS * CELLS * CELLS)
    return grid.index_add_(0, cells, mass)


class Pull(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 3)
        )

    def forward(self, place, crowd):
        return self.net(torch.cat([place, crowd[:, None]], dim=1))


def main():
    torch.manual_seed(0)
    place = torch.randn(STARS, 3) * 0.15
    speed = torch.cross(place, torch.tensor([0.0, 0.0, 1.0]).expand_as(place), dim=1)
    mass = torch.rand(STARS)
    stride = torch.tensor([CELLS * CELLS, CELLS, 1])
    model = Pull()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(60):
        cells = ((place.clamp(-0.99, 0.99) + 1) * (CELLS / 2)).long() @ stride
        grid = density(cells, mass)
        chosen = torch.randint(STARS, (2048,))
        pull = -place / (place.square().sum(dim=1, keepdim=True) + 0.05)
        loss = F.mse_loss(model(place[chosen], grid[cells[chosen]]), pull[chosen])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        speed = speed + 0.01 * pull
        place = place + 0.01 * speed
        if step % 20 == 19:
            print(f"step {step + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
