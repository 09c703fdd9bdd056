"""Gradient accumulation: an optimizer step every three batches, twelve batches."""

import torch
from digest import report
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loader = DataLoader(TensorDataset(torch.randn(24, 5), torch.randn(24, 1)), batch_size=2)
criterion = nn.MSELoss()
losses = []
optimizer.zero_grad()
for number, (x, y) in enumerate(loader, start=1):
    loss = criterion(model(x), y) / 3
    loss.backward()
    losses.append(loss.item())
    if number % 3 == 0:
        optimizer.step()
        optimizer.zero_grad()
report(losses, model)
