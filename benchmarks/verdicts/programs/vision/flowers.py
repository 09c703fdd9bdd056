"""Classify flowers: photographs kept as JPEG, a small residual network."""

import io

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
SIZE = 48
CLASSES = 8


def photograph(rng, label):
    """A blurred pattern whose colours depend on the class, as JPEG."""
    coarse = rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)
    coarse[..., label % 3] //= 2
    picture = Image.fromarray(coarse).resize((800, 600), Image.Resampling.BILINEAR)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


class Flowers(Dataset):
    def __init__(self, count, seed=0):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, CLASSES, count)
        self.files = [photograph(rng, label) for label in self.labels]

    def __len__(self):
        return len(self.files)

    def load(self, index):
        picture = Image.open(io.BytesIO(self.files[index])).convert("RGB")
        picture = picture.resize((SIZE, SIZE), Image.Resampling.LANCZOS)
        return torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1).float() / 127.5 - 1

    def __getitem__(self, index):
        return self.load(index), int(self.labels[index])


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return torch.relu(x + self.second(torch.relu(self.first(x))))


model = nn.Sequential(
    nn.Conv2d(3, 24, 3, stride=2, padding=1),
    nn.ReLU(),
    Residual(24),
    nn.Conv2d(24, 48, 3, stride=2, padding=1),
    nn.ReLU(),
    Residual(48),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(48, CLASSES),
)
data = Flowers(160)
loader = DataLoader(data, batch_size=16, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

for epoch in range(6):
    total = 0.0
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: loss {total / len(loader):.4f}")
