"""Height of waves at drifting buoys: every zone of the ocean has a network of its own."""

import torch
from buoys_parts.zones import ZoneNetworks, zone_edges
from torch import nn


class Buoys:
    """Most buoys drift in the shipping lanes of one ocean, some anywhere."""

    def __init__(self, count=30_000, readings=64):
        lanes = -38 + 9 * torch.randn(count)
        anywhere = 360 * torch.rand(count) - 180
        self.longitude = torch.where(torch.rand(count) < 0.8, lanes, anywhere).clamp(-180, 180)
        self.readings = torch.randn(count, readings)
        self.height = self.readings[:, :5].sum(dim=1) * (1 + self.longitude / 360)

    def sample(self, count):
        rows = torch.randint(len(self.height), (count,))
        return self.longitude[rows], self.readings[rows], self.height[rows]


class WaveHeight(nn.Module):
    def __init__(self, edges, readings=64, width=384):
        super().__init__()
        self.inward = nn.Linear(readings, width)
        self.zones = ZoneNetworks(edges, width)
        self.outward = nn.Linear(width, 1)

    def forward(self, longitude, readings):
        hidden = torch.relu(self.inward(readings))
        return self.outward(hidden + self.zones(longitude, hidden)).squeeze(1)


def learn(steps=40):
    torch.manual_seed(35)
    buoys = Buoys()
    model = WaveHeight(zone_edges(buoys.longitude, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for step in range(steps):
        longitude, readings, height = buoys.sample(1024)
        loss = nn.functional.mse_loss(model(longitude, readings), height)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1}: {loss.item():.4f}")


learn()
