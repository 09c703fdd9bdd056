"""Train a wide residual network on a GPU, with a watch on its activations."""

import argparse

import torch
from torch import nn

device = torch.device("cuda")


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm2d(width)
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)

    def forward(self, x):
        return x + self.second(torch.relu(self.first(torch.relu(self.norm(x)))))


class Net(nn.Module):
    def __init__(self, width, depth, classes=100):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(dim=(2, 3)))


class Watch:
    """Follows the size of activations, layer by layer."""

    def __init__(self, model):
        self.largest = {}
        for name, module in model.named_modules():
            if isinstance(module, nn.Conv2d | nn.BatchNorm2d):
                module.register_forward_hook(self.hook(name))

    def hook(self, name):
        def follow(module, inputs, output):
            for part in output.detach().chunk(8):
                self.largest[name] = max(self.largest.get(name, 0.0), part.abs().max().item())

        return follow


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--depth", type=int, default=20)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Net(options.width, options.depth).to(device)
    watch = Watch(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    images = torch.randn(2048, 3, 32, 32, device=device)
    labels = torch.randint(100, (2048,), device=device)
    for step in range(options.steps):
        chosen = torch.randint(2048, (options.batch,), device=device)
        loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: {loss.item():.4f}, largest {max(watch.largest.values()):.2f}")


if __name__ == "__main__":
    main()
