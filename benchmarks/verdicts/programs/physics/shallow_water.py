"""A residual convolutional network that advances shallow-water states."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + self.second(F.gelu(self.first(x)))


def make_model(width=40, depth=3):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), *[Residual(width) for _ in range(depth)], nn.Conv2d(width, 3, 3, padding=1)
    )


def advance(state, dt=0.05):
    height, u, v = state.unbind(dim=1)

    def slope(f, d):
        return 0.5 * (torch.roll(f, -1, d) - torch.roll(f, 1, d))

    new_height = height - dt * (slope(u, 2) + slope(v, 1))
    return torch.stack([new_height, u - dt * slope(height, 2), v - dt * slope(height, 1)], dim=1)


def main():
    torch.manual_seed(0)
    before = F.interpolate(torch.randn(320, 3, 8, 8), size=(32, 32), mode="bicubic")
    after = advance(before)
    loader = DataLoader(TensorDataset(before, after - before), batch_size=16, shuffle=True)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(3):
        total = torch.zeros(())
        for state, change in loader:
            loss = F.mse_loss(model(state), change)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {total.item() / len(loader):.6f}")


if __name__ == "__main__":
    main()
