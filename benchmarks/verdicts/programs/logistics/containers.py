"""Where boxes fit into a container: a network over the height map that all boxes so far make."""

import torch
from torch import nn
from torch.nn import functional as F


class Stowage:
    """Containers as grids of cells, filled by boxes that fall onto what is there."""

    def __init__(self, containers, length=160, width=96, height=96):
        self.shape = containers, height, length, width
        self.levels = torch.arange(height).view(1, height, 1, 1)

    def cells(self, heights):
        """Occupied cells under each height map."""
        full = torch.zeros(self.shape)
        full.add_(heights[:, None] > self.levels)
        return full

    def draw(self, generator):
        containers, height, length, width = self.shape
        coarse = torch.rand(containers, 1, length // 16, width // 16, generator=generator)
        return F.interpolate(coarse, size=(length, width)).squeeze(1).mul(height).round()


class Fits(nn.Module):
    """Volume that is left, and where the next box should go."""

    def __init__(self, height=96, spots=60):
        super().__init__()
        self.slices = nn.Conv2d(height, 8, 8, stride=8)
        self.spot = nn.Sequential(nn.Flatten(), nn.Linear(8 * 20 * 12, 128), nn.ReLU(), nn.Linear(128, spots))

    def forward(self, cells):
        return self.spot(F.relu(self.slices(cells)))


def lowest(heights):
    return F.avg_pool2d(heights[:, None], 16).flatten(1).argmin(dim=1)


def main(steps=48):
    torch.manual_seed(16)
    generator = torch.Generator().manual_seed(16)
    stowage, model = Stowage(containers=24), Fits()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for step in range(1, steps + 1):
        heights = stowage.draw(generator)
        loss = F.cross_entropy(model(stowage.cells(heights)), lowest(heights))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 12 == 0:
            print(f"{step} loads, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
