"""One module called twice in a forward, one shared by two places, nesting, in-place activations."""

import torch
from digest import report
from torch import nn

torch.manual_seed(0)


class Pair(nn.Module):
    def __init__(self, common):
        super().__init__()
        self.first = common
        self.second = nn.Linear(5, 5)

    def forward(self, x):
        return self.second(self.first(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        common = nn.Linear(5, 5)
        self.left = Pair(common)
        self.right = Pair(common)
        self.act = nn.ReLU(inplace=True)
        self.twice = nn.Linear(5, 5)

    def forward(self, x):
        x = self.act(self.left(x))
        x = self.act(self.right(x))
        return self.twice(self.twice(x))


net = Net()
optimizer = torch.optim.RMSprop(net.parameters(), lr=0.01)
losses = []
for _ in range(4):
    loss = net(torch.randn(2, 5)).pow(2).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
report(losses, net)
