"""Modules made inside forward, modules in a plain list, a loss made anew at every step, a head exchanged half-way."""

import torch
from digest import report
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = [nn.Linear(4, 4), nn.Linear(4, 4)]
        self.heads = nn.ModuleList([nn.Linear(4, 1)])

    def forward(self, x):
        for layer in self.hidden:
            x = nn.Tanh()(layer(x))
        return self.heads[0](x)


net = Net()
losses = []
for step in range(6):
    if step == 3:
        net.heads[0] = nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*net.parameters(), *net.hidden[0].parameters()], lr=0.1)
    loss = nn.MSELoss()(net(torch.randn(2, 4)), torch.zeros(2, 1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
report(losses, net, *net.hidden)
