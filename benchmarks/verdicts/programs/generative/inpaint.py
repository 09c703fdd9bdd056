"""Inpainting of textures: a convolutional encoder and decoder fill in a masked square."""

import torch
import torch.nn.functional as F
from torch import nn


def block(a, b, stride=1):
    return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1), nn.BatchNorm2d(b), nn.ReLU())


class Inpainter(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.encoder = nn.Sequential(block(4, width), block(width, 2 * width, 2), block(2 * width, 2 * width))
        self.decoder = nn.ModuleDict(
            {
                "up": nn.Sequential(block(2 * width, 2 * width), nn.Upsample(scale_factor=2), block(2 * width, width)),
                "refine": nn.Conv2d(width, width, 13, padding=6),
                "paint": nn.Conv2d(width, 3, 3, padding=1),
            }
        )

    def forward(self, picture, mask):
        h = self.encoder(torch.cat([picture * (1 - mask), mask], dim=1))
        h = self.decoder["up"](h)
        h = F.relu(self.decoder["refine"](h))
        return torch.sigmoid(self.decoder["paint"](h))


def textures(count, size):
    waves = torch.rand(count, 3, 2, 1, 1) * 20
    grid = torch.linspace(0, 1, size)
    y, x = torch.meshgrid(grid, grid, indexing="ij")
    return 0.5 + 0.5 * torch.sin(waves[:, :, 0] * x + waves[:, :, 1] * y)


def main():
    torch.manual_seed(6)
    size, batch = 32, 8
    pictures = textures(256, size)
    model = Inpainter()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    mask = torch.zeros(batch, 1, size, size)
    mask[:, :, 10:20, 10:20] = 1
    for step, index in enumerate(torch.randint(len(pictures), (40, batch))):
        picture = pictures[index]
        loss = F.l1_loss(model(picture, mask), picture)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
