"""News categories with a small transformer encoder."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class NewsEncoder(nn.Module):
    def __init__(self, words=6000, width=128, length=48, classes=12):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn(length, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, classes)

    def forward(self, words):
        return self.head(self.encoder(self.words(words) + self.places).mean(1))


def articles(count):
    label = torch.randint(12, (count,))
    words = torch.randint(6000, (count, 48))
    marked = torch.rand(count, 48) < 0.2
    return TensorDataset(torch.where(marked, label[:, None] * 100 + words % 100, words), label)


def main():
    torch.manual_seed(56)
    train = DataLoader(articles(1600), batch_size=32, shuffle=True)
    test = DataLoader(articles(256), batch_size=128)
    model = NewsEncoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
    for words, label in train:
        loss = nn.functional.cross_entropy(model(words), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.inference_mode():
        right = sum((model(words).argmax(1) == label).sum().item() for words, label in test)
    print(f"test accuracy {right / 256:.3f}")


if __name__ == "__main__":
    main()
