"""A small vision transformer on synthetic textures."""

import argparse

import torch
from torch import nn


class PatchEmbedding(nn.Module):
    """Cut an image into square patches and project each."""

    def __init__(self, side, patch, width):
        super().__init__()
        self.patch = patch
        self.count = (side // patch) ** 2
        self.project = nn.Linear(3 * patch * patch, width)
        self.norm = nn.LayerNorm(width)
        self.position = nn.Parameter(0.02 * torch.randn(self.count, width))

    def forward(self, images):
        p = self.patch
        tokens = []
        for top in range(0, images.shape[2], p):
            for left in range(0, images.shape[3], p):
                piece = images[:, :, top : top + p, left : left + p].reshape(len(images), -1)
                tokens.append(self.norm(self.project(piece)) + self.position[len(tokens)])
        return torch.stack(tokens, dim=1)


class Transformer(nn.Module):
    def __init__(self, side=64, patch=4, width=32, depth=1, classes=5):
        super().__init__()
        self.embed = PatchEmbedding(side, patch, width)
        layer = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, depth)
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        return self.head(self.body(self.embed(images)).mean(1))


def textures(batch, classes, generator):
    labels = torch.randint(classes, (batch,), generator=generator)
    wave = torch.linspace(0, 6.28, 64).view(1, 1, 1, -1) * (labels.view(-1, 1, 1, 1) + 1)
    return torch.sin(wave) + 0.5 * torch.randn(batch, 3, 64, 64, generator=generator), labels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=70)
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args()
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(2)
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(options.steps):
        images, labels = textures(options.batch, 5, generator)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step:4d} {loss.item():.4f}")


if __name__ == "__main__":
    main()
