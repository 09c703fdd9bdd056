"""An optimizer that calls forward and backward itself, three times a step."""

import torch
from digest import report
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
x, y = torch.randn(16, 4), torch.randn(16, 1)
criterion = nn.MSELoss()
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3, max_eval=3, tolerance_grad=0, tolerance_change=0)
losses = []
calls = 0


def closure():
    global calls
    calls += 1
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    return loss


for _ in range(4):
    losses.append(optimizer.step(closure).item())
report(losses, model)
print(calls)
