"""Faults in seismic volumes: a three-dimensional network looks for planes along which layers are torn."""

import torch
from torch import nn
from torch.nn import functional as F


def unit(inputs, outputs, stride=1):
    return nn.Sequential(nn.Conv3d(inputs, outputs, 3, stride=stride, padding=1), nn.LeakyReLU(0.1, inplace=True))


class FaultNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(unit(1, 16, stride=2), unit(16, 32), unit(32, 48, stride=2), unit(48, 48))
        self.up = nn.Conv3d(48, 8, 1)

    def forward(self, volume):
        return self.up(self.down(volume))


def volumes(count, side, generator):
    """Layers that are shifted along one plane, and where that plane is, coarsely."""
    depth = torch.arange(side, dtype=torch.float32)
    tear = torch.randint(side // 4, 3 * side // 4, (count,), generator=generator)
    shift = (torch.arange(side) > tear[:, None]).float() * 3
    layers = torch.sin(0.7 * (depth[None, None, :] + shift[:, :, None]))
    volume = layers[:, None, :, None, :].expand(-1, 1, -1, side, -1)
    return volume + 0.1 * torch.randn(volume.shape, generator=generator), (tear * 8) // side


def main(steps=30, batch=4, side=40):
    torch.manual_seed(23)
    generator = torch.Generator().manual_seed(23)
    data, tear = volumes(32, side, generator)
    net = FaultNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for step in range(1, steps + 1):
        chosen = torch.randint(len(data), (batch,), generator=generator)
        scores = net(data[chosen]).mean(dim=(2, 3, 4))
        loss = F.cross_entropy(scores, tear[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
