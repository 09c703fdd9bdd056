"""Edge-wise regression on a large mesh whose node features come feature by feature, as the simulation writes them."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(17)
NODES, EDGES, FEATURES, WIDTH = 150_000, 20_000, 96, 16


class EdgeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.message = nn.Linear(FEATURES, WIDTH)
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, x, source, target):
        difference = x.index_select(0, source) - x.index_select(0, target)
        return self.out(torch.tanh(self.message(difference))).squeeze(1)


def read_fields():
    """One row for every field, one column for every node."""
    phase = torch.linspace(0, 60, NODES)
    return torch.stack([torch.sin(phase * (i + 1) / 8) for i in range(FEATURES)])


fields = read_fields()
x = fields.t()
model = EdgeNet()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(60):
    source = torch.randint(NODES, (EDGES,))
    target = (source + torch.randint(1, 2000, (EDGES,))) % NODES
    wanted = torch.cos((target - source) / 300)
    loss = F.mse_loss(model(x, source, target), wanted)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1}: loss {loss.item():.4f}")
