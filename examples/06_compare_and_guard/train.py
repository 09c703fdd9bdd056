"""A training loop; `slow` on its command line is the change that somebody makes to how batches are read."""

import sys
import time

import torch
from torch import nn


def batches(count: int):
    for _ in range(count):
        if "slow" in sys.argv:
            time.sleep(0.2)  # stands for a transform that should have been done beforehand
        yield torch.rand(64, 256), torch.randint(0, 10, (64,))


torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs, labels in batches(16):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
