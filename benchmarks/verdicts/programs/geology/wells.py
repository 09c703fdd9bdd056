"""Rock types along a well from its logs: compiled residual blocks with a guard against values that run away."""

import torch
from torch import nn
from torch.nn import functional as F
from wells_parts.checks import Guard

ROCKS = 9


class Bed(nn.Module):
    def __init__(self, width, guard):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))
        self.mix = nn.Linear(width, width)
        self.guard = guard

    def forward(self, x):
        inner = F.silu(x * self.scale + self.shift)
        return x + 0.1 * self.guard.look(torch.tanh(self.mix(inner)))


class Column(nn.Module):
    def __init__(self, logs=7, window=9, width=48, beds=12):
        super().__init__()
        self.guard = Guard()
        self.enter = nn.Linear(logs * window, width)
        self.beds = nn.Sequential(*(Bed(width, self.guard) for _ in range(beds)))
        self.leave = nn.Linear(width, ROCKS)

    def forward(self, x):
        return self.leave(self.beds(self.enter(x)))


def drill(depths, logs, window):
    rock = torch.randint(ROCKS, (depths // 40,)).repeat_interleave(40)
    centre = torch.randn(ROCKS, logs)
    measured = centre[rock] + 0.5 * torch.randn(len(rock), logs)
    return measured.unfold(0, window, 1).flatten(1), rock[window // 2 : -(window // 2)]


def main(steps=400, batch=128):
    torch.manual_seed(19)
    windows, rock = drill(8000, 7, 9)
    model = Column()
    column = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(1, steps + 1):
        chosen = torch.randint(len(windows), (batch,))
        loss = F.cross_entropy(column(windows[chosen]), rock[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.4f}, largest {model.guard.largest:.3f}")


if __name__ == "__main__":
    main()
