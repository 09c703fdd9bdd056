"""House prices: regression with early stopping on held-out houses."""

import copy
from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class EarlyStopping:
    patience: int = 200
    best: float = float("inf")
    waited: int = 0
    state: dict = field(default_factory=dict)

    def update(self, error, model):
        self.waited += 1
        if error < self.best * 0.9:
            self.best, self.waited = error, 0
            self.state = copy.deepcopy(model.state_dict())
        return self.waited >= self.patience


def houses(count, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 40, generator=generator)
    price = 2 * x[:, 0] + x[:, 1] * x[:, 2] - x[:, 3].abs() + 0.1 * torch.randn(count, generator=generator)
    return x, price


@torch.no_grad()
def evaluate(model, x, price, size=500):
    model.eval()
    squares = sum(((model(a).squeeze(1) - b) ** 2).sum() for a, b in zip(x.split(size), price.split(size), strict=True))
    model.train()
    return (squares / len(x)).item()


def main():
    torch.manual_seed(31)
    x, price = houses(6400, 1)
    held_x, held_price = houses(2500, 2)
    model = nn.Sequential(
        nn.Linear(40, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    stopping = EarlyStopping()
    done = False
    for epoch in range(8):
        for rows in torch.randperm(len(x)).split(160):
            loss = nn.functional.mse_loss(model(x[rows]).squeeze(1), price[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done = done or stopping.update(evaluate(model, held_x, held_price), model)
        print(f"epoch {epoch}: best held-out error {stopping.best:.4f}")
        if done:
            break


if __name__ == "__main__":
    main()
