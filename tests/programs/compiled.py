"""A model with a compiled part, a compiled function, and a graph that must stay whole (fullgraph)."""

import torch
from digest import report
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        body = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))
        self.body = torch.compile(body, backend="eager", fullgraph=True)
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.body(x))


@torch.compile(backend="aot_eager", fullgraph=True)
def objective(output, target):
    return (output - target).square().mean()


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
losses = []
for _ in range(5):
    loss = objective(net(torch.randn(4, 6)), torch.zeros(4, 2))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
report(losses, net)
print(torch._dynamo.utils.counters["stats"]["unique_graphs"], dict(torch._dynamo.utils.counters["graph_break"]))
