"""A compiled network whose inputs change their shape; where asked for, all is forgotten before the last step."""

import sys

import torch
from digest import report
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
compiled = torch.compile(model, backend="aot_eager", dynamic=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(9):
    if step == 8 and "reset" in sys.argv:
        torch.compiler.reset()
    rows = 4 + (step % 3 if "shapes" in sys.argv else 0)
    loss = F.cross_entropy(compiled(torch.randn(rows, 6)), torch.randint(3, (rows,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
counters = torch._dynamo.utils.counters
print(sorted(counters["frames"].items()), sorted(counters["stats"].items()), len(counters["graph_break"]))
report(losses, model)
