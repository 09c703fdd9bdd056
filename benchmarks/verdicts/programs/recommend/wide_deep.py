"""Wide and deep recommendation of apps."""

import torch
from torch import nn


class WideDeep(nn.Module):
    def __init__(self, fields=16, values=400, width=24):
        super().__init__()
        self.wide = nn.EmbeddingBag(fields * values, 1, mode="sum", sparse=True)
        self.deep = nn.Embedding(fields * values, width, sparse=True)
        self.layers = nn.Sequential(
            nn.Linear(fields * width, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 1)
        )

    def forward(self, codes):
        return (self.wide(codes) + self.layers(self.deep(codes).flatten(1))).squeeze(1)


def main():
    torch.manual_seed(19)
    codes = torch.randint(400, (12_800, 16)) + torch.arange(16) * 400
    installed = ((codes[:, 0] % 7 + codes[:, 1] % 5) > 5).float()
    model = WideDeep()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.0)
    for epoch in range(3):
        total = 0.0
        for rows in torch.randperm(len(codes)).split(512):
            loss = nn.functional.binary_cross_entropy_with_logits(model(codes[rows]), installed[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        print(f"epoch {epoch}: {total / len(codes):.4f}")


if __name__ == "__main__":
    main()
