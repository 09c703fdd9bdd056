"""An emulator of surface currents that is trained on whole rollouts of its own."""

import torch
from torch import nn

CELLS = 1024


class Emulator(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.change = nn.Sequential(nn.Linear(CELLS, width), nn.Tanh(), nn.Linear(width, CELLS))

    def forward(self, state):
        return state + 0.1 * self.change(state)


def rollout(emulator, start, days):
    states = start.unsqueeze(0)
    for _ in range(days):
        states = torch.cat([states, emulator(states[-1]).unsqueeze(0)])
    return states[1:]


def ocean(start, days):
    """What a current does by itself: it travels and weakens."""
    return torch.stack([start.roll(day + 1, dims=1) * 0.98 ** (day + 1) for day in range(days)])


def main(steps=30, days=36, members=192):
    torch.manual_seed(71)
    emulator = Emulator()
    optimizer = torch.optim.Adam(emulator.parameters(), lr=5e-4)
    for step in range(steps):
        start = torch.randn(members, CELLS // 8).repeat_interleave(8, dim=1)
        loss = nn.functional.mse_loss(rollout(emulator, start, days), ocean(start, days))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
