"""Segment cells: a small U-shaped network whose loss weighs borders higher."""

import torch
from torch import nn
from torch.nn import functional

SIDE = 64


def cells(count, generator):
    """Discs on noise, and their masks."""
    axis = torch.arange(SIDE, dtype=torch.float32)
    centre = torch.rand(count, 3, 2, generator=generator) * SIDE
    radius = 4 + 6 * torch.rand(count, 3, generator=generator)
    down = (axis.view(1, 1, -1, 1) - centre[..., 0].view(count, 3, 1, 1)) ** 2
    across = (axis.view(1, 1, 1, -1) - centre[..., 1].view(count, 3, 1, 1)) ** 2
    masks = ((down + across).sqrt() < radius.view(count, 3, 1, 1)).any(1).float()
    images = masks.unsqueeze(1) + 0.4 * torch.randn(count, 1, SIDE, SIDE, generator=generator)
    return images, masks


def block(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down = block(1, width)
        self.middle = block(width, 2 * width)
        self.up = block(3 * width, width)
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        fine = self.down(x)
        coarse = self.middle(functional.max_pool2d(fine, 2))
        coarse = functional.interpolate(coarse, scale_factor=2)
        return self.out(self.up(torch.cat([fine, coarse], 1))).squeeze(1)


def border_weights(masks):
    """Four where any of a pixel's four neighbours is of the other class, one elsewhere."""
    weights = torch.ones_like(masks)
    for sample, mask in enumerate(masks.tolist()):
        for row in range(SIDE):
            for column in range(SIDE):
                here = mask[row][column]
                around = [mask[row][max(column - 1, 0)], mask[row][min(column + 1, SIDE - 1)]]
                around += [mask[max(row - 1, 0)][column], mask[min(row + 1, SIDE - 1)][column]]
                if any(other != here for other in around):
                    weights[sample, row, column] = 4.0
    return weights


def train(steps=70, batch=16):
    generator = torch.Generator().manual_seed(5)
    images, masks = cells(256, generator)
    model = UNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(steps):
        chosen = torch.randint(len(images), (batch,), generator=generator)
        target = masks[chosen]
        weights = border_weights(target)
        loss = functional.binary_cross_entropy_with_logits(model(images[chosen]), target, weight=weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, round(loss.item(), 4))


if __name__ == "__main__":
    torch.manual_seed(0)
    train()
