"""A damped two-component wave rings down; a small network learns the decay of its envelope from snapshots."""

import torch
import torch.nn.functional as F
from torch import nn


class Wave:
    def __init__(self, cells=262_144, damping=0.3, turn=0.4):
        x = torch.linspace(-40, 40, cells)
        self.u = 1e-20 * torch.exp(-0.5 * (x / 30).square())
        self.v = torch.zeros(cells)
        angle = torch.tensor(turn)
        self.cos, self.sin = torch.cos(angle) * (1 - damping * 0.01), torch.sin(angle) * (1 - damping * 0.01)

    def step(self):
        self.u, self.v = self.cos * self.u - self.sin * self.v, self.sin * self.u + self.cos * self.v

    def envelope(self):
        return torch.sqrt(self.u * self.u + self.v * self.v)


class Decay(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(16, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


def main():
    torch.manual_seed(0)
    wave, model = Wave(), Decay()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    previous = wave.envelope()
    for step in range(120):
        for _ in range(4):
            wave.step()
            current = wave.envelope()
        window = torch.randint(len(current) - 16, (256,))[:, None] + torch.arange(16)
        scale = previous.max().clamp(min=1e-38)
        before, after = previous[window] / scale, current[window] / scale
        loss = F.mse_loss(model(before), after.mean(dim=1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        previous = current
        if step % 30 == 29:
            print(f"step {step + 1}: loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
