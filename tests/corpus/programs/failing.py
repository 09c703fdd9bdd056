"""Training that ends in an error after three steps."""

import torch
from torch import nn

model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    if step == 3:
        raise SystemExit("the data ended")
    model(torch.randn(8, 16)).square().mean().backward()
    optimizer.step()
