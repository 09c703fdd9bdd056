"""Feature-tokenising transformer for tables."""

import torch
from ft_transformer_parts.tokens import FeatureTokens
from torch import nn


class FTTransformer(nn.Module):
    def __init__(self, numbers, cardinalities, width=16, layers=1):
        super().__init__()
        self.tokens = FeatureTokens(numbers, cardinalities, width)
        self.label = nn.Parameter(torch.zeros(1, 1, width))
        layer = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 1)

    def forward(self, numbers, categories):
        tokens = self.tokens(numbers, categories)
        sequence = torch.cat([self.label.expand(len(tokens), -1, -1), tokens], dim=1)
        return self.head(self.encoder(sequence)[:, 0]).squeeze(1)


def table(rows, numbers, cardinalities):
    x = torch.randn(rows, numbers)
    c = torch.stack([torch.randint(n, (rows,)) for n in cardinalities], dim=1)
    return x, c, x[:, 0] * (c[:, 0] % 2 * 2 - 1) + 0.1 * torch.randn(rows)


def main():
    torch.manual_seed(32)
    cardinalities = [4 + i % 9 for i in range(60)]
    x, c, y = table(480, 90, cardinalities)
    model = FTTransformer(90, cardinalities)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for epoch in range(1, 4):
        total = 0.0
        for rows in torch.randperm(len(x)).split(8):
            loss = nn.functional.smooth_l1_loss(model(x[rows], c[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        print(f"epoch {epoch}: {total / len(x):.4f}")


if __name__ == "__main__":
    main()
