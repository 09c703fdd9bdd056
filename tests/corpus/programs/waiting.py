"""Training that waits for a file server, which here is a sleep, before every step."""

import time

import torch
from torch import nn

model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 8))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(30):
    time.sleep(0.02)
    loss = model(torch.randn(64, 128)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
