"""Train a small convolutional network on images of the size of CIFAR's."""

from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional


@dataclass
class Config:
    classes: int = 100
    batch: int = 64
    steps: int = 120
    lr: float = 1e-3
    widths: list[int] = field(default_factory=lambda: [8, 16, 32])


class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        layers, channels = [], 3
        for width in config.widths:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
            channels = width
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(channels, config.classes)

    def forward(self, x):
        return self.head(self.features(x).mean(dim=(2, 3)))


class Trainer:
    def __init__(self, config):
        self.config = config
        self.model = Net(config)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.lr)
        self.predicted = []
        self.actual = []

    def batches(self):
        generator = torch.Generator().manual_seed(1)
        images = torch.randn(1024, 3, 32, 32, generator=generator)
        labels = torch.randint(self.config.classes, (1024,), generator=generator)
        for _ in range(self.config.steps):
            chosen = torch.randint(1024, (self.config.batch,), generator=generator)
            yield images[chosen], labels[chosen]

    def score(self):
        """Macro F1 over everything seen so far."""
        scores = []
        for wanted in range(self.config.classes):
            hits = sum(1 for p, a in zip(self.predicted, self.actual, strict=True) if p == a == wanted)
            wrong = sum(1 for p, a in zip(self.predicted, self.actual, strict=True) if p == wanted != a)
            missed = sum(1 for p, a in zip(self.predicted, self.actual, strict=True) if a == wanted != p)
            scores.append(2 * hits / max(1, 2 * hits + wrong + missed))
        return sum(scores) / len(scores)

    def step(self, images, labels):
        logits = self.model(images)
        loss = functional.cross_entropy(logits, labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.predicted += logits.argmax(1).tolist()
        self.actual += labels.tolist()
        return loss.item()

    def fit(self):
        for number, (images, labels) in enumerate(self.batches(), 1):
            loss = self.step(images, labels)
            f1 = self.score()
            if number % 20 == 0:
                print(f"step {number}: loss {loss:.4f}, F1 {f1:.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    Trainer(Config()).fit()
