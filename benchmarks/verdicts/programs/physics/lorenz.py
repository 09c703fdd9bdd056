"""Forecast of the Lorenz system with a long short-term memory of our own."""

import torch
import torch.nn.functional as F
from torch import nn


class Memory(nn.Module):
    """Four gates, each with its own weights for the input and for the state."""

    def __init__(self, inward, width):
        super().__init__()
        self.width = width
        self.from_input = nn.ModuleList(nn.Linear(inward, width) for _ in range(4))
        self.from_state = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x):
        h = x.new_zeros(x.shape[0], self.width)
        c = x.new_zeros(x.shape[0], self.width)
        states = []
        for t in range(x.shape[1]):
            i, f, g, o = (a(x[:, t]) + b(h) for a, b in zip(self.from_input, self.from_state, strict=True))
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            states.append(h)
        return torch.stack(states, dim=1)


class Forecaster(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.memory = Memory(3, width)
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        return x + self.head(self.memory(x))


def trajectories(count, length, dt=0.02):
    state = torch.randn(count, 3) * 5 + torch.tensor([0.0, 0.0, 25.0])
    path = []
    for _ in range(length):
        x, y, z = state.unbind(dim=1)
        state = state + dt * torch.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], dim=1)
        path.append(state)
    return torch.stack(path, dim=1) / 20


def main():
    torch.manual_seed(0)
    paths = trajectories(256, 97)
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(50):
        batch = paths[torch.randint(len(paths), (32,))]
        loss = F.mse_loss(model(batch[:, :-1]), batch[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1}: loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
