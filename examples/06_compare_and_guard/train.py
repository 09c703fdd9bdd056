"""A training loop whose hidden layer is as wide as the command line says."""

import sys

import torch
from torch import nn

width = int(sys.argv[1])
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, labels = torch.rand(64, 256), torch.randint(0, 10, (64,))
for _ in range(20):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
