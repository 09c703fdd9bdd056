"""Make small pictures larger: a residual network with sub-pixel output."""

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + self.second(functional.relu(self.first(x)))


class SuperResolution(nn.Module):
    def __init__(self, width=16, factor=2, blocks=3):
        super().__init__()
        self.entry = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.Sequential(*(Block(width) for _ in range(blocks)))
        self.context = nn.Conv2d(width, width, 17, padding=8)
        self.output = nn.Sequential(nn.Conv2d(width, 3 * factor**2, 3, padding=1), nn.PixelShuffle(factor))

    def forward(self, small):
        features = self.body(functional.relu(self.entry(small)))
        features = features + functional.relu(self.context(features))
        return self.output(features)


def pairs(steps, batch, side):
    generator = torch.Generator().manual_seed(2)
    for _ in range(steps):
        coarse = torch.rand(batch, 3, side // 8, side // 8, generator=generator)
        large = functional.interpolate(coarse, scale_factor=8, mode="bicubic", align_corners=False)
        yield functional.avg_pool2d(large, 2), large


def fit(model, source, lr=1e-3):
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for step, (small, large) in enumerate(source):
        loss = functional.l1_loss(model(small), large)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"{step:3d} {loss.item():.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    fit(SuperResolution(), pairs(40, batch=4, side=64))
