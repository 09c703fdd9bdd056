"""Price of a European call as a network that fulfils the equation of Black and Scholes."""

import torch
from grid.market import Sampler
from torch import nn


class Price(nn.Module):
    def __init__(self, width=192, depth=3):
        super().__init__()
        widths = [2] + [width] * depth
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:], strict=False))
        self.out = nn.Linear(width, 1)

    def forward(self, points):
        for layer in self.layers:
            points = torch.tanh(layer(points))
        return self.out(points)


def slopes(value, points):
    return torch.autograd.grad(value.sum(), points, create_graph=True)[0]


def residual(price, points, rate=0.05, volatility=0.3):
    points = points.requires_grad_()
    value = price(points)
    first = slopes(value, points)
    second = slopes(first[:, :1], points)[:, :1]
    at = points[:, :1]
    return first[:, 1:] + 0.5 * (volatility * at) ** 2 * second + rate * at * first[:, :1] - rate * value


def solve(steps=45, inside=1536, edge=256):
    torch.manual_seed(41)
    sampler = Sampler()
    batches = []
    for _ in range(8):
        points, (edges, payoff) = sampler.inside(inside), sampler.expiry(edge)
        batches.append(tuple(torch.as_tensor(array) for array in (points, edges, payoff)))
    price = Price().to(batches[0][0])
    optimizer = torch.optim.Adam(price.parameters(), lr=1e-3)
    for step in range(steps):
        points, edges, payoff = batches[step % len(batches)]
        wrong = residual(price, points.clone()).square().mean()
        loss = wrong + 10 * (price(edges) - payoff).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 9 == 8:
            print(f"step {step + 1}: residual {wrong.item():.5f}, loss {loss.item():.5f}")


if __name__ == "__main__":
    solve()
