"""Train on crops of many sizes with a compiled network."""

import random

import torch
from torch import nn

torch._dynamo.config.recompile_limit = 256


class Net(nn.Module):
    def __init__(self, width=24, classes=10):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(3 if i == 0 else width, width, 3, padding=1) for i in range(2))
        self.scales = nn.ParameterList(nn.Parameter(torch.ones(width, 1, 1)) for _ in range(2))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        for layer, scale in zip(self.layers, self.scales, strict=True):
            x = torch.relu(layer(x) * scale)
        return self.head(x.mean(dim=(2, 3)))


def crop(images, smallest=24):
    """The same random window of all images."""
    side = images.shape[-1]
    height = random.randint(smallest, side)
    width = random.randint(smallest, side)
    top = random.randint(0, side - height)
    left = random.randint(0, side - width)
    return images[:, :, top : top + height, left : left + width]


def main():
    random.seed(0)
    torch.manual_seed(0)
    images = torch.randn(256, 3, 48, 48)
    labels = torch.randint(10, (256,))
    model = Net()
    compiled = torch.compile(model, backend="aot_eager", dynamic=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(30):
        chosen = torch.randint(256, (16,))
        loss = nn.functional.cross_entropy(compiled(crop(images[chosen])), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
