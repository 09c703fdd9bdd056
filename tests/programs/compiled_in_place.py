"""`model.compile()`: the whole model compiled in place, trained and evaluated."""

import torch
from digest import report
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(6, 6), nn.Linear(6, 1)

    def forward(self, x):
        return self.out(self.hidden(x).sin())


model = Net()
model.compile(backend="aot_eager", fullgraph=True)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
losses = []
for _ in range(4):
    loss = model(torch.randn(4, 6)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
with torch.no_grad():
    losses.append(model(torch.randn(4, 6)).sum().item())
report(losses, model)
print(torch._dynamo.utils.counters["stats"]["unique_graphs"], dict(torch._dynamo.utils.counters["graph_break"]))
