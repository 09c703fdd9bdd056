"""Activation checkpointing of both kinds: two blocks whose forward runs again during backward."""

import torch
from digest import report
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(6, 6)
        self.reentrant = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.3))
        self.modern = nn.Sequential(nn.Linear(6, 6), nn.ReLU())
        self.head = nn.Linear(6, 1)

    def forward(self, x):
        x = self.stem(x)
        x = checkpoint(self.reentrant, x, use_reentrant=True)
        x = checkpoint(self.modern, x, use_reentrant=False)
        return self.head(x)


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
losses = []
for _ in range(5):
    x = torch.randn(3, 6)
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
report(losses, net)
