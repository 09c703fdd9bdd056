"""A compiled residual network that learns one time step of the Burgers equation."""

import torch
import torch.nn.functional as F
from torch import nn


class Watch:
    """Remembers the range of values seen at named places."""

    def __init__(self):
        self.seen = {}

    def __call__(self, name, x):
        low, high = self.seen.get(name, (0.0, 0.0))
        self.seen[name] = (min(low, x.min().item()), max(high, x.max().item()))
        return x


class Stencil(nn.Module):
    """Derivatives, limiter and update of every cell, with learned coefficients."""

    def __init__(self, name, watch):
        super().__init__()
        self.name, self.watch = name, watch
        self.weight = nn.Parameter(torch.randn(6) * 0.1)

    def forward(self, u):
        w = self.weight
        left, right = torch.roll(u, 1, dims=1), torch.roll(u, -1, dims=1)
        slope = self.watch(self.name + ".slope", 0.5 * (right - left))
        bend = self.watch(self.name + ".bend", right - 2 * u + left)
        limit = self.watch(self.name + ".limit", torch.tanh(w[0] * slope) * torch.sigmoid(w[1] * bend))
        flow = self.watch(self.name + ".flow", w[2] * u * slope + w[3] * bend + w[4] * limit + w[5] * limit * u)
        return u + 0.1 * flow


class Stepper(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.watch = Watch()
        self.stencils = nn.Sequential(*[Stencil(f"stencil{i}", self.watch) for i in range(depth)])

    def forward(self, u):
        return self.stencils(u)


def step_exactly(u, dt=0.05, viscosity=0.2):
    left, right = torch.roll(u, 1, dims=1), torch.roll(u, -1, dims=1)
    return u + dt * (viscosity * (right - 2 * u + left) - u * 0.5 * (right - left))


def main():
    torch.manual_seed(0)
    model = Stepper()
    compiled = torch.compile(model, dynamic=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    phase = torch.linspace(0, 6.2832, 4096)
    u = sum(torch.randn(128, 1) * torch.sin(k * phase) / k for k in range(1, 5))
    for step in range(100):
        with torch.no_grad():
            following = step_exactly(u)
        loss = F.mse_loss(compiled(u), following)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        u = following
        if step % 25 == 24:
            print(f"step {step + 1}: loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
