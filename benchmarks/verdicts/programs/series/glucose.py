"""Predict blood sugar with a gated recurrent cell of its own making, compiled."""

import torch
from torch import nn


class Cell(nn.Module):
    """A gated cell with a leak, whose state is kept within bounds."""

    def __init__(self, inputs, width, bound=4.0):
        super().__init__()
        self.gates = nn.Linear(inputs + width, 2 * width)
        self.candidate = nn.Linear(inputs + width, width)
        self.bound = bound

    def forward(self, x, state):
        update, reset = self.gates(torch.cat([x, state], 1)).sigmoid().chunk(2, dim=1)
        proposed = torch.tanh(self.candidate(torch.cat([x, reset * state], 1)))
        state = (1 - update) * state + 1.5 * update * proposed
        if state.abs().max() > self.bound:
            state = state.clamp(-self.bound, self.bound)
        return state


class Predictor(nn.Module):
    def __init__(self, inputs=4, width=32):
        super().__init__()
        self.width = width
        self.cell = Cell(inputs, width)
        self.out = nn.Linear(width, 1)

    def forward(self, meals):
        state = meals.new_zeros(len(meals), self.width)
        for moment in range(meals.shape[1]):
            state = self.cell(meals[:, moment], state)
        return self.out(state).squeeze(1)


def patients(batch, generator):
    meals = torch.rand(batch, 12, 4, generator=generator)
    sugar = meals[:, -4:, 0].sum(1) - 0.5 * meals[:, -6:, 1].sum(1)
    return meals, sugar


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = Predictor()
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(250):
        meals, sugar = patients(32, generator)
        loss = nn.functional.mse_loss(compiled(meals), sugar)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
