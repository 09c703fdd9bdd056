"""Training without an optimizer object."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 10))
for _ in range(25):
    loss = nn.functional.cross_entropy(model(torch.randn(16, 1, 16, 16)), torch.randint(10, (16,)))
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.01 * parameter.grad
            parameter.grad = None
