"""Card fraud: transactions joined with the merchants' risk classes, scored by a small network."""

import torch
from fraud_parts.registry import Registry
from torch import nn


class FraudModel(nn.Module):
    def __init__(self, columns=30, classes=16):
        super().__init__()
        self.risk = nn.Embedding(classes, 16)
        self.layers = nn.Sequential(nn.Linear(columns + 16, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
        self.out = nn.Linear(256, 1)

    def forward(self, x, risk):
        return self.out(self.layers(torch.cat([x, self.risk(risk)], dim=1))).squeeze(1)


def transactions(count, merchants):
    x = torch.randn(count, 30)
    merchant = torch.randint(merchants, (count,))
    return x, merchant, ((merchant * 7) % 16 + 4 * x[:, 0] > 14).float()


def main():
    torch.manual_seed(37)
    x, merchant, fraud = transactions(20_480, 500)
    model = FraudModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with Registry(500) as registry:
        for step, rows in enumerate(torch.randperm(len(x)).split(256), start=1):
            risk = registry.classes(merchant[rows])
            loss = nn.functional.binary_cross_entropy_with_logits(model(x[rows], risk), fraud[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
