"""Recognise digits: a plain convolutional network, a loader, one evaluation an epoch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 32, 3)
        self.second = nn.Conv2d(32, 64, 3)
        self.hidden = nn.Linear(64 * 12 * 12, 128)
        self.out = nn.Linear(128, 10)

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = nn.functional.max_pool2d(torch.relu(self.second(x)), 2)
        return self.out(torch.relu(self.hidden(x.flatten(1))))


def dataset(count, prototypes, generator):
    labels = torch.randint(10, (count,), generator=generator)
    images = prototypes[labels] + 0.8 * torch.randn(count, 1, 28, 28, generator=generator)
    return TensorDataset(images, labels)


def train(model, loader, optimizer):
    model.train()
    total = torch.zeros(())
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total.item() / len(loader)


@torch.inference_mode()
def accuracy(model, loader):
    model.eval()
    right = sum((model(images).argmax(1) == labels).sum() for images, labels in loader)
    return right.item() / len(loader.dataset)


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    prototypes = torch.randn(10, 1, 28, 28, generator=generator)
    training = DataLoader(dataset(1600, prototypes, generator), batch_size=64, shuffle=True, drop_last=True)
    held = DataLoader(dataset(256, prototypes, generator), batch_size=128)
    model = Digits()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(2):
        loss = train(model, training, optimizer)
        print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy(model, held):.3f}")


if __name__ == "__main__":
    main()
