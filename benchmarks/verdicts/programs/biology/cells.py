"""Outlines of cells under the microscope: a small network with an encoder, a decoder and a skip."""

import torch
from cells_parts.setup import Lab, ready
from torch import nn
from torch.nn import functional as F


def block(inward, outward):
    return nn.Sequential(
        nn.Conv2d(inward, outward, 3, padding=1), nn.BatchNorm2d(outward), nn.ReLU(),
        nn.Conv2d(outward, outward, 3, padding=1), nn.BatchNorm2d(outward), nn.ReLU(),
    )  # fmt: skip


class Outline(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.fine = block(1, width)
        self.coarse = block(width, 2 * width)
        self.join = block(3 * width, width)
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, images):
        fine = self.fine(images)
        coarse = self.coarse(F.max_pool2d(fine, 2))
        return self.out(self.join(torch.cat([fine, F.interpolate(coarse, scale_factor=2.0)], dim=1)))


def slides(count, side):
    grid = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")).float()
    centre = side * torch.rand(count, 2, 1, 1)
    radius = side * (0.1 + 0.2 * torch.rand(count, 1, 1, 1))
    inside = ((grid - centre).square().sum(dim=1, keepdim=True).sqrt() < radius).float()
    return inside + 0.5 * torch.randn(count, 1, side, side), inside


def main():
    torch.manual_seed(12)
    lab = Lab()
    images, masks = slides(256, lab.side)
    model = ready(Outline(), lab)
    optimizer = torch.optim.SGD(model.parameters(), lr=lab.rate, momentum=0.9)
    for step in range(lab.steps):
        rows = torch.randint(len(images), (lab.batch,))
        loss = F.binary_cross_entropy_with_logits(model(ready(images[rows], lab)), masks[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"{step}: {loss.item():.4f}")


main()
