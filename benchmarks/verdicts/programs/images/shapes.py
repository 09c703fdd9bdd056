"""Classify drawn shapes with a small residual network; images come from a light loader."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.short = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        return nn.functional.relu(self.body(x) + self.short(x), inplace=True)


def draw(count, side=32, kinds=6):
    kind = torch.randint(kinds, (count,))
    axis = torch.linspace(-1, 1, side)
    angle = torch.atan2(axis[:, None], axis[None, :])
    radius = torch.hypot(axis[:, None], axis[None, :])
    edge = 0.6 + 0.25 * torch.cos((kind + 2).view(-1, 1, 1) * angle + 6 * torch.rand(count, 1, 1))
    image = (radius < edge).float() + 0.5 * torch.randn(count, side, side)
    return TensorDataset(image.unsqueeze(1), kind)


def main():
    torch.manual_seed(101)
    loader = DataLoader(draw(960), batch_size=64, shuffle=True, drop_last=True)
    model = nn.Sequential(
        Block(1, 32, 1), Block(32, 64, 2), Block(64, 96, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 6)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    for epoch in range(2):
        total = torch.zeros(())
        for images, kinds in loader:
            loss = nn.functional.cross_entropy(model(images), kinds)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch + 1}: loss {total.item() / len(loader):.4f}")


if __name__ == "__main__":
    main()
