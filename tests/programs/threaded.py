"""Training in a second thread while the first evaluates another model."""

import threading

import torch
from digest import report
from torch import nn

torch.manual_seed(0)
model, other = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)), nn.Linear(4, 2)
batches = [torch.randn(3, 4) for _ in range(20)]
losses, sums = [], []


def train():
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in batches:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


thread = threading.Thread(target=train)
thread.start()
with torch.no_grad():
    for x in batches:
        sums.append(other(x).sum().item())
thread.join()
report([*losses, *sums], model, other)
